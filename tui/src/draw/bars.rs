//! Bars in eighths of a cell: a level from left to right, and counts over time from the bottom up. ASCII
//! has substitute characters.

use ratatui::style::Style;

use super::pen::Pen;
use loudou_words::num::{share, whole};

/// A cell filled from the bottom, by eighths, and its ASCII substitute.
const RISING: [(char, char); 9] = [
    (' ', ' '),
    ('▁', '.'),
    ('▂', '.'),
    ('▃', '.'),
    ('▄', '-'),
    ('▅', '-'),
    ('▆', '='),
    ('▇', '='),
    ('█', '#'),
];

/// A cell filled from the left, by eighths, and its ASCII substitute.
const GROWING: [(char, char); 9] = [
    (' ', ' '),
    ('▏', ' '),
    ('▎', ' '),
    ('▍', '-'),
    ('▌', '-'),
    ('▋', '='),
    ('▊', '='),
    ('▉', '#'),
    ('█', '#'),
];

/// A cell filled from the bottom by `eighths`.
pub(crate) fn rising(eighths: u16, ascii: bool) -> char {
    glyph(&RISING, eighths, ascii)
}

/// A cell filled from the left by `eighths`.
fn growing(eighths: u16, ascii: bool) -> char {
    glyph(&GROWING, eighths, ascii)
}

fn glyph(glyphs: &[(char, char); 9], eighths: u16, ascii: bool) -> char {
    let at = usize::from(eighths.min(8));
    let (glyph, plain) = glyphs.get(at).copied().unwrap_or((' ', ' '));
    if ascii { plain } else { glyph }
}

/// The number of eighths that `part` of `total` fills in `cells` cells, rounded up so that small parts
/// stay visible; in ASCII only whole cells.
pub(crate) fn filled(part: u64, total: u64, cells: u16, ascii: bool) -> u16 {
    let step = if ascii { 8 } else { 1 };
    let steps = cells.saturating_mul(8) / step;
    let scaled = u128::from(part.min(total)).saturating_mul(u128::from(steps));
    let filled = scaled.div_ceil(u128::from(total).max(1));
    let filled = u16::try_from(filled).unwrap_or(steps);
    filled.saturating_mul(step)
}

/// The number of eighths that a level of 0 to 1 fills in `cells` cells. A level above 0 fills at least one.
pub(crate) fn filled_by_level(level: f64, cells: u16) -> u16 {
    if level > 0.0 {
        share(level, cells.saturating_mul(8)).max(1)
    } else {
        0
    }
}

/// The eighths of `eighths` that fall into cell number `cell`.
pub(crate) fn in_cell(eighths: u16, cell: u16) -> u16 {
    eighths.saturating_sub(cell.saturating_mul(8)).min(8)
}

/// Draws a scroll bar over the whole area: of `all` rows, `shown` are shown from `first` on. Nothing if all are shown.
pub(crate) fn scroll(pen: &mut Pen<'_>, (first, shown, all): (usize, usize, usize)) {
    let height = usize::from(pen.height());
    if shown >= all || height == 0 {
        return;
    }
    let theme = pen.theme;
    let part = |rows: usize| rows.saturating_mul(height).checked_div(all).unwrap_or(0);
    let thumb = part(shown).clamp(1, height);
    let room = height.saturating_sub(thumb);
    // At the ends exactly when the rows are.
    let places = all.saturating_sub(shown);
    let top = first.min(places).saturating_mul(room);
    let top = top.checked_div(places).unwrap_or(0);
    let inner = room.saturating_sub(1).max(1);
    let top = match first {
        0 => 0,
        first if first >= places => room,
        _ => top.clamp(1, inner).min(room),
    };
    for y in 0..height {
        let is_thumb = (top..top.saturating_add(thumb)).contains(&y);
        let (glyph, style) = if is_thumb {
            (theme.pick('█', '#'), theme.dim)
        } else {
            (theme.pick('│', '|'), theme.track)
        };
        pen.cell(0, i32::from(loudou_words::num::cells(y)), glyph, style);
    }
}

/// `part` of `total` as text of `cells` cells.
pub(crate) fn text(part: u64, total: u64, cells: u16, ascii: bool) -> String {
    let eighths = filled(part, total, cells, ascii);
    let empty = if ascii { '.' } else { '·' };
    let cell = |cell| match in_cell(eighths, cell) {
        0 => empty,
        filled => growing(filled, ascii),
    };
    (0..cells).map(cell).collect()
}

/// A level of 0 to 1 in `width` cells at `x`, `y`, in the colour of the level `tone`.
pub(crate) fn level(pen: &mut Pen<'_>, x: u16, y: u16, width: u16, level: f64, tone: f64) {
    let theme = pen.theme;
    let eighths = filled_by_level(level, width);
    let style = theme.water(tone, 0.4);
    let empty = theme.pick('·', '.');
    for cell in 0..width {
        let filled = in_cell(eighths, cell);
        let at = i32::from(x.saturating_add(cell));
        if filled == 0 {
            pen.cell(at, i32::from(y), empty, theme.track);
        } else {
            pen.cell(at, i32::from(y), growing(filled, theme.ascii), style);
        }
    }
}

/// The largest of some values.
pub(crate) fn peak(values: &[Option<f64>]) -> f64 {
    values.iter().flatten().copied().fold(0.0, f64::max)
}

/// Values as columns over the whole area of `pen`, the largest at the top; dots where values are unknown.
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
            let filled = in_cell(eighths, row);
            let y = i32::from(height.saturating_sub(row).saturating_sub(1));
            if filled > 0 {
                pen.cell(x, y, rising(filled, theme.ascii), style);
            } else if row == 0 {
                pen.cell(x, y, theme.pick('▁', '_'), theme.track);
            }
        }
    }
}
