//! The Bucket screen: the funnel, the numbers of every limit, the rates, and the edit of the rule.

use loudou_api::{Event, EventKind, LeaseView, LimitView, RuleView};
use loudou_limiter::Nanos;
use ratatui::layout::{Constraint, Layout, Margin, Rect};
use ratatui::style::Style;
use ratatui::text::{Line, Span};

use super::chart;
use super::rules::in_words;
use super::view::{About, View};
use crate::app::command::{c, tab};
use crate::app::demand::Demand;
use crate::app::press::Spot;
use crate::app::rows::{BucketName, Row, level, remaining, tone};
use crate::app::screen::Screen;
use crate::app::state::State;
use crate::draw::pen::Pen;
use crate::draw::theme::Theme;
use crate::draw::widgets::{self, all};
use crate::draw::words::{ago, amount, percent, seen, text, wrap};
use loudou_words::meaning::{Origins, brought, enforced_ban, leased, main_limit, stands_out};
use loudou_words::num::cells;
use loudou_words::text::humanise;

use funnel::Water;

mod funnel;

static ABOUT: About = About {
    screen: Screen::Bucket,
    title: "Bucket",
    tab: tab(
        Screen::Bucket,
        &[c('2')],
        0,
        "bucket",
        "show the selected bucket",
    ),
    keys: &[],
    takes_turns: false,
    moves: true,
};

/// The Bucket screen.
pub(super) struct Bucket;

impl View for Bucket {
    fn about(&self) -> &'static About {
        &ABOUT
    }

    fn draw(&self, pen: &mut Pen<'_>, state: &State) {
        draw(pen, state);
    }

    fn lines(&self, state: &State) -> usize {
        state.open_row().map_or(0, |row| row.view.limits.len())
    }

    fn at(&self, state: &State) -> usize {
        let main = state.open_row().map_or(0, |row| main_limit(&row.view));
        state.limit.unwrap_or(main)
    }

    fn select(&self, state: &mut State, at: usize) {
        state.limit = Some(at);
    }

    fn row<'a>(&self, state: &'a State) -> Option<&'a Row> {
        state.open_row()
    }

    fn bucket(&self, state: &State) -> Option<BucketName> {
        state.open.clone()
    }

    fn closed(&self, state: &State) -> Option<String> {
        let gone = state.open.is_none() && state.selected_row().is_none();
        gone.then(|| "no bucket is selected".to_owned())
    }

    /// Opens the selected bucket or, if there is none, the bucket that was opened last.
    fn enter(&self, state: &mut State) {
        if let Some(row) = state.selected_row() {
            let id = row.id.clone();
            if state.open.as_ref() != Some(&id) && state.screen == Screen::Buckets {
                state.limit = None;
                state.open = Some(id.clone());
            }
            state.open.get_or_insert_with(|| id.clone());
            state.table.pinned.get_or_insert(id);
        }
        state.screen = Screen::Bucket;
    }
}

/// Minimum width at which the funnel is drawn to the left of the numbers.
const BESIDE: u16 = 64;

/// Draws the open bucket.
fn draw(pen: &mut Pen<'_>, state: &State) {
    let theme = pen.theme;
    let Some(id) = &state.open else { return };
    let Some(row) = state.open_row() else {
        let words = format!(
            "{} has no bucket now; its next request creates one",
            state.shown_key(&id.key)
        );
        let third = pen.row(pen.area.height / 3);
        return pen.line(third, Line::from(text(&words, theme.dim)).centered());
    };
    draw_row(pen, state, row);
}

/// Draws a bucket's title, funnel and numbers.
pub(super) fn draw_row(pen: &mut Pen<'_>, state: &State, row: &Row) {
    let [head, body] =
        Layout::vertical([Constraint::Length(1), Constraint::Fill(1)]).areas(pen.area);
    title(&mut pen.part(head), state, row);
    let is_wide = body.width >= BESIDE && body.height >= 10;
    let layout = if is_wide {
        Layout::horizontal([Constraint::Percentage(45), Constraint::Fill(1)])
    } else {
        let funnel = if body.height >= 28 {
            body.height / 2
        } else {
            0
        };
        Layout::vertical([Constraint::Length(funnel), Constraint::Fill(1)])
    };
    let [funnel, rest] = layout.areas(body);
    draw_funnel(&mut pen.part(funnel), state, row);
    let left = u16::from(!is_wide);
    let rest = Rect {
        x: rest.x.saturating_add(left),
        width: rest.width.saturating_sub(left.saturating_add(1)),
        ..rest
    };
    numbers(&mut pen.part(rest), state, row);
}

fn title(pen: &mut Pen<'_>, state: &State, row: &Row) {
    let theme = pen.theme;
    let (glyph, style) = theme.state(row.standing());
    let words = text(&format!("{glyph} {}", row.state(state.age())), style);
    let age = drain_age(state, row);
    let wait = row.retry_after_ns(age);
    let wait = wait.map(|ns| format!("  retry after {}", humanise(ns)));
    let end = row.ban_left_ns(age);
    let wait = wait.or_else(|| end.map(|ns| format!("  ends in {}", humanise(ns))));
    let seen = format!("  seen {}", seen(row.idle_ns(state.drain_age(row))));
    let most = pen
        .area
        .width
        .saturating_sub(cells(words.width()).saturating_add(5));
    let mut line = theme.fit_line(text(&row.id.rule, theme.dim).into(), most / 2);
    line.push_span(Span::styled(theme.pick(" › ", " > "), theme.dim));
    line.push_span(text(&state.shown_key(&row.id.key), theme.name));
    let mut line = theme.fit_line(line, most);
    line.extend([
        Span::raw("  "),
        words,
        text(&wait.unwrap_or_default(), theme.warn),
    ]);
    if line.width().saturating_add(seen.len()) < usize::from(pen.area.width) {
        line.push_span(text(&seen, theme.dim));
    }
    let area = pen.area.inner(Margin::new(1, 0));
    pen.line(area, line);
}

/// Returns the time by which the drawn levels have drained since the bucket was read. The time is
/// zero while requests are admitted, because these fill the bucket about as fast as it drains.
fn drain_age(state: &State, row: &Row) -> Nanos {
    let rates = row.rates.unwrap_or_default();
    if rates.admitted > 0.0 {
        Nanos::ZERO
    } else {
        state.drain_age(row)
    }
}

fn shown_limit(state: &State, row: &Row) -> usize {
    let last = row.view.limits.len().saturating_sub(1);
    state
        .limit
        .unwrap_or_else(|| main_limit(&row.view))
        .min(last)
}

fn draw_funnel(pen: &mut Pen<'_>, state: &State, row: &Row) {
    let Some(limit) = row.view.limits.get(shown_limit(state, row)) else {
        return;
    };
    let frozen = state.frozen.as_ref().map(|frozen| frozen.since);
    let time = if state.is_stale() {
        state.data.as_ref().map_or(state.now, |data| data.read_at)
    } else {
        frozen.unwrap_or(state.now)
    };
    let water = Water {
        limit,
        level: level(limit, drain_age(state, row)),
        tone: tone(limit),
        rates: row.rates.unwrap_or_default(),
        time,
    };
    funnel::draw(pen, &water);
}

fn numbers(pen: &mut Pen<'_>, state: &State, row: &Row) {
    let (shown, age) = (shown_limit(state, row), drain_age(state, row));
    let rule = state.rule_named(&row.id.rule);
    let about = about(pen, state, row, rule);
    let limits = cells(row.view.limits.len()).saturating_mul(4);
    let left = pen
        .area
        .height
        .saturating_sub(limits)
        .saturating_sub(cells(about.len()).saturating_add(1));
    let track = state.history.buckets.get(&row.id).filter(|_| left >= 6);
    let charts = if track.is_some() { left.min(24) / 2 } else { 0 };
    let [limits, first, second, _, words] = Layout::vertical([
        Constraint::Length(limits),
        Constraint::Length(charts),
        Constraint::Length(charts),
        Constraint::Length(u16::from(charts > 0)),
        Constraint::Fill(1),
    ])
    .areas(pen.area);
    // If the key is banned, the retry times of its limits are omitted, because the ban lasts
    // longer. The title shows when the ban ends.
    let is_banned = enforced_ban(&row.view).is_some();
    for (index, view) in row.view.limits.iter().enumerate() {
        let y = cells(index).saturating_mul(4);
        let wait = view.retry_after_ns.filter(|_| !is_banned);
        let wait = wait
            .map(|ns| ns.saturating_sub(age.get()))
            .filter(|ns| *ns > 0);
        let place = Rect {
            y: limits.y.saturating_add(y),
            height: 3,
            ..limits
        };
        if state.screen == Screen::Bucket {
            pen.spot(place.intersection(limits), Spot::Line(index));
        }
        let lines = limit(pen.theme, pen.area.width, view, age, wait, index == shown);
        pen.part(place).lines(lines);
    }
    if let Some(track) = track {
        let limit = row.allowed_per_second();
        let charts = chart::both(pen.theme, row.view.shadow).into_iter();
        for ((chart, area), limit) in charts.zip([first, second]).zip([limit, None]) {
            chart::draw(&mut pen.part(area), state, track, chart, limit);
        }
    }
    pen.part(words).lines(about);
}

/// Returns three lines about a limit. The lines contain the limit's estimated level `age` after it
/// was read, and `wait`, the time until the limit admits a request.
fn limit(
    theme: &Theme,
    width: u16,
    view: &LimitView,
    age: Nanos,
    wait: Option<u64>,
    is_shown: bool,
) -> [Line<'static>; 3] {
    let mark = if is_shown {
        theme.pick("▸ ", "> ")
    } else {
        "  "
    };
    let kind = if view.name == view.algorithm {
        ""
    } else {
        &view.algorithm
    };
    let wait = wait.map(|ns| format!(" retry after {}", humanise(ns)));
    let head = vec![
        Span::styled(mark, theme.name),
        text(&view.name, theme.strong),
        text(&format!(" {kind}"), theme.dim),
        text(&wait.unwrap_or_default(), theme.warn),
    ];
    // A token bucket counts as full when no tokens are used, so the text says that the percentage
    // is "used".
    let is_funnel = view.algorithm != "token_bucket";
    let (level, tone) = (level(view, age), tone(view));
    let mut used = format!(
        " {}{}",
        percent(level),
        if is_funnel { "" } else { " used" }
    );
    let full_in = view.reset_after_ns.saturating_sub(age.get());
    if full_in > 0 {
        // If the limit has no rate, this is the time after which the leases of requests in flight
        // expire. Most requests end earlier.
        used.push_str(match (view.rate.is_empty(), is_funnel) {
            (true, _) => "  expires in ",
            (false, true) => "  empty in ",
            (false, false) => ", all free in ",
        });
        used.push_str(&humanise(full_in));
    }
    let bar = width
        .saturating_sub(if is_funnel { 23 } else { 30 })
        .min(24);
    let [full, empty] = widgets::level(theme, bar, level, theme.bar(tone));
    // In a leaky queue, the request that is being released occupies no slot.
    let is_queue = view.algorithm == "leaky_queue";
    let over = (view.used.saturating_sub(view.capacity)).saturating_sub(is_queue.into());
    let mut numbers = vec![
        Span::raw("  "),
        text("capacity ", theme.dim),
        text(&amount(view.capacity), theme.plain),
    ];
    if over > 0 {
        // Only held requests or debts can exceed the capacity. No units remain in this case.
        numbers.extend([
            text("  over by ", theme.dim),
            text(&amount(over), theme.warn),
        ]);
    } else {
        let left = amount(remaining(view, age));
        numbers.extend([text("  remaining ", theme.dim), text(&left, theme.plain)]);
    }
    if !view.rate.is_empty() {
        numbers.extend([text("  rate ", theme.dim), text(&view.rate, theme.plain)]);
    }
    [
        head.into(),
        vec![Span::raw("  "), full, empty, text(&used, theme.plain)].into(),
        numbers.into(),
    ]
}

/// Returns the event that recorded the key's current ban, if it is among the events that were read.
fn ban_event<'a>(state: &'a State, id: &BucketName) -> Option<&'a Event> {
    let of_bans = [EventKind::Ban, EventKind::Unban, EventKind::BanExpired];
    let mut events = state.data.as_ref()?.events.iter();
    let newest = events.find(|event| {
        let of_key = (event.rule.as_deref(), event.key.as_deref());
        of_key == (Some(&id.rule), Some(&id.key)) && of_bans.contains(&event.kind)
    });
    newest.filter(|event| event.kind == EventKind::Ban)
}

/// Returns the lines with the bucket's totals, its lease, and the rule's match and edit.
fn about(pen: &Pen<'_>, state: &State, row: &Row, rule: Option<&RuleView>) -> Vec<Line<'static>> {
    let (plain, theme) = (Style::new(), pen.theme);
    let line = |line: &str, style| Line::from(text(line, style));
    let (admitted, refused) = (amount(row.view.admitted), amount(row.view.refused));
    let refused = if row.view.shadow {
        format!("refused or, in shadow mode, would have refused {refused}")
    } else {
        format!("refused {refused}")
    };
    let total = (format!("total: admitted {admitted}, {refused}"), plain);
    let now = row.as_of_ns.saturating_add(state.drain_age(row).get());
    let heard = |lease: &LeaseView| ago(now.saturating_sub(lease.heard_ns));
    let lease = leased::lease(&row.view, heard).map(|line| (line, plain));
    let origins = Origins {
        rule,
        ban: ban_event(state, &row.id),
    };
    let more = stands_out(&row.view, Some(now), origins).into_iter();
    let demand = Demand::of(state, row).map(|demand| (theme.said(&demand.words()), theme.warn));
    let numbers = brought(&row.view).map(|line| (line, plain));
    let more = numbers
        .into_iter()
        .chain(lease)
        .chain(more.map(|line| (line, theme.warn)));
    let more = demand.into_iter().chain(more);
    let mut lines = Vec::new();
    for (words, style) in std::iter::once(total).chain(more) {
        lines.extend(all(&wrap(&words, pen.area.width), style));
    }
    let Some(rule) = rule else { return lines };
    let words = state.data.as_ref().map(|data| in_words(data, rule));
    let words = words.map(|words| wrap(&words, pen.area.width));
    lines.extend(all(&words.unwrap_or_default(), plain));
    match &rule.edit {
        None => lines.push(line("rule: as configured", plain)),
        Some(edit) => {
            let now = state.server_ns().saturating_add(state.age().get());
            let ago = ago(now.saturating_sub(edit.at_ns));
            let mut words = format!("edited by {} {ago}", edit.by);
            if let Some(at) = edit.expires_at_ns {
                let left = humanise(at.saturating_sub(now));
                words.push_str(", expires in ");
                words.push_str(&left);
            }
            lines.push(line(&words, plain));
            if !edit.reason.is_empty() {
                lines.push(line(&format!("\"{}\"", edit.reason), plain));
            }
        }
    }
    lines
}
