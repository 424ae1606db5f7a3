//! Bars and columns of block characters, or of ASCII characters.

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

/// Returns a cell filled from the bottom by `eighths`.
pub fn rising(eighths: u16, ascii: bool) -> char {
    glyph(&RISING, eighths, ascii)
}

/// Returns a cell filled from the left by `eighths`.
pub fn growing(eighths: u16, ascii: bool) -> char {
    glyph(&GROWING, eighths, ascii)
}

fn glyph(set: &[(char, char); 9], eighths: u16, ascii: bool) -> char {
    let glyph = set.get(usize::from(eighths.min(8)));
    glyph.map_or(' ', |(glyph, plain)| if ascii { *plain } else { *glyph })
}

/// Returns the number of eighths that `part` of `total` fills in `cells` cells, rounded up so that
/// small parts stay visible. In ASCII only whole cells are filled.
pub fn filled(part: u64, total: u64, cells: u16, ascii: bool) -> u16 {
    let step = if ascii { 8 } else { 1 };
    let steps = cells.saturating_mul(8) / step;
    let scaled = u128::from(part.min(total)).saturating_mul(u128::from(steps));
    let filled = scaled.div_ceil(u128::from(total).max(1));
    let filled = u16::try_from(filled).unwrap_or(steps);
    filled.saturating_mul(step)
}

/// Returns the number of `eighths` in cell number `cell`.
pub fn in_cell(eighths: u16, cell: u16) -> u16 {
    eighths.saturating_sub(cell.saturating_mul(8)).min(8)
}

/// Draws `part` of `total` as a text of `cells` cells.
pub fn bar_text(part: u64, total: u64, cells: u16, ascii: bool) -> String {
    let eighths = filled(part, total, cells, ascii);
    let empty = if ascii { '.' } else { '·' };
    let cell = |cell| match in_cell(eighths, cell) {
        0 => empty,
        filled => growing(filled, ascii),
    };
    (0..cells).map(cell).collect()
}
