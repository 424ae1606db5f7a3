//! The Bucket screen: the funnel, the numbers of every limit, the rates, and the edit of its rule.

use loudou_api::{Event, EventKind, LeaseView, LimitView, RuleView};
use loudou_limiter::Nanos;
use ratatui::style::Style;

use super::chart;
use super::rules::in_words;
use super::view::{About, View};
use crate::app::command::{c, tab};
use crate::app::press::Spot;
use crate::app::rows::{BucketName, Row, level, remaining, tone};
use crate::app::screen::Screen;
use crate::app::state::State;
use crate::draw::bars;
use crate::draw::pen::Pen;
use crate::draw::words::{ago, amount, percent, seen, width, wrap};
use loudou_words::meaning::{Origins, enforced_ban, leased, main_limit, stands_out};
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

/// One bucket.
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

    /// Opens the selected bucket, or the last open one again.
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

/// From this width on, the funnel is beside the numbers.
const BESIDE: u16 = 64;

/// Draws the open bucket.
fn draw(pen: &mut Pen<'_>, state: &State) {
    let theme = pen.theme;
    let Some(id) = &state.open else { return };
    let Some(row) = state.open_row() else {
        let text = format!("{} has no bucket now; its next request creates one", id.key);
        pen.middle(pen.height() / 3, &text, theme.dim);
        return;
    };
    title(pen, state, row);
    let (width, height) = (pen.width(), pen.height().saturating_sub(1));
    let funnel = width.saturating_mul(9) / 20;
    if width >= BESIDE && height >= 10 {
        draw_funnel(&mut pen.part(0, 1, funnel, height), state, row);
        let rest = width.saturating_sub(funnel);
        numbers(
            &mut pen.part(funnel, 1, rest.saturating_sub(1), height),
            state,
            row,
        );
    } else if height >= 28 {
        draw_funnel(&mut pen.part(0, 1, width, height / 2), state, row);
        let top = (height / 2).saturating_add(1);
        numbers(
            &mut pen.part(1, top, width.saturating_sub(2), height / 2),
            state,
            row,
        );
    } else {
        numbers(
            &mut pen.part(1, 1, width.saturating_sub(2), height),
            state,
            row,
        );
    }
}

fn title(pen: &mut Pen<'_>, state: &State, row: &Row) {
    let theme = pen.theme;
    let (glyph, style) = theme.state(row.standing());
    let state_text = format!("{glyph} {}", row.state(state.age()));
    let wait = row.retry_after_ns(drain_age(state, row));
    let wait = wait
        .map(|ns| format!("  retry after {}", humanise(ns)))
        .unwrap_or_default();
    let idle = format!("  seen {}", seen(row.idle_ns(state.drain_age(row))));
    let most = pen
        .width()
        .saturating_sub(width(&state_text).saturating_add(5));
    let arrow = theme.pick_text(" › ", " > ");
    let half = most / 2;
    let x = pen.within(1, 0, half, &row.id.rule, theme.dim);
    let x = pen.text(x, 0, arrow, theme.dim);
    let x = pen.within(x, 0, most.saturating_sub(x), &row.id.key, theme.name);
    let x = pen.text(x.saturating_add(2), 0, &state_text, style);
    let x = pen.text(x, 0, &wait, theme.warn);
    if x.saturating_add(width(&idle)) <= pen.width() {
        pen.text(x, 0, &idle, theme.dim);
    }
}

/// The time by which levels are drawn lower than they were read: none while requests come, which fill a bucket as fast as
/// it drains.
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
    let mut y = 0_u16;
    for (index, view) in row.view.limits.iter().enumerate() {
        let from = y;
        // A ban refuses for longer, and the title has its end.
        let is_banned = enforced_ban(&row.view).is_some();
        let wait = view.retry_after_ns.filter(|_| !is_banned);
        let wait = wait.map(|ns| ns.saturating_sub(age.get()));
        y = limit(pen, (age, wait), y, view, index == shown);
        for line in from..y {
            pen.spot(0, line, pen.width(), Spot::Line(index));
        }
    }
    let rule = state.rule_named(&row.id.rule);
    let about = about(pen, state, row, rule);
    let left = pen.height().saturating_sub(y);
    let chart = left
        .saturating_sub(cells(about.len()).saturating_add(1))
        .min(24);
    if chart >= 6 {
        let each = chart / 2;
        let width = pen.width();
        if let Some(track) = state.history.buckets.get(&row.id) {
            for chart in chart::both(pen, row.view.shadow) {
                chart::draw(&mut pen.part(0, y, width, each), state, track, chart);
                y = y.saturating_add(each);
            }
            y = y.saturating_add(1);
        }
    }
    for (line, style) in about {
        pen.text(0, y, &line, style);
        y = y.saturating_add(1);
    }
}

/// Draws a limit in three lines, as of its age and with the time until it admits; returns the line of the next one.
fn limit(
    pen: &mut Pen<'_>,
    (age, wait): (Nanos, Option<u64>),
    y: u16,
    view: &LimitView,
    shown: bool,
) -> u16 {
    let theme = pen.theme;
    let mark = if shown {
        theme.pick_text("▸ ", "> ")
    } else {
        "  "
    };
    let x = pen.spans(0, y, &[(mark, theme.name), (&view.name, theme.strong)]);
    let kind = if view.name == view.algorithm {
        ""
    } else {
        &view.algorithm
    };
    let x = pen.text(x.saturating_add(1), y, kind, theme.dim);
    if let Some(ns) = wait.filter(|ns| *ns > 0) {
        pen.text(
            x.saturating_add(1),
            y,
            &format!("retry after {}", humanise(ns)),
            theme.warn,
        );
    }
    let (level, tone) = (level(view, age), tone(view));
    // A bucket of tokens is full when nothing is used of it.
    let is_funnel = view.algorithm != "token_bucket";
    let words = if is_funnel { 23 } else { 30 };
    let bar = pen.width().saturating_sub(words).min(24);
    bars::level(pen, 2, y.saturating_add(1), bar, level, tone);
    let full_in = view.reset_after_ns.saturating_sub(age.get());
    let mut text = percent(level);
    text.push_str(if is_funnel { "" } else { " used" });
    if full_in > 0 {
        // Requests in flight expire then at the latest; most end earlier.
        text.push_str(match (view.rate.is_empty(), is_funnel) {
            (true, _) => "  expires in ",
            (false, true) => "  empty in ",
            (false, false) => ", all free in ",
        });
        text.push_str(&humanise(full_in));
    }
    pen.text(
        bar.saturating_add(3),
        y.saturating_add(1),
        &text,
        theme.plain,
    );
    let (left, capacity) = (amount(remaining(view, age)), amount(view.capacity));
    // The request whose turn it is in a queue takes none of its places.
    let is_queue = view.algorithm == "leaky_queue";
    let over = (view.used.saturating_sub(view.capacity)).saturating_sub(is_queue.into());
    let more = amount(over);
    let mut parts = vec![("capacity ", theme.dim), (capacity.as_str(), theme.plain)];
    if over > 0 {
        // Only for held requests or debts; then nothing remains.
        parts.extend([("  over by ", theme.dim), (more.as_str(), theme.warn)]);
    } else {
        parts.extend([("  remaining ", theme.dim), (left.as_str(), theme.plain)]);
    }
    if !view.rate.is_empty() {
        parts.extend([("  rate ", theme.dim), (view.rate.as_str(), theme.plain)]);
    }
    pen.spans(2, y.saturating_add(2), &parts);
    y.saturating_add(4)
}

type Styled = (String, Style);

/// The event of the ban that a key has, if it is among those that were read.
fn ban_event<'a>(state: &'a State, id: &BucketName) -> Option<&'a Event> {
    let of_bans = [EventKind::Ban, EventKind::Unban, EventKind::BanExpired];
    let mut events = state.data.as_ref()?.events.iter();
    let newest = events.find(|event| {
        let of_key = (event.rule.as_deref(), event.key.as_deref());
        of_key == (Some(&id.rule), Some(&id.key)) && of_bans.contains(&event.kind)
    });
    newest.filter(|event| event.kind == EventKind::Ban)
}

/// Totals, the lease, the rule's match, and its edit.
fn about(pen: &Pen<'_>, state: &State, row: &Row, rule: Option<&RuleView>) -> Vec<Styled> {
    let (plain, theme) = (Style::new(), pen.theme);
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
    let more = lease.into_iter().chain(more.map(|line| (line, theme.warn)));
    let mut lines = Vec::new();
    for (text, style) in std::iter::once(total).chain(more) {
        let text = wrap(&text, pen.width()).into_iter();
        lines.extend(text.map(|line| (line, style)));
    }
    let Some(rule) = rule else { return lines };
    lines.push((in_words(&rule.rule), plain));
    match &rule.edit {
        None => lines.push(("rule: as configured".to_owned(), plain)),
        Some(edit) => {
            let now = state.server_ns().saturating_add(state.age().get());
            let ago = ago(now.saturating_sub(edit.at_ns));
            let mut text = format!("edited by {} {ago}", edit.by);
            if let Some(at) = edit.expires_at_ns {
                let left = humanise(at.saturating_sub(now));
                text.push_str(", expires in ");
                text.push_str(&left);
            }
            lines.push((text, plain));
            if !edit.reason.is_empty() {
                lines.push((format!("\"{}\"", edit.reason), plain));
            }
        }
    }
    lines
}
