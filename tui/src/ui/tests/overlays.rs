//! Overlays that show answers: an explained request, an event as a whole, names in the palette.

use super::screens;
use crate::app::fixture::explained;
use crate::app::msg::Msg;
use crate::app::state::State;
use crate::app::targets::TargetSummary;
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

/// Rules and Envoys by name, escaped, below the commands that match as well.
#[test]
fn names_in_the_palette() {
    screens("palette_names", ":per", |state| {
        let target = |url: &str| TargetSummary {
            url: url.to_owned(),
            ..TargetSummary::default()
        };
        state.targets = vec![
            target("http://upper:9911"),
            target("http://\u{1b}[2Jper:9911"),
        ];
    });
}

#[test]
fn events_filtered_and_whole() {
    screens("events_filter", "5/!loudou case<ret>", |_| {});
    screens("event", "5<ret>", |_| {});
}
