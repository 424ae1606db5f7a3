//! The Buckets screen: all buckets as a table, filtered and sorted.

use loudou_limiter::Nanos;
use loudou_words::meaning::{Standing, refusals};
use loudou_words::num::count;
use loudou_words::text::humanise;
use ratatui::style::Style;

use super::bucket::Bucket;
use super::list;
use super::list::SCROLL_BAR;
use super::view::{About, View};
use crate::app::columns::{Column, Placed, Sort, Wishes, place};
use crate::app::command::{Binding, Command as C, bind, c, tab};
use crate::app::filter::Filter;
use crate::app::ingest;
use crate::app::layout::{HEAD, body_height, table_height};
use crate::app::line::Line;
use crate::app::rows::Row;
use crate::app::screen::{Places, Screen};
use crate::app::state::{Mode, State};
use crate::draw::bars;
use crate::draw::pen::Pen;
use crate::draw::words::{amount, percent, rate, seen, width as width_of};

const HERE: Places = Screen::Buckets.place();

static ABOUT: About = About {
    screen: Screen::Buckets,
    title: "Buckets",
    tab: tab(Screen::Buckets, &[c('1')], 0, "buckets", "show all buckets"),
    keys: KEYS,
    takes_turns: true,
    moves: false,
};

#[rustfmt::skip]
const KEYS: &[Binding] = &[
    bind((C::Filter, &[c('/')], HERE, 3, "filter", "filter rows: text, !text, refused > 5, would > 5")),
    bind((C::SortMenu, &[c('s')], HERE, 4, "sort", "choose the column to sort by")),
    bind((C::SortLeft, &[c('<')], HERE, 0, "sort-left", "sort by the column to the left")),
    bind((C::SortRight, &[c('>')], HERE, 0, "sort-right", "sort by the column to the right")),
    bind((C::Invert, &[c('i')], HERE, 9, "reverse", "reverse the order")),
];

/// The table of all buckets.
pub(super) struct Buckets;

impl View for Buckets {
    fn about(&self) -> &'static About {
        &ABOUT
    }

    fn draw(&self, pen: &mut Pen<'_>, state: &State) {
        draw(pen, state);
    }

    fn status(&self, state: &State) -> String {
        shown(state)
    }

    fn lines(&self, state: &State) -> usize {
        state.table.visible.len()
    }

    fn moved(&self, state: &State, page: usize, motion: C) -> usize {
        state.table.moved(page, motion)
    }

    fn at(&self, state: &State) -> usize {
        state.table.at
    }

    /// Selects a row; the selection then follows its bucket.
    fn select(&self, state: &mut State, at: usize) {
        state.table.at = at;
        state.table.is_missing = false;
        if let Some(row) = state.selected_row() {
            state.table.pinned = Some(row.id.clone());
        }
        state.table.scroll(table_height(state.size));
    }

    fn row<'a>(&self, state: &'a State) -> Option<&'a Row> {
        state.selected_row()
    }

    /// That of the selected bucket, also while it has no row, that of the filter, or the only one: an edit is about a rule.
    fn rule(&self, state: &State) -> Option<String> {
        let selected = state.selected_row().map(|row| &row.id);
        if let Some(id) = selected.or(state.table.pinned.as_ref()) {
            return Some(id.rule.clone());
        }
        if let Some(rule) = filtered_rule(state) {
            return Some(rule);
        }
        match state.data.as_ref()?.rules.rules.as_slice() {
            [only] => Some(only.name.clone()),
            _ => None,
        }
    }

    /// Clears the filter, or lets go of the selection: there is no screen to go back to.
    fn back(&self, state: &mut State) {
        if state.table.filter_text.is_empty() {
            state.table.pinned = None;
        }
        state.table.rewind();
        state.table.filter_text.clear();
        state.table.filter = Filter::default();
        state.table.filter_error = None;
        ingest::arrange(state);
    }

    fn obstacle(&self, state: &State, command: C) -> Option<String> {
        match command {
            C::Filter | C::SortMenu | C::Invert => {
                state.data.is_none().then(|| "no data yet".to_owned())
            }
            C::Back => {
                let at_home = state.table.filter_text.is_empty() && state.table.pinned.is_none();
                at_home.then(|| "this is the first screen; q quits".to_owned())
            }
            _ => None,
        }
    }

    fn run(&self, state: &mut State, command: C) {
        let Sort { column, descending } = state.table.sort;
        match command {
            C::Filter => {
                let text = state.table.filter_text.clone();
                state.mode = Mode::Filter(Line::new(&text), text);
            }
            C::SortMenu => {
                let at = |other: &Column| *other == column;
                state.mode = Mode::Sort(Column::SORTABLE.iter().position(at).unwrap_or(0));
            }
            C::SortLeft => ingest::sort(state, state.table.sort.step(-1)),
            C::SortRight => ingest::sort(state, state.table.sort.step(1)),
            C::Invert => {
                let descending = !descending;
                ingest::sort(state, Sort { column, descending });
            }
            _ => {}
        }
    }

    /// While the text is invalid, the last valid filter stays in effect.
    fn filter(&self, state: &mut State, text: &str) {
        let rules = state
            .data
            .as_ref()
            .map_or(&[][..], |data| &data.rules.rules);
        match Filter::of_rules(text, rules) {
            Ok(filter) => {
                state.table.filter = filter;
                state.table.filter_error = None;
                ingest::arrange(state);
            }
            Err(error) => state.table.filter_error = Some(error),
        }
    }

    fn filter_error<'a>(&self, state: &'a State) -> Option<&'a str> {
        state.table.filter_error.as_deref()
    }

    fn accept_filter(&self, state: &mut State, text: &str) -> Result<(), String> {
        if let Some(error) = state.table.filter_error.clone() {
            return Err(error);
        }
        state.table.applied(text);
        // The matching buckets may not have been read.
        state.link.hurry(state.now);
        Ok(())
    }

    /// A click selects a row, on the selected row it opens the bucket, on a header it sorts.
    fn clicked(&self, state: &mut State, x: u16, y: u16) {
        match hit(state, x, y) {
            Some(Hit::Row(at))
                if at == state.table.at
                    && state.table.pinned.is_some()
                    && !state.table.is_missing =>
            {
                Bucket.enter(state);
            }
            Some(Hit::Row(at)) => self.select(state, at),
            Some(Hit::Header(placed)) if Column::SORTABLE.contains(&placed.column) => {
                let Sort { column, descending } = state.table.sort;
                let again = column == placed.column;
                let by = Sort::by(placed.column);
                let descending = if again { !descending } else { by.descending };
                ingest::sort(state, Sort { descending, ..by });
            }
            _ => {}
        }
    }
}

/// The rule whose buckets alone are shown, also if it has none.
fn filtered_rule(state: &State) -> Option<String> {
    let wanted = state.table.filter.rule()?;
    let mut rules = state.data.as_ref()?.rules.rules.iter();
    let found = rules.find(|rule| rule.name.to_lowercase() == wanted);
    found.map(|rule| rule.name.clone())
}

/// The columns that fit, with their places.
fn columns(state: &State) -> Vec<Placed> {
    let status = state.data.as_ref().map(|data| &data.status);
    let wishes = Wishes {
        longest: state.data.as_ref().map_or((0, 0), |data| data.longest),
        has_fleet: status.is_some_and(|status| status.fleet.is_some()),
        has_limits: state
            .data
            .as_ref()
            .is_some_and(|data| data.rows.iter().any(|row| row.view.limits.len() > 1)),
    };
    place(state.size.0.saturating_sub(SCROLL_BAR), wishes)
}

/// A part of the table.
enum Hit {
    Header(Placed),
    /// The row with this index among the visible rows.
    Row(usize),
}

/// The part of the table at `x`, `y` of the whole screen.
fn hit(state: &State, x: u16, y: u16) -> Option<Hit> {
    let line = y.checked_sub(HEAD)?;
    if line >= body_height(state.size) {
        return None;
    }
    let Some(row) = line.checked_sub(1) else {
        let mut columns = columns(state).into_iter();
        let over = |c: &Placed| x >= c.x && x <= c.x.saturating_add(c.width);
        return columns.find(over).map(Hit::Header);
    };
    let lines = state.table.lines(table_height(state.size));
    lines.get(usize::from(row)).copied().map(Hit::Row)
}

fn counted_buckets(count: u64) -> String {
    let plural = if count == 1 { "" } else { "s" };
    format!("{} bucket{plural}", amount(count))
}

/// The number of buckets shown, out of all.
fn shown(state: &State) -> String {
    let Some(data) = &state.data else {
        return String::new();
    };
    let all = count(data.rows.len());
    let some = count(state.table.visible.len());
    let used = data.status.store.used;
    let mut text = match (data.searching, data.truncated) {
        (Some(percent), _) => format!("{} found, {percent}% searched", amount(some)),
        (None, true) if state.table.filter.is_empty() => {
            format!(
                "{} of {} buckets: those with most requests; / finds others",
                amount(some),
                amount(used)
            )
        }
        (None, _) if some == all => counted_buckets(some),
        (None, _) => format!("{} of {}", amount(some), counted_buckets(all)),
    };
    if !state.table.filter_text.is_empty() {
        text.push_str(", filter: ");
        text.push_str(&state.table.filter_text);
    }
    text
}

/// Draws the header line and the rows that fit.
fn draw(pen: &mut Pen<'_>, state: &State) {
    let columns = columns(state);
    header(pen, state, &columns);
    let theme = pen.theme;
    if state.table.visible.is_empty() {
        let none = if state.table.filter.is_empty() {
            "no buckets yet: no request has matched a rule"
        } else {
            match state
                .data
                .as_ref()
                .map(|data| (data.truncated, data.searching))
            {
                Some((_, Some(_))) => "searching",
                Some((true, _)) if state.table.filter.searches_keys() => {
                    "no bucket that was read matches; the search of the store needs keys with their capitals"
                }
                Some((true, _)) => Filter::advice(&state.table.filter_text)
                    .unwrap_or("no bucket that was read matches; Esc clears the filter"),
                _ => Filter::advice(&state.table.filter_text)
                    .unwrap_or("no bucket matches the filter; Esc clears it"),
            }
        };
        pen.middle(pen.height() / 2, none, theme.dim);
    }
    let lines = state.table.lines(table_height(state.size));
    for (index, y) in lines.iter().copied().zip(1..pen.height()) {
        let Some(row) = state.row(index) else {
            continue;
        };
        let changed = state
            .changed
            .as_ref()
            .is_some_and(|(rule, _)| *rule == row.id.rule);
        for placed in &columns {
            cell(pen, state, row, *placed, y, changed);
        }
        if index == state.table.at && !state.table.is_missing {
            pen.select_line(y);
            list::out_of_view(pen, y, &state.table, lines.len());
        }
    }
    let all = state.data.iter().flat_map(|data| &data.rows);
    list::missing(pen, &state.table, all);
    list::scroll_bar(pen, &state.table, lines.len());
}

fn header(pen: &mut Pen<'_>, state: &State, columns: &[Placed]) {
    let theme = pen.theme;
    pen.style_line(0, theme.head);
    let sort = state.table.sort;
    for Placed { column, x, width } in columns.iter().copied() {
        let mut title = column.title(width).to_owned();
        if column == sort.column {
            title = list::sorted(&title, column.is_right(), sort, theme);
        }
        // The arrow may use the gap before a column whose title fills it.
        let wide = width_of(&title);
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

// The cells of the table of buckets.

/// The table shows levels and waits as read, like the other columns; only the Bucket screen animates
/// them between polls.
const AS_READ: Nanos = Nanos::ZERO;

/// Draws one cell of a row.
fn cell(pen: &mut Pen<'_>, state: &State, row: &Row, at: Placed, y: u16, changed: bool) {
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
