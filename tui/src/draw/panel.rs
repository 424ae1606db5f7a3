//! A box over the screen: border, title, and lines that scroll if there are too many.

use ratatui::layout::Rect;
use ratatui::style::Style;

use super::pen::Pen;

/// Clears and borders a box in the middle, and returns a pen for its inside.
pub(crate) fn open<'a>(pen: &'a mut Pen<'_>, title: &str, width: u16, height: u16) -> Pen<'a> {
    let theme = pen.theme;
    let (x, y, width, height) = centred(pen.area, width, height);
    let mut outer = pen.part(x, y, width, height);
    outer.clear();
    border(&mut outer, theme.dim);
    if !title.is_empty() {
        let room = width.saturating_sub(4);
        outer.within(2, 0, room, &format!(" {title} "), theme.name);
    }
    let area = outer.area;
    let inset = |n: u16| n.saturating_sub(2);
    pen.part(
        area.x.saturating_sub(pen.area.x).saturating_add(1),
        area.y.saturating_sub(pen.area.y).saturating_add(1),
        inset(area.width),
        inset(area.height),
    )
}

/// The place of a box with this inside.
pub(crate) fn place(pen: &Pen<'_>) -> Rect {
    let inside = pen.area;
    Rect {
        x: inside.x.saturating_sub(1),
        y: inside.y.saturating_sub(1),
        width: inside.width.saturating_add(2),
        height: inside.height.saturating_add(2),
    }
}

fn border(pen: &mut Pen<'_>, style: Style) {
    let theme = pen.theme;
    let (right, bottom) = (
        pen.width().saturating_sub(1),
        pen.height().saturating_sub(1),
    );
    let (right, bottom) = (i32::from(right), i32::from(bottom));
    let (flat, tall) = (theme.pick('─', '-'), theme.pick('│', '|'));
    for x in 0..=right {
        pen.cell(x, 0, flat, style);
        pen.cell(x, bottom, flat, style);
    }
    for y in 0..=bottom {
        pen.cell(0, y, tall, style);
        pen.cell(right, y, tall, style);
    }
    for (x, y, corner) in [
        (0, 0, '╭'),
        (right, 0, '╮'),
        (0, bottom, '╰'),
        (right, bottom, '╯'),
    ] {
        pen.cell(x, y, theme.pick(corner, '+'), style);
    }
}

/// The middle of `area`, at most `width` by `height`.
fn centred(area: Rect, width: u16, height: u16) -> (u16, u16, u16, u16) {
    let (width, height) = (width.min(area.width), height.min(area.height));
    let x = area.width.saturating_sub(width) / 2;
    let y = area.height.saturating_sub(height) / 2;
    (x, y, width, height)
}

/// The first line to show of `len` so that line `at` is among `height` of them.
pub(crate) fn first_line(len: usize, height: u16, at: usize) -> usize {
    let height = usize::from(height);
    let last = len.saturating_sub(height);
    at.saturating_add(2).saturating_sub(height).min(last)
}
