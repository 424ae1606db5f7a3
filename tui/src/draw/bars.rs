//! Bars: a level from left to right, and counts through time from the bottom up.

use ratatui::style::Style;

use super::pen::Pen;
use crate::num::{share, whole};

/// A level of 0 to 1 in `width` cells at `x`, `y`, in the colour of the level `tone`.
pub(crate) fn level(pen: &mut Pen<'_>, x: u16, y: u16, width: u16, level: f64, tone: f64) {
    let theme = pen.theme;
    let eighths = share(level, width.saturating_mul(8));
    // A little is never drawn as nothing.
    let eighths = if level > 0.0 { eighths.max(1) } else { 0 };
    let style = theme.water(tone, 0.4);
    let empty = theme.pick('·', '.');
    for cell in 0..width {
        let filled = eighths.saturating_sub(cell.saturating_mul(8)).min(8);
        let at = i32::from(x.saturating_add(cell));
        if filled == 0 {
            pen.cell(at, i32::from(y), empty, theme.track);
        } else {
            pen.cell(at, i32::from(y), theme.growing(filled), style);
        }
    }
}

/// The largest of some values.
pub(crate) fn peak(values: &[Option<f64>]) -> f64 {
    values.iter().flatten().copied().fold(0.0, f64::max)
}

/// Values as columns over the whole area of `pen`, the largest at the top; dots where nothing is known.
pub(crate) fn columns(pen: &mut Pen<'_>, values: &[Option<f64>], top: f64, style: Style) {
    let theme = pen.theme;
    let height = pen.height();
    for (x, value) in (0_i32..).zip(values) {
        let Some(value) = value else {
            let bottom = i32::from(height).saturating_sub(1);
            pen.cell(x, bottom, theme.pick('·', ' '), theme.track);
            continue;
        };
        let full = f64::from(height) * 8.0;
        let eighths = if top > 0.0 {
            (value / top).clamp(0.0, 1.0) * full
        } else {
            0.0
        };
        let eighths = u16::try_from(whole(eighths.ceil())).unwrap_or(0);
        for row in 0..height {
            let filled = eighths.saturating_sub(row.saturating_mul(8)).min(8);
            let y = i32::from(height.saturating_sub(row).saturating_sub(1));
            if filled > 0 {
                pen.cell(x, y, theme.rising(filled), style);
            } else if row == 0 {
                pen.cell(x, y, theme.pick('▁', '_'), theme.track);
            }
        }
    }
}
