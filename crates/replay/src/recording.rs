//! All requests and edits from the inputs in chronological order. A recording can be iterated over
//! only once.

use std::io;

use loudou_limiter::Nanos;

use super::encode::{self, Names, Place};
use super::input::Intake;
use super::record::{LogLine, TraceEdit};
use super::sort::Sorted;
use super::trace;
use super::window::Part;

/// All requests and edits, in chronological order.
#[derive(Debug)]
pub struct Recording {
    pub(crate) sorted: Sorted,
    pub(crate) names: Names,
    pub(crate) part: Part,
    /// Statistics of the inputs.
    pub intake: Intake,
}

impl Recording {
    /// Returns the next request or edit, and the location of its line.
    pub(crate) fn next(&mut self) -> io::Result<Option<(Place, LogLine<'_>)>> {
        let at = loop {
            let Some(at) = self.sorted.advance()? else {
                return Ok(None);
            };
            let at = Nanos::new(at);
            // Edits from before the window are kept, because they determine the rules at its start.
            let is_edit = encode::is_edit(self.sorted.record());
            if self.part.has(at) || (is_edit && self.part.is_before_end(at)) {
                break at.max(self.part.from);
            }
            self.intake.outside += u64::from(!is_edit);
        };
        self.line(at).map(Some)
    }

    /// Decodes the current request or edit.
    fn line(&mut self, at: Nanos) -> io::Result<(Place, LogLine<'_>)> {
        let wrong = || io::Error::new(io::ErrorKind::InvalidData, "the sorted records are damaged");
        let record = self.sorted.record();
        if encode::is_edit(record) {
            let (place, line) = encode::decode_edit(record).ok_or_else(wrong)?;
            // Edits are rare, so parsing the line again costs little.
            let Ok(LogLine::Edit(edit)) = trace::parse(line) else {
                return Err(wrong());
            };
            return Ok((place, LogLine::Edit(TraceEdit { at, ..edit })));
        }
        let decoded = encode::decode(at, record, &self.names).ok_or_else(wrong)?;
        let (place, request) = decoded;
        self.intake.answered_429 += u64::from(request.status == Some(429));
        self.intake.seen.without_source += u64::from(request.request.source.is_none());
        Ok((place, LogLine::Request(request)))
    }

    /// Returns the log line of the current record, which must be an edit.
    pub(crate) fn edit(&self) -> &[u8] {
        let decoded = encode::decode_edit(self.sorted.record());
        decoded.map_or(&[], |(_, line)| line)
    }
}
