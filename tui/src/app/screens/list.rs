//! The parts that all tables of buckets draw alike: titles, the selection, the scroll bar.

use crate::app::columns::Sort;
use crate::app::rows::Row;
use crate::app::table::Table;
use crate::draw::bars;
use crate::draw::pen::Pen;
use crate::draw::theme::Theme;
use crate::draw::words::{amount, width as width_of};
use loudou_words::num::count;

/// The cells at the right that are left to the scroll bar.
pub(super) const SCROLL_BAR: u16 = 1;

/// The title of the column that the rows are sorted by.
pub(super) fn sorted(title: &str, is_right: bool, sort: Sort, theme: &Theme) -> String {
    let arrow = if sort.descending {
        theme.pick('▼', 'v')
    } else {
        theme.pick('▲', '^')
    };
    if is_right && !title.is_empty() {
        format!("{arrow}{title}")
    } else {
        format!("{title}{arrow}")
    }
}

/// Names the selected bucket on the last line if it is not among the rows that are shown, of `all` that are known.
pub(super) fn missing<'a>(
    pen: &mut Pen<'_>,
    table: &Table,
    mut all: impl Iterator<Item = &'a Row>,
) {
    let theme = pen.theme;
    let Some(id) = table.pinned.as_ref().filter(|_| table.is_missing) else {
        return;
    };
    let why = if all.any(|row| row.id == *id) {
        "is not in this list any more"
    } else {
        "has no bucket any more"
    };
    let y = pen.height().saturating_sub(1);
    let text = format!(" {} of {} {why}; none is selected ", id.key, id.rule);
    pen.style_line(y, theme.banner);
    pen.text(0, y, &text, theme.banner);
}

/// Marks the selection where it stands on the first or the last line because it is out of view.
pub(super) fn out_of_view(pen: &mut Pen<'_>, y: u16, table: &Table, lines: usize) {
    let theme = pen.theme;
    let arrow = if table.at < table.offset {
        theme.pick('▲', '^')
    } else if table.at >= table.offset.saturating_add(lines) {
        theme.pick('▼', 'v')
    } else {
        return;
    };
    let text = format!(" {arrow} {} above ", amount(count(table.at)));
    let width = width_of(&text);
    let x = pen.width().saturating_sub(SCROLL_BAR).saturating_sub(width);
    pen.text(x, y, &text, theme.selected);
}

/// Draws the scroll bar of a table with this many lines on screen, below the titles.
pub(super) fn scroll_bar(pen: &mut Pen<'_>, table: &Table, lines: usize) {
    let thumb = (table.offset, lines, table.visible.len());
    let x = pen.width().saturating_sub(SCROLL_BAR);
    let height = pen.height().saturating_sub(1);
    bars::scroll(&mut pen.part(x, 1, SCROLL_BAR, height), thumb);
}
