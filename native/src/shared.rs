//! Key-value store that all workers share; it replaces Envoy's shared data. If the store is in a file, its values
//! survive restarts of Envoy.
//!
//! As in Envoy's shared data, each value has a version number that changes with every write, and a write can require
//! that the version number has not changed since the value was read. Values are never removed.
//!
//! ```text
//! head    magic u64 | format u32 | lines u32 | buckets u32 | opened at u64 | boot id | …    4 KiB
//! areas   one of 256 bytes per thread                                                       512 KiB
//! lines   64 bytes each:  lock u32 | next line u32 | reference u64 × 6
//! blocks  units u32 | number u32 | value's size u32 | key's size u32 | key | value          n × 64 bytes
//! ```
//!
//! The hash of a key selects a line, whose lock protects all values of that line. A reference contains part of the
//! key's hash and the position of the value's block. If all references of a line are in use, more references are stored
//! in an overflow line, which occupies a block.
//!
//! A process may be killed at any instruction. Other processes, or the next one to open the file, then continue with
//! the values as the dead process left them. Each change must therefore take effect with a single atomic store.
//! [`Shared::set`] writes the value into a free block, and then replaces the reference. [`Shared::patch`] saves the old
//! bytes in its thread's undo area, and then changes the value in place. If a thread finds a lock that a dead thread
//! holds, it restores the old bytes. A lock contains the number of the thread that holds it, and the turn of its
//! process: how many times the process number has been assigned. A process counts as alive while it holds the file lock
//! for its number ([`Region::claim`]).
//!
//! Free blocks are kept in lists by size. If a process dies after it has removed a block from a list but before it uses
//! the block, the block is lost until the file is next opened by a single process ([`file`]).

use std::cell::RefCell;
use std::io;
use std::sync::atomic::{AtomicBool, AtomicI64, AtomicU32, AtomicU64, Ordering, fence};
use std::sync::{Mutex, PoisonError};
use std::thread;
use std::time::Duration;

use loudou_store::page::KIND;
use loudou_store::{Cas, MAX_PATCH, Patch, PlanPatch, Written};
use region::Region;

use crate::clock;

pub(crate) use file::{Opened, Process, open};

mod file;
mod region;
#[cfg(test)]
mod tests;

/// First bytes of a file.
const MAGIC: u64 = u64::from_le_bytes(*b"LOUDOU\r\n");
/// First bytes of a file whose header is incomplete.
const CREATING: u64 = u64::from_le_bytes(*b"LOUDOU..");
/// Size in bytes of a cache line, a table line and a unit of block allocation.
const UNIT: u64 = 64;

// Offsets in the header.
const MAGIC_AT: u64 = 0;
const FORMAT_AT: u64 = 8;
const LINES_AT: u64 = 12;
const BUCKETS_AT: u64 = 16;
const OPENED_AT: u64 = 24;
const BOOT_AT: u64 = 32;
/// Offset of the end of the blocks.
const END_AT: u64 = 48;
/// Gauges that are stored next to the values, because they must be consistent with them.
const GAUGES_AT: u64 = 56;
const GAUGES: u64 = 3;
/// Identity of each process that has the file open: process identifier u32, restart epoch u32, base identifier u64.
const PROCESSES_AT: u64 = 128;
const PROCESS_BYTES: u64 = 16;
/// Number of times that each process number has been assigned, u32 each.
const TURNS_AT: u64 = 192;
/// Lock that protects the end of the blocks.
const END_LOCK_AT: u64 = 208;
/// Free lists: lock u32, first block u32.
const LISTS_AT: u64 = 256;
const LISTS: u64 = 168;
const LIST_BYTES: u64 = 8;

const AREAS_AT: u64 = 4096;
/// Maximum number of processes that have a file open at the same time. Two processes share the file during a hot
/// restart.
const PROCESSES: u32 = 4;
/// Maximum number of threads per process that can use the store at the same time.
const THREADS: u32 = 512;
const _: () = assert!(PROCESSES * THREADS == 4 * 512, "an area per thread");
const AREAS: u64 = 4 * 512;
const AREA_BYTES: u64 = 256;
const LINES_START: u64 = AREAS_AT + AREAS * AREA_BYTES;

// Offsets in a thread's undo area, which describes an unfinished change and how to undo it.
const IS_CHANGING_AT: u64 = 0;
const LOCK_AT: u64 = 8;
const PLACE_AT: u64 = 16;
const SIZE_AT: u64 = 24;
const OLD_AT: u64 = 64;

// Offsets in a line.
const NEXT_AT: u64 = 4;
const REFERENCES_AT: u64 = 8;
const REFERENCES: u64 = 6;

// Offsets in a block.
const UNITS_AT: u64 = 0;
const NUMBER_AT: u64 = 4;
const VALUE_SIZE_AT: u64 = 8;
const KEY_SIZE_AT: u64 = 12;
const BLOCK_HEAD: u64 = 16;

/// Minimum number of bytes by which the file grows.
const STEP: u64 = 1 << 20;
/// Limits of a thread's attempts to take a lock. The thread first spins, then yields, and finally sleeps between
/// attempts.
const SPINS: u32 = 100;
const YIELDS: u32 = 2_000;
const SLEEPS: u32 = 20_000;
/// Number of bytes reserved for a value that contains names: enough for one name of 16 bytes per bucket of a page.
const NAMES: u32 = 400;
/// Byte in a key that marks a value with names; see [`loudou_store::names`].
const NAMES_KIND: u8 = b'n';

/// A key-value store in mapped memory.
#[derive(Debug)]
pub(crate) struct Shared {
    region: Region,
    /// Number of this process among the processes that have the file open.
    process: u32,
    /// Number of times that this process number has been assigned. It distinguishes this process's locks from locks of
    /// an earlier process with the same number.
    turn: u32,
    /// True if a write has failed because the file cannot grow.
    is_full: AtomicBool,
    lines: u64,
    /// Number of bytes reserved for the first block of each page.
    page_room: AtomicU32,
}

/// Gauges that must be consistent with the stored values.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) enum Gauge {
    /// Number of rule changes.
    Generation,
    /// Number of buckets.
    Used,
    /// Number of bans that operators have set.
    Bans,
}

/// Result of a search for a key: the position of its value, or where a new value can be inserted.
enum Found {
    /// Offset of the reference, and offset of the block.
    Value(u64, u64),
    /// Offset of a free reference.
    Room(u64),
    /// Offset of the last line in the chain; all references are in use.
    Full(u64),
}

/// A lock that this thread holds.
struct Guard<'a>(&'a AtomicU32);

impl Drop for Guard<'_> {
    fn drop(&mut self) {
        self.0.store(0, Ordering::Release);
    }
}

impl Shared {
    /// Creates an empty in-memory store for this many buckets.
    pub(crate) fn anonymous(buckets: u32) -> io::Result<Self> {
        Self::create(Region::anonymous()?, buckets, 0)
    }

    fn new(region: Region, process: u32, lines: u64) -> Option<Self> {
        let turns = region.u32(TURNS_AT + u64::from(process) * 4)?;
        let turn = turns.fetch_add(1, Ordering::Relaxed).wrapping_add(1) & 0xffff;
        Some(Self {
            region,
            process,
            turn,
            is_full: AtomicBool::new(false),
            lines,
            page_room: AtomicU32::new(0),
        })
    }

    /// Returns true if a write has failed because the file cannot grow.
    pub(crate) fn is_full(&self) -> bool {
        self.is_full.load(Ordering::Relaxed)
    }

    /// Grows the file to the size that it needs if all buckets are in use.
    pub(crate) fn reserve(&self, buckets: u32) -> io::Result<()> {
        let pages = u64::from(buckets).div_ceil(16);
        let page = u64::from(self.page_room.load(Ordering::Relaxed)) + u64::from(NAMES) + 4 * UNIT;
        let end = self
            .region
            .u64(END_AT)
            .map_or(0, |end| end.load(Ordering::Relaxed));
        self.region.grow(
            end.saturating_add(pages.saturating_mul(page))
                .saturating_add(STEP),
        )
    }

    /// Writes the header of an empty store, except for the magic number.
    fn create(region: Region, buckets: u32, process: u32) -> io::Result<Self> {
        // Each page of buckets has two values. The table gets one line per three values, on average, so that half of a
        // line's references are free.
        let lines = u64::from(buckets)
            .div_ceil(16)
            .saturating_mul(2)
            .div_ceil(3);
        let lines = lines.clamp(64, 1 << 22);
        let start = LINES_START.saturating_add(lines.saturating_mul(UNIT));
        region.grow(start.saturating_add(UNIT))?;
        let shared = Self::new(region, process, lines).ok_or(io::ErrorKind::OutOfMemory)?;
        let written = || {
            let lines = u32::try_from(lines).ok()?;
            shared.region.u32(LINES_AT)?.store(lines, Ordering::Relaxed);
            shared
                .region
                .u32(BUCKETS_AT)?
                .store(buckets, Ordering::Relaxed);
            shared.region.u64(END_AT)?.store(start, Ordering::Relaxed);
            Some(())
        };
        written().ok_or(io::ErrorKind::OutOfMemory)?;
        Ok(shared)
    }

    /// Sets the expected maximum size of a page; new pages get blocks of this size. A page that grows then stays in its
    /// block.
    pub(crate) fn expect_pages(&self, bytes: usize) {
        let bytes = u32::try_from(bytes).unwrap_or(0).min(1 << 17);
        self.page_room.fetch_max(bytes, Ordering::Relaxed);
    }

    /// Returns a gauge that is stored next to the values.
    pub(crate) fn gauge(&self, gauge: Gauge) -> Option<&AtomicI64> {
        let number = match gauge {
            Gauge::Generation => 0,
            Gauge::Used => 1,
            Gauge::Bans => GAUGES.saturating_sub(1),
        };
        self.region.i64(GAUGES_AT.saturating_add(number * 8))
    }

    /// Copies the value into `value`, and returns its version number. Returns `None` if the key has no value.
    pub(crate) fn get(&self, key: &[u8], value: &mut Vec<u8>) -> Option<Cas> {
        value.clear();
        let (line, tag) = self.line_of(key);
        let _guard = self.lock(line)?;
        let Found::Value(_, block) = self.find(line, tag, key)? else {
            return None;
        };
        value.extend_from_slice(self.value(block)?);
        Some(self.field(block, NUMBER_AT)?.load(Ordering::Relaxed))
    }

    /// Writes a value. If `expected` is not 0 and the key has a value, the version number must equal `expected`;
    /// otherwise returns a conflict. Returns `None` if the value cannot be stored.
    pub(crate) fn set(&self, key: &[u8], value: &[u8], expected: Cas) -> Option<Written> {
        let (line, tag) = self.line_of(key);
        let _guard = self.lock(line)?;
        let found = self.find(line, tag, key)?;
        let old = match found {
            Found::Value(_, block) => Some(block),
            Found::Room(_) | Found::Full(_) => None,
        };
        let number = match old {
            None => 1,
            Some(block) => {
                let number = self.field(block, NUMBER_AT)?.load(Ordering::Relaxed);
                if expected != 0 && expected != number {
                    return Some(Written::Conflict);
                }
                next(number)
            }
        };
        let block = self.block(key, value, number)?;
        let reference = (u64::from(tag) << 32) | (block / UNIT);
        let place = match found {
            Found::Value(place, _) | Found::Room(place) => place,
            Found::Full(last) => {
                let line = self.take(1)?;
                for place in 0..REFERENCES {
                    self.reference(line, place)?.store(0, Ordering::Relaxed);
                }
                self.field(line, NEXT_AT)?.store(0, Ordering::Relaxed);
                let unit = u32::try_from(line / UNIT).ok()?;
                self.field(last, NEXT_AT)?.store(unit, Ordering::Release);
                line.checked_add(REFERENCES_AT)?
            }
        };
        self.region.u64(place)?.store(reference, Ordering::Release);
        if let Some(old) = old {
            self.give(old);
        }
        Some(Written::Done)
    }

    /// Changes a part of a value in place. See [`loudou_store::SharedData::patch`].
    pub(crate) fn patch(&self, key: &[u8], plan: &mut PlanPatch<'_>) -> bool {
        let (line, tag) = self.line_of(key);
        let mut patched = || {
            let _guard = self.lock(line)?;
            let Found::Value(_, block) = self.find(line, tag, key)? else {
                return None;
            };
            let value = self.value(block)?;
            let patch = plan(value)?;
            let end = patch.at().checked_add(patch.bytes().len())?;
            let old = value.get(patch.at()..end)?;
            let mut kept = [0; MAX_PATCH];
            let kept = kept.get_mut(..old.len())?;
            kept.copy_from_slice(old);
            let place = self.value_at(block)?.checked_add(wide(patch.at()))?;
            self.change((line, block), (place, kept), &patch)
        };
        patched().is_some()
    }

    /// Applies a patch so that another thread can undo it if this thread dies at any instruction.
    fn change(
        &self,
        (line, block): (u64, u64),
        (place, old): (u64, &[u8]),
        patch: &Patch,
    ) -> Option<()> {
        let area = area_of(self.own()?)?;
        let number = self.field(block, NUMBER_AT)?;
        self.region
            .u64(area + LOCK_AT)?
            .store(line, Ordering::Relaxed);
        self.region
            .u64(area + PLACE_AT)?
            .store(place, Ordering::Relaxed);
        let size = u32::try_from(old.len()).ok()?;
        self.field(area, SIZE_AT)?.store(size, Ordering::Relaxed);
        self.write(area + OLD_AT, old)?;
        let is_changing = self.field(area, IS_CHANGING_AT)?;
        fence(Ordering::Release);
        is_changing.store(1, Ordering::Relaxed);
        fence(Ordering::Release);
        #[cfg(test)]
        tests::write_slowly(self, place, patch.bytes());
        self.write(place, patch.bytes())?;
        number.store(next(number.load(Ordering::Relaxed)), Ordering::Relaxed);
        fence(Ordering::Release);
        is_changing.store(0, Ordering::Relaxed);
        Some(())
    }

    /// If a dead thread has left a change unfinished in the line with this lock, undoes the change.
    fn take_back(&self, thread: u32, lock: u64) -> Option<()> {
        let area = area_of(thread)?;
        let is_changing = self.field(area, IS_CHANGING_AT)?;
        let line = self.region.u64(area + LOCK_AT)?.load(Ordering::Relaxed);
        if is_changing.load(Ordering::Acquire) == 0 || line != lock {
            return None;
        }
        let size = self.field(area, SIZE_AT)?.load(Ordering::Relaxed);
        let size = usize::try_from(size)
            .ok()
            .filter(|size| *size <= MAX_PATCH)?;
        let mut old = [0; MAX_PATCH];
        let old = old.get_mut(..size)?;
        old.copy_from_slice(self.bytes(area + OLD_AT, size)?);
        let place = self.region.u64(area + PLACE_AT)?.load(Ordering::Relaxed);
        self.write(place, old)?;
        is_changing.store(0, Ordering::Release);
        Some(())
    }

    // Lines and blocks. Callers hold the lock of the line.

    /// Returns the line of a key, and the part of the key's hash that its reference contains.
    fn line_of(&self, key: &[u8]) -> (u64, u32) {
        let hash = hash(key);
        // Lemire's range reduction avoids a division.
        let line = u128::from(hash).saturating_mul(self.lines.into()) >> 64;
        let line = u64::try_from(line).unwrap_or(0);
        let tag = u32::try_from(hash & 0xffff_ffff).unwrap_or(0);
        (LINES_START.saturating_add(line.saturating_mul(UNIT)), tag)
    }

    fn find(&self, line: u64, tag: u32, key: &[u8]) -> Option<Found> {
        let (mut line, mut room) = (line, None);
        // The limit on the number of lines ends the search even if a damaged chain forms a loop.
        for _ in 0..u16::MAX {
            for place in 0..REFERENCES {
                let reference = self.reference(line, place)?.load(Ordering::Acquire);
                let block = (reference & 0xffff_ffff) * UNIT;
                if reference == 0 {
                    let place = line + REFERENCES_AT + place * 8;
                    room = room.or(Some(place));
                } else if reference >> 32 == u64::from(tag) && self.key(block) == Some(key) {
                    return Some(Found::Value(line + REFERENCES_AT + place * 8, block));
                }
            }
            match self.field(line, NEXT_AT)?.load(Ordering::Acquire) {
                0 => return Some(room.map_or(Found::Full(line), Found::Room)),
                next => line = u64::from(next) * UNIT,
            }
        }
        None
    }

    fn reference(&self, line: u64, place: u64) -> Option<&AtomicU64> {
        self.region.u64(line + REFERENCES_AT + place * 8)
    }

    fn field(&self, of: u64, at: u64) -> Option<&AtomicU32> {
        self.region.u32(of.checked_add(at)?)
    }

    fn key(&self, block: u64) -> Option<&[u8]> {
        let size = self.field(block, KEY_SIZE_AT)?.load(Ordering::Relaxed);
        self.bytes(block + BLOCK_HEAD, usize::try_from(size).ok()?)
    }

    fn value_at(&self, block: u64) -> Option<u64> {
        let size = self.field(block, KEY_SIZE_AT)?.load(Ordering::Relaxed);
        Some(block + BLOCK_HEAD + u64::from(size))
    }

    fn value(&self, block: u64) -> Option<&[u8]> {
        let size = self.field(block, VALUE_SIZE_AT)?.load(Ordering::Relaxed);
        self.bytes(self.value_at(block)?, usize::try_from(size).ok()?)
    }

    #[expect(unsafe_code, reason = "see below")]
    fn bytes(&self, at: u64, size: usize) -> Option<&[u8]> {
        // SAFETY: the thread holds the lock that protects the value, or owns the undo area, and the slice ends before
        // the next write.
        unsafe { self.region.bytes(at, size) }
    }

    #[expect(unsafe_code, reason = "see below")]
    fn write(&self, at: u64, bytes: &[u8]) -> Option<()> {
        // SAFETY: the thread holds the lock that protects the value, or owns the undo area, or no reference to the
        // block exists yet.
        unsafe { self.region.write(at, bytes) }
    }

    /// Writes a value into a newly allocated block.
    fn block(&self, key: &[u8], value: &[u8], number: Cas) -> Option<u64> {
        let room = match key.len().checked_sub(5).and_then(|kind| key.get(kind)) {
            Some(&KIND) => self.page_room.load(Ordering::Relaxed),
            Some(&NAMES_KIND) => NAMES,
            _ => 0,
        };
        let size = wide(value.len()).max(room.into());
        let size = size.checked_add(wide(key.len()))?.checked_add(BLOCK_HEAD)?;
        let block = self.take(size.div_ceil(UNIT))?;
        let sizes = [(KEY_SIZE_AT, key.len()), (VALUE_SIZE_AT, value.len())];
        for (at, size) in sizes {
            self.field(block, at)?
                .store(u32::try_from(size).ok()?, Ordering::Relaxed);
        }
        self.field(block, NUMBER_AT)?
            .store(number, Ordering::Relaxed);
        self.write(block + BLOCK_HEAD, key)?;
        self.write(self.value_at(block)?, value)?;
        Some(block)
    }

    /// Allocates a block of at least this many units.
    fn take(&self, units: u64) -> Option<u64> {
        let (list, units) = list_of(units)?;
        // Prefer a somewhat larger free block to growing the file.
        for list in list..list.saturating_add(8).min(LISTS) {
            let at = LISTS_AT + list * LIST_BYTES;
            let first = self.field(at, 4)?;
            if first.load(Ordering::Relaxed) == 0 {
                continue;
            }
            let _guard = self.lock(at)?;
            let unit = first.load(Ordering::Acquire);
            if unit != 0 {
                let block = u64::from(unit) * UNIT;
                let next = self.field(block, NUMBER_AT)?.load(Ordering::Relaxed);
                first.store(next, Ordering::Release);
                return Some(block);
            }
        }
        let _guard = self.lock(END_LOCK_AT)?;
        let end = self.region.u64(END_AT)?;
        let block = end.load(Ordering::Acquire);
        let new_end = block.checked_add(units * UNIT)?;
        // References store the unit number of a block in 32 bits.
        u32::try_from(new_end / UNIT).ok()?;
        if self.region.u32(new_end - 4).is_none() {
            let step = STEP.max((new_end / 16).next_power_of_two());
            if self.region.grow(new_end.next_multiple_of(step)).is_err()
                && self.region.grow(new_end).is_err()
            {
                self.is_full.store(true, Ordering::Relaxed);
                return None;
            }
        }
        self.field(block, UNITS_AT)?
            .store(u32::try_from(units).ok()?, Ordering::Release);
        end.store(new_end, Ordering::Release);
        Some(block)
    }

    /// Adds a block to the free list for its size. If this fails, the block is lost until the file is next opened by a
    /// single process.
    fn give(&self, block: u64) -> Option<()> {
        let units = self.field(block, UNITS_AT)?.load(Ordering::Relaxed);
        let (list, _) = list_of(units.into())?;
        let at = LISTS_AT + list * LIST_BYTES;
        let _guard = self.lock(at)?;
        let first = self.field(at, 4)?;
        let next = first.load(Ordering::Relaxed);
        self.field(block, NUMBER_AT)?.store(next, Ordering::Relaxed);
        first.store(u32::try_from(block / UNIT).ok()?, Ordering::Release);
        Some(())
    }

    // Locks.

    /// Returns the lock number of this thread, which is unique among all threads of all processes that use the store.
    fn own(&self) -> Option<u32> {
        let thread = NUMBER.with_borrow(|number| number.0);
        let number = self.process * THREADS + thread + 1;
        (thread < THREADS).then_some((self.turn << 16) | number)
    }

    /// Takes a lock, and waits if necessary. Returns `None` if another thread holds the lock for about a second, for
    /// example because its process is suspended.
    fn lock(&self, at: u64) -> Option<Guard<'_>> {
        let own = self.own()?;
        let word = self.region.u32(at)?;
        for turn in 0..SLEEPS.saturating_add(YIELDS) {
            let taken = word.compare_exchange(0, own, Ordering::Acquire, Ordering::Relaxed);
            let Err(holder) = taken else {
                return Some(Guard(word));
            };
            match turn {
                0..SPINS => std::hint::spin_loop(),
                SPINS..YIELDS => thread::yield_now(),
                _ => clock::sleep(Duration::from_micros(50)),
            }
            let looks = turn % 256 == 255 && holder != 0 && !self.is_alive(holder);
            if looks
                && word
                    .compare_exchange(holder, own, Ordering::Acquire, Ordering::Relaxed)
                    .is_ok()
            {
                self.take_back(holder, at);
                return Some(Guard(word));
            }
        }
        None
    }

    /// Returns true if the process of the thread with this lock number is alive. Threads of this process always count
    /// as alive, because they release their locks even if they panic.
    fn is_alive(&self, thread: u32) -> bool {
        let (process, turn) = (process_of(thread), thread >> 16);
        if process == self.process {
            return turn == self.turn;
        }
        let turns = self.region.u32(TURNS_AT + u64::from(process) * 4);
        let latest = turns.map_or(0, |turns| turns.load(Ordering::Acquire) & 0xffff);
        turn == latest && self.region.is_claimed(process)
    }
}

/// Returns the next version number. The result is never 0, because an expected version of 0 means "any version".
fn next(number: Cas) -> Cas {
    number.checked_add(1).unwrap_or(1)
}

fn wide(size: usize) -> u64 {
    u64::try_from(size).unwrap_or(u64::MAX)
}

/// Returns the process number in a thread's lock number.
fn process_of(thread: u32) -> u32 {
    (thread & 0xffff).saturating_sub(1) / THREADS
}

/// Returns the offset of a thread's undo area.
fn area_of(thread: u32) -> Option<u64> {
    let thread = (thread & 0xffff).checked_sub(1);
    let thread = thread.filter(|thread| *thread < PROCESSES * THREADS)?;
    Some(AREAS_AT + u64::from(thread) * AREA_BYTES)
}

/// Returns the free list for a size in units, and the minimum size of the blocks in that list. Sizes up to 64 units
/// have one list each. For larger sizes, there are eight lists per doubling.
fn list_of(units: u64) -> Option<(u64, u64)> {
    let units = units.max(1);
    if units <= 64 {
        return Some((units - 1, units));
    }
    let step = 1 << (units.ilog2() - 3);
    let units = units.next_multiple_of(step);
    let power = units.ilog2();
    let part = (units >> (power - 3)) - 8;
    let list = 64 + u64::from(power - 6) * 8 + part;
    (list < LISTS).then_some((list, units))
}

/// Returns the hash of a key. Clients do not choose these keys, so the hash needs no secret seed. The hash function
/// must never change, because existing files depend on it.
fn hash(key: &[u8]) -> u64 {
    const FACTOR: u64 = 0x9e37_79b9_7f4a_7c15;
    let mix = |hash: u64, word: u64| {
        let product = u128::from(hash ^ word).wrapping_mul(FACTOR.into());
        let bytes = product.to_le_bytes();
        let (low, high) = bytes.split_at(8);
        let half = |half: &[u8]| half.try_into().map_or(0, u64::from_le_bytes);
        half(low) ^ half(high)
    };
    let (words, rest) = key.as_chunks::<8>();
    let mut last = [0; 8];
    for (byte, place) in rest.iter().zip(&mut last) {
        *place = *byte;
    }
    let hash = words.iter().fold(wide(key.len()), |hash, word| {
        mix(hash, u64::from_le_bytes(*word))
    });
    mix(mix(hash, u64::from_le_bytes(last)), FACTOR)
}

/// A thread's number; when the thread ends, a new thread may reuse the number.
struct Number(u32);

/// Numbers of ended threads, and the next unused number.
static NUMBERS: Mutex<(Vec<u32>, u32)> = Mutex::new((Vec::new(), 0));

thread_local! {
    static NUMBER: RefCell<Number> = RefCell::new(Number::new());
}

impl Number {
    fn new() -> Self {
        let mut numbers = NUMBERS.lock().unwrap_or_else(PoisonError::into_inner);
        let (free, next) = &mut *numbers;
        Self(free.pop().unwrap_or_else(|| {
            let number = *next;
            *next = next.saturating_add(1);
            number
        }))
    }
}

impl Drop for Number {
    fn drop(&mut self) {
        let mut numbers = NUMBERS.lock().unwrap_or_else(PoisonError::into_inner);
        numbers.0.push(self.0);
    }
}
