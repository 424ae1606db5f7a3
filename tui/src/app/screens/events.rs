//! The Events screen: changes with their author and reason, and warnings. The newest event is on
//! top.

use loudou_api::{Event, EventKind, FleetStatus};

use super::list;
use super::view::{About, View};
use crate::app::command::Command as C;
use crate::app::command::{Binding, bind, c, k, tab};
use crate::app::event_lines::{about, as_shown, kind, visible};
use crate::app::findings::of_filter;
use crate::app::press::Code::Enter;
use crate::app::screen::{Places, Screen};
use crate::app::state::{Mode, State};
use crate::app::text_field::TextField;
use crate::draw::pen::Pen;
use crate::draw::theme::Theme;
use crate::draw::widgets::{self, ColumnWidth};
use crate::draw::words::{ago, amount, seen, text, width};
use loudou_words::meaning::leased::{self, is_alarm};
use loudou_words::num::cells;
use ratatui::layout::{Constraint, Layout, Margin, Rect};
use ratatui::text::Line;

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

/// The Events screen.
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

    /// Clears the filter or, if there is none, returns to the Buckets screen.
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
                state.mode = Mode::Filter(TextField::new(&text), text);
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

/// Draws the fleet and the current warnings, then the events.
fn draw(pen: &mut Pen<'_>, state: &State) {
    let theme = pen.theme;
    let Some(data) = &state.data else { return };
    let now = state.server_ns().saturating_add(state.age().get());
    let mut notes = data
        .status
        .fleet
        .iter()
        .flat_map(|status| fleet(theme, status, now))
        .collect::<Vec<_>>();
    let mark = theme.pick('⚠', '!');
    let warnings = of_filter(&data.status);
    notes
        .extend(warnings.map(|warning| text(&format!("{mark} now: {warning}"), theme.warn).into()));
    if data.events_lost > 0 {
        let lost = amount(data.events_lost);
        let lost = format!("{lost} older events were dropped before they could be read");
        notes.push(text(&lost, theme.warn).into());
    }
    let [top, list] =
        Layout::vertical([Constraint::Length(cells(notes.len())), Constraint::Fill(1)])
            .areas(pen.area);
    pen.part(top.inner(Margin::new(1, 0))).lines(notes);
    let events = visible(state);
    if events.is_empty() {
        list::nothing(
            pen,
            if data.events.is_empty() {
                "no events yet"
            } else {
                "no event has these words; Esc clears the filter"
            },
        );
    }
    let longest =
        |of: &dyn Fn(&Event) -> u16| events.iter().map(|event| of(event)).max().unwrap_or(0);
    let (kinds, authors) = (
        longest(&|event| width(&kind(event))),
        longest(&|event| width(&event.by)),
    );
    let widths = widgets::fit(
        list.width.saturating_sub(1),
        &[
            ColumnWidth::fixed(0, 7),
            ColumnWidth::growing(1, 8, kinds.clamp(8, 15), kinds.clamp(8, 30)),
            ColumnWidth::growing(3, 6, 10, authors.clamp(10, 40)),
            ColumnWidth::growing(2, 10, u16::MAX, u16::MAX),
        ],
    );
    let selected = state.selected(Screen::Events);
    let shown = usize::from(list.height.saturating_sub(1));
    let first = selected.saturating_sub(shown / 2);
    let rows = events.into_iter().enumerate().skip(first).take(shown);
    let rows = rows
        .map(|(number, event)| (number, row(theme, &as_shown(state, event), now)))
        .collect();
    let titles = ["age", "event", "by", "details"].map(|title| (title, false));
    let heads = widgets::heads(titles, &widths);
    pen.style(Rect { height: 1, ..list }, theme.head);
    let list = Rect {
        x: list.x.saturating_add(1),
        width: list.width.saturating_sub(1),
        ..list
    };
    widgets::table(&mut pen.part(list), &heads, rows, Some(selected));
}

/// Describes the fleet in two lines, or three if changes are waiting.
fn fleet(theme: &Theme, fleet: &FleetStatus, now: u64) -> Vec<Line<'static>> {
    let mark = theme.pick('⚠', '!');
    let answer = match fleet.answered_ns {
        0 => "no answer yet".to_owned(),
        at => format!("last answer {}", ago(now.saturating_sub(at))),
    };
    let down = leased::down(fleet).map(|down| format!("{mark} {down}; "));
    let counts = format!(
        "       {} calls, {} failed; {} held, {} decided alone",
        amount(fleet.calls),
        amount(fleet.failed),
        amount(fleet.held),
        amount(fleet.local)
    );
    let known = format!("{}, {answer}", leased::envoys(fleet));
    let first = vec![
        text("fleet: ", theme.dim),
        text(&down.unwrap_or_default(), theme.warn),
        text(&known, theme.plain),
    ];
    let changes =
        leased::changes(fleet).map(|changes| text(&format!("       {mark} {changes}"), theme.warn));
    let lines = [
        Some(first.into()),
        Some(text(&counts, theme.plain).into()),
        changes.map(Line::from),
    ];
    lines.into_iter().flatten().collect()
}

/// Returns the cells of an event.
fn row(theme: &Theme, event: &Event, now: u64) -> Vec<Line<'static>> {
    let style = match event.kind {
        EventKind::Edit | EventKind::UpstreamHeals | EventKind::FleetUp => theme.good,
        kind if is_alarm(kind) => theme.warn,
        _ => theme.plain,
    };
    let about = about(event);
    let colon = if about.is_empty() { "" } else { ": " };
    let reason = match event.reason.as_str() {
        "" => String::new(),
        reason => format!("  \"{reason}\""),
    };
    vec![
        text(&seen(now.saturating_sub(event.at_ns)), theme.dim).into(),
        text(&kind(event), style).into(),
        text(&event.by, theme.strong).into(),
        Line::from(vec![
            text(&about, theme.name),
            text(colon, theme.dim),
            text(&event.detail, theme.plain),
            text(&reason, theme.dim),
        ]),
    ]
}
