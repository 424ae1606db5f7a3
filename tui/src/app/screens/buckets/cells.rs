//! The cells of the table of buckets.

use loudou_limiter::Nanos;
use ratatui::style::Style;

use crate::app::columns::{Column, Placed};
use crate::app::rows::Row;
use crate::app::state::State;
use crate::draw::bars;
use crate::draw::pen::Pen;
use crate::draw::words::{amount, percent, rate, seen, width as width_of};
use loudou_words::meaning::{Standing, refusals};
use loudou_words::text::humanise;

/// The table shows levels and waits as read, like the other columns; only the Bucket screen animates
/// them between polls.
const AS_READ: Nanos = Nanos::ZERO;

/// Draws one cell of a row.
pub(super) fn cell(pen: &mut Pen<'_>, state: &State, row: &Row, at: Placed, y: u16, changed: bool) {
    let theme = pen.theme;
    let Placed { column, x, width } = at;
    match column {
        Column::State => {
            let standing = row.standing();
            let (glyph, style) = theme.state(standing);
            pen.cell(i32::from(x), i32::from(y), glyph, style);
            let room = width.saturating_sub(2);
            let word = match standing {
                // The table's column is narrow.
                Standing::WouldRefuse | Standing::WouldHaveRefused => "shadow".to_owned(),
                _ => Some(row.state(state.age()))
                    .filter(|words| width_of(words) <= room)
                    .unwrap_or_else(|| standing.word().to_owned()),
            };
            if room > 0 {
                pen.within(x.saturating_add(2), y, room, &word, style);
            }
        }
        Column::Rule => {
            let style = if changed { theme.changed } else { theme.dim };
            pen.within(x, y, width, &row.id.rule, style);
        }
        Column::Key => {
            let mark = row
                .view
                .own
                .as_ref()
                .map_or("", |_| theme.pick_text(" ≠", " ~"));
            let room = width.saturating_sub(width_of(mark));
            let end = pen.within(x, y, room, &row.id.key, theme.strong);
            pen.text(end, y, mark, theme.warn);
        }
        Column::Limit => {
            let name = row.limit().map_or("", |limit| limit.name.as_str());
            pen.within(x, y, width, name, theme.dim);
        }
        Column::Level => level(pen, at, y, row.level(AS_READ), row.tone()),
        Column::Left => {
            let text = row.limit().map_or_else(String::new, |limit| {
                format!("{}/{}", amount(limit.remaining), amount(limit.capacity))
            });
            pen.right(x, y, width, &text, theme.plain);
        }
        Column::Leased => leased(pen, at, y, row),
        Column::Admitted => number(pen, at, y, row.rates.map(|r| r.admitted), theme.good),
        Column::Refused if row.view.shadow => would_refuse(pen, at, y, row),
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

/// Draws a level as a bar, with its number if there is room.
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

/// The units leased here; marked while more is denied, or the lease is out of force.
fn leased(pen: &mut Pen<'_>, at: Placed, y: u16, row: &Row) {
    let theme = pen.theme;
    let lease = row.view.lease.as_ref();
    let (text, style) = match lease {
        None => ("-".to_owned(), theme.dim),
        Some(lease) if lease.denied_until_ns.is_some() || row.view.outage.is_some() => {
            (amount(lease.tokens), theme.warn)
        }
        Some(lease) => (amount(lease.tokens), theme.plain),
    };
    pen.right(at.x, y, at.width, &text, style);
}

/// The rate of requests that a rule in shadow mode would refuse, in parentheses: they passed.
fn would_refuse(pen: &mut Pen<'_>, at: Placed, y: u16, row: &Row) {
    let theme = pen.theme;
    let value = row.rates.map(|rates| rates.shadow);
    let style = if value.unwrap_or(0.0) > 0.0 {
        theme.shadow
    } else {
        theme.dim
    };
    pen.right(at.x, y, at.width, &refusals(rate(value), true), style);
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

/// Draws the requests of the last minute; columns with refusals are marked by colour.
fn sparkline(pen: &mut Pen<'_>, state: &State, row: &Row) {
    let theme = pen.theme;
    let Some(track) = state.history.buckets.get(&row.id) else {
        return;
    };
    let series = track.series(pen.width());
    let all: Vec<_> = series
        .iter()
        .map(|r| r.map(|r| r.admitted + r.refused + r.shadow))
        .collect();
    let top = bars::peak(&all);
    for (x, (all, rates)) in all.iter().zip(&series).enumerate() {
        let style = match rates {
            Some(rates) if rates.refused > 0.0 => theme.bad,
            Some(rates) if rates.shadow > 0.0 => theme.shadow,
            _ => theme.good,
        };
        let x = loudou_words::num::cells(x);
        bars::columns(&mut pen.part(x, 0, 1, 1), &[*all], top, style);
    }
}
