//! All requests of the inputs in order of time, to be read once.

use std::io;

use loudou_limiter::Nanos;

use super::encode::{self, Names, Place};
use super::input::Intake;
use super::record::{LogLine, TraceEdit};
use super::sort::Sorted;
use super::trace;
use super::window::Part;

/// All requests and edits, in order of time.
#[derive(Debug)]
pub struct Recording {
    pub(crate) sorted: Sorted,
    pub(crate) names: Names,
    pub(crate) part: Part,
    /// Statistics of the inputs.
    pub intake: Intake,
}

impl Recording {
    /// Returns the next line and its position.
    pub(crate) fn next(&mut self) -> io::Result<Option<(Place, LogLine<'_>)>> {
        let at = loop {
            let Some(at) = self.sorted.advance()? else {
                return Ok(None);
            };
            let at = Nanos::new(at);
            // Edits from before the window affect the rules at its beginning, so they are kept.
            let is_edit = encode::is_edit(self.sorted.record());
            if self.part.has(at) || (is_edit && self.part.is_before_end(at)) {
                break at.max(self.part.from);
            }
            self.intake.outside += u64::from(!is_edit);
        };
        self.line(at).map(Some)
    }

    /// Returns the current line.
    fn line(&mut self, at: Nanos) -> io::Result<(Place, LogLine<'_>)> {
        let wrong = || io::Error::new(io::ErrorKind::InvalidData, "the sorted records are damaged");
        let record = self.sorted.record();
        if encode::is_edit(record) {
            let (place, line) = encode::decode_edit(record).ok_or_else(wrong)?;
            // Edits are few, so parsing their text again costs little.
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

    /// Returns the text of the current line, which is an edit.
    pub(crate) fn edit(&self) -> &[u8] {
        let decoded = encode::decode_edit(self.sorted.record());
        decoded.map_or(&[], |(_, line)| line)
    }
}
