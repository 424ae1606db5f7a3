//! Sorts records by time. Records stay in memory up to a size limit. Beyond that limit, sorted runs
//! are written to scratch files and merged at the end.
//!
//! Records with equal timestamps keep their input order. The caller opens the scratch files,
//! because this crate opens no files.

use std::fmt;
use std::io::{self, Read, Seek, Write};

use loudou_words::num::count;

mod merge;
mod spill;

use merge::Merge;
use spill::Spill;

/// A temporary file for sorted runs. No other program uses it, and it is deleted when it is closed.
pub trait Scratch: Read + Write + Seek {}

impl<T: Read + Write + Seek> Scratch for T {}

/// Opens a new [`Scratch`].
pub type NewScratch = dyn Fn() -> io::Result<Box<dyn Scratch>>;

/// Memory overhead per record: one entry, and the temporary half entry that the stable sort needs.
const ENTRY: usize = size_of::<Entry>() + size_of::<Entry>() / 2;

#[derive(Clone, Copy, Debug)]
struct Entry {
    at: u64,
    start: u32,
    length: u32,
}

/// Collects records and sorts them.
pub(crate) struct Sorter<'a> {
    /// Encoded bytes of all records in memory.
    arena: Vec<u8>,
    entries: Vec<Entry>,
    memory: usize,
    new_scratch: &'a NewScratch,
    spill: Spill,
}

impl fmt::Debug for Sorter<'_> {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.debug_struct("Sorter").finish_non_exhaustive()
    }
}

impl<'a> Sorter<'a> {
    /// Creates a sorter that keeps up to about `memory` bytes in memory.
    pub(crate) fn new(memory: usize, new_scratch: &'a NewScratch) -> Self {
        Self {
            arena: Vec::new(),
            entries: Vec::new(),
            // Entries store 32-bit offsets into the arena.
            memory: memory.min(1 << 30),
            new_scratch,
            spill: Spill::default(),
        }
    }

    /// Adds a record with the timestamp `at`. `write` appends the record's bytes to its argument.
    pub(crate) fn push(&mut self, at: u64, write: impl FnOnce(&mut Vec<u8>)) -> io::Result<()> {
        let start = self.arena.len();
        write(&mut self.arena);
        let length = self.arena.len() - start;
        let small = |n: usize| u32::try_from(n).map_err(|_large| io::ErrorKind::FileTooLarge);
        self.entries.push(Entry {
            at,
            start: small(start)?,
            length: small(length)?,
        });
        if self.arena.len() + self.entries.len() * ENTRY > self.memory {
            self.spill()?;
        }
        Ok(())
    }

    fn spill(&mut self) -> io::Result<()> {
        self.entries.sort_by_key(|entry| entry.at);
        let arena = &self.arena;
        let records = self
            .entries
            .iter()
            .map(|entry| (entry.at, bytes(arena, entry)));
        self.spill.add(records, self.new_scratch)?;
        self.entries.clear();
        self.arena.clear();
        Ok(())
    }

    /// Returns the number of bytes written to scratch files so far.
    pub(crate) const fn spilled(&self) -> u64 {
        self.spill.written
    }

    /// Sorts all records, and returns them in chronological order.
    pub(crate) fn finish(mut self) -> io::Result<Sorted> {
        if self.spill.is_empty() {
            self.entries.sort_by_key(|entry| entry.at);
            return Ok(Sorted(Source::Memory {
                arena: self.arena,
                entries: self.entries,
                next: 0,
            }));
        }
        self.spill()?;
        Ok(Sorted(Source::Runs(Merge::new(self.spill.into_runs())?)))
    }
}

fn bytes<'a>(arena: &'a [u8], entry: &Entry) -> &'a [u8] {
    let start = usize::try_from(entry.start).unwrap_or(usize::MAX);
    let length = usize::try_from(entry.length).unwrap_or(usize::MAX);
    let end = start.saturating_add(length);
    arena.get(start..end).unwrap_or_default()
}

/// Records in chronological order.
#[derive(Debug)]
pub(crate) struct Sorted(Source);

enum Source {
    Memory {
        arena: Vec<u8>,
        entries: Vec<Entry>,
        next: usize,
    },
    Runs(Merge),
}

impl fmt::Debug for Source {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str(match self {
            Self::Memory { .. } => "Memory",
            Self::Runs(_) => "Runs",
        })
    }
}

impl Sorted {
    /// Advances to the next record and returns its timestamp, or `None` at the end.
    pub(crate) fn advance(&mut self) -> io::Result<Option<u64>> {
        match &mut self.0 {
            Source::Memory { entries, next, .. } => {
                let entry = entries.get(*next);
                *next += 1;
                Ok(entry.map(|entry| entry.at))
            }
            Source::Runs(merge) => merge.advance(),
        }
    }

    /// Returns the bytes of the current record.
    pub(crate) fn record(&self) -> &[u8] {
        match &self.0 {
            Source::Memory {
                arena,
                entries,
                next,
            } => {
                let entry = next.checked_sub(1).and_then(|last| entries.get(last));
                entry.map_or(&[], |entry| bytes(arena, entry))
            }
            Source::Runs(merge) => merge.record(),
        }
    }
}

/// Size of a record header in a run, in bytes. The header contains the timestamp and the length of
/// the record.
const HEAD: usize = 12;

fn head(at: u64, length: usize) -> io::Result<[u8; HEAD]> {
    let length = u32::try_from(length).map_err(|_large| io::ErrorKind::FileTooLarge)?;
    let mut head = [0; HEAD];
    let (first, second) = head.split_at_mut(8);
    first.copy_from_slice(&at.to_le_bytes());
    second.copy_from_slice(&length.to_le_bytes());
    Ok(head)
}

fn parse_head(bytes: &[u8]) -> Option<(u64, usize)> {
    let (at, rest) = bytes.split_first_chunk()?;
    let (length, _) = rest.split_first_chunk()?;
    let length = usize::try_from(u32::from_le_bytes(*length)).ok()?;
    Some((u64::from_le_bytes(*at), length))
}

/// Byte range of a sorted run in a scratch file.
#[derive(Clone, Copy, Debug)]
struct Extent {
    start: u64,
    end: u64,
}

/// Sorted runs in one scratch file, in input order.
struct Level {
    scratch: Box<dyn Scratch>,
    runs: Vec<Extent>,
    /// Offset at which the next run will be written.
    end: u64,
}

impl Extent {
    fn after(start: u64, length: usize) -> Self {
        Self {
            start,
            end: start.saturating_add(count(length)),
        }
    }
}

#[cfg(test)]
mod tests;
