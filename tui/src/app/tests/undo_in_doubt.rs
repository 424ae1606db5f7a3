//! The undo key concerns the change that the user tried last, even if its outcome is unknown or it
//! failed.

use loudou_api::{BanBy, EditView, OverrideView};
use serde_json::json;

use super::of_key::{ban, to};
use super::undo_of_bans::{done, poll, question};
use super::{SIZE, answer, edit_of, messages, send, sending_of};
use crate::app::effects::Sending;
use crate::app::fixture::{S, banned, snapshot, state, type_keys};
use crate::app::msg::{Failure, Msg};
use crate::app::state::{Mode, State};
use loudou_client::change::Change;
use loudou_client::change::ban::BanTo;
use loudou_client::change::edit::EditTo;

/// Loses the answer to a change.
fn lost(state: &mut State, sending: Box<Sending>) {
    let failure = Failure {
        text: "no complete answer".to_owned(),
        in_doubt: true,
        ..Failure::default()
    };
    send(state, Msg::Changed(sending, Err(failure)));
}

/// Bans another customer, which is answered, and then `mallory`, which is not.
fn two_bans() -> (State, Box<Sending>) {
    let mut state = state(SIZE, 3);
    let other = sending_of(type_keys(&mut state, "jb<ret><ret>"));
    assert_ne!(other.change.verb().key(), Some("mallory"));
    done(&mut state, other, None, ban(BanBy::Operator, 1_602));
    let change = sending_of(type_keys(&mut state, "kb<ret><ret>"));
    assert_eq!(change.change.verb().key(), Some("mallory"));
    (state, change)
}

/// Returns the key of the change that the next undo is about.
fn last(state: &State) -> Option<&str> {
    state.undos.last().and_then(|tried| tried.of().1)
}

#[test]
fn the_undo_of_a_ban_without_an_answer_is_about_that_ban() {
    let (mut state, change) = two_bans();
    // Before an answer, there is nothing to undo.
    type_keys(&mut state, "u");
    assert!(matches!(state.mode, Mode::Browse), "{:?}", state.mode);
    assert!(messages(&state).contains("no answer yet to the ban of mallory"));
    lost(&mut state, change);
    type_keys(&mut state, "u");
    assert_eq!(
        question(&state),
        (
            "There was no answer to the ban of mallory. Undo it?",
            "It may or may not be in force: Envoy has not answered since.".to_owned()
        )
    );
    type_keys(&mut state, "n");
    // The ban had been made.
    poll(&mut state, 3, ban(BanBy::Operator, 1_602));
    type_keys(&mut state, "u");
    assert_eq!(
        question(&state).1,
        "now: banned by an operator for 9m59s more"
    );
    let undo = sending_of(type_keys(&mut state, "y"));
    assert_eq!(undo.change.verb().key(), Some("mallory"));
    assert_eq!(to(&undo), BanTo::Free(None));
    done(&mut state, undo, ban(BanBy::Operator, 1_602), None);
    // Now the earlier ban is the last one.
    assert_ne!(last(&state), Some("mallory"));
}

#[test]
fn a_ban_without_an_answer_that_was_not_made_is_not_undone() {
    let (mut state, change) = two_bans();
    lost(&mut state, change);
    poll(&mut state, 3, None);
    type_keys(&mut state, "u");
    assert!(matches!(state.mode, Mode::Browse), "{:?}", state.mode);
    let messages = messages(&state);
    let told = "nothing to undo: there was no answer to the ban of mallory, and it is not in force; u again: the change of ";
    assert!(messages.contains(told), "{messages}");
    assert_ne!(last(&state), Some("mallory"));
}

#[test]
fn a_change_that_was_refused_is_not_the_one_before_it() {
    let (mut state, change) = two_bans();
    let failure = Failure {
        text: "503 no room".to_owned(),
        problem: Some(Box::default()),
        in_doubt: false,
    };
    send(&mut state, Msg::Changed(change, Err(failure)));
    type_keys(&mut state, "u");
    assert!(matches!(state.mode, Mode::Browse), "{:?}", state.mode);
    assert!(messages(&state).contains("nothing to undo of the ban of mallory: 503 no room"));
    type_keys(&mut state, "u");
    assert!(!question(&state).0.contains("mallory"), "{state:?}");
}

#[test]
fn an_unban_without_an_answer_is_undone_for_the_rest() {
    let mut state = banned(SIZE, 3);
    let change = sending_of(type_keys(&mut state, "/mallory<ret>b<ret>"));
    lost(&mut state, change);
    poll(&mut state, 4, None);
    let undo = sending_of(type_keys(&mut state, "u<ret>"));
    assert!(matches!(to(&undo), BanTo::Banned(Some(_))), "{undo:?}");
    // The ban was not made.
    let mut state = banned(SIZE, 3);
    let change = sending_of(type_keys(&mut state, "/mallory<ret>b<ret>"));
    lost(&mut state, change);
    poll(&mut state, 4, ban(BanBy::Penalty, 1_250));
    type_keys(&mut state, "u");
    assert!(
        messages(&state).contains("it is not in force"),
        "{}",
        messages(&state)
    );
    assert!(state.undos.is_empty());
}

/// Applies poll number 3, in which another operator, or this one, has edited the first rule.
fn edited(state: &mut State, reason: Option<&str>) {
    let mut snapshot = snapshot(3);
    snapshot.status.generation = 8;
    let mut rules = snapshot
        .rules
        .take()
        .unwrap_or_else(|| state.data.as_ref().expect("data").rules.clone());
    rules.generation = 8;
    if let Some(reason) = reason {
        rules.rules[0].generation = 8;
        rules.rules[0].rule["limits"][0]["capacity"] = json!(250);
        rules.rules[0].edit = Some(EditView {
            by: "ops".to_owned(),
            reason: reason.to_owned(),
            at_ns: 1_002 * S,
            ..EditView::default()
        });
    }
    snapshot.rules = Some(rules);
    send(state, Msg::Polled(Ok(Box::new(snapshot))));
}

#[test]
fn an_edit_without_an_answer_is_undone_only_if_it_is_in_force() {
    for (reason, asks) in [(Some(""), true), (Some("ticket 7"), false), (None, false)] {
        let mut state = state(SIZE, 3);
        let change = sending_of(type_keys(&mut state, "e250<ret><ret>"));
        type_keys(&mut state, "<esc>");
        lost(&mut state, change);
        edited(&mut state, reason);
        type_keys(&mut state, "u");
        assert_eq!(
            matches!(state.mode, Mode::Confirm(_)),
            asks,
            "{reason:?} {:?}",
            state.mode
        );
        if asks {
            let (title, detail) = question(&state);
            assert_eq!(
                title,
                "There was no answer to the edit of reply-per-user. Undo it?"
            );
            assert!(detail.starts_with("now: edited by ops"), "{detail}");
            let undo = sending_of(type_keys(&mut state, "<ret>"));
            assert_eq!(
                (&edit_of(&undo).to, edit_of(&undo).seen.generation),
                (&EditTo::Drop, 8)
            );
            answer(&mut state, undo);
        }
        assert!(state.undos.is_empty(), "{reason:?} {:?}", state.undos);
    }
}

#[test]
fn an_override_without_an_answer_is_undone_only_if_it_is_in_force() {
    for is_made in [true, false] {
        let mut state = state(SIZE, 3);
        let change = sending_of(type_keys(&mut state, "o<ret><ret>"));
        lost(&mut state, change);
        let mut snapshot = snapshot(3);
        let mut rules = state.data.as_ref().expect("data").rules.clone();
        if is_made {
            rules.rules[0].rule["overrides"] = json!({ "mallory": { "scale": 10 } });
            rules.rules[0].overrides = vec![OverrideView {
                key: "mallory".to_owned(),
                edit: EditView::default(),
            }];
        }
        snapshot.rules = Some(rules);
        send(&mut state, Msg::Polled(Ok(Box::new(snapshot))));
        type_keys(&mut state, "u");
        assert_eq!(
            matches!(state.mode, Mode::Confirm(_)),
            is_made,
            "{:?}",
            state.mode
        );
        if is_made {
            assert_eq!(
                question(&state).0,
                "There was no answer to the override of mallory. Undo it?"
            );
            let undo = sending_of(type_keys(&mut state, "<ret>"));
            let Change::Override(dropped) = &undo.change else {
                panic!("{undo:?}")
            };
            assert_eq!(dropped.gives, None);
        }
    }
}

#[test]
fn a_reset_without_an_answer_cannot_be_undone() {
    let mut state = state(SIZE, 3);
    let change = sending_of(type_keys(&mut state, "R<ret>"));
    lost(&mut state, change);
    type_keys(&mut state, "u");
    let told = "there was no answer to the reset of mallory, which cannot be undone";
    assert!(messages(&state).contains(told), "{}", messages(&state));
    assert!(state.undos.is_empty());
}
