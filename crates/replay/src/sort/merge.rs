//! Merges sorted runs.

use std::cmp::Reverse;
use std::collections::BinaryHeap;
use std::io::{self, SeekFrom};
use std::ops::Range;

use super::{HEAD, Level, Scratch, parse_head};
use loudou_words::num::count;

/// Total size of the read buffers, in bytes.
const MEMORY: usize = 32 << 20;
const LEAST_BUFFER: usize = 16 << 10;
const MOST_BUFFER: usize = 1 << 20;

/// Iterates over the records of several runs in chronological order.
pub(super) struct Merge {
    files: Vec<Box<dyn Scratch>>,
    runs: Vec<Run>,
    /// Timestamp and run index of the next record of every run except the current one.
    waiting: BinaryHeap<Reverse<(u64, usize)>>,
    /// Index of the run that contains the current record.
    current: Option<usize>,
}

/// A run that is being merged.
struct Run {
    file: usize,
    /// Range of the run in the scratch file that has not been read yet.
    start: u64,
    end: u64,
    buffer: Vec<u8>,
    /// Range of the current record in the buffer.
    record: Range<usize>,
    /// Offset of the next record in the buffer.
    next: usize,
    buffer_size: usize,
}

impl Merge {
    /// Starts to merge the runs of all levels. Of records with equal timestamps, the record from
    /// the earlier run comes first.
    pub(super) fn new(levels: Vec<Level>) -> io::Result<Self> {
        let total: usize = levels.iter().map(|level| level.runs.len()).sum();
        let share = MEMORY.checked_div(total).unwrap_or(MEMORY);
        let buffer_size = share.clamp(LEAST_BUFFER, MOST_BUFFER);
        let (mut files, mut runs) = (Vec::new(), Vec::new());
        for (file, level) in levels.into_iter().enumerate() {
            runs.extend(level.runs.iter().map(|run| Run {
                file,
                start: run.start,
                end: run.end,
                buffer: Vec::new(),
                record: 0..0,
                next: 0,
                buffer_size,
            }));
            files.push(level.scratch);
        }
        let mut merge = Self {
            files,
            runs,
            waiting: BinaryHeap::new(),
            current: None,
        };
        for index in 0..merge.runs.len() {
            if let Some(at) = merge.advance_run(index)? {
                merge.waiting.push(Reverse((at, index)));
            }
        }
        Ok(merge)
    }

    /// Advances a run to its next record and returns the record's timestamp, or `None` at the end
    /// of the run.
    fn advance_run(&mut self, index: usize) -> io::Result<Option<u64>> {
        let Some(run) = self.runs.get_mut(index) else {
            return Ok(None);
        };
        let file = self.files.get_mut(run.file);
        let file = file.ok_or(io::ErrorKind::NotFound)?;
        run.advance(file.as_mut())
    }

    /// Advances to the next record and returns its timestamp, or `None` at the end.
    pub(super) fn advance(&mut self) -> io::Result<Option<u64>> {
        let mut next = None;
        if let Some(index) = self.current.take()
            && let Some(at) = self.advance_run(index)?
        {
            // Stay with the current run while its next record is the earliest. If the log is
            // already in order, runs do not overlap, so each run is read to its end without using
            // the heap.
            let first = self.waiting.peek();
            if first.is_none_or(|Reverse(first)| (at, index) < *first) {
                next = Some((at, index));
            } else {
                self.waiting.push(Reverse((at, index)));
            }
        }
        let next = next.or_else(|| self.waiting.pop().map(|Reverse(next)| next));
        self.current = next.map(|(_, index)| index);
        Ok(next.map(|(at, _)| at))
    }

    /// Returns the bytes of the current record.
    pub(super) fn record(&self) -> &[u8] {
        let run = self.current.and_then(|index| self.runs.get(index));
        let record = run.and_then(|run| run.buffer.get(run.record.clone()));
        record.unwrap_or_default()
    }
}

impl Run {
    fn advance(&mut self, file: &mut dyn Scratch) -> io::Result<Option<u64>> {
        if !self.has(HEAD, file)? {
            return Ok(None);
        }
        let head = self.buffer.get(self.next..).and_then(parse_head);
        let (at, length) = head.ok_or(io::ErrorKind::UnexpectedEof)?;
        self.next += HEAD;
        if !self.has(length, file)? {
            return Err(io::ErrorKind::UnexpectedEof.into());
        }
        let end = self.next + length;
        self.record = self.next..end;
        self.next = end;
        Ok(Some(at))
    }

    /// Fills the buffer until it contains the next `need` bytes. Returns false at the end of the
    /// run.
    fn has(&mut self, need: usize, file: &mut dyn Scratch) -> io::Result<bool> {
        let kept = self.buffer.len() - self.next;
        if kept >= need {
            return Ok(true);
        }
        self.buffer.drain(..self.next);
        self.next = 0;
        let left = usize::try_from(self.end - self.start).unwrap_or(usize::MAX);
        let more = self.buffer_size.max(need).saturating_sub(kept).min(left);
        self.buffer.resize(kept + more, 0);
        file.seek(SeekFrom::Start(self.start))?;
        file.read_exact(self.buffer.get_mut(kept..).unwrap_or_default())?;
        self.start += count(more);
        Ok(self.buffer.len() >= need)
    }
}
