//! Overlays that show answers: an explained request, an event as a whole.

use super::screens;
use crate::app::fixture::explained;
use crate::app::msg::Msg;
use crate::app::state::State;
use crate::app::update::update;

#[test]
fn explanations() {
    let answer = |state: &mut State| {
        let msg = Msg::Explained(Ok(Box::new(explained())));
        update(state, msg, state.now);
    };
    screens("explain", "x", |_| {});
    screens("explain_problem", "x<tab><C-u>reply<ret>", |_| {});
    screens("explained", "x<ret>", answer);
}

#[test]
fn events_filtered_and_whole() {
    screens("events_filter", "5/!loudou case<ret>", |_| {});
    screens("event", "5<ret>", |_| {});
}
