//! Recordings that are written and read back, and those that are damaged, cut short, newer or hostile.

use std::io::Cursor;

use flate2::Compression;
use flate2::write::GzEncoder;
use loudou_api::{BanBy, BanView, BucketState, Event, EventKind};
use proptest::prelude::*;
use std::io::Write as _;
use std::sync::{Arc, Mutex};

use super::reader::Entry;
use super::*;
use crate::app::fixture::{S, UNIX_MS, snapshot};
use crate::app::msg::{Failure, Snapshot};

mod damaged;

/// A file in memory that outlives its writer.
#[derive(Clone, Default)]
struct Memory(Arc<Mutex<Vec<u8>>>);

impl std::io::Write for Memory {
    fn write(&mut self, buffer: &[u8]) -> std::io::Result<usize> {
        self.0.lock().expect("no panic").extend_from_slice(buffer);
        Ok(buffer.len())
    }

    fn flush(&mut self) -> std::io::Result<()> {
        Ok(())
    }
}

impl Memory {
    fn bytes(&self) -> Vec<u8> {
        self.0.lock().expect("no panic").clone()
    }
}

const URLS: [&str; 2] = ["http://127.0.0.1:9911", "http://127.0.0.1:9912"];

fn head() -> Head {
    Head {
        loudou_recording: FORMAT,
        version: "0.1.0".to_owned(),
        unix_ms: UNIX_MS,
        interval_ns: S,
        urls: URLS.map(ToOwned::to_owned).to_vec(),
    }
}

const fn stamp(second: u64) -> Stamp {
    Stamp {
        at_ns: second * S,
        unix_ms: UNIX_MS + second * 1_000,
    }
}

/// The first line of a recording in this version of the format.
pub(crate) fn first_line(version: u64) -> String {
    let head = Head {
        loudou_recording: version,
        ..head()
    };
    serde_json::to_string(&head).expect("serialises") + "\n"
}

/// A whole recording, compressed.
pub(crate) fn demo() -> Vec<u8> {
    recorded(&answers(10), true, Some(End::Done))
}

type Answer = Result<Box<Snapshot>, Failure>;

/// The bytes of a recording of these answers, one a second.
pub(crate) fn recorded(
    answers: &[(usize, Answer)],
    is_compressed: bool,
    end: Option<End>,
) -> Vec<u8> {
    let memory = Memory::default();
    let out = Box::new(memory.clone());
    let mut writer = Writer::new(out, is_compressed, None, &head()).expect("writes");
    for (second, (envoy, answer)) in (1..).zip(answers) {
        let is_written = writer.entry(stamp(second), URLS[*envoy], answer);
        assert!(is_written.expect("writes"));
    }
    match end {
        Some(end) => writer
            .finish(stamp(crate::num::count(answers.len())), end)
            .expect("writes"),
        // Killed: what dropping it would write is not in the file.
        None => return memory.bytes(),
    }
    memory.bytes()
}

fn open(bytes: &[u8]) -> Result<Tape, Bad> {
    Tape::open(Box::new(Cursor::new(bytes.to_vec())))
}

/// All answers of a recording.
fn entries(tape: &mut Tape) -> Vec<(usize, Entry)> {
    let marks = tape.marks.clone();
    let read = marks
        .iter()
        .map(|mark| (mark.envoy, tape.read(mark).expect("reads")));
    read.collect()
}

/// Polls of the made-up server, every third without an answer.
fn answers(many: u64) -> Vec<(usize, Answer)> {
    let answer = |poll: u64| {
        let envoy = usize::from(poll % 2 == 1);
        if poll % 3 == 2 {
            let text = format!("cannot reach {}", URLS[envoy]);
            return (
                envoy,
                Err(Failure {
                    text,
                    ..Failure::default()
                }),
            );
        }
        (envoy, Ok(Box::new(snapshot(poll))))
    };
    (0..many).map(answer).collect()
}

fn as_entries(answers: &[(usize, Answer)]) -> Vec<(usize, Entry)> {
    let entry = |(envoy, answer): &(usize, Answer)| {
        let answer = answer.clone().map_err(|failure| failure.text);
        (*envoy, answer)
    };
    answers.iter().map(entry).collect()
}

#[test]
fn what_was_written_is_read() {
    let answers = answers(100);
    for is_compressed in [false, true] {
        for end in [
            Some(End::Done),
            Some(End::Interrupted),
            Some(End::Full),
            None,
        ] {
            let bytes = recorded(&answers, is_compressed, end);
            assert_eq!(
                bytes.starts_with(b"{\"loudou_recording\":1,"),
                !is_compressed
            );
            let mut tape = open(&bytes).expect("opens");
            assert_eq!(tape.head, head());
            let ending = end.map_or(Ending::Cut, Ending::Said);
            assert_eq!(tape.ending, ending);
            assert!(entries(&mut tape) == as_entries(&answers), "{end:?}");
            let first = tape.marks[0];
            assert_eq!((first.line, first.stamp), (2, stamp(1)));
            assert!(first.has_rules && first.has_events);
            assert!(!tape.marks[1].has_rules && !tape.marks[1].has_events);
        }
    }
}

/// Lines are read in any order, also where a compressed file has several members or a single one.
#[test]
fn any_line_is_read_by_its_place() {
    let answers = answers(300);
    let expected = as_entries(&answers);
    let plain = recorded(&answers, false, Some(End::Done));
    assert!(plain.len() > 2 << 20, "several members: {}", plain.len());
    let mut whole = GzEncoder::new(Vec::new(), Compression::fast());
    whole.write_all(&plain).expect("writes");
    let one_member = whole.finish().expect("writes");
    let members = recorded(&answers, true, Some(End::Done));
    for bytes in [plain, one_member, members] {
        let mut tape = open(&bytes).expect("opens");
        let marks = tape.marks.clone();
        for at in [299, 0, 150, 151, 149, 3, 298, 298] {
            let read = tape.read(&marks[at]).expect("reads");
            assert!(read == expected[at].1, "{at}");
        }
    }
}

/// Wherever a file is cut, what came before is read.
#[test]
fn a_cut_file_is_read_up_to_its_end() {
    let answers = answers(12);
    let expected = as_entries(&answers);
    for is_compressed in [false, true] {
        let bytes = recorded(&answers, is_compressed, Some(End::Done));
        let step = bytes.len() / 50;
        let mut most = 0;
        for length in (0..bytes.len() - 30).step_by(step) {
            match open(&bytes[..length]) {
                Ok(mut tape) => {
                    assert_eq!(tape.ending, Ending::Cut, "{length}");
                    let read = entries(&mut tape);
                    assert!(read[..] == expected[..read.len()], "{length}");
                    assert!(read.len() >= most, "{length}");
                    most = read.len();
                }
                Err(bad) => assert!(most == 0 && bad.line == 1, "{length}: {bad}"),
            }
        }
        assert!(most >= 10, "{most}");
    }
}

/// A file of at most so many bytes is one that can be read, and its last line says why it ends.
#[test]
fn a_full_file_has_an_end() {
    for is_compressed in [false, true] {
        for most in [2_000, 60_000, 200_000] {
            let memory = Memory::default();
            let out = Box::new(memory.clone());
            let mut writer = Writer::new(out, is_compressed, Some(most), &head()).expect("writes");
            let mut polls = 0;
            while writer
                .entry(stamp(polls), URLS[0], &Ok(Box::new(snapshot(polls))))
                .expect("writes")
            {
                polls += 1;
            }
            assert_eq!(writer.bytes(), crate::num::count(memory.bytes().len()));
            writer.finish(stamp(polls), End::Full).expect("writes");
            let bytes = memory.bytes();
            assert!(
                crate::num::count(bytes.len()) <= most,
                "{} of {most}",
                bytes.len()
            );
            match open(&bytes) {
                Ok(tape) => {
                    assert_eq!(tape.ending, Ending::Said(End::Full));
                    assert_eq!(crate::num::count(tape.marks.len()), polls);
                }
                Err(bad) => assert!(polls == 0 && most == 2_000, "{bad}"),
            }
        }
    }
}

/// Whatever Envoys and clients sent, a recorded file is safe to print.
#[test]
fn the_file_is_safe_for_a_terminal() {
    let mut snapshot = snapshot(0);
    snapshot.buckets[0].1.key = "a\u{9b}2Jb\u{202e}c\u{1b}".to_owned();
    let bytes = recorded(&[(0, Ok(Box::new(snapshot)))], false, Some(End::Done));
    let text = String::from_utf8(bytes).expect("text");
    assert!(!text.chars().any(|c| c != '\n' && crate::text::is_unsafe(c)));
}

prop_compose! {
    fn a_snapshot()(
        poll in 0_u64..1_000,
        texts in prop::collection::vec(any::<String>(), 8),
        numbers in prop::collection::vec(any::<u64>(), 8),
        flags in prop::collection::vec(any::<bool>(), 4),
        state in prop::sample::select(BucketState::ALL.to_vec()),
    ) -> Snapshot {
        let mut snapshot = snapshot(poll % 3);
        let text = |at: usize| texts[at].clone();
        snapshot.status.instance = text(0);
        snapshot.status.now_ns = numbers[0];
        snapshot.status.warnings = vec![text(1)];
        for (place, (at_ns, bucket)) in snapshot.buckets.iter_mut().enumerate() {
            let number = numbers[place % numbers.len()];
            (*at_ns, bucket.admitted, bucket.refused) = (number, number, number / 3);
            bucket.key = texts[place % texts.len()].clone();
            (bucket.state, bucket.shadow) = (state, flags[0]);
            bucket.ban = flags[1].then_some(BanView {
                until_ns: flags[2].then_some(number),
                by: BanBy::Operator,
            });
        }
        snapshot.truncated = flags[2];
        snapshot.searching = flags[3].then_some(numbers[1]);
        snapshot.gone = vec![crate::app::rows::BucketName::new(&text(2), &text(3))];
        snapshot.events.push(Event {
            seq: numbers[2],
            at_ns: numbers[3],
            kind: if flags[0] { EventKind::Ban } else { EventKind::Warning },
            key: flags[1].then(|| text(4)),
            by: text(5),
            reason: text(6),
            ..Event::default()
        });
        (snapshot.last_seq, snapshot.events_lost) = (numbers[4], numbers[5]);
        snapshot
    }
}

proptest! {
    #![proptest_config(ProptestConfig::with_cases(64))]

    #[test]
    fn a_snapshot_read_back_is_equal(snapshot in a_snapshot(), is_compressed in any::<bool>()) {
        let bytes = recorded(&[(1, Ok(Box::new(snapshot.clone())))], is_compressed, None);
        let mut tape = open(&bytes).expect("opens");
        let read = entries(&mut tape);
        prop_assert_eq!(&read[0], &(1, Ok(Box::new(snapshot))));
    }
}
