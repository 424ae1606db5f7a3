//! The Buckets screen: all buckets as a table, filtered and sorted.

use loudou_api::BanBy;
use loudou_limiter::Nanos;
use loudou_words::meaning::{Standing, enforced_ban, refusals};
use loudou_words::num::{count, float, whole};
use loudou_words::text::humanise;
use ratatui::layout::{Constraint, Layout};
use ratatui::style::Style;
use ratatui::text::{Line, Span};

use super::bucket::{Bucket, draw_row};
use super::view::{About, View};
use super::{chart, list};
use crate::app::columns::{Column, Sort, WITH_WORD, fitting};
use crate::app::command::{Binding, Command as C, bind, c, tab};
use crate::app::demand::Demand;
use crate::app::filter::Filter;
use crate::app::history::{Rates, Track, WINDOW_NS};
use crate::app::ingest;
use crate::app::layout::table_height;
use crate::app::rows::Row;
use crate::app::screen::{Places, Screen};
use crate::app::state::{Data, Mode, State};
use crate::app::text_field::TextField;
use crate::draw::pen::Pen;
use crate::draw::theme::Theme;
use crate::draw::widgets::{self, Head};
use crate::draw::words::{amount, percent, rate, seen, text, whole_seconds, width as width_of};

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
    bind((C::SortMenu, &[c('s')], HERE, 8, "sort", "choose the column to sort by")),
    bind((C::SortLeft, &[c('<')], HERE, 0, "sort-left", "sort by the column to the left")),
    bind((C::SortRight, &[c('>')], HERE, 0, "sort-right", "sort by the column to the right")),
    bind((C::Invert, &[c('i')], HERE, 9, "reverse", "reverse the order")),
];

/// Minimum width at which the selected bucket is drawn to the right of the list.
const BESIDE: u16 = 200;

/// The Buckets screen.
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

    /// Selects a row. The selection then follows the row's bucket.
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

    /// Returns the rule that an edit would change: the rule of the selected bucket (even if the
    /// bucket no longer has a row), otherwise the rule that the filter selects, otherwise the only
    /// rule.
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

    /// Clears the filter or, if there is none, the selection. This is the first screen, so there is
    /// no other screen to return to.
    fn back(&self, state: &mut State) {
        if state.table.filter_text.is_empty() {
            state.table.pinned = None;
        }
        state.table.clear();
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
                state.mode = Mode::Filter(TextField::new(&text), text);
            }
            C::SortMenu => {
                let at = |other: &Column| *other == column;
                state.mode = Mode::Sort(Column::SORTABLE.iter().position(at).unwrap_or(0));
            }
            C::SortLeft => ingest::sort(state, state.table.sort.step(&Column::SORTABLE, -1)),
            C::SortRight => ingest::sort(state, state.table.sort.step(&Column::SORTABLE, 1)),
            C::Invert => {
                let descending = !descending;
                ingest::sort(state, Sort { column, descending });
            }
            _ => {}
        }
    }

    fn filter(&self, state: &mut State, text: &str) {
        let rules = state
            .data
            .as_ref()
            .map_or(&[][..], |data| &data.rules.rules);
        if state.table.filter_by(text, rules) {
            ingest::arrange(state);
        }
    }

    fn filter_error<'a>(&self, state: &'a State) -> Option<&'a str> {
        state.table.filter_error.as_deref()
    }

    fn accept_filter(&self, state: &mut State, text: &str) -> Result<(), String> {
        state.table.applied(text)?;
        // A poll starts at once, because the matching buckets may not have been read yet.
        state.link.hurry(state.now);
        Ok(())
    }

    /// Selects the clicked row. A click on the selected row opens the bucket.
    fn clicked(&self, state: &mut State, at: usize) {
        let table = &state.table;
        if at == table.at && table.pinned.is_some() && !table.is_missing {
            Bucket.enter(state);
        } else {
            self.select(state, at);
        }
    }

    fn sorted_by(&self, state: &mut State, column: Column) {
        ingest::sort(state, state.table.sorted_by(column));
    }
}

/// Returns the rule that the filter restricts the list to, even if the rule has no buckets.
fn filtered_rule(state: &State) -> Option<String> {
    let wanted = state.table.filter.rule()?;
    let mut rules = state.data.as_ref()?.rules.rules.iter();
    let found = rules.find(|rule| rule.name.to_lowercase() == wanted);
    found.map(|rule| rule.name.clone())
}

fn counted_buckets(count: u64) -> String {
    let plural = if count == 1 { "" } else { "s" };
    format!("{} bucket{plural}", amount(count))
}

/// Describes how many of the buckets are shown.
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
        (None, true) => {
            let read = counted_buckets(all);
            format!(
                "{} of {read} read, of {} in the store",
                amount(some),
                amount(used)
            )
        }
        (None, false) => format!("{} of {}", amount(some), counted_buckets(all)),
    };
    if !state.table.filter_text.is_empty() {
        text.push_str(", filter: ");
        text.push_str(&state.table.filter_text);
    }
    text
}

/// Draws the headings and the rows that fit.
fn draw(pen: &mut Pen<'_>, state: &State) {
    let Some(data) = &state.data else { return };
    let table = &state.table;
    // If there is room, the selected bucket is drawn to the right of the list.
    let is_wide = pen.area.width >= BESIDE;
    let open = state.selected_row().filter(|_| is_wide);
    let share = if open.is_some() { 45 } else { 0 };
    let [list, pane] =
        Layout::horizontal([Constraint::Fill(1), Constraint::Percentage(share)]).areas(pen.area);
    if let Some(row) = open {
        draw_row(&mut pen.part(pane), state, row);
    }
    let pen = &mut pen.part(list);
    let [body, edge] = list::beside_scroll_bar(pen.area);
    let rows = &data.rows;
    let is_used = |column| match column {
        Column::Leased => data.status.fleet.is_some(),
        Column::Limit => rows.iter().any(|row| row.view.limits.len() > 1),
        Column::Ends => rows.iter().any(|row| End::of(state, row).is_some()),
        Column::Asks => rows.iter().any(|row| asks(state, row).is_some()),
        _ => true,
    };
    let columns = fitting(body.width, data.longest, is_used);
    let lines = table.lines(table_height(state.size));
    let rows = lines.iter().filter_map(|index| {
        let row = state.row(*index)?;
        let cells = columns
            .iter()
            .map(|(column, width)| cell(pen.theme, state, row, *column, *width));
        Some((*index, cells.collect()))
    });
    let rows = rows.collect();
    let heads = columns
        .iter()
        .map(|(column, width)| list::head(pen.theme, *column, *width, table.sort));
    let heads: Vec<Head> = heads.collect();
    let selected = (!table.is_missing).then_some(table.at);
    widgets::table(&mut pen.part(body), &heads, rows, selected);
    list::out_of_view(pen, table, &lines);
    if table.visible.is_empty() {
        list::nothing(pen, none(state, data));
    }
    list::missing(pen, state, table, data.rows.iter());
    widgets::scroll_bar(pen, edge, table.offset, lines.len(), table.visible.len());
}

/// Returns a message that explains why no bucket is shown.
fn none(state: &State, data: &Data) -> &'static str {
    let table = &state.table;
    if table.filter.is_empty() {
        return "no buckets yet: no request has matched a rule";
    }
    if data.searching.is_some() {
        return "searching";
    }
    if data.truncated && table.filter.searches_keys() {
        return "no bucket that was read matches; the search of the store needs keys with their capitals";
    }
    Filter::advice(&table.filter_text).unwrap_or(if data.truncated {
        "no bucket that was read matches; Esc clears the filter"
    } else {
        "no bucket matches the filter; Esc clears it"
    })
}

/// The table shows levels and retry times as read, like the other columns. Only the Bucket screen
/// animates them between polls.
const AS_READ: Nanos = Nanos::ZERO;

/// Returns a cell of a row.
fn cell(theme: &Theme, state: &State, row: &Row, column: Column, width: u16) -> Line<'static> {
    let rates = row.rates;
    match column {
        Column::State => in_state(theme, state, row, width),
        Column::Rule => {
            let changed = state.changed.as_ref();
            let is_changed = changed.is_some_and(|(rule, _)| *rule == row.id.rule);
            let style = if is_changed { theme.changed } else { theme.dim };
            text(&row.id.rule, style).into()
        }
        Column::Key => {
            let own = row.view.own.is_some();
            let mark = if own { theme.pick(" ≠", " ~") } else { "" };
            let room = width.saturating_sub(width_of(mark));
            let key = theme.fit_line(
                text(&state.shown_key(&row.id.key), theme.strong).into(),
                room,
            );
            let mut line = key;
            line.push_span(Span::styled(mark, theme.warn));
            line
        }
        Column::Limit => {
            let name = row.limit().map_or("", |limit| limit.name.as_str());
            text(name, theme.dim).into()
        }
        Column::Level => {
            // Red is reserved for refused requests, so the colour differs in shadow mode.
            let is_shadow = row.view.shadow && row.tone() > 0.0;
            let style = if is_shadow {
                theme.shadow
            } else {
                theme.bar(row.tone().min(if is_mostly_refused(state, row) {
                    1.0
                } else {
                    0.8
                }))
            };
            level(theme, width, row.shown_level(), style)
        }
        Column::Left => {
            let left = row
                .limit()
                .map(|limit| format!("{}/{}", amount(limit.remaining), amount(limit.capacity)));
            text(&left.unwrap_or_default(), theme.plain).into()
        }
        Column::Leased => leased(theme, row).into(),
        Column::Admitted => number(theme, rates.map(|rates| rates.admitted), theme.good).into(),
        // Refusals in shadow mode are shown in parentheses because the requests passed.
        Column::Refused if row.view.shadow => {
            let would = rates.map(|rates| rates.shadow);
            let number = number(theme, would, theme.shadow);
            text(&refusals(rate(would), true), number.style).into()
        }
        Column::Refused => {
            let style = if is_mostly_refused(state, row) {
                theme.bad
            } else {
                theme.warn
            };
            number(theme, rates.map(|rates| rates.refused), style).into()
        }
        Column::Peak => peak(theme, state, row).into(),
        Column::Since => since(theme, state, row).into(),
        Column::Ends => ends(theme, End::of(state, row), width).into(),
        Column::History => demand(theme, state, row, width),
        Column::Asks => {
            let asks = asks(state, row).map(|demand| format!("×{}", demand.factor));
            text(&theme.said(&asks.unwrap_or_default()), theme.warn).into()
        }
        Column::Retry => {
            let wait = row.retry_after_ns(AS_READ).map(humanise);
            text(&wait.unwrap_or_default(), theme.warn).into()
        }
        Column::Seen => text(&seen(row.idle_ns(state.age())), theme.dim).into(),
    }
}

/// Returns the demand of a key that was refused within the last minute, if it exceeds its limit.
fn asks(state: &State, row: &Row) -> Option<Demand> {
    row.was_refused_lately().then(|| Demand::of(state, row))?
}

/// Returns true if at least half of the key's requests of the last minute were refused, or if its
/// requests are not known. Only then is the row of a refusing bucket red.
fn is_mostly_refused(state: &State, row: &Row) -> bool {
    let Some(track) = state.history.buckets.get(&row.id) else {
        return true;
    };
    let counts = track.counted_since(track.known_since());
    enforced_ban(&row.view).is_some() || counts.refused.saturating_mul(2) >= counts.all()
}

/// Returns the state's glyph and, if there is room, its words.
fn in_state(theme: &Theme, state: &State, row: &Row, width: u16) -> Line<'static> {
    let (standing, age) = (row.standing(), state.age());
    let (glyph, style) = match theme.state(standing) {
        (glyph, _) if standing == Standing::Refusing && !is_mostly_refused(state, row) => {
            (glyph, theme.warn)
        }
        of_standing => of_standing,
    };
    let room = width.saturating_sub(2);
    let words = match standing {
        _ if room == 0 => String::new(),
        // The column is narrow, so it only says `shadow`.
        Standing::WouldRefuse | Standing::WouldHaveRefused => " shadow".to_owned(),
        _ => {
            let words = row.state(age);
            let words = if width_of(&words) <= room {
                words.as_str()
            } else {
                standing.word()
            };
            format!(" {words}")
        }
    };
    text(&format!("{glyph}{words}"), style).into()
}

/// Returns a bar for a level, followed by the percentage if there is room.
fn level(theme: &Theme, width: u16, level: f64, style: Style) -> Line<'static> {
    const NUMBER: usize = 5;
    let number = if width < 10 {
        String::new()
    } else {
        format!("{:>NUMBER$}", percent(level))
    };
    let bar = width.saturating_sub(width_of(&number));
    let [full, empty] = widgets::level(theme, bar, level, style);
    Line::from(vec![full, empty, text(&number, theme.plain)])
}

/// Returns the units leased to this Envoy. The number is highlighted while the engine denies more
/// units, or while the lease is not in effect because of an outage.
fn leased(theme: &Theme, row: &Row) -> Span<'static> {
    match &row.view.lease {
        None => text("-", theme.dim),
        Some(lease) if lease.denied_until_ns.is_some() || row.view.outage.is_some() => {
            text(&amount(lease.tokens), theme.warn)
        }
        Some(lease) => text(&amount(lease.tokens), theme.plain),
    }
}

/// Returns the time since the current run of refusals began, or `?` if requests were refused lately
/// but it is unknown since when.
fn since(theme: &Theme, state: &State, row: &Row) -> Span<'static> {
    let style = if row.view.shadow {
        theme.shadow
    } else {
        theme.warn
    };
    let now_ns = state.server_ns().saturating_add(state.age().get());
    match row.view.refused_since_ns {
        Some(since_ns) => text(&seen(now_ns.saturating_sub(since_ns)), style),
        None if row.was_refused_lately() => text("?", theme.dim),
        None => Span::default(),
    }
}

/// End of a key's enforced ban or, if the key is not banned, of its edited override.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
struct End {
    /// Origin of the ban, or `None` for an override.
    ban: Option<BanBy>,
    /// Remaining time, or `None` if the ban or override does not expire.
    left_ns: Option<u64>,
}

impl End {
    /// Returns the end to show in a row. An override in the configuration does not expire, so it is
    /// returned only if it bans the key.
    fn of(state: &State, row: &Row) -> Option<Self> {
        let ban = enforced_ban(&row.view);
        let edit = row.view.own.as_ref().and_then(|own| {
            let edited = &state.rule_named(&row.id.rule)?.overrides;
            let found = edited.iter().find(|edited| edited.key == own.pattern);
            found.map(|edited| &edited.edit)
        });
        let until_ns = match (ban, edit) {
            (None, None) => return None,
            (Some(ban), _) if ban.by != BanBy::Override => ban.until_ns,
            (_, edit) => edit.and_then(|edit| edit.expires_at_ns),
        };
        let now_ns = state.server_ns().saturating_add(state.age().get());
        Some(Self {
            ban: ban.map(|ban| ban.by),
            left_ns: until_ns.map(|until| until.saturating_sub(now_ns)),
        })
    }
}

/// Returns the remaining time of a ban or an override and, if there is room, who banned the key.
fn ends(theme: &Theme, end: Option<End>, width: u16) -> Span<'static> {
    let Some(end) = end else {
        return Span::default();
    };
    let (glyph, word, style) = match end.ban {
        Some(by) => (theme.pick("⊘", "#"), by.name(), theme.bad),
        None => (theme.pick("≠", "~"), "override", theme.warn),
    };
    let kind = if width < WITH_WORD { glyph } else { word };
    let left = end.left_ns.map(|ns| humanise(whole_seconds(ns)));
    let left = left.unwrap_or_else(|| "never".to_owned());
    text(&format!("{kind} {left}"), style)
}

/// Formats the highest rate in the last minute. A rate far above the mean is highlighted, because it means that the key
/// sent a burst.
fn peak(theme: &Theme, state: &State, row: &Row) -> Span<'static> {
    const FAR: f64 = 4.0;
    let track = state.history.buckets.get(&row.id);
    let Some(peak) = track.and_then(Track::peak).filter(|peak| *peak > 0.0) else {
        return Span::default();
    };
    let mean = row.rates.map_or(0.0, |rates| rates.all());
    let is_burst = peak >= FAR && peak >= mean * FAR;
    text(
        &rate(Some(peak)),
        if is_burst { theme.strong } else { theme.dim },
    )
}

/// Formats a rate. A rate of zero is dimmed.
fn number(theme: &Theme, value: Option<f64>, style: Style) -> Span<'static> {
    let is_some = value.unwrap_or(0.0) > 0.0;
    text(&rate(value), if is_some { style } else { theme.dim })
}

/// Minimum number of requests in a column, so that its rate can be compared with the limit.
const FEW: f64 = 4.0;

/// Averages columns with few requests over the time in which the limit admits [`FEW`] requests.
/// Otherwise, one request in a short column would look like a rate far above the limit. Columns
/// with more requests stay as they are.
fn smooth(series: &[Option<Rates>], allowed: Option<f64>) -> Vec<Option<Rates>> {
    let seconds = float(WINDOW_NS) / 1e9 / float(count(series.len()).max(1));
    let few = FEW / seconds;
    let span = allowed.map_or(1, |allowed| {
        whole((few / allowed).ceil()).clamp(1, u16::MAX.into())
    });
    let span = usize::try_from(span).unwrap_or(1);
    let is_few = |rates: &&Rates| rates.all() < few;
    let first = series.iter().position(Option::is_some).unwrap_or(0);
    let column = |(at, rates): (usize, &Option<Rates>)| {
        let few = rates.as_ref().filter(is_few);
        let least = first.saturating_add(span);
        let end = at.saturating_add(1).max(least).min(series.len());
        let near = series.get(end.saturating_sub(span)..end);
        let near = near.filter(|_| few.is_some());
        let Some(near) = near else { return *rates };
        let known: Vec<&Rates> = near.iter().flatten().filter(is_few).collect();
        let sum = known
            .iter()
            .fold(Rates::default(), |sum, rates| sum.plus(**rates));
        Some(sum.times(float(count(known.len())).recip()))
    };
    series.iter().enumerate().map(column).collect()
}

/// Draws the requests of the last minute in relation to the limit, with the same scale for all
/// rows: half a cell is the limit's rate.
fn demand(theme: &Theme, state: &State, row: &Row, width: u16) -> Line<'static> {
    const LIMIT: f64 = 4.0;
    let Some(track) = state.history.buckets.get(&row.id) else {
        return Line::default();
    };
    let allowed = row.allowed_per_second();
    let series = smooth(&track.series(width), allowed);
    // If the limit has no rate, the columns are scaled to the row's peak.
    let per = allowed.unwrap_or_else(|| chart::peak(&series));
    chart::requests(theme, &series, per, LIMIT)
}
