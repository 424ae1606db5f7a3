//! The Events screen: changes with author and reason, and warnings; newest on top.

use loudou_api::{Event, EventKind, FleetStatus};

use super::view::{About, View};
use crate::app::command::{c, tab};
use crate::app::screen::Screen;
use crate::app::state::State;
use crate::draw::pen::Pen;
use crate::draw::words::{ago, amount, seen};
use crate::meaning::leased::{self, is_alarm};

static ABOUT: About = About {
    screen: Screen::Events,
    title: "Events",
    tab: tab(
        Screen::Events,
        &[c('5')],
        13,
        "events",
        "show edits and warnings",
    ),
    keys: &[],
    takes_turns: true,
    moves: false,
};

/// Edits and warnings.
pub(super) struct Events;

impl View for Events {
    fn about(&self) -> &'static About {
        &ABOUT
    }

    fn draw(&self, pen: &mut Pen<'_>, state: &State) {
        draw(pen, state);
    }

    fn lines(&self, state: &State) -> usize {
        state.data.as_ref().map_or(0, |data| data.events.len())
    }
}

/// Draws the fleet and current warnings, then events.
fn draw(pen: &mut Pen<'_>, state: &State) {
    let theme = pen.theme;
    let Some(data) = &state.data else { return };
    pen.style_line(0, theme.head);
    pen.text(
        1,
        0,
        "age     event           by          details",
        theme.head,
    );
    let now = state.server_ns().saturating_add(state.age().get());
    let mut y = 1;
    if let Some(status) = &data.status.fleet {
        y = fleet(pen, y, status, now);
    }
    for warning in &data.status.warnings {
        let mark = theme.pick('⚠', '!');
        pen.text(1, y, &format!("{mark} now: {warning}"), theme.warn);
        y += 1;
    }
    if data.events_lost > 0 {
        let lost = amount(data.events_lost);
        pen.text(
            1,
            y,
            &format!("{lost} older events were dropped before they could be read"),
            theme.warn,
        );
        y += 1;
    }
    if data.events.is_empty() {
        pen.middle(pen.height() / 2, "no events yet", theme.dim);
    }
    let selected = state.selected(Screen::Events);
    let rows = usize::from(pen.height().saturating_sub(y));
    let first = selected.saturating_sub(rows / 2);
    for ((index, event), y) in data
        .events
        .iter()
        .enumerate()
        .skip(first)
        .zip(y..pen.height())
    {
        line(pen, y, event, now);
        if index == selected {
            pen.select_line(y);
        }
    }
}

/// Draws the fleet in two lines, or three if changes wait; returns the line below them.
fn fleet(pen: &mut Pen<'_>, y: u16, fleet: &FleetStatus, now: u64) -> u16 {
    let theme = pen.theme;
    let answer = match fleet.answered_ns {
        0 => "no answer yet".to_owned(),
        at => format!("last answer {}", ago(now.saturating_sub(at))),
    };
    let known = format!("{}, {answer}", leased::envoys(fleet));
    let mut parts = vec![("fleet: ", theme.dim)];
    let down = leased::down(fleet).map(|down| format!("{} {down}; ", theme.pick('⚠', '!')));
    parts.extend(down.as_deref().map(|down| (down, theme.warn)));
    parts.push((&known, theme.plain));
    pen.spans(1, y, &parts);
    let counts = format!(
        "{} calls, {} failed; {} held, {} decided alone",
        amount(fleet.calls),
        amount(fleet.failed),
        amount(fleet.held),
        amount(fleet.local)
    );
    pen.text(8, y.saturating_add(1), &counts, theme.plain);
    let Some(changes) = leased::changes(fleet) else {
        return y.saturating_add(2);
    };
    let words = format!("{} {changes}", theme.pick('⚠', '!'));
    pen.text(8, y.saturating_add(2), &words, theme.warn);
    y.saturating_add(3)
}

fn line(pen: &mut Pen<'_>, y: u16, event: &Event, now: u64) {
    let theme = pen.theme;
    pen.within(1, y, 7, &seen(now.saturating_sub(event.at_ns)), theme.dim);
    let kind = match event.kind {
        EventKind::Edit | EventKind::UpstreamHeals | EventKind::FleetUp => theme.good,
        kind if is_alarm(kind) => theme.warn,
        _ => theme.plain,
    };
    pen.within(9, y, 15, &event.kind.name().replace('_', " "), kind);
    pen.within(25, y, 11, &event.by, theme.strong);
    let mut about = event.rule.clone().unwrap_or_default();
    if let Some(key) = &event.key {
        about.push(' ');
        about.push_str(key);
    }
    let colon = if about.is_empty() { "" } else { ": " };
    let mut x = pen.spans(37, y, &[(&about, theme.name), (colon, theme.dim)]);
    x = pen.text(x, y, &event.detail, theme.plain);
    if !event.reason.is_empty() {
        pen.text(x, y, &format!("  \"{}\"", event.reason), theme.dim);
    }
}
