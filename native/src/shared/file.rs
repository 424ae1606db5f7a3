//! Opens a store in a file, and checks or repairs the file before use.
//!
//! Only one Envoy at a time uses a file. The exception is a hot restart, during which the old and the new process share
//! the file. If no other process has the file open, the opening process undoes unfinished changes of the previous
//! process, checks all references, and rebuilds the free lists. If this version cannot use the file, it replaces the
//! contents with an empty store, and the caller logs a warning. Loudou never writes to a file that it did not create.

use std::fs;
use std::path::Path;
use std::process;
use std::sync::atomic::Ordering;
use std::time::Duration;

use loudou_store::page;

use super::region::Region;
use super::{
    AREA_BYTES, AREAS_AT, BLOCK_HEAD, BOOT_AT, BUCKETS_AT, CREATING, END_AT, END_LOCK_AT,
    FORMAT_AT, Gauge, IS_CHANGING_AT, KEY_SIZE_AT, LINES_AT, LINES_START, LIST_BYTES, LISTS,
    LISTS_AT, LOCK_AT, MAGIC, MAGIC_AT, NEXT_AT, OPENED_AT, PROCESS_BYTES, PROCESSES, PROCESSES_AT,
    REFERENCES, Shared, THREADS, UNIT, UNITS_AT, VALUE_SIZE_AT, process_of,
};
use crate::clock;

/// Version of the file layout. The values in the file have their own versions.
const LAYOUT: u32 = 1;
/// Number that a process claims while it opens the file.
const OPENING: u32 = PROCESSES;
/// Maximum number of pauses while another process is opening the file, or has the file open and may be about to end.
const WAITS: u32 = 100;
/// Length of each pause.
const PAUSE: Duration = Duration::from_millis(10);

/// Identity of this process, for other processes that open the same file.
#[derive(Clone, Copy, Debug, Default)]
pub(crate) struct Process {
    /// Combined version of all values in the file.
    pub(crate) format: u32,
    /// Envoy's restart epoch: the number of hot restarts before this process.
    pub(crate) restart_epoch: u32,
    /// Envoy's base identifier, which is the same in both processes of a hot restart. `None` if it is not set on the
    /// command line.
    pub(crate) base_id: Option<u64>,
}

impl Process {
    /// Reads the restart epoch and the base identifier from the command line of this process.
    pub(crate) fn read(format: u32) -> Self {
        let line = fs::read("/proc/self/cmdline").unwrap_or_default();
        let line = String::from_utf8_lossy(&line).into_owned();
        Self::of(format, &line.split('\0'))
    }

    pub(super) fn of<'a>(format: u32, words: &(impl Iterator<Item = &'a str> + Clone)) -> Self {
        let option = |name: &str| -> Option<&'a str> {
            let mut words = words.clone();
            while let Some(word) = words.next() {
                match word.strip_prefix(name) {
                    Some("") => return words.next(),
                    Some(rest) if rest.starts_with('=') => return rest.get(1..),
                    _ => {}
                }
            }
            None
        };
        let epoch = option("--restart-epoch").and_then(|epoch| epoch.parse().ok());
        Self {
            format,
            restart_epoch: epoch.unwrap_or(0),
            base_id: option("--base-id").and_then(|id| id.parse().ok()),
        }
    }

    /// Returns true if this process is a hot restart of the process with this restart epoch and base identifier.
    pub(super) fn follows(self, restart_epoch: u32, base_id: u64) -> bool {
        let base_id = base_id.checked_sub(1);
        let is_same = base_id.is_none() || self.base_id.is_none() || base_id == self.base_id;
        self.restart_epoch > restart_epoch && is_same
    }
}

/// An open file.
#[derive(Debug)]
pub(crate) struct Opened {
    pub(crate) shared: Shared,
    /// Reason why the contents were replaced with an empty store, or a description of the repaired damage.
    pub(crate) note: Option<String>,
}

/// Opens the file at `path` for this many buckets, and creates it if necessary. Keeps the values of an earlier process
/// if `is_sound` returns true for them. Returns an error message if the file cannot be used.
pub(crate) fn open(
    path: &Path,
    buckets: u32,
    process: Process,
    is_sound: &dyn Fn(&Shared) -> bool,
) -> Result<Opened, String> {
    let region = Region::open(path).map_err(|error| error.to_string())?;
    let mut waits = 0..WAITS;
    while !region.claim(OPENING) {
        waits.next().ok_or("another process is opening it")?;
        clock::sleep(PAUSE);
    }
    let size = region.size().map_err(|error| error.to_string())?;
    region.see(size);
    while refusal(&region, process).is_some() && waits.next().is_some() {
        clock::sleep(PAUSE);
    }
    let opened = open_alone(region, (size, buckets), process, is_sound)?;
    opened.shared.region.release(OPENING);
    Ok(opened)
}

fn open_alone(
    region: Region,
    (size, buckets): (u64, u32),
    process: Process,
    is_sound: &dyn Fn(&Shared) -> bool,
) -> Result<Opened, String> {
    if let Some(refusal) = refusal(&region, process) {
        return Err(refusal);
    }
    let is_restart = users(&region).next().is_some();
    let why = match examine(&region, size, buckets, process) {
        Examined::Foreign => {
            return Err(
                "the file has other contents than buckets of Loudou; name another file, or \
                        remove this one"
                    .to_owned(),
            );
        }
        Examined::Unusable(why) if is_restart => {
            return Err(format!(
                "the process before this hot restart uses it: {why}"
            ));
        }
        Examined::Unusable(why) => Some(why),
        Examined::New => None,
        Examined::Usable => {
            let shared = attach(region, process)?;
            if is_restart {
                return Ok(Opened { shared, note: None });
            }
            let filled = shared.region.fill();
            filled.map_err(|error| format!("the file has holes that cannot be filled: {error}"))?;
            let lost = shared.recover().filter(|_| is_sound(&shared));
            let Some(lost) = lost else {
                let why = Some("its contents are damaged".to_owned());
                return begin(shared.region, buckets, (process, shared.process), why);
            };
            let note = (lost > 0).then(|| format!("{lost} damaged value(s) were dropped"));
            return Ok(Opened { shared, note });
        }
    };
    let number = claim(&region)?;
    begin(region, buckets, (process, number), why)
}

/// Replaces the contents of a file, for which this process holds a number, with an empty store.
fn begin(
    region: Region,
    buckets: u32,
    (process, number): (Process, u32),
    why: Option<String>,
) -> Result<Opened, String> {
    let full = |error: std::io::Error| format!("the file cannot be made large enough: {error}");
    region.clear(&CREATING.to_le_bytes()).map_err(full)?;
    let shared = Shared::create(region, buckets, number).map_err(full)?;
    let named = || {
        let region = &shared.region;
        region
            .u32(FORMAT_AT)?
            .store(format_of(process), Ordering::Relaxed);
        for (place, part) in boot().into_iter().zip([BOOT_AT, BOOT_AT + 8]) {
            region.u64(part)?.store(place, Ordering::Relaxed);
        }
        shared.introduce(process)?;
        // If the process is killed before it writes the magic number, the next process creates the file again.
        region.u64(MAGIC_AT)?.store(MAGIC, Ordering::Release);
        Some(())
    };
    named().ok_or("the file cannot be mapped")?;
    let note = why.map(|why| format!("the file begins empty again: {why}"));
    Ok(Opened { shared, note })
}

enum Examined {
    /// The file is empty, or its creation was interrupted.
    New,
    /// The file was not created by Loudou.
    Foreign,
    /// The file was created by Loudou but cannot be used, for this reason.
    Unusable(String),
    Usable,
}

fn examine(region: &Region, size: u64, buckets: u32, process: Process) -> Examined {
    if size == 0 {
        return Examined::New;
    }
    region.see(size);
    let number = |at| Some(region.u64(at)?.load(Ordering::Acquire));
    let small = |at| {
        region
            .u32(at)
            .map_or(0, |number| number.load(Ordering::Relaxed))
    };
    match number(MAGIC_AT) {
        Some(MAGIC) => {}
        // A process died while it was creating the file.
        Some(CREATING) => return Examined::New,
        _ => return Examined::Foreign,
    }
    let format = small(FORMAT_AT);
    let lines = u64::from(small(LINES_AT));
    let end = number(END_AT).unwrap_or(0);
    let start = LINES_START.saturating_add(lines.saturating_mul(UNIT));
    let is_booted = [BOOT_AT, BOOT_AT + 8].map(number) == boot().map(Some);
    let opened = number(OPENED_AT).unwrap_or(0);
    let is_whole = lines > 0 && (start..=size).contains(&end) && end.is_multiple_of(UNIT);
    let shorter = "the file is shorter than it was";
    let why = if size < LINES_START {
        shorter.to_owned()
    } else if format != format_of(process) {
        "another version of Loudou wrote the file".to_owned()
    } else if !is_booted || opened > clock::now().get() {
        "the system was restarted since".to_owned()
    } else if small(BUCKETS_AT) != buckets {
        format!("store.buckets was {} and is {buckets}", small(BUCKETS_AT))
    } else if !is_whole {
        shorter.to_owned()
    } else {
        return Examined::Usable;
    };
    Examined::Unusable(why)
}

/// Attaches to a usable file, either alone or together with the previous process of a hot restart.
fn attach(region: Region, process: Process) -> Result<Shared, String> {
    let number = claim(&region)?;
    let ready = || {
        let lines = region.u32(LINES_AT)?.load(Ordering::Relaxed);
        let shared = Shared::new(region, number, lines.into())?;
        // A dead process may have used the same number. Its locks must be released before this process could mistake
        // them for its own.
        shared.release_locks_of(number)?;
        shared.introduce(process)?;
        Some(shared)
    };
    ready().ok_or_else(|| "the file cannot be mapped".to_owned())
}

fn claim(region: &Region) -> Result<u32, String> {
    let mut numbers = 0..PROCESSES;
    let number = numbers.find(|number| region.claim(*number));
    number.ok_or_else(|| "too many processes use it".to_owned())
}

/// Returns the numbers of the other processes that have the file open.
fn users(region: &Region) -> impl Iterator<Item = u32> {
    (0..PROCESSES).filter(|number| region.is_claimed(*number))
}

/// Returns the reason why this process must not use the file, if another process uses it and this process is not the
/// hot restart of that process.
fn refusal(region: &Region, process: Process) -> Option<String> {
    users(region).find_map(|other| {
        let at = PROCESSES_AT + u64::from(other) * PROCESS_BYTES;
        let small = |at| Some(region.u32(at)?.load(Ordering::Relaxed));
        let base_id = region.u64(at + 8).map(|base| base.load(Ordering::Relaxed));
        let before = small(at + 4).zip(base_id);
        let is_replaced = before.is_some_and(|(epoch, base_id)| process.follows(epoch, base_id));
        let pid = small(at).unwrap_or(0);
        (!is_replaced).then(|| {
            format!(
                "process {pid} uses it; each Envoy, and each store.namespace of an Envoy, needs a \
                 file of its own"
            )
        })
    })
}

impl Shared {
    /// Writes this process's identity into the file header.
    fn introduce(&self, process: Process) -> Option<()> {
        let at = PROCESSES_AT + u64::from(self.process) * PROCESS_BYTES;
        let base_id = process.base_id.map_or(0, |id| id.saturating_add(1));
        self.region.u32(at)?.store(process::id(), Ordering::Relaxed);
        self.region
            .u32(at + 4)?
            .store(process.restart_epoch, Ordering::Relaxed);
        self.region.u64(at + 8)?.store(base_id, Ordering::Relaxed);
        self.region
            .u64(OPENED_AT)?
            .store(clock::now().get(), Ordering::Relaxed);
        Some(())
    }

    /// Returns the offsets of all locks.
    fn all_locks(&self) -> impl Iterator<Item = u64> + use<> {
        let lines = (0..self.lines).map(|line| LINES_START + line * UNIT);
        let lists = (0..LISTS).map(|list| LISTS_AT + list * LIST_BYTES);
        lines.chain(lists).chain([END_LOCK_AT])
    }

    /// Undoes the unfinished changes of a dead process, and releases the locks of its threads.
    fn release_locks_of(&self, process: u32) -> Option<()> {
        for lock in self.all_locks() {
            let word = self.region.u32(lock)?;
            let thread = word.load(Ordering::Acquire);
            if thread == 0 || process_of(thread) != process || thread == self.own()? {
                continue;
            }
            // Another process may detect the dead thread at the same time.
            let own = self.own()?;
            let taken = word.compare_exchange(thread, own, Ordering::Acquire, Ordering::Relaxed);
            if taken.is_ok() {
                self.take_back(thread, lock);
                word.store(0, Ordering::Release);
            }
        }
        for thread in 0..THREADS {
            let area = u64::from(process * THREADS + thread) * AREA_BYTES + AREAS_AT;
            self.region
                .u32(area + IS_CHANGING_AT)?
                .store(0, Ordering::Relaxed);
            self.region.u64(area + LOCK_AT)?.store(0, Ordering::Relaxed);
        }
        Some(())
    }

    /// Repairs the store after its last process has exited, no matter at which instruction that process was killed.
    /// Returns the number of dropped values, or `None` if the file cannot be used.
    fn recover(&self) -> Option<usize> {
        for process in 0..PROCESSES {
            self.release_locks_of(process)?;
        }
        // Reset every lock, because no process would release a lock with an invalid number.
        for lock in self.all_locks() {
            self.region.u32(lock)?.store(0, Ordering::Relaxed);
        }
        let mut blocks = self.blocks()?;
        let mut dropped = 0;
        let mut used: u64 = 0;
        for line in 0..self.lines {
            let mut line = LINES_START + line * UNIT;
            loop {
                for place in 0..REFERENCES {
                    let reference = self.reference(line, place)?;
                    let word = reference.load(Ordering::Relaxed);
                    if word == 0 {
                        continue;
                    }
                    let block = (word & 0xffff_ffff) * UNIT;
                    let buckets = blocks.take(block).then(|| self.buckets_in(block));
                    if let Some(buckets) = buckets.flatten() {
                        used = used.saturating_add(buckets);
                    } else {
                        reference.store(0, Ordering::Relaxed);
                        dropped += 1;
                    }
                }
                let next = self.field(line, NEXT_AT)?;
                match u64::from(next.load(Ordering::Relaxed)) * UNIT {
                    0 => break,
                    unit if blocks.take(unit) => line = unit,
                    _ => {
                        next.store(0, Ordering::Relaxed);
                        dropped += 1;
                        break;
                    }
                }
            }
        }
        for list in 0..LISTS {
            let first = self.field(LISTS_AT + list * LIST_BYTES, 4)?;
            first.store(0, Ordering::Relaxed);
        }
        for block in blocks.free() {
            self.give(block)?;
        }
        let used = i64::try_from(used).unwrap_or(i64::MAX);
        self.gauge(Gauge::Used)?.store(used, Ordering::Relaxed);
        Some(dropped)
    }

    /// Returns all blocks. Returns `None` if the block sizes are inconsistent, so that the blocks do not end exactly at
    /// the end offset.
    fn blocks(&self) -> Option<Blocks> {
        let end = self.region.u64(END_AT)?.load(Ordering::Acquire);
        let mut at = LINES_START + self.lines * UNIT;
        let mut all = Vec::new();
        while at < end {
            let units = self.field(at, UNITS_AT)?.load(Ordering::Relaxed);
            if units == 0 {
                return None;
            }
            all.push((u32::try_from(at / UNIT).ok()?, false));
            at = at.checked_add(u64::from(units) * UNIT)?;
        }
        (at == end).then_some(Blocks(all))
    }

    /// Returns the number of buckets if the value is a page, and 0 for other values. Returns `None` if the block does
    /// not contain a valid value.
    fn buckets_in(&self, block: u64) -> Option<u64> {
        let units = self.field(block, UNITS_AT)?.load(Ordering::Relaxed);
        let sizes = [KEY_SIZE_AT, VALUE_SIZE_AT];
        let sizes = sizes.map(|at| Some(self.field(block, at)?.load(Ordering::Relaxed).into()));
        let [Some(key_size), Some(value_size)]: [Option<u64>; 2] = sizes else {
            return None;
        };
        if BLOCK_HEAD + key_size + value_size > u64::from(units) * UNIT {
            return None;
        }
        let key = self.key(block)?;
        if key.len().checked_sub(5).and_then(|kind| key.get(kind)) != Some(&page::KIND) {
            return Some(0);
        }
        let page = page::Page::decode(self.value(block)?).ok()?;
        u64::try_from(page.slots.len()).ok()
    }
}

/// All blocks of a file in order: the first unit of each block, and true if the block is referenced.
struct Blocks(Vec<(u32, bool)>);

impl Blocks {
    /// Marks a block as referenced. Returns false if there is no such block, or if it was already referenced.
    fn take(&mut self, block: u64) -> bool {
        let unit = u32::try_from(block / UNIT).unwrap_or(0);
        let place = self.0.binary_search_by_key(&unit, |(unit, _)| *unit);
        let found = place.ok().and_then(|place| self.0.get_mut(place));
        found.is_some_and(|(_, is_used)| !std::mem::replace(is_used, true))
    }

    fn free(self) -> impl Iterator<Item = u64> {
        let free = self.0.into_iter().filter(|(_, is_used)| !is_used);
        free.map(|(unit, _)| u64::from(unit) * UNIT)
    }
}

fn format_of(process: Process) -> u32 {
    process.format.wrapping_mul(31).wrapping_add(LAYOUT)
}

/// Returns the system's boot identifier. Monotonic times are comparable only within one boot.
fn boot() -> [u64; 2] {
    let id = fs::read_to_string("/proc/sys/kernel/random/boot_id").unwrap_or_default();
    let digits: String = id.chars().filter(char::is_ascii_hexdigit).collect();
    let (high, low) = digits.split_at_checked(16).unwrap_or_default();
    [high, low].map(|part| u64::from_str_radix(part, 16).unwrap_or(0))
}
