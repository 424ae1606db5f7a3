//! Formats percentages and notes.

use std::io::{self, Write};

use super::over_time::WIDEST;
use crate::cells::wrap;
use crate::style::Style;
use crate::table::Paint;
use loudou_words::text::escape;

/// Prints a note or a warning, wrapped to the output width.
pub fn print_note(kind: &str, note: &str, out: &mut dyn Write, style: Style) -> io::Result<()> {
    let margin = kind.len() + 2;
    let width = style.width.unwrap_or(WIDEST).clamp(margin * 2, WIDEST);
    let room = u16::try_from(width.saturating_sub(margin)).unwrap_or(u16::MAX);
    let mut mark = format!("{kind}: ");
    for line in wrap(&escape(note), room) {
        let line = format!("{mark}{line}");
        writeln!(out, "{}", Paint::Warn.on(&line, style))?;
        mark = " ".repeat(margin);
    }
    Ok(())
}

/// Formats a rounded percentage. Only exact values are shown as 0 % or 100 %.
pub(super) fn share(part: u64, whole: u64) -> String {
    let (part, whole) = (u128::from(part), u128::from(whole));
    if part > 0 && part * 1_000 < whole {
        return "<0.1 %".to_owned();
    }
    let tenths = (part * 1_000 + whole / 2).checked_div(whole).unwrap_or(0);
    let tenths = tenths.min(if part < whole { 999 } else { 1_000 });
    format!("{}.{} %", tenths / 10, tenths % 10)
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn shares() {
        assert_eq!(share(0, 0), "0.0 %");
        assert_eq!(share(1, 1_000_000), "<0.1 %");
        assert_eq!(share(1, 1_000), "0.1 %");
        assert_eq!(share(490, 3_380), "14.5 %");
        assert_eq!(share(999_999, 1_000_000), "99.9 %");
        assert_eq!(share(u64::MAX, u64::MAX), "100.0 %");
    }
}
