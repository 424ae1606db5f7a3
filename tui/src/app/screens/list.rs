//! Elements that all tables of buckets share: headings, the selection, and the reason why a table
//! is empty.

use loudou_words::meaning::refusals;
use loudou_words::num::count;
use ratatui::layout::{Constraint, Layout, Rect};
use ratatui::style::Style;
use ratatui::text::{Line, Span};

use crate::app::columns::{Column, Sort};
use crate::app::history::Rates;
use crate::app::press::Spot;
use crate::app::rows::Row;
use crate::app::state::State;
use crate::app::table::Table;
use crate::draw::pen::Pen;
use crate::draw::theme::Theme;
use crate::draw::widgets::Head;
use crate::draw::words::{amount, rate, text, width as width_of};

/// Splits an area into the table and the scroll bar to the right of its rows.
pub(super) fn beside_scroll_bar(area: Rect) -> [Rect; 2] {
    let columns = [Constraint::Fill(1), Constraint::Length(1)];
    let [body, edge] = Layout::horizontal(columns).spacing(1).areas(area);
    let [_, edge] = Layout::vertical([Constraint::Length(1), Constraint::Fill(1)]).areas(edge);
    [body, edge]
}

/// Returns the heading of a column. The column by which rows are sorted has an arrow.
pub(super) fn head(theme: &Theme, column: Column, width: u16, sort: Sort) -> Head {
    let mut title = Line::from(column.title(width));
    if column == sort.column {
        let arrow = if sort.descending {
            theme.pick("▼", "v")
        } else {
            theme.pick("▲", "^")
        };
        title.push_span(Span::styled(arrow, theme.key));
    }
    Head {
        title,
        width,
        is_right: column.is_right(),
        is_picture: matches!(column, Column::Level | Column::History),
        spot: Column::SORTABLE
            .contains(&column)
            .then_some(Spot::Head(column)),
    }
}

/// Names the selected bucket on the last line if it is missing from the list. The message depends
/// on whether `all` known rows still contain the bucket.
pub(super) fn missing<'a>(
    pen: &mut Pen<'_>,
    state: &State,
    table: &Table,
    mut all: impl Iterator<Item = &'a Row>,
) {
    let Some(id) = table.pinned.as_ref().filter(|_| table.is_missing) else {
        return;
    };
    let why = if all.any(|row| row.id == *id) {
        "is not in this list any more"
    } else {
        "has no bucket any more"
    };
    let (theme, last) = (pen.theme, pen.row(pen.area.height.saturating_sub(1)));
    let key = state.shown_key(&id.key);
    let words = format!(" {key} of {} {why}; none is selected ", id.rule);
    pen.line(last, Line::from(" ".repeat(last.width.into())));
    pen.style(last, theme.banner);
    pen.line(last, text(&words, theme.banner));
}

/// Marks the first or the last of the `lines` if the selection is out of view above or below them.
pub(super) fn out_of_view(pen: &mut Pen<'_>, table: &Table, lines: &[usize]) {
    let theme = pen.theme;
    let arrow = if table.at < table.offset {
        theme.pick("▲", "^")
    } else if table.at >= table.offset.saturating_add(lines.len()) {
        theme.pick("▼", "v")
    } else {
        return;
    };
    let Some(y) = lines.iter().position(|line| *line == table.at) else {
        return;
    };
    let words = format!(" {arrow} {} above ", amount(count(table.at)));
    let row = pen.row(loudou_words::num::cells(y).saturating_add(1));
    let width = width_of(&words).min(row.width);
    let place = Rect {
        x: row.right().saturating_sub(width).saturating_sub(1),
        width,
        ..row
    };
    pen.line(place, text(&words, theme.selected));
}

/// Shows why a list is empty, in the middle of the list.
pub(super) fn nothing(pen: &mut Pen<'_>, why: &'static str) {
    let style: Style = pen.theme.dim;
    let middle = pen.row(pen.area.height / 2);
    pen.line(middle, Line::from(Span::styled(why, style)).centered());
}

/// Formats the refusals per second. Refusals in shadow mode are in parentheses.
pub(super) fn refused(theme: &Theme, rates: Option<Rates>) -> Span<'static> {
    let Rates {
        refused, shadow, ..
    } = rates.unwrap_or_default();
    let number = rate(rates.map(|rates| rates.refused));
    let would = refusals(rate(Some(shadow)), true);
    match (refused > 0.0, shadow > 0.0) {
        (true, true) => text(&format!("{number} {would}"), theme.bad),
        (true, false) => text(&number, theme.bad),
        (false, true) => text(&would, theme.shadow),
        (false, false) => text(&number, theme.dim),
    }
}
