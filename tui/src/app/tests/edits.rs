//! Edits, undo and resets, driven by key strings.

use loudou_api::{ProblemAnswer, RuleProblem};
use loudou_limiter::{Carry, Nanos};
use loudou_rules::config::parse_limits;
use serde_json::{Value, json};

use super::{SIZE, answer, edit_of, messages, read_question, send, sending_of, stale};
use crate::app::effects::Effect;
use crate::app::fixture::{S, rules, snapshot, state, type_keys};
use crate::app::form::Stage;
use crate::app::msg::{Failure, Msg};

use crate::app::state::Mode;
use crate::app::update::update;
use loudou_client::change::Change;
use loudou_client::change::edit::EditTo;

#[test]
fn an_edit_is_shown_then_sent_with_what_was_read() {
    let mut state = state(SIZE, 3);
    let effects = type_keys(&mut state, "e250<ret>");
    assert!(matches!(&effects[..], [Effect::ReadRule(rule)] if rule == "reply-per-user"));
    let Mode::Edit(form) = &state.mode else {
        panic!("{:?}", state.mode)
    };
    assert_eq!(form.stage, Stage::Confirm);
    let sending = sending_of(type_keys(&mut state, "<ret>"));
    let edit = edit_of(&sending).clone();
    assert_eq!(
        (edit.rule.as_str(), edit.seen.generation),
        ("reply-per-user", 7)
    );
    let EditTo::Put {
        body,
        expires_after,
        ..
    } = &edit.to
    else {
        panic!("{edit:?}")
    };
    assert_eq!(body["limits"][0]["capacity"], 250);
    let limit = |limit: &Value| parse_limits(&json!([limit])).expect("valid");
    let before = &rules()[0].rule["limits"][1];
    assert_eq!(limit(&body["limits"][1]), limit(before));
    assert_eq!(*expires_after, None);
    answer(&mut state, sending);
    assert!(matches!(state.mode, Mode::Browse));
    assert!(messages(&state).contains("sent: burst: capacity 15 → 250 (generation 8)"));
    assert!(state.changed.is_some());
}

#[test]
fn all_fields_of_the_form_arrive() {
    let mut state = state(SIZE, 3);
    type_keys(
        &mut state,
        "e<tab>60/m<tab><tab><tab><tab><tab><tab><tab><tab><right><tab>r<tab>30m<tab>too many<C-s>",
    );
    let sending = sending_of(type_keys(&mut state, "<C-s>"));
    let edit = edit_of(&sending).clone();
    let EditTo::Put {
        body,
        expires_after,
        ..
    } = &edit.to
    else {
        panic!("{edit:?}")
    };
    assert_eq!(body["limits"][0]["rate"], "60/m");
    assert_eq!(body["mode"], "shadow");
    assert_eq!(*expires_after, Some(Nanos::from_secs(1800)));
    assert_eq!(
        (edit.carry, edit.reason.as_str()),
        (Carry::Reset, "too many")
    );
}

#[test]
fn nothing_wrong_is_ever_sent() {
    let mut state = state(SIZE, 3);
    let effects = type_keys(&mut state, "e0<ret><ret><ret>");
    assert!(
        effects
            .iter()
            .all(|effect| !matches!(effect, Effect::Change(_)))
    );
    assert!(messages(&state).contains("not sent: 1 problem"));
    type_keys(&mut state, "<esc>e<ret>");
    assert!(messages(&state).contains("no changes yet"));
}

#[test]
fn a_paste_goes_into_the_field_and_is_never_commands() {
    let mut state = state(SIZE, 3);
    send(&mut state, Msg::Paste("q\nx".to_owned()));
    assert_eq!(state.exit, None);
    type_keys(&mut state, "e");
    send(&mut state, Msg::Paste("99\r".to_owned()));
    let Mode::Edit(form) = &state.mode else {
        panic!("no form")
    };
    assert_eq!(form.fields[0].value(), "99");
    assert_eq!(form.stage, Stage::Editing);
}

#[test]
fn another_users_edit_is_shown_beside_and_merged() {
    let mut state = state(SIZE, 3);
    let sending = sending_of(type_keys(&mut state, "e250<ret><ret>"));
    let mut theirs = rules()[0].clone();
    theirs.generation = 12;
    theirs.rule["limits"][0]["capacity"] = json!(40);
    let effects = send(&mut state, Msg::Changed(sending, Err(stale(theirs))));
    assert!(effects.is_empty());
    let Mode::Edit(form) = &state.mode else {
        panic!("no form")
    };
    assert!(matches!(form.stage, Stage::Conflict(_)));
    let sending = sending_of(type_keys(&mut state, "<ret><ret><ret>"));
    let edit = edit_of(&sending).clone();
    assert_eq!(edit.seen.generation, 12);
    let EditTo::Put { body, .. } = &edit.to else {
        panic!("{edit:?}")
    };
    assert_eq!(body["limits"][0]["capacity"], 250);
}

#[test]
fn what_the_server_finds_wrong_stands_under_its_field() {
    let mut state = state(SIZE, 3);
    let sending = sending_of(type_keys(&mut state, "e250<ret><ret>"));
    let problem = RuleProblem {
        path: "limits[0].capacity".to_owned(),
        message: "not today".to_owned(),
        ..RuleProblem::default()
    };
    let failure = Failure {
        text: "400 bad".to_owned(),
        problem: Some(Box::new(ProblemAnswer {
            problems: vec![problem],
            ..ProblemAnswer::default()
        })),
        in_doubt: false,
    };
    send(&mut state, Msg::Changed(sending, Err(failure)));
    let Mode::Edit(form) = &state.mode else {
        panic!("no form")
    };
    assert_eq!(form.fields[0].problem.as_deref(), Some("not today"));
    assert!(messages(&state).contains("edit not applied: 400 bad"));
}

#[test]
fn an_edit_without_an_answer_is_in_doubt() {
    let mut state = state(SIZE, 3);
    let sending = sending_of(type_keys(&mut state, "e250<ret><ret>"));
    let failure = Failure {
        text: "no answer".to_owned(),
        in_doubt: true,
        ..Failure::default()
    };
    send(&mut state, Msg::Changed(sending, Err(failure)));
    assert!(messages(&state).contains("may have been applied"));
}

#[test]
fn undo_drops_an_edit_where_none_was_and_asks_first() {
    let mut state = state(SIZE, 3);
    type_keys(&mut state, "u");
    assert!(messages(&state).contains("nothing to undo"));
    let sending = sending_of(type_keys(&mut state, "e250<ret><ret>"));
    answer(&mut state, sending);
    type_keys(&mut state, "u");
    assert!(matches!(state.mode, Mode::Confirm(_)));
    let undo = sending_of(type_keys(&mut state, "<ret>"));
    let edit = edit_of(&undo).clone();
    assert!(undo.is_undo);
    assert_eq!((&edit.to, edit.seen.generation), (&EditTo::Drop, 8));
    assert!(messages(&state).contains("sending"));
    answer(&mut state, undo);
    assert!(messages(&state).contains("undone:"));
    assert!(
        !messages(&state).contains("sending"),
        "{}",
        messages(&state)
    );
    assert!(state.undos.is_empty());
}

#[test]
fn undo_puts_an_earlier_edit_back_for_the_rest_of_its_time() {
    let mut state = state(SIZE, 3);
    type_keys(&mut state, "3j");
    let sending = sending_of(type_keys(&mut state, "e250<ret><ret>"));
    let edit = edit_of(&sending).clone();
    assert_eq!(edit.rule, "search-per-key");
    answer(&mut state, sending);
    let undo = sending_of(type_keys(&mut state, "u<ret>"));
    let edit = edit_of(&undo).clone();
    let EditTo::Put {
        body,
        expires_after,
        ..
    } = &edit.to
    else {
        panic!("{edit:?}")
    };
    assert_eq!(body["limits"][0]["capacity"], 100);
    // The edit ends 1 500 s after the first poll, and the third poll was two seconds later.
    assert_eq!(*expires_after, Some(Nanos::from_secs(1498)));
}

#[test]
fn undo_of_an_edit_that_changed_since_asks_again() {
    let mut state = state(SIZE, 3);
    let sending = sending_of(type_keys(&mut state, "e250<ret><ret>"));
    answer(&mut state, sending);
    let undo = sending_of(type_keys(&mut state, "u<ret>"));
    let mut theirs = rules()[0].clone();
    theirs.generation = 20;
    send(&mut state, Msg::Changed(undo, Err(stale(theirs))));
    let Mode::Confirm(pending) = &state.mode else {
        panic!("no question")
    };
    assert!(pending.question.contains("changed since"), "{pending:?}");
    // The user meant this Enter for the screen.
    assert!(type_keys(&mut state, "<ret>y").is_empty());
    assert!(matches!(state.mode, Mode::Confirm(_)));
    read_question(&mut state);
    let again = sending_of(type_keys(&mut state, "y"));
    let edit = edit_of(&again).clone();
    assert_eq!(edit.seen.generation, 20);
}

/// An answer arrives while the user types. The typed keys must not answer a question.
#[test]
fn a_question_does_not_open_under_the_users_fingers() {
    let mut state = state(SIZE, 3);
    let sending = sending_of(type_keys(&mut state, "e250<ret><ret>"));
    answer(&mut state, sending);
    let undo = sending_of(type_keys(&mut state, "u<ret>"));
    type_keys(&mut state, "/");
    let mut theirs = rules()[0].clone();
    theirs.generation = 20;
    theirs.base = json!({ "name": "reply-per-user", "limits": [] });
    send(&mut state, Msg::Changed(undo, Err(stale(theirs))));
    assert!(type_keys(&mut state, "y<ret>").is_empty());
    let told = messages(&state);
    let by = "not undone: reply-per-user was changed since, by a new configuration; u asks again";
    assert!(told.contains(by), "{told}");
    type_keys(&mut state, "u");
    let Mode::Confirm(pending) = &state.mode else {
        panic!("no question")
    };
    assert!(pending.question.contains("changed since"), "{pending:?}");
    let again = sending_of(type_keys(&mut state, "y"));
    assert_eq!(edit_of(&again).seen.generation, 20);
}

/// The undo finds no edit, because a colleague dropped it or it ended.
#[test]
fn an_undo_of_an_edit_that_a_colleague_dropped_says_so() {
    let mut state = state(SIZE, 3);
    let sending = sending_of(type_keys(&mut state, "e250<ret><ret>"));
    answer(&mut state, sending);
    let undo = sending_of(type_keys(&mut state, "u<ret>"));
    let mut theirs = rules()[0].clone();
    theirs.generation = 20;
    send(&mut state, Msg::Changed(undo, Err(stale(theirs))));
    let Mode::Confirm(pending) = &state.mode else {
        panic!("no question")
    };
    let said = format!("{pending:?}");
    assert!(said.contains("by the end of its edit"), "{said}");
}

#[test]
fn a_reset_asks_first() {
    let mut state = state(SIZE, 3);
    assert!(type_keys(&mut state, "Rn").is_empty());
    let effects = type_keys(&mut state, "Ry");
    let sending = sending_of(effects);
    assert!(matches!(&sending.change, Change::Reset(reset) if reset.key == "mallory"));
}

/// If the terminal is too small to draw the question, no key answers it.
#[test]
fn nothing_is_confirmed_that_is_not_drawn() {
    let mut state = state((120, 40), 3);
    type_keys(&mut state, "b<ret>");
    let now = state.now;
    update(&mut state, Msg::Resize(20, 5), now);
    assert!(type_keys(&mut state, "<ret>ya").is_empty());
    update(&mut state, Msg::Resize(120, 40), now);
    assert!(matches!(state.mode, Mode::Confirm(_)), "{:?}", state.mode);
    assert_eq!(type_keys(&mut state, "<ret>").len(), 1);
}

/// The form shows the rounded remaining time of an edit, but the edit that is sent ends exactly
/// when the old one would have.
#[test]
fn an_end_that_nobody_typed_is_kept_to_the_second() {
    let mut state = state((120, 40), 3);
    let mut rule = rules()[0].clone();
    let now_ns = state.server_ns();
    rule.edit = Some(loudou_api::EditView {
        by: "ops".to_owned(),
        at_ns: now_ns,
        at_unix_ms: 0,
        expires_at_ns: Some(now_ns + 1_120 * S),
        reason: String::new(),
    });
    let mut read = snapshot(3);
    read.status.now_ns = now_ns + 1;
    read.rules = Some(loudou_api::Rules {
        instance: read.status.instance.clone(),
        now_ns,
        generation: 7,
        rules: vec![rule],
        next_cursor: None,
    });
    let now = state.now;
    update(&mut state, Msg::Polled(Ok(Box::new(read))), now);
    type_keys(&mut state, "3e250");
    assert!(crate::ui::tests::text(&state, (120, 40)).contains("19m"));
    let effects = type_keys(&mut state, "<ret><ret>");
    let sent = effects.iter().find_map(|effect| match effect {
        Effect::Change(sending) => Some(edit_of(sending).clone()),
        _ => None,
    });
    let EditTo::Put { expires_after, .. } = sent.expect("an edit").to else {
        panic!("an edit")
    };
    assert_eq!(expires_after, Some(Nanos::from_secs(1_120)));
}

/// Like the form's question, the questions for an undo and for a dropped edit show which limits
/// take longer to be full again.
#[test]
fn an_undo_says_how_long_a_used_bucket_takes() {
    let mut state = state(SIZE, 3);
    let rule = &mut state.data.as_mut().expect("data").rules.rules[0];
    rule.base = rule.rule.clone();
    let sending = sending_of(type_keys(&mut state, "e<tab><C-u>60/m<ret><ret>"));
    answer(&mut state, sending);
    type_keys(&mut state, "u");
    let Mode::Confirm(pending) = &state.mode else {
        panic!("{:?} {}", state.mode, messages(&state))
    };
    let later = "burst: when used up, full again after 30s (was 15s)";
    assert!(
        pending.detail.iter().any(|line| line == later),
        "{pending:?}"
    );
}
