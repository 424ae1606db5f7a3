//! The Buckets table.

use loudou_limiter::Nanos;
use ratatui::style::Style;

use crate::app::columns::{Column, Placed};
use crate::app::layout;
use crate::app::rows::Row;
use crate::app::state::State;
use crate::draw::bars;
use crate::draw::pen::Pen;
use crate::draw::words::{amount, percent, rate};
use crate::text::humanise;

/// Levels and waits in the table are those that were read, like the numbers beside them; only the
/// Bucket screen lets water fall between polls.
const AS_READ: Nanos = Nanos::ZERO;

/// Draws the header line and the rows that fit.
pub(crate) fn draw(pen: &mut Pen<'_>, state: &State) {
    let columns = layout::columns(state);
    header(pen, state, &columns);
    let theme = pen.theme;
    if state.table.visible.is_empty() {
        let none = if state.table.filter.is_empty() {
            "no buckets yet: no request has met a rule"
        } else {
            "no bucket passes the filter; Esc shows all"
        };
        pen.middle(pen.height() / 2, none, theme.dim);
    }
    let rows = state.rows().enumerate().skip(state.table.offset);
    for ((index, row), y) in rows.zip(1..pen.height()) {
        let Some(row) = row else { continue };
        let changed = state
            .changed
            .as_ref()
            .is_some_and(|(rule, _)| *rule == row.id.rule);
        for placed in &columns {
            cell(pen, state, row, *placed, y, changed);
        }
        if index == state.table.at {
            pen.select_line(y);
        }
    }
}

fn header(pen: &mut Pen<'_>, state: &State, columns: &[Placed]) {
    let theme = pen.theme;
    pen.style_line(0, theme.head);
    let sort = state.table.sort;
    for Placed { column, x, width } in columns.iter().copied() {
        let mut title = column.title(width).to_owned();
        if column == sort.column {
            let arrow = if sort.descending {
                theme.pick('▼', 'v')
            } else {
                theme.pick('▲', '^')
            };
            if title.is_empty() {
                title.push(arrow);
            } else if column.is_right() {
                title.insert(0, arrow);
            } else {
                title.push(arrow);
            }
        }
        // The arrow may use the gap before a column whose title fills it.
        let wide = crate::draw::words::width(&title);
        let (x, width) = if wide > width {
            (x.saturating_sub(1), wide)
        } else {
            (x, width)
        };
        if column.is_right() {
            pen.right(x, 0, width, &title, theme.head);
        } else {
            pen.within(x, 0, width, &title, theme.head);
        }
    }
}

fn cell(pen: &mut Pen<'_>, state: &State, row: &Row, at: Placed, y: u16, changed: bool) {
    let theme = pen.theme;
    let Placed { column, x, width } = at;
    match column {
        Column::State => {
            let (glyph, style) = theme.state(row.view.state);
            pen.cell(i32::from(x), i32::from(y), glyph, style);
            if width > 2 {
                let word = row.view.state.name();
                pen.within(x.saturating_add(2), y, width.saturating_sub(2), word, style);
            }
        }
        Column::Rule => {
            let style = if changed { theme.changed } else { theme.dim };
            pen.within(x, y, width, &row.id.rule, style);
        }
        Column::Key => {
            let mark = row.view.own.as_ref().map_or("", |_| theme.say(" ≠", " ~"));
            let room = width.saturating_sub(crate::draw::words::width(mark));
            let end = pen.within(x, y, room, &row.id.key, theme.strong);
            pen.text(end, y, mark, theme.warn);
        }
        Column::Level => level(pen, at, y, row.level(AS_READ), row.tone()),
        Column::Left => {
            let text = row.limit().map_or_else(String::new, |limit| {
                format!("{}/{}", amount(limit.remaining), amount(limit.capacity))
            });
            pen.right(x, y, width, &text, theme.plain);
        }
        Column::Admitted => number(pen, at, y, row.rates.map(|r| r.admitted), theme.good),
        Column::Refused => number(pen, at, y, row.rates.map(|r| r.refused), theme.bad),
        Column::History => sparkline(&mut pen.part(x, y, width, 1), state, row),
        Column::Retry => {
            let wait = row
                .retry_after_ns(AS_READ)
                .map(humanise)
                .unwrap_or_default();
            pen.right(x, y, width, &wait, theme.warn);
        }
        Column::Seen => pen.right(x, y, width, &seen(row.idle_ns(state.age())), theme.dim),
    }
}

/// A level as a bar, with the number where there is room.
fn level(pen: &mut Pen<'_>, at: Placed, y: u16, level: f64, tone: f64) {
    const NUMBER: u16 = 5;
    let theme = pen.theme;
    let Placed { x, width, .. } = at;
    if width < 10 {
        bars::level(pen, x, y, width, level, tone);
        return;
    }
    let bar = width.saturating_sub(NUMBER);
    bars::level(pen, x, y, bar, level, tone);
    pen.right(
        x.saturating_add(bar),
        y,
        NUMBER,
        &percent(level),
        theme.plain,
    );
}

fn number(pen: &mut Pen<'_>, at: Placed, y: u16, value: Option<f64>, style: Style) {
    let theme = pen.theme;
    let style = if value.unwrap_or(0.0) > 0.0 {
        style
    } else {
        theme.dim
    };
    pen.right(at.x, y, at.width, &rate(value), style);
}

/// What came in over the last minute; columns in which something was refused are marked by colour.
fn sparkline(pen: &mut Pen<'_>, state: &State, row: &Row) {
    let theme = pen.theme;
    let Some(track) = state.history.buckets.get(&row.id) else {
        return;
    };
    let series = track.series(pen.width());
    let all: Vec<_> = series
        .iter()
        .map(|r| r.map(|r| r.admitted + r.refused))
        .collect();
    let top = bars::peak(&all);
    for (x, (all, rates)) in all.iter().zip(&series).enumerate() {
        let refused = rates.is_some_and(|rates| rates.refused > 0.0);
        let style = if refused { theme.bad } else { theme.good };
        let x = crate::num::cells(x);
        bars::columns(&mut pen.part(x, 0, 1, 1), &[*all], top, style);
    }
}

/// How long ago, in whole units: tenths of a second would only flicker.
pub(crate) fn seen(ns: u64) -> String {
    const SECOND: u64 = 1_000_000_000;
    if ns < SECOND {
        return "now".to_owned();
    }
    humanise((ns / SECOND).saturating_mul(SECOND))
}
