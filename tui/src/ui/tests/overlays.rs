//! Overlays that show answers: an explained request, all fields of an event, names in the palette.

use loudou_limiter::Nanos;

use super::{screen, text};
use crate::app::fixture::{explained, state, type_keys};
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
    screen("explain", "x", |_| {});
    screen("explain_problem", "x<tab><C-u>reply<ret>", |_| {});
    screen("explained", "x<ret>", answer);
}

/// Rules and Envoys are found by name and escaped. They are listed below matching commands.
#[test]
fn names_in_the_palette() {
    screen("palette_names", ":per", |state| {
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

/// The typed text finds nothing, and a message covers none of the commands. The message is shown
/// when the palette closes.
#[test]
fn the_palette_is_never_empty_nor_covered() {
    for size in [(40, 10), (80, 24), (120, 40)] {
        let mut state = state(size, 3);
        type_keys(&mut state, ":zzzz");
        assert!(
            text(&state, size).contains("filter by zzzz"),
            "{}",
            text(&state, size)
        );
        type_keys(&mut state, "<C-u>");
        let before = text(&state, size);
        state.toast(
            true,
            "Envoy restarted, and this is a message of many words. ".repeat(3),
        );
        let after = text(&state, size);
        let rows = |text: &str| {
            let lines = text.lines().filter(|line| line.matches('│').count() > 1);
            let inside = lines.filter_map(|line| line.split('│').nth(1));
            inside.map(str::to_owned).collect::<Vec<_>>()
        };
        assert_eq!(rows(&before), rows(&after), "{size:?}");
        let now = state.now.saturating_add(Nanos::from_secs(60));
        update(&mut state, Msg::Tick, now);
        type_keys(&mut state, "<esc>");
        assert!(text(&state, size).contains("Envoy restarted"), "{size:?}");
    }
}

#[test]
fn events_filtered_and_whole() {
    screen("events_filter", "5/!loudou case<ret>", |_| {});
    screen("event", "5<ret>", |_| {});
}
