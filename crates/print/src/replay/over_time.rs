//! Plots refusals over time.

use std::io::{self, Write};

use loudou_replay::summary::TimelineSummary;

use super::plot::{self, Axis};
use crate::style::Style;
use loudou_words::text::{date, humanise};

/// Times from this value on, which is in 1973, are treated as Unix time. Smaller times are relative
/// to the start of the trace.
pub(super) const CALENDAR_NS: u64 = 100_000_000_000_000_000;
/// Maximum width of output other than tables, in cells.
pub(super) const WIDEST: usize = 78;

/// Formats a time in a trace as a date or as the time since the start of the trace.
pub fn instant(ns: u64) -> String {
    if ns < CALENDAR_NS {
        return humanise(ns);
    }
    date(ns / 1_000_000)
}

/// Plots refusals over time for one or several rule files. All plots have the same scale.
pub(super) fn print(
    sides: &[(&str, &TimelineSummary)],
    out: &mut dyn Write,
    style: Style,
) -> io::Result<()> {
    let refused = |line: &TimelineSummary| -> Vec<u64> {
        line.slots.iter().map(|slot| slot.refused).collect()
    };
    let highest = sides.iter().flat_map(|(_, line)| refused(line)).max();
    let is_instant = sides.iter().all(|(_, line)| line.slots.len() < 2);
    if highest.unwrap_or(0) == 0 || is_instant {
        return Ok(());
    }
    for (name, line) in sides {
        let (start, slot) = (line.start_ns, line.slot_ns);
        let width = style.width.unwrap_or(WIDEST).min(WIDEST);
        let values = refused(line);
        let each = plot::each(&values, width);
        let per = humanise(slot.saturating_mul(each));
        writeln!(out, "\nrefused per {per}{name}")?;
        let count = u64::try_from(values.len()).unwrap_or(u64::MAX);
        let span = slot.saturating_mul(count);
        let (from, to) = if start < CALENDAR_NS {
            ("0s".to_owned(), humanise(span))
        } else {
            let end = start.saturating_add(span);
            (instant(start), instant(end))
        };
        let axis = Axis { from, to };
        plot::print(&values, highest, &axis, width, out, style)?;
    }
    Ok(())
}
