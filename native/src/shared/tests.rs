//! Tests of the values that all workers share, and of files that processes leave when they are killed.

use std::io::{BufRead as _, BufReader};
use std::path::{Path, PathBuf};
use std::process::{Child, Command, Stdio};
use std::sync::LazyLock;

use loudou_store::memory::MemoryStore;
use loudou_store::{CAS_ABSENT, SharedData as _, StoreFailed};
use proptest::prelude::*;
use tempfile::TempDir;

use super::*;

/// Environment variable with the file of a process that is to be killed.
const CHILD: &str = "LOUDOU_TEST_FILE";
/// Environment variable with its restart epoch.
const EPOCH: &str = "LOUDOU_TEST_EPOCH";
/// Size of a value of [`writes_until_it_is_killed`] that is patched, in bytes.
const PATCHED: usize = 96;
/// Number of keys there.
const KEYS: u8 = 12;

/// Makes the moment longer in which a killed process leaves a value half written.
pub(super) fn write_slowly(shared: &Shared, place: u64, bytes: &[u8]) {
    static IS_CHILD: LazyLock<bool> = LazyLock::new(|| std::env::var_os(CHILD).is_some());
    if *IS_CHILD {
        for end in [bytes.len() / 3, bytes.len() / 2] {
            shared.write(place, &bytes[..end]).expect("in the file");
            for _ in 0..300 {
                std::hint::spin_loop();
            }
        }
    }
}

fn memory() -> Shared {
    Shared::anonymous(1_000).expect("memory")
}

fn file(name: &str) -> (TempDir, PathBuf) {
    let folder = tempfile::tempdir().expect("a folder");
    let path = folder.path().join(name);
    (folder, path)
}

fn opened(path: &Path, restart_epoch: u32) -> Result<(Shared, Option<String>), String> {
    let process = Process {
        format: 7,
        restart_epoch,
        base_id: Some(3),
    };
    let opened = open(path, 1_000, process, &|_| true);
    opened.map(|opened| (opened.shared, opened.note))
}

#[test]
fn a_write_requires_the_number_that_was_read() {
    let (shared, mut value) = (memory(), vec![9]);
    assert_eq!(shared.get(b"k", &mut value), None);
    assert!(value.is_empty());
    assert_eq!(shared.set(b"k", b"one", 0), Some(Written::Done));
    let cas = shared.get(b"k", &mut value).expect("a value");
    assert_eq!(value, b"one");
    assert_eq!(shared.set(b"k", b"two", cas), Some(Written::Done));
    assert_eq!(shared.set(b"k", b"three", cas), Some(Written::Conflict));
    let changed = shared.patch(b"k", &mut |value| {
        let mut patch = Patch::of(value, 1..2)?;
        patch.bytes_mut().copy_from_slice(b"0");
        Some(patch)
    });
    assert!(changed);
    let cas = shared.get(b"k", &mut value).expect("a value");
    assert_eq!((value.as_slice(), cas), (&b"t0o"[..], 3));
    assert_eq!(shared.set(b"k", b"four", 2), Some(Written::Conflict));
    assert!(!shared.patch(b"other", &mut |value| Patch::of(value, 0..0)));
    assert!(!shared.patch(b"k", &mut |_| None));
}

#[derive(Clone, Debug)]
enum Step {
    Set(u8, Vec<u8>, bool),
    Patch(u8, usize, u8),
}

fn step() -> impl Strategy<Value = Step> {
    let size = prop_oneof![8 => 0..300_usize, 1 => 0..9_000_usize];
    let value = (any::<u8>(), size).prop_map(|(byte, size)| vec![byte; size]);
    prop_oneof![
        (any::<u8>(), value, any::<bool>())
            .prop_map(|(key, value, stale)| Step::Set(key, value, stale)),
        (any::<u8>(), 0..300_usize, any::<u8>())
            .prop_map(|(key, at, byte)| Step::Patch(key, at, byte)),
    ]
}

proptest! {
    /// The store behaves as the model of Envoy's shared data, with far more values than its lines have room for, and
    /// so does the file after it was opened again.
    #[test]
    fn it_behaves_as_envoys_shared_data(steps in prop::collection::vec(step(), 1..300), reopens in any::<bool>()) {
        let (_folder, path) = file("values");
        let mut shared = open(&path, 1, Process::default(), &|_| true).expect("a file").shared;
        let mut model = MemoryStore::new();
        let (mut own, mut other) = (Vec::new(), Vec::new());
        for step in steps {
            let (Step::Set(key, ..) | Step::Patch(key, ..)) = step;
            let key = [b"some namespace:", &[key, b'k', 0, 0, 0, key][..]].concat();
            let cas = shared.get(&key, &mut own);
            let expected = model.get(&key, &mut other).expect("memory");
            prop_assert_eq!(cas.is_some(), expected.is_some());
            prop_assert_eq!(&own, &other);
            match step {
                Step::Set(_, value, stale) => {
                    let stale = u32::from(stale);
                    let cas = cas.map_or(CAS_ABSENT, |cas| cas + stale);
                    let expected = expected.map_or(CAS_ABSENT, |cas| cas + stale);
                    let written = shared.set(&key, &value, cas).ok_or(StoreFailed);
                    prop_assert_eq!(written, model.set(&key, &value, expected));
                }
                Step::Patch(_, at, byte) => {
                    let plan = |value: &[u8]| {
                        let mut patch = Patch::of(value, at..at + 7)?;
                        patch.bytes_mut().fill(byte);
                        Some(patch)
                    };
                    let patched = shared.patch(&key, &mut { plan });
                    prop_assert_eq!(patched, model.patch(&key, &mut { plan }));
                }
            }
        }
        if reopens {
            drop(shared);
            shared = open(&path, 1, Process::default(), &|_| true).expect("the file").shared;
        }
        for (key, value) in model.iter() {
            prop_assert!(shared.get(key, &mut own).is_some());
            prop_assert_eq!(&own, value);
        }
    }
}

#[test]
fn writers_lose_nothing() {
    let shared = memory();
    assert_eq!(shared.set(b"sum", &[0; 8], 0), Some(Written::Done));
    let read = |value: &[u8]| {
        let sum = value.first_chunk().expect("a number");
        u64::from_le_bytes(*sum)
    };
    thread::scope(|scope| {
        for patches in [true, true, false, false] {
            let shared = &shared;
            scope.spawn(move || {
                let (mut value, mut added) = (Vec::new(), 0);
                while added < 2_000 {
                    let is_done = if patches {
                        shared.patch(b"sum", &mut |value| {
                            let sum = read(value) + 1;
                            let mut patch = Patch::of(value, 0..8)?;
                            patch.bytes_mut().copy_from_slice(&sum.to_le_bytes());
                            Some(patch)
                        })
                    } else {
                        let cas = shared.get(b"sum", &mut value).expect("a value");
                        let sum = (read(&value) + 1).to_le_bytes();
                        shared.set(b"sum", &sum, cas) == Some(Written::Done)
                    };
                    added += u64::from(is_done);
                }
            });
        }
    });
    let mut value = Vec::new();
    shared.get(b"sum", &mut value);
    assert_eq!(read(&value), 8_000);
}

/// Full pages of buckets with one limit, and keys of eight bytes.
#[test]
fn a_bucket_takes_a_hundred_bytes() {
    const BUCKETS: u32 = 1 << 17;
    let shared = Shared::anonymous(BUCKETS).expect("memory");
    shared.expect_pages(page_of(16).len());
    for page in 0..BUCKETS / 16 {
        for slots in [1, 4, 9, 16] {
            let page = page.to_le_bytes();
            let key = [b"loudou:", &[KIND][..], &page].concat();
            assert_eq!(shared.set(&key, &page_of(slots), 0), Some(Written::Done));
            let key = [b"loudou:", &[NAMES_KIND][..], &page].concat();
            let names = vec![1; 3 + slots * 17];
            assert_eq!(shared.set(&key, &names, 0), Some(Written::Done));
        }
    }
    let end = shared.region.u64(END_AT).expect("a number");
    let bytes = end.load(Ordering::Relaxed) - LINES_START;
    let each = bytes / u64::from(BUCKETS);
    assert!(each <= 105, "{each} bytes");
}

/// Returns a page of buckets with one limit.
fn page_of(slots: usize) -> Vec<u8> {
    vec![1; 8 + slots * 65]
}

#[test]
fn a_file_has_its_values_and_gauges_when_it_is_opened_again() {
    let (_folder, path) = file("values");
    let (shared, note) = opened(&path, 0).expect("a new file");
    assert_eq!(note, None);
    shared.set(b"k", b"value", 0);
    let gauge = |shared: &Shared| {
        shared
            .gauge(Gauge::Generation)
            .map(|gauge| gauge.fetch_add(1, Ordering::Relaxed))
    };
    assert_eq!(gauge(&shared), Some(0));
    let pid = std::process::id();
    let refused = opened(&path, 0).map(|_| ()).expect_err("in use");
    assert!(
        refused.starts_with(&format!("process {pid} uses it")),
        "{refused}"
    );
    drop(shared);
    let (shared, note) = opened(&path, 0).expect("the file");
    assert_eq!((note, gauge(&shared)), (None, Some(1)));
    let mut value = Vec::new();
    assert_eq!(shared.get(b"k", &mut value), Some(1));
    assert_eq!(value, b"value");
    // A hot restart uses it, too, and a later Envoy does not.
    let (next, note) = opened(&path, 1).expect("a hot restart");
    assert_eq!(note, None);
    next.set(b"k", b"of the child", 1);
    shared.get(b"k", &mut value);
    assert_eq!(value, b"of the child");
    assert_eq!(opened(&path, 1).map(|_| ()).expect_err("in use"), refused);
    let mode = std::fs::metadata(&path).expect("a file");
    assert_eq!(
        std::os::unix::fs::PermissionsExt::mode(&mode.permissions()) & 0o777,
        0o600
    );
}

type Change = dyn Fn(&mut Vec<u8>);

#[test]
fn a_file_in_another_state_begins_empty_or_is_left_alone() {
    let other = |path: &Path, change: &dyn Fn(&mut Vec<u8>)| {
        let mut bytes = std::fs::read(path).expect("a file");
        change(&mut bytes);
        std::fs::write(path, &bytes).expect("a file");
        bytes
    };
    let empty = |why: &str| Ok(Some(format!("the file begins empty again: {why}")));
    let foreign = Err(
        "the file has other contents than buckets of Loudou; name another file, or remove this one",
    );
    let cases: [(&Change, Result<Option<String>, &str>); 11] = [
        (&|_| {}, Ok(None)),
        (&|bytes| bytes.clear(), Ok(None)),
        (
            &|bytes| bytes.truncate(13),
            empty("the file is shorter than it was"),
        ),
        (
            &|bytes| bytes.truncate(1_000),
            empty("the file is shorter than it was"),
        ),
        (
            &|bytes| bytes.truncate(bytes.len() - (1 << 20)),
            empty("the file is shorter than it was"),
        ),
        (&|bytes| bytes.fill(b'x'), foreign.clone()),
        (&|bytes| bytes.fill(0), foreign.clone()),
        (&|bytes| *bytes = b"version: 1\n".to_vec(), foreign),
        (
            &|bytes| bytes[8] ^= 1,
            empty("another version of Loudou wrote the file"),
        ),
        (
            &|bytes| bytes[32] ^= 1,
            empty("the system was restarted since"),
        ),
        (
            &|bytes| bytes[16] ^= 1,
            empty("store.buckets was 1001 and is 1000"),
        ),
    ];
    for (place, (change, expected)) in cases.into_iter().enumerate() {
        let (_folder, path) = file("values");
        let (shared, _) = opened(&path, 0).expect("a new file");
        shared.set(b"k", &vec![7; 1 << 21], 0);
        drop(shared);
        let before = other(&path, change);
        let found = opened(&path, 0);
        match expected {
            Ok(note) => {
                let (shared, found) = found.expect("a file");
                assert_eq!(found, note, "case {place}");
                let mut value = Vec::new();
                assert_eq!(shared.get(b"k", &mut value).is_some(), place == 0);
                assert_eq!(shared.set(b"new", b"value", 0), Some(Written::Done));
            }
            Err(why) => {
                assert_eq!(found.map(|_| ()).expect_err("not ours"), why);
                assert!(
                    std::fs::read(&path).expect("a file") == before,
                    "it is untouched"
                );
            }
        }
    }
    let (folder, _) = file("values");
    assert!(opened(folder.path(), 0).is_err());
    assert!(opened(&folder.path().join("none").join("values"), 0).is_err());
}

/// What the file has room for goes on, and what it has no room for is refused and reported.
#[test]
fn a_full_disk_stops_new_values_only() {
    let (_folder, path) = file("values");
    let (mut shared, _) = opened(&path, 0).expect("a new file");
    shared.expect_pages(900);
    shared.reserve(1_000).expect("room");
    shared.region.fill_disk();
    let key = |number: u32| [b"ns:", &[KIND][..], &number.to_le_bytes()].concat();
    let names = |number: u32| [b"ns:", &[NAMES_KIND][..], &number.to_le_bytes()].concat();
    // A page and its names for each 16 buckets are sure of their room.
    for number in 0..1_000_u32.div_ceil(16) {
        assert_eq!(shared.set(&key(number), &[1; 900], 0), Some(Written::Done));
        assert_eq!(
            shared.set(&names(number), &[1; 400], 0),
            Some(Written::Done)
        );
    }
    assert!(!shared.is_full());
    let more = (100..100_000).find(|number| shared.set(&key(*number), &[1; 900], 0).is_none());
    assert!(more.is_some() && shared.is_full());
    let patched = shared.patch(&key(0), &mut |value| Patch::of(value, 0..8));
    assert!(patched, "a value in the file changes in place");
    let mut value = Vec::new();
    assert_eq!(shared.get(&key(0), &mut value), Some(2));
}

/// A process takes a lock of an earlier one with its number for the lock of a dead thread.
#[test]
fn a_number_that_is_given_out_again_is_another_process() {
    let (_folder, path) = file("values");
    let (first, _) = opened(&path, 0).expect("a new file");
    let own = first.own().expect("a number");
    assert!(first.is_alive(own));
    drop(first);
    let (second, _) = opened(&path, 0).expect("the file");
    assert_ne!(second.own(), Some(own));
    assert_eq!(process_of(own), second.process);
    assert!(!second.is_alive(own));
    let (third, _) = opened(&path, 1).expect("a hot restart");
    assert!(!third.is_alive(own));
    assert!(third.is_alive(second.own().expect("a number")));
}

/// Values that the caller cannot read are no longer used.
#[test]
fn values_that_are_not_sound_begin_empty() {
    let (_folder, path) = file("values");
    let (shared, _) = opened(&path, 0).expect("a new file");
    shared.set(b"k", b"value", 0);
    drop(shared);
    let process = Process {
        format: 7,
        base_id: Some(3),
        restart_epoch: 0,
    };
    let opened = open(&path, 1_000, process, &|shared| {
        shared.get(b"k", &mut Vec::new()).is_none()
    });
    let opened = opened.expect("the file");
    let why = "the file begins empty again: its contents are damaged";
    assert_eq!(opened.note.as_deref(), Some(why));
    assert_eq!(opened.shared.get(b"k", &mut Vec::new()), None);
}

/// Random damage never makes a file that crashes, hangs, or has a value of another key.
#[test]
fn damage_loses_values_and_nothing_else() {
    let (_folder, path) = file("values");
    let (shared, _) = opened(&path, 0).expect("a new file");
    let key = |number: u32| number.to_le_bytes().repeat(5);
    for number in 0..500 {
        shared.set(&key(number), &key(number).repeat(9), 0);
    }
    drop(shared);
    let sound = std::fs::read(&path).expect("a file");
    let start = usize::try_from(LINES_START).expect("small");
    let mut state = 99_u64;
    let mut random = move |below: usize| {
        state = state
            .wrapping_mul(6_364_136_223_846_793_005)
            .wrapping_add(1);
        usize::try_from(state >> 33).expect("31 bits") % below
    };
    for _ in 0..60 {
        let mut bytes = sound.clone();
        for _ in 0..=random(40) {
            // Mostly where the lines and the blocks are.
            let place = start + random(500 * 256);
            bytes[place] ^= 1 << random(8);
        }
        std::fs::write(&path, &bytes).expect("a file");
        let (shared, _note) = opened(&path, 0).expect("it is opened");
        let mut value = Vec::new();
        let there = (0..500).filter(|number| shared.get(&key(*number), &mut value).is_some());
        there.for_each(drop);
        for number in 0..600 {
            let written = shared.set(&key(number), b"new", 0);
            assert_eq!(written, Some(Written::Done));
            shared.get(&key(number), &mut value);
            assert_eq!(value, b"new");
        }
    }
}

/// Writes until the parent kills this process: numbers that only rise, eight times the same in each value.
#[test]
fn writes_until_it_is_killed() {
    let Some(path) = std::env::var_os(CHILD).map(PathBuf::from) else {
        return;
    };
    let epoch = std::env::var(EPOCH).expect("set").parse();
    let (shared, note) = opened(&path, epoch.expect("a number")).expect("the parent's file");
    assert_eq!(note, None);
    thread::scope(|scope| {
        for thread in 0..3_u64 {
            let shared = &shared;
            scope.spawn(move || {
                let mut turn = thread;
                loop {
                    turn += 1;
                    write(shared, turn);
                    if turn == thread + 100 {
                        println!("\nunder way");
                    }
                }
            });
        }
    });
}

fn key(number: u8) -> Vec<u8> {
    [b"key ", &[b'k', 0, 0, 0, number][..]].concat()
}

fn number_in(value: &[u8]) -> u64 {
    let (numbers, _) = value.as_chunks::<8>();
    let first = numbers.first().expect("a number");
    let patched = &numbers[..PATCHED / 8];
    assert!(
        patched.iter().all(|number| number == first),
        "{value:?} is half written"
    );
    u64::from_le_bytes(*first)
}

fn write(shared: &Shared, turn: u64) {
    let key = key(u8::try_from(turn % u64::from(KEYS)).expect("small"));
    let number = |value: &[u8]| (number_in(value) + 1).to_le_bytes().repeat(PATCHED / 8);
    if turn.is_multiple_of(3) {
        let mut value = Vec::new();
        let cas = shared.get(&key, &mut value).expect("a value");
        let size = usize::try_from(turn % 7 * 64).expect("small");
        let new = [number(&value), vec![0; size]].concat();
        assert!(shared.set(&key, &new, cas).is_some());
    } else {
        let patched = shared.patch(&key, &mut |value| {
            let mut patch = Patch::of(value, 0..PATCHED)?;
            patch.bytes_mut().copy_from_slice(&number(value));
            Some(patch)
        });
        assert!(patched);
    }
}

fn numbers(shared: &Shared) -> Vec<u64> {
    let mut value = Vec::new();
    let keys = (0..KEYS).map(key);
    keys.map(|key| {
        shared.get(&key, &mut value).expect("a value");
        number_in(&value)
    })
    .collect()
}

/// Starts a process that writes, and waits until it does.
fn child(path: &Path, restart_epoch: u32) -> Child {
    let own = std::env::current_exe().expect("a path");
    let mut command = Command::new(own);
    command.args([
        "--exact",
        "shared::tests::writes_until_it_is_killed",
        "--nocapture",
    ]);
    command.env(CHILD, path).stdout(Stdio::piped());
    command.env(EPOCH, restart_epoch.to_string());
    let mut child = command.spawn().expect("a process");
    let output = BufReader::new(child.stdout.as_mut().expect("a pipe"));
    let mut lines = output.lines().map_while(Result::ok);
    let is_under_way = lines.any(|line| line.ends_with("under way"));
    assert!(is_under_way, "the child fails");
    child
}

fn kill(mut child: Child) {
    child.kill().expect("it runs");
    child.wait().expect("it was killed");
}

/// No value is half written after a process was killed, none is older than it was seen before, and neither locks nor
/// blocks of the dead process are lost: alone, as the first process of a hot restart, and as the second one.
#[test]
fn a_killed_process_leaves_sound_values() {
    let (_folder, path) = file("values");
    let (shared, _) = opened(&path, 0).expect("a new file");
    for number in 0..KEYS {
        shared.set(&key(number), &[0; PATCHED], 0);
    }
    let mut seen = numbers(&shared);
    let mut end = 0;
    drop(shared);
    for round in 0..60_u64 {
        match round % 3 {
            0 => kill(child(&path, 0)),
            1 => {
                let first = child(&path, 0);
                let (second, _) = opened(&path, 1).expect("a hot restart");
                for turn in 0..round * 20 {
                    write(&second, turn);
                }
                seen = not_below(&seen, &second);
                kill(first);
                seen = not_below(&seen, &second);
                for turn in 0..u64::from(KEYS) * 3 {
                    write(&second, turn);
                }
            }
            _ => {
                let (first, _) = opened(&path, 0).expect("the file");
                for _ in 0..2 {
                    kill(child(&path, 1));
                }
                // What the child left is found by the first process, or when the file is opened again.
                if round % 2 == 0 {
                    seen = not_below(&seen, &first);
                }
            }
        }
        let (alone, note) = opened(&path, 0).expect("the file");
        assert_eq!(note, None);
        seen = not_below(&seen, &alone);
        if round == 9 {
            end = alone
                .region
                .u64(END_AT)
                .expect("a number")
                .load(Ordering::Relaxed);
        }
    }
    let (shared, _) = opened(&path, 0).expect("the file");
    let grown = shared
        .region
        .u64(END_AT)
        .expect("a number")
        .load(Ordering::Relaxed)
        - end;
    assert!(grown < 50_000, "{grown} bytes of blocks were lost");
}

/// Returns the numbers in a file, which may not be below the numbers that were seen before.
fn not_below(seen: &[u64], shared: &Shared) -> Vec<u64> {
    let now = numbers(shared);
    let is_sound = seen.iter().zip(&now).all(|(seen, now)| seen <= now);
    assert!(is_sound, "{seen:?} became {now:?}");
    now
}

#[test]
fn the_command_line_says_who_restarts_whom() {
    let read = |line: &'static str| Process::of(1, &line.split(' '));
    let first = read("envoy --base-id-path f --base-id 7 -c x.yaml");
    assert_eq!((first.restart_epoch, first.base_id), (0, Some(7)));
    let second = read("envoy --restart-epoch 1 --base-id=7");
    assert!(second.follows(0, 8), "base identifiers are stored plus one");
    assert!(!second.follows(1, 8));
    assert!(!second.follows(0, 9));
    assert!(second.follows(0, 0), "an identifier that Envoy chose");
    assert!(!read("envoy").follows(0, 0));
}
