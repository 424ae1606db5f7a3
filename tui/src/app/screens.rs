//! The table of screens. A new screen needs a file here, a line in the table, and a name in
//! [`screen`](super::screen).

use super::rows::{BucketName, Row};
use super::screen::{Places, Screen};
use super::state::State;

pub(crate) mod bucket;
mod buckets;
mod chart;
mod copied;
mod envoy;
mod events;
mod keys;
mod list;
mod rules;
mod targets;
mod view;

pub(crate) use view::{About, View};

/// All screens in tab order.
pub(crate) static SCREENS: &[&dyn View] = &[
    &buckets::Buckets,
    &bucket::Bucket,
    &rules::Rules,
    &events::Events,
    &envoy::Envoy,
    &targets::Targets,
    &keys::Keys,
];

/// Returns the implementation of a screen.
pub(crate) fn view(screen: Screen) -> &'static dyn View {
    let mut all = SCREENS.iter().copied();
    all.find(|view| view.about().screen == screen)
        .unwrap_or(&buckets::Buckets)
}

/// Returns the implementation of the current screen.
pub(crate) fn shown(state: &State) -> &'static dyn View {
    view(state.screen)
}

/// Returns the screen `step` tabs after `from`. Skips screens whose `takes_turns` is false.
pub(crate) fn turn(from: Screen, step: isize) -> Screen {
    let turns: Vec<Screen> = SCREENS
        .iter()
        .filter(|view| view.about().takes_turns)
        .map(|view| view.about().screen)
        .collect();
    let at = turns.iter().position(|screen| *screen == from).unwrap_or(0);
    let next = match at.checked_add_signed(step) {
        Some(next) if next < turns.len() => next,
        Some(_) => 0,
        None => turns.len().saturating_sub(1),
    };
    turns.get(next).copied().unwrap_or(Screen::HOME)
}

/// Returns the titles of the screens in `places`.
pub(crate) fn names(places: Places) -> String {
    let views = SCREENS
        .iter()
        .filter(|view| places & view.about().screen.place() != 0);
    views
        .map(|view| view.about().title)
        .collect::<Vec<_>>()
        .join(", ")
}

/// Returns the bucket that key presses act on: the open bucket or the selected one.
pub(crate) fn target(state: &State) -> Option<BucketName> {
    shown(state).bucket(state)
}

/// Returns the row of the bucket that key presses act on.
pub(crate) fn target_row(state: &State) -> Option<&Row> {
    shown(state).row(state)
}

/// Returns the rule that key presses act on.
pub(crate) fn target_rule(state: &State) -> Option<String> {
    shown(state).rule(state)
}
