//! Bans and overrides, driven by key strings.

use loudou_api::{BanAnswer, BanBy, BanView, EditAnswer, EditView, OverrideView};
use loudou_limiter::Nanos;
use serde_json::{Value, json};

use super::{SIZE, messages, read_question, send, sending_of, stale};
use crate::app::effects::Sending;
use crate::app::fixture::{S, banned, rules, state, type_keys};
use crate::app::msg::{Failure, Msg};
use crate::app::state::{Mode, State};
use loudou_client::change::Change;
use loudou_client::change::ban::BanTo;
use loudou_client::change::key_override::Override;
use loudou_client::change::verb::Answer;

/// Returns the requested ban state.
pub(super) fn to(sending: &Sending) -> BanTo {
    match &sending.change {
        Change::Ban(ban) => ban.to,
        other => panic!("{other:?}"),
    }
}

fn override_of(sending: &Sending) -> &Override {
    match &sending.change {
        Change::Override(change) => change,
        other => panic!("{other:?}"),
    }
}

fn answer(state: &mut State, change: Box<Sending>, before: Option<BanView>) {
    let answer = BanAnswer {
        before,
        changed: true,
        ..BanAnswer::default()
    };
    send(
        state,
        Msg::Changed(change, Ok(Answer::Ban(Box::new(answer)))),
    );
}

/// Applies the answer of a server that accepts an override.
fn taken(state: &mut State, change: Box<Sending>) {
    let seen = &override_of(&change).seen;
    let mut after = seen.as_ref().clone();
    after.generation += 1;
    let answer = EditAnswer {
        dry_run: false,
        before: seen.rule.clone(),
        after,
        change: "override of mallory: scale 10".to_owned(),
        changed: true,
        fleet: None,
    };
    send(
        state,
        Msg::Changed(change, Ok(Answer::Edit(Box::new(answer)))),
    );
}

fn body(change: &Sending) -> (Option<Value>, Option<Nanos>) {
    let change = override_of(change);
    (change.gives.clone(), change.expires_after)
}

#[test]
fn a_ban_asks_for_how_long_and_why_and_can_be_undone() {
    let mut state = state(SIZE, 3);
    assert!(type_keys(&mut state, "b10m<tab>spam<ret>").is_empty());
    let Mode::Confirm(pending) = &state.mode else {
        panic!("{:?}", state.mode)
    };
    assert_eq!(pending.question, "Ban mallory for 10m?");
    let change = sending_of(type_keys(&mut state, "y"));
    let Change::Ban(ban) = &change.change else {
        panic!("{change:?}")
    };
    assert_eq!(
        (ban.key.as_str(), ban.to, ban.reason.as_str()),
        (
            "mallory",
            BanTo::Banned(Some(Nanos::from_secs(600))),
            "spam"
        )
    );
    answer(&mut state, change, None);
    assert!(
        messages(&state).contains("mallory is banned for 10m; u undoes"),
        "{}",
        messages(&state)
    );
    let undo = sending_of(type_keys(&mut state, "u<ret>"));
    assert_eq!((to(&undo), undo.is_undo), (BanTo::Free(None), true));
    answer(&mut state, undo, Some(BanView::default()));
    assert!(messages(&state).contains("undone: mallory is no longer banned"));
    assert!(state.undos.is_empty());
}

#[test]
fn a_ban_ends_unless_its_time_is_removed_and_nonsense_is_not_sent() {
    let mut state = state(SIZE, 3);
    assert!(type_keys(&mut state, "bsoon<ret>").is_empty());
    assert!(matches!(state.mode, Mode::OfKey(_)), "{:?}", state.mode);
    assert!(type_keys(&mut state, "<C-u><ret>n").is_empty());
    assert!(matches!(state.mode, Mode::Browse));
    let change = sending_of(type_keys(&mut state, "b<ret><ret>"));
    assert_eq!(to(&change), BanTo::Banned(Some(Nanos::from_secs(600))));
    let change = sending_of(type_keys(&mut state, "b<bs><ret><ret>"));
    assert_eq!(to(&change), BanTo::Banned(None));
    let failure = Failure {
        text: "503 no room".to_owned(),
        problem: Some(Box::default()),
        in_doubt: false,
    };
    send(&mut state, Msg::Changed(change, Err(failure)));
    let told = "not sent: correct the marked fields\nmallory: not applied: 503 no room";
    assert_eq!(messages(&state), told);
    assert!(state.undos.iter().all(|tried| tried.undo().is_none()));
}

#[test]
fn a_banned_key_is_let_free_and_undo_bans_it_for_the_rest() {
    let mut state = banned(SIZE, 3);
    type_keys(&mut state, "/mallory<ret>b");
    let Mode::Confirm(pending) = &state.mode else {
        panic!("{:?}", state.mode)
    };
    assert_eq!(pending.question, "Unban mallory?");
    let change = sending_of(type_keys(&mut state, "<ret>"));
    assert_eq!(to(&change), BanTo::Free(Some(BanBy::Penalty)));
    let Change::Ban(unban) = &change.change else {
        panic!("{change:?}")
    };
    // A ban that was made since then is not lifted.
    let tag = unban.if_match.as_deref().unwrap_or_default();
    assert!(tag.starts_with("\"ban-penalty-"), "{tag}");
    let ban = |until_s: u64| {
        Some(BanView {
            until_ns: Some(until_s * S),
            by: BanBy::Penalty,
        })
    };
    answer(&mut state, change.clone(), ban(1_250));
    let undo = sending_of(type_keys(&mut state, "u<ret>"));
    // The server's time is 1003 s.
    assert_eq!(to(&undo), BanTo::Banned(Some(Nanos::from_secs(247))));
    answer(&mut state, undo, None);
    // A ban that would have ended by now is not restored.
    answer(&mut state, change.clone(), ban(900));
    assert!(type_keys(&mut state, "u").is_empty());
    assert!(messages(&state).contains("nothing left to undo: mallory is no longer banned"));
    assert!(matches!(state.mode, Mode::Browse));
    // No ban was lifted, so there is nothing to undo.
    answer(&mut state, change, None);
    assert!(messages(&state).contains("mallory was not banned"));
    assert!(state.undos.is_empty());
}

#[expect(clippy::unnecessary_wraps, reason = "as answers and buckets have it")]
pub(super) const fn ban(by: BanBy, until: u64) -> Option<BanView> {
    Some(BanView {
        until_ns: Some(until * S),
        by,
    })
}

#[test]
fn an_override_is_chosen_shown_and_undone() {
    let mut state = state(SIZE, 3);
    type_keys(&mut state, "o<tab><C-u>2.5<tab>30m<tab>ticket<ret>");
    let Mode::Confirm(pending) = &state.mode else {
        panic!("{:?}", state.mode)
    };
    assert_eq!(
        pending.question,
        "Give mallory 2.5 times the limits for 30m?"
    );
    assert_eq!(
        pending.detail,
        [
            "rule reply-per-user",
            "reason: ticket",
            "burst: 15 → 38 at once, 30/m → 75/m",
            "daily: 1000 → 2500 at once, 1000/d → 2500/d",
        ]
    );
    assert_eq!(
        pending.command(None).as_deref(),
        Some("loudou override reply-per-user mallory scale=2.5 --for 30m --reason ticket")
    );
    let change = sending_of(type_keys(&mut state, "<ret>"));
    let half_an_hour = Some(Nanos::from_secs(1_800));
    assert_eq!(body(&change), (Some(json!({ "scale": 2.5 })), half_an_hour));
    taken(&mut state, change);
    let undo = sending_of(type_keys(&mut state, "u<ret>"));
    assert_eq!((body(&undo), undo.is_undo), ((None, None), true));
    taken(&mut state, undo);
    assert!(state.undos.is_empty());
    for (keys, sent) in [
        ("o<right><ret><ret>", Some(json!("unlimited"))),
        ("o<right><right><ret><ret>", Some(json!("banned"))),
        ("ob<ret><ret>", Some(json!("banned"))),
    ] {
        let change = sending_of(type_keys(&mut state, keys));
        assert_eq!(body(&change), (sent, half_an_hour), "{keys}");
    }
}

#[test]
fn only_an_edited_override_can_be_removed() {
    let overrides = |overrides: Value, edited: &[&str]| {
        let mut state = state(SIZE, 3);
        let edited = edited.iter().map(|key| OverrideView {
            key: (*key).to_owned(),
            ..OverrideView::default()
        });
        if let Some(data) = &mut state.data {
            let rule = &mut data.rules.rules[0];
            rule.rule["overrides"] = overrides;
            rule.overrides = edited.collect();
        }
        state
    };
    for (mut state, problem) in [
        (overrides(json!({}), &[]), "mallory has no override"),
        (
            overrides(json!({ "mallory": "banned" }), &[]),
            "the override is in the configuration; only an edited one can be removed",
        ),
        (
            overrides(json!({ "mal*": "banned" }), &["mal*"]),
            "mallory has no override of its own; it has that of a prefix",
        ),
    ] {
        type_keys(&mut state, "or<ret>");
        let Mode::OfKey(form) = &state.mode else {
            panic!("{problem}: {:?}", state.mode)
        };
        assert_eq!(form.fields[0].problem.as_deref(), Some(problem));
    }
    let mut state = overrides(json!({ "mallory": "banned" }), &["mallory"]);
    let change = sending_of(type_keys(&mut state, "or<ret><ret>"));
    assert_eq!(body(&change), (None, None));
}

#[test]
fn an_earlier_override_is_put_back_for_the_rest_of_its_time() {
    let mut state = state(SIZE, 3);
    let mut rule = rules()[0].clone();
    rule.rule["overrides"] = json!({ "mallory": "banned" });
    rule.overrides = vec![OverrideView {
        key: "mallory".to_owned(),
        edit: EditView {
            expires_at_ns: Some(1_102 * S),
            ..EditView::default()
        },
    }];
    if let Some(data) = &mut state.data {
        data.rules.rules[0] = rule;
    }
    // The form begins with the remaining time, and the question shows the old and the new end.
    type_keys(&mut state, "o<left><tab><tab>2m<ret>");
    let Mode::Confirm(pending) = &state.mode else {
        panic!("{:?}", state.mode)
    };
    assert_eq!(
        pending.detail,
        [
            "rule reply-per-user",
            "a ban in force stays, also by a penalty; unban lifts it",
            "expires after 100s → 2m"
        ]
    );
    let change = sending_of(type_keys(&mut state, "<esc>o<left><ret><ret>"));
    let left = Some(Nanos::from_secs(100));
    assert_eq!(body(&change), (Some(json!("unlimited")), left));
    taken(&mut state, change);
    let undo = sending_of(type_keys(&mut state, "u<ret>"));
    let rest = Some(Nanos::from_secs(100));
    assert_eq!(body(&undo), (Some(json!("banned")), rest));
}

#[test]
fn a_scale_that_does_not_fit_is_reported() {
    let mut state = state(SIZE, 3);
    for scale in ["0", "ten", "1001", "0.0001"] {
        let keys = format!("o<tab><C-u>{scale}<ret>");
        assert!(type_keys(&mut state, &keys).is_empty(), "{scale}");
        let Mode::OfKey(form) = &state.mode else {
            panic!("{scale}: {:?}", state.mode)
        };
        assert!(form.fields[1].problem.is_some(), "{scale}");
        type_keys(&mut state, "<esc>");
    }
}

#[test]
fn an_override_that_changed_meanwhile_is_not_made() {
    let mut state = state(SIZE, 3);
    let change = sending_of(type_keys(&mut state, "o<ret><ret>"));
    let mut current = rules()[0].clone();
    current.generation = 12;
    current.rule["overrides"] = json!({ "mallory": "unlimited" });
    let effects = send(&mut state, Msg::Changed(change, Err(stale(current))));
    assert!(effects.is_empty());
    assert!(messages(&state).contains("not applied: 412 stale"));
}

/// After a conflict, an undo can still be sent, and it does not block the undo of earlier changes.
#[test]
fn an_undo_of_an_override_asks_again_after_a_conflict() {
    let mut state = state(SIZE, 3);
    let change = sending_of(type_keys(&mut state, "o<right><ret><ret>"));
    taken(&mut state, change);
    let undo = sending_of(type_keys(&mut state, "u<ret>"));
    let mut current = rules()[0].clone();
    current.generation = 12;
    current.rule["limits"][0]["capacity"] = json!(40);
    let effects = send(&mut state, Msg::Changed(undo, Err(stale(current))));
    assert!(effects.is_empty());
    let Mode::Confirm(pending) = &state.mode else {
        panic!("{:?}", state.mode)
    };
    assert!(pending.question.ends_with("Undo anyway?"), "{pending:?}");
    read_question(&mut state);
    let again = sending_of(type_keys(&mut state, "<ret>"));
    assert_eq!((body(&again), again.is_undo), ((None, None), true));
    taken(&mut state, again);
    assert!(state.undos.is_empty());
}

#[test]
fn a_key_whose_name_was_lost_cannot_be_named() {
    let mut state = state(SIZE, 3);
    if let Some(data) = &mut state.data {
        for row in &mut data.rows {
            row.id.key = "#0123456789abcdef".to_owned();
        }
    }
    assert!(type_keys(&mut state, "bo").is_empty());
    assert!(matches!(state.mode, Mode::Browse));
    assert!(messages(&state).contains("name of this key was lost"));
}

#[test]
fn a_shadow_rule_stands_behind_the_rule_it_shadows() {
    let state = banned(SIZE, 3);
    let rules = &state.data.as_ref().expect("read").rules.rules;
    let names: Vec<&str> = rules.iter().map(|rule| rule.name.as_str()).collect();
    assert_eq!(names, ["reply-per-user", "by-source", "search-per-key"]);
}
