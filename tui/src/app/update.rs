//! The update function of the app: a message changes the state and may request effects.

use loudou_limiter::Nanos;

use super::again;
use super::answers;
use super::asking;
use super::browse;
use super::command::Command;
use super::effects::{Effect, Goal};
use super::explain;
use super::feed;
use super::form::Stage;
use super::ingest;
use super::keys;
use super::layout::{LEAST, table_height};
use super::modal;
use super::mouse;
use super::msg::{Failure, Msg, Snapshot};
use super::press::{Code, Press};
use super::screen::BROWSE;
use super::screens;
use super::state::{Exit, Mode, State};
use super::undoing;

/// Minimum time for which messages stay visible after a question closes.
const AFTER_QUESTION: Nanos = Nanos::from_secs(3);

/// Applies a message at the time `now`.
pub(crate) fn update(state: &mut State, msg: Msg, now: Nanos) -> Vec<Effect> {
    state.now = state.now.max(now);
    let mut effects = Vec::new();
    if let Msg::Changed(..) | Msg::Again(_) | Msg::Busy(Goal::Change(_) | Goal::Other) = &msg {
        state.sent();
    }
    match msg {
        Msg::Press(press) => pressed(state, press, &mut effects),
        Msg::Paste(text) => modal::pasted(state, &text),
        Msg::Mouse(mouse) => {
            if let Some(press) = mouse::moused(state, mouse, &mut effects) {
                pressed(state, press, &mut effects);
            }
        }
        Msg::Resize(columns, rows) => {
            state.size = (columns, rows);
            let height = table_height(state.size);
            state.table.clamp_scroll(height);
            state.keys.table.clamp_scroll(height);
        }
        Msg::Tick => {}
        Msg::Polled(result) => polled(state, result),
        Msg::RuleRead(rule, result) => answers::rule_read(state, &rule, result),
        Msg::Changed(sending, result) => answers::changed(state, *sending, result),
        Msg::Again(result) => again::answered(state, result),
        Msg::Explained(result) => explain::answered(state, result),
        Msg::Busy(goal) => busy(state, goal),
        Msg::Quit => {
            state.exit.get_or_insert(Exit::Quit);
        }
        Msg::Suspend => effects.push(Effect::Suspend),
        Msg::Resumed => effects.push(Effect::Resume),
        Msg::Fatal(text) => fatal(state, text),
    }
    let now = state.now;
    // A question or the palette may cover the messages, so they are shown for some time after it
    // closes.
    if asking::is_open(&state.mode) || matches!(state.mode, Mode::Palette(..)) {
        let until = now.saturating_add(AFTER_QUESTION);
        for toast in &mut state.toasts {
            toast.until = toast.until.max(until);
        }
    }
    state.toasts.retain(|toast| toast.until > now);
    state.changed.take_if(|(_, until)| *until <= now);
    if state.exit.is_none() && state.link.start(now) {
        effects.push(Effect::Poll(feed::request(state)));
        state.searches_anew = false;
    }
    effects
}

/// Time between ticks of a screen that animates levels between polls.
const ANIMATION: Nanos = Nanos::from_millis(80);
/// Time between ticks of the other screens. These screens show ages in seconds, and drawing
/// accounts for most of the app's work.
pub(crate) const AGES: Nanos = Nanos::from_millis(500);

/// Returns the time until the next [`Msg::Tick`] if no message arrives earlier. Ticks update the
/// displayed ages and the animation.
pub(crate) fn tick_after(state: &State) -> Nanos {
    let moving = screens::shown(state).about().moves && state.frozen.is_none() && !state.is_stale();
    let tick = if moving { ANIMATION } else { AGES };
    if state.link.in_flight.is_some() {
        return tick;
    }
    tick.min(state.link.due.since(state.now))
        .max(Nanos::from_millis(1))
}

/// Ends the app with an error report. The error takes precedence over a quit that arrives at the
/// same time. If there are several errors, the first is kept, because it is the likely cause.
fn fatal(state: &mut State, text: String) {
    if !matches!(state.exit, Some(Exit::Fatal(_))) {
        state.exit = Some(Exit::Fatal(text));
    }
}

fn polled(state: &mut State, result: Result<Box<Snapshot>, Failure>) {
    match result {
        Ok(snapshot) => {
            if state.link.up == Some(false) {
                state.toast(false, "connected again");
            }
            let interval = feed::interval(state);
            state.polls.note(state.now, interval, snapshot.took);
            state.link.succeeded(state.now, interval);
            ingest::polled(state, snapshot);
        }
        Err(failure) => state.link.failed(state.now, failure.text),
    }
}

fn busy(state: &mut State, goal: Goal) {
    match goal {
        Goal::Poll => state
            .link
            .failed(state.now, "the poller is busy".to_owned()),
        Goal::Change(sending) => {
            if let Mode::Edit(form) = &mut state.mode
                && sending.change.verb().key().is_none()
                && form.base.name == sending.change.verb().rule()
            {
                form.stage = Stage::Editing;
            }
            undoing::not_made(state, &sending, "earlier requests are still in progress");
            state.toast(true, "not sent: earlier requests are still in progress");
        }
        Goal::Other => state.toast(true, "not sent: earlier requests are still in progress"),
    }
}

fn pressed(state: &mut State, press: Press, effects: &mut Vec<Effect>) {
    state.toasts.retain(|toast| !toast.is_hint);
    let place = keys::place(state);
    let command = keys::find(place, press);
    let is_drawn = state.size.0 >= LEAST.0 && state.size.1 >= LEAST.1;
    match command {
        Some(Command::Quit) => state.exit = Some(Exit::Quit),
        Some(Command::Suspend) => effects.push(Effect::Suspend),
        // If the terminal is too small, all other keys except Esc are ignored, because the user
        // cannot see what they would confirm or change.
        _ if !is_drawn && press != Press::plain(Code::Esc) => {}
        _ if place & BROWSE == 0 => modal::pressed(state, press, command, effects),
        Some(command) => browse::run(state, command, effects),
        None => {
            if let Some(binding) = keys::elsewhere(press) {
                let names = screens::names(binding.places);
                state.hint(format!(
                    "{press} ({}) works only on: {names}",
                    binding.short
                ));
            }
        }
    }
}
