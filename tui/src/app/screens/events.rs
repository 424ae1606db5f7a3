//! The Events screen: changes with author and reason, and warnings; newest on top.

use loudou_api::{Event, EventKind, FleetStatus};

use super::view::{About, View};
use crate::app::command::Command as C;
use crate::app::command::{Binding, bind, c, k, tab};
use crate::app::event_lines::{about, kind, visible};
use crate::app::findings::of_filter;
use crate::app::line::Line;
use crate::app::press::Code::Enter;
use crate::app::press::Spot;
use crate::app::screen::{Places, Screen};
use crate::app::state::{Mode, State};
use crate::draw::pen::Pen;
use crate::draw::words::{ago, amount, seen};
use loudou_words::meaning::leased::{self, is_alarm};

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
    keys: KEYS,
    takes_turns: true,
    moves: false,
};

const HERE: Places = Screen::Events.place();

#[rustfmt::skip]
const KEYS: &[Binding] = &[
    bind((C::Drill, &[k(Enter)], HERE, 1, "whole", "show the selected event as a whole")),
    bind((C::Filter, &[c('/')], HERE, 3, "filter", "filter events: words, !words")),
];

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
        visible(state).len()
    }

    fn status(&self, state: &State) -> String {
        if state.event_filter.is_empty() {
            return String::new();
        }
        let all = state.data.as_ref().map_or(0, |data| data.events.len());
        let some = visible(state).len();
        format!("{some} of {all} events, filter: {}", state.event_filter)
    }

    /// Clears the filter first.
    fn back(&self, state: &mut State) {
        if state.event_filter.is_empty() {
            state.screen = Screen::HOME;
        }
        state.event_filter.clear();
    }

    fn run(&self, state: &mut State, command: C) {
        match command {
            C::Filter => {
                let text = state.event_filter.clone();
                state.mode = Mode::Filter(Line::new(&text), text);
            }
            C::Drill => {
                let selected = state.selected(Screen::Events);
                let event = visible(state).get(selected).copied().cloned();
                if let Some(event) = event {
                    state.mode = Mode::Event(Box::new(event));
                }
            }
            _ => {}
        }
    }

    fn filter(&self, state: &mut State, text: &str) {
        text.clone_into(&mut state.event_filter);
        state.selected.remove(&Screen::Events);
    }

    fn accept_filter(&self, state: &mut State, text: &str) -> Result<(), String> {
        text.clone_into(&mut state.event_filter);
        Ok(())
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
    for warning in of_filter(&data.status) {
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
    let events = visible(state);
    if events.is_empty() {
        let none = if data.events.is_empty() {
            "no events yet"
        } else {
            "no event has these words; Esc clears the filter"
        };
        pen.middle(pen.height() / 2, none, theme.dim);
    }
    let selected = state.selected(Screen::Events);
    let rows = usize::from(pen.height().saturating_sub(y));
    let first = selected.saturating_sub(rows / 2);
    for ((index, event), y) in events
        .into_iter()
        .enumerate()
        .skip(first)
        .zip(y..pen.height())
    {
        line(pen, y, event, now);
        pen.spot(0, y, pen.width(), Spot::Line(index));
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
    let style = match event.kind {
        EventKind::Edit | EventKind::UpstreamHeals | EventKind::FleetUp => theme.good,
        kind if is_alarm(kind) => theme.warn,
        _ => theme.plain,
    };
    pen.within(9, y, 15, &kind(event), style);
    pen.within(25, y, 11, &event.by, theme.strong);
    let about = about(event);
    let colon = if about.is_empty() { "" } else { ": " };
    let mut x = pen.spans(37, y, &[(&about, theme.name), (colon, theme.dim)]);
    x = pen.text(x, y, &event.detail, theme.plain);
    if !event.reason.is_empty() {
        pen.text(x, y, &format!("  \"{}\"", event.reason), theme.dim);
    }
}
