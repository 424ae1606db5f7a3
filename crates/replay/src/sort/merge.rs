//! Merges sorted runs.

use std::cmp::Reverse;
use std::collections::BinaryHeap;
use std::io::{self, SeekFrom};
use std::ops::Range;

use super::{HEAD, Level, Scratch, parse_head};
use loudou_words::num::count;

/// Memory of all buffers, in bytes.
const MEMORY: usize = 32 << 20;
const LEAST_BUFFER: usize = 16 << 10;
const MOST_BUFFER: usize = 1 << 20;

/// Records of several runs, in order.
pub(super) struct Merge {
    files: Vec<Box<dyn Scratch>>,
    runs: Vec<Run>,
    /// Next record of every run except the current one.
    waiting: BinaryHeap<Reverse<(u64, usize)>>,
    /// Run of the last record.
    current: Option<usize>,
}

/// A run that is being read.
struct Run {
    file: usize,
    /// Unread part of the run.
    start: u64,
    end: u64,
    buffer: Vec<u8>,
    /// Current record in the buffer.
    record: Range<usize>,
    /// Offset of the next record in the buffer.
    next: usize,
    buffer_size: usize,
}

impl Merge {
    /// Merges the runs of all levels. If records have equal instants, records of earlier runs come
    /// first.
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

    /// Moves a run to its next record. Returns `None` at the end of the run.
    fn advance_run(&mut self, index: usize) -> io::Result<Option<u64>> {
        let Some(run) = self.runs.get_mut(index) else {
            return Ok(None);
        };
        let file = self.files.get_mut(run.file);
        let file = file.ok_or(io::ErrorKind::NotFound)?;
        run.advance(file.as_mut())
    }

    /// Moves to the next record, and returns its instant.
    pub(super) fn advance(&mut self) -> io::Result<Option<u64>> {
        let mut next = None;
        if let Some(index) = self.current.take()
            && let Some(at) = self.advance_run(index)?
        {
            // Runs of a log that is already in order do not overlap, so each run is read to its end
            // before the next one.
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

    /// Reads until the next `need` bytes are in the buffer. Returns false at the end of the run.
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
