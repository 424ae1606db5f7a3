//! Shows a progress bar on standard error while a long trace is read.

use std::io::{self, Write};

use loudou_replay::Progress;

use loudou_client::clock::Clock;
use loudou_print::style::Style;
use loudou_print::table::bar;
use loudou_words::num::{float, whole};
use loudou_words::text::{self, humanise};

/// Time before the bar appears.
const PATIENCE_NS: u64 = 300_000_000;
const BETWEEN_NS: u64 = 100_000_000;

/// Progress bar of a run. The bar occupies one line of the terminal, and the line is cleared at the
/// end of the run.
pub(super) struct ProgressBar<'a> {
    err: &'a mut dyn Write,
    /// Total number of bytes, if known.
    total: Option<u64>,
    style: Style,
    clock: Clock,
    next_ns: u64,
    shown: bool,
}

impl<'a> ProgressBar<'a> {
    pub(super) fn new(err: &'a mut dyn Write, total: Option<u64>, style: Style) -> Self {
        Self {
            err,
            total,
            style,
            clock: Clock::start(),
            next_ns: PATIENCE_NS,
            shown: false,
        }
    }

    /// Shows the progress, at most once per `BETWEEN_NS`.
    pub(super) fn show(&mut self, progress: Progress) -> io::Result<()> {
        let now_ns = self.clock.now().get();
        if now_ns < self.next_ns {
            return Ok(());
        }
        self.next_ns = now_ns.saturating_add(BETWEEN_NS);
        self.shown = true;
        let line = match progress {
            Progress::Reading { bytes, records } => {
                line(bytes, self.total, records, now_ns, self.style)
            }
            Progress::Deciding { requests, records } => deciding(requests, records, self.style),
        };
        // A line as wide as the terminal would wrap.
        let room = self.style.width.unwrap_or(usize::MAX).saturating_sub(1);
        let line = self.style.fit(&line, room);
        write!(self.err, "\r{line}\u{1b}[K")?;
        self.err.flush()
    }

    /// Clears the progress bar.
    pub(super) fn finish(self) -> io::Result<()> {
        if self.shown {
            write!(self.err, "\r\u{1b}[K")?;
            self.err.flush()?;
        }
        Ok(())
    }
}

/// Returns the line for the second phase, in which all requests have been read and are being
/// decided.
fn deciding(requests: u64, records: u64, style: Style) -> String {
    let bar = bar(requests, records, style);
    let percent = whole(100.0 * float(requests) / float(records.max(1)));
    format!("  {bar} {percent:>3} %  {requests} of {records} requests decided")
}

fn line(bytes: u64, total: Option<u64>, requests: u64, now_ns: u64, style: Style) -> String {
    let per_second = |n: u64| float(n) * 1e9 / float(now_ns.max(1));
    let rate = format!("{} requests/s", whole(per_second(requests)));
    let Some(total) = total else {
        let done = text::bytes(bytes);
        return format!("  {requests} requests, {done}, {rate}");
    };
    let done = bytes.min(total);
    let left = float(total - done) / per_second(done).max(1.0);
    let left = humanise(whole(left * 1e9));
    let percent = whole(100.0 * float(done) / float(total.max(1)));
    let (done_words, total_words) = (text::bytes(done), text::bytes(total));
    let bar = bar(done, total, style);
    format!("  {bar} {percent:>3} %  {done_words} of {total_words}, {rate}, {left} left")
}

#[cfg(test)]
mod tests {
    use super::*;

    const READING: Progress = Progress::Reading {
        bytes: 5,
        records: 1,
    };

    #[test]
    fn a_line_of_progress() {
        let second = 1_000_000_000;
        let style = Style::default();
        assert_eq!(
            line(64 << 20, Some(256 << 20), 500_000, second, style),
            "  ██▌·······  25 %  64.0 MiB of 256.0 MiB, 500000 requests/s, 3s left"
        );
        assert_eq!(
            line(64 << 20, None, 500_000, 2 * second, style),
            "  500000 requests, 64.0 MiB, 250000 requests/s"
        );
        assert_eq!(
            deciding(1, 4, style),
            "  ██▌·······  25 %  1 of 4 requests decided"
        );
        assert!(!deciding(0, 0, style).is_empty());
        assert!(!line(0, Some(0), 0, 0, style).is_empty());
        assert!(!line(u64::MAX, Some(1), u64::MAX, 1, style).is_empty());
    }

    #[test]
    fn a_short_run_shows_nothing() {
        let mut err = Vec::new();
        let mut progress = ProgressBar::new(&mut err, Some(10), Style::default());
        progress.show(READING).expect("writes");
        progress.finish().expect("writes");
        assert!(err.is_empty());
        let mut progress = ProgressBar::new(&mut err, Some(10), Style::default());
        progress.next_ns = 0;
        progress.show(READING).expect("writes");
        progress.finish().expect("writes");
        let text = String::from_utf8(err).expect("UTF-8");
        assert!(
            text.starts_with('\r') && text.ends_with("\r\u{1b}[K"),
            "{text:?}"
        );
    }
}
