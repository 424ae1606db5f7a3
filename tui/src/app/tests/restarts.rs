//! Changes that an Envoy lost in a restart, or that are only in effect at another Envoy.

use super::again::{live, restart};
use super::broadcasts::{changes, failed};
use super::several::{poll, press, watched};
use super::*;
use crate::app::fixture::snapshot;
use crate::app::state::Toast;
use crate::app::watched::Watched;

/// Returns both Envoys, of which the second has two bans, an edit and an override.
fn with_changes() -> Watched {
    let mut watched = watched();
    for at in 0..3 {
        poll(&mut watched, 0, at);
    }
    let msg = Msg::Polled(Ok(Box::new(live(1))));
    watched.update(Some(1), msg, Nanos::from_secs(2));
    watched
}

/// Returns the changes that are sent to the second Envoy when it returns as another process.
fn back_as_another(watched: &mut Watched) -> Vec<(usize, Box<Sending>)> {
    let mut after = snapshot(9);
    restart(&mut after);
    let msg = Msg::Polled(Ok(Box::new(after)));
    changes(watched.update(Some(1), msg, Nanos::from_secs(9)))
}

fn last(watched: &Watched) -> &Toast {
    watched.shown().toasts.last().expect("a message")
}

/// An Envoy that was disconnected, or is new, lacks changes of the others. The key `a` offers them,
/// except those that the Envoy already has.
#[test]
fn one_key_offers_what_the_others_have() {
    let mut watched = with_changes();
    assert!(press(&mut watched, "a").is_empty());
    assert_eq!(watched.shown().settings.url, "http://127.0.0.1:1");
    let Mode::Confirm(pending) = &watched.shown().mode else {
        panic!("no question")
    };
    let lacking = "Missing at this Envoy: 2 bans, 2 overrides. Apply?";
    assert_eq!(pending.question, lacking, "both have an edit of that rule");
    let effects = press(&mut watched, "<ret>");
    let [(0, Effect::Again(items)), ..] = &effects[..] else {
        panic!("{effects:?}")
    };
    assert_eq!(items.len(), 4);
    // A disconnected Envoy offers nothing, because its current changes are unknown.
    let away = Msg::Polled(Err(failed("cannot reach it")));
    watched.update(Some(1), away, Nanos::from_secs(3));
    press(&mut watched, "a");
    assert!(matches!(watched.shown().mode, Mode::Browse));
    let told = messages(watched.shown());
    assert!(told.contains("no changes were lost"), "{told}");
}

/// If changes are not allowed, the key shows that, and not that no change is missing.
#[test]
fn nothing_is_offered_while_changes_are_off() {
    let mut shown = with_changes().shown().clone();
    shown.settings.read_only = true;
    let why = crate::app::keys::obstacle(&shown, crate::app::command::Command::Again);
    assert_eq!(why.as_deref(), Some("read-only: started with --read-only"));
}

/// The Envoy on the screen lost nothing. The key switches to the Envoy that did, and opens its
/// question.
#[test]
fn one_key_applies_again_what_another_envoy_lost() {
    let mut watched = with_changes();
    back_as_another(&mut watched);
    assert!(press(&mut watched, "a").is_empty());
    assert_eq!(watched.shown().settings.url, "http://127.0.0.1:2");
    let Mode::Confirm(pending) = &watched.shown().mode else {
        panic!("no question")
    };
    assert!(
        pending.question.ends_with("are lost. Apply again?"),
        "{pending:?}"
    );
    assert_eq!(pending.detail[0], "At http://127.0.0.1:2:");
    let effects = press(&mut watched, "<ret>");
    let [(1, Effect::Again(items))] = &effects[..] else {
        panic!("{effects:?}")
    };
    assert_eq!(items.len(), 4);
}

/// Each Envoy lost different changes, so "yes, at all" is not offered.
#[test]
fn applying_again_is_not_offered_at_all() {
    let mut watched = with_changes();
    back_as_another(&mut watched);
    press(&mut watched, "a");
    let text = crate::ui::tests::text(watched.shown(), (120, 40));
    let footer = text.lines().last().expect("a footer");
    assert!(footer.contains("Esc no  C-y copy"), "{footer}");
    assert!(press(&mut watched, "a").is_empty());
    assert!(matches!(watched.shown().mode, Mode::Confirm(_)));
    assert_eq!(last(&watched).text, "each Envoy lost changes of its own");
}
