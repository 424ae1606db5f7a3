//! Stores sorted runs in scratch files.
//!
//! Each level holds a bounded number of runs. When a level is full, its runs are merged into a
//! single run on the next level. Merging full levels bounds the number of runs that a merge must
//! read at once, and therefore the memory for read buffers.

use std::io::{self, SeekFrom};

use super::merge::Merge;
use super::{Extent, Level, NewScratch, head};

/// Maximum number of runs in a level.
pub(super) const RUNS: usize = 256;
/// Size of each write to a scratch file, in bytes.
const CHUNK: usize = 1 << 20;

/// All runs, by level. Higher levels contain earlier records.
#[derive(Default)]
pub(super) struct Spill {
    levels: Vec<Level>,
    pub(super) written: u64,
}

impl Spill {
    pub(super) const fn is_empty(&self) -> bool {
        self.levels.is_empty()
    }

    /// Writes sorted records as a new run.
    pub(super) fn add<'a>(
        &mut self,
        records: impl Iterator<Item = (u64, &'a [u8])>,
        new: &NewScratch,
    ) -> io::Result<()> {
        let level = self.level(0, new)?;
        let mut run = RunWriter::new(level)?;
        for (at, bytes) in records {
            run.add(at, bytes)?;
        }
        self.written += run.finish()?;
        self.merge_full(0, new)
    }

    fn level(&mut self, index: usize, new: &NewScratch) -> io::Result<&mut Level> {
        while self.levels.len() <= index {
            self.levels.push(Level {
                scratch: new()?,
                runs: Vec::new(),
                end: 0,
            });
        }
        let level = self.levels.get_mut(index);
        level.ok_or_else(|| io::ErrorKind::NotFound.into())
    }

    /// Merges the runs of a level into one run on the next level if the level is full.
    fn merge_full(&mut self, index: usize, new: &NewScratch) -> io::Result<()> {
        if self.level(index, new)?.runs.len() < RUNS {
            return Ok(());
        }
        let empty = Level {
            scratch: new()?,
            runs: Vec::new(),
            end: 0,
        };
        let full = std::mem::replace(self.level(index, new)?, empty);
        let mut merge = Merge::new(vec![full])?;
        let mut run = RunWriter::new(self.level(index + 1, new)?)?;
        while let Some(at) = merge.advance()? {
            run.add(at, merge.record())?;
        }
        self.written += run.finish()?;
        self.merge_full(index + 1, new)
    }

    /// Returns all levels, starting with the earliest runs.
    pub(super) fn into_runs(self) -> Vec<Level> {
        self.levels.into_iter().rev().collect()
    }
}

/// Appends a run to a level.
struct RunWriter<'a> {
    level: &'a mut Level,
    buffer: Vec<u8>,
    run: Extent,
}

impl<'a> RunWriter<'a> {
    fn new(level: &'a mut Level) -> io::Result<Self> {
        level.scratch.seek(SeekFrom::Start(level.end))?;
        let run = Extent::after(level.end, 0);
        Ok(Self {
            level,
            buffer: Vec::with_capacity(CHUNK + CHUNK / 4),
            run,
        })
    }

    fn add(&mut self, at: u64, bytes: &[u8]) -> io::Result<()> {
        self.buffer.extend_from_slice(&head(at, bytes.len())?);
        self.buffer.extend_from_slice(bytes);
        if self.buffer.len() >= CHUNK {
            self.write()?;
        }
        Ok(())
    }

    fn write(&mut self) -> io::Result<()> {
        self.level.scratch.write_all(&self.buffer)?;
        self.run.end = Extent::after(self.run.end, self.buffer.len()).end;
        self.buffer.clear();
        Ok(())
    }

    /// Completes the run, and returns the number of bytes written.
    fn finish(mut self) -> io::Result<u64> {
        self.write()?;
        self.level.scratch.flush()?;
        self.level.end = self.run.end;
        self.level.runs.push(self.run);
        Ok(self.run.end - self.run.start)
    }
}
