//! Horizontal bars and vertical columns, drawn with block characters or ASCII characters.

/// Cells filled from the bottom by 0 to 8 eighths, each with its ASCII substitute.
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

/// Cells filled from the left by 0 to 8 eighths, each with its ASCII substitute.
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

/// Returns the character for a cell filled from the bottom by `eighths`.
pub fn rising(eighths: u16, ascii: bool) -> char {
    glyph(&RISING, eighths, ascii)
}

/// Returns the character for a cell filled from the left by `eighths`.
pub fn growing(eighths: u16, ascii: bool) -> char {
    glyph(&GROWING, eighths, ascii)
}

fn glyph(set: &[(char, char); 9], eighths: u16, ascii: bool) -> char {
    let glyph = set.get(usize::from(eighths.min(8)));
    glyph.map_or(' ', |(glyph, plain)| if ascii { *plain } else { *glyph })
}

/// Converts the fraction `part / total` to eighths of a cell in a bar with `cells` cells, rounded
/// up so that small parts stay visible. In ASCII, the result is a whole number of cells.
pub fn filled(part: u64, total: u64, cells: u16, ascii: bool) -> u16 {
    let step = if ascii { 8 } else { 1 };
    let steps = cells.saturating_mul(8) / step;
    let scaled = u128::from(part.min(total)).saturating_mul(u128::from(steps));
    let filled = scaled.div_ceil(u128::from(total).max(1));
    let filled = u16::try_from(filled).unwrap_or(steps);
    filled.saturating_mul(step)
}

/// Returns the number of filled eighths in cell number `cell` of a bar with `eighths` filled
/// eighths.
pub fn in_cell(eighths: u16, cell: u16) -> u16 {
    eighths.saturating_sub(cell.saturating_mul(8)).min(8)
}

/// Returns a bar of `cells` cells that shows `part` of `total`.
pub fn bar_text(part: u64, total: u64, cells: u16, ascii: bool) -> String {
    let eighths = filled(part, total, cells, ascii);
    let empty = if ascii { '.' } else { '·' };
    let cell = |cell| match in_cell(eighths, cell) {
        0 => empty,
        filled => growing(filled, ascii),
    };
    (0..cells).map(cell).collect()
}
