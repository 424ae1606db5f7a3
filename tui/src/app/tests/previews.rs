//! Questions before edits show the effect on the known keys.

use loudou_api::{BanBy, BanView, BucketView, EditView, KeyOverrideView, OverrideKind};
use loudou_limiter::Nanos;
use serde_json::{Value, json};

use super::{SIZE, answer, edit_of, messages, sending_of};
use crate::app::fixture::{state, type_keys};
use crate::app::form::Kind;
use crate::app::history::Rates;
use crate::app::rows::{BucketName, Row};
use crate::app::state::{Mode, State};
use loudou_client::change::edit::EditTo;

const HEAD: &str = "of 4 keys seen, if they go on as in the last 10s:";

/// Returns a row of `by-source`, with the admitted requests per second and the refused ones.
fn row(key: &str, is_shadow: bool, admitted: f64, more: f64) -> Row {
    let mut rates = Rates {
        admitted,
        ..Rates::default()
    };
    if is_shadow {
        rates.shadow = more;
    } else {
        rates.refused = more;
    }
    let mut row = Row {
        id: BucketName::new("by-source", key),
        view: BucketView::default(),
        as_of_ns: 0,
        rates: Some(rates),
    };
    (row.view.rule, row.view.key) = (row.id.rule.clone(), row.id.key.clone());
    row.view.shadow = is_shadow;
    row
}

/// Returns a state with the rule `by-source` in this mode, and four keys. One has an override, and
/// one is banned.
fn seen(mode: &str) -> State {
    let mut state = state(SIZE, 20);
    let is_shadow = mode != "enforce";
    let data = state.data.as_mut().expect("data");
    let rule = &mut data.rules.rules[2];
    rule.rule["limits"] =
        json!([{ "name": "l", "algorithm": "funnel", "capacity": 8, "rate": "2/s" }]);
    rule.rule["overrides"] = json!({ "acme-corp": { "scale": 2 } });
    rule.rule["mode"] = Value::from(mode);
    rule.base = rule.rule.clone();
    let mut acme = row("acme-corp", is_shadow, 4.0, 11.0);
    acme.view.own = Some(KeyOverrideView {
        pattern: "acme-corp".to_owned(),
        gives: OverrideKind::Scale,
    });
    let mut convict = row("convict", is_shadow, 0.5, 0.0);
    convict.view.ban = Some(BanView {
        until_ns: None,
        by: BanBy::Operator,
    });
    data.rows = vec![
        acme,
        convict,
        row("mallory-17", is_shadow, 2.0, 38.0),
        row("calm", is_shadow, 1.0, 0.0),
    ];
    type_keys(&mut state, "3G");
    state
}

/// Returns the effect that the question shows after these keys changed the mode.
fn effect(state: &mut State, keys: &str) -> Vec<String> {
    type_keys(state, "e");
    loop {
        let Mode::Edit(form) = &state.mode else {
            panic!("{:?}", state.mode)
        };
        if form.fields[form.focus].kind == Kind::Mode {
            break;
        }
        type_keys(state, "<tab>");
    }
    type_keys(state, &format!("{keys}<ret>"));
    match &state.mode {
        Mode::Edit(form) => form.effect.clone(),
        other => panic!("{other:?}"),
    }
}

#[test]
fn what_a_rule_in_shadow_mode_would_refuse_becomes_refused() {
    assert_eq!(
        effect(&mut seen("shadow"), "e"),
        [
            HEAD,
            "- 3 become refused: mallory-17 (loses 95%), acme-corp (loses 73%), convict (loses 100%)",
            "- 1 ban becomes enforced: convict",
        ]
    );
    assert_eq!(
        effect(&mut seen("shadow"), "o"),
        [HEAD, "- none is refused, before and after"]
    );
}

#[test]
fn whatever_is_refused_is_freed_with_the_rule() {
    for mode in ["s", "o"] {
        let told = effect(&mut seen("enforce"), mode);
        assert_eq!(
            told[..2],
            [HEAD, "- 3 are freed: mallory-17, acme-corp, convict"]
        );
    }
}

#[test]
fn bans_that_are_no_longer_enforced_are_named() {
    let mut state = seen("enforce");
    let data = state.data.as_mut().expect("data");
    data.rules.rules[2].rule["overrides"]["rogue*"] = json!("banned");
    data.truncated = true;
    let told = effect(&mut state, "s");
    assert_eq!(
        told.last().map(String::as_str),
        Some("- at least 2 bans are no longer enforced: convict, rogue* (override)")
    );
}

/// Requests of a rule that is off are not counted.
#[test]
fn the_effect_of_a_rule_that_is_off_is_unknown() {
    let told = effect(&mut seen("off"), "e");
    assert_eq!(
        told[0],
        "the rule is off, so it is unknown how often keys come: try shadow mode first"
    );
}

#[test]
fn an_undo_is_previewed_like_an_edit() {
    let mut state = seen("shadow");
    effect(&mut state, "e");
    let sending = sending_of(type_keys(&mut state, "<ret>"));
    answer(&mut state, sending);
    for row in &mut state.data.as_mut().expect("data").rows {
        let rates = row.rates.as_mut().expect("rates");
        (rates.refused, rates.shadow) = (rates.shadow, 0.0);
    }
    type_keys(&mut state, "u");
    let Mode::Confirm(pending) = &state.mode else {
        panic!("{:?}", state.mode)
    };
    let told = pending.detail.join("\n");
    let effect = format!("{HEAD}\n- 3 are freed: mallory-17, acme-corp, convict");
    assert!(told.contains(&effect), "{told}");
}

#[test]
fn the_edit_of_a_rule_is_dropped_with_a_preview_and_an_undo() {
    let mut state = seen("shadow");
    assert!(type_keys(&mut state, "D").is_empty());
    assert!(messages(&state).contains("the rule is not edited"));
    let data = state.data.as_mut().expect("data");
    let ends_ns = data.status.now_ns + 60_000_000_000;
    let rule = &mut data.rules.rules[2];
    rule.base["mode"] = Value::from("enforce");
    rule.edit = Some(EditView {
        by: "ops".to_owned(),
        reason: "launch".to_owned(),
        expires_at_ns: Some(ends_ns),
        ..EditView::default()
    });
    type_keys(&mut state, "D");
    let Mode::Confirm(pending) = &state.mode else {
        panic!("{:?}", state.mode)
    };
    assert_eq!(pending.question, "Drop the edit of by-source?");
    assert_eq!(
        pending.detail,
        [
            "edited by ops: launch",
            "mode shadow → enforce",
            HEAD,
            "- 3 become refused: mallory-17 (loses 95%), acme-corp (loses 73%), convict (loses 100%)",
            "- 1 ban becomes enforced: convict",
        ]
    );
    assert_eq!(
        pending.command(None).as_deref(),
        Some("loudou unset by-source")
    );
    let sending = sending_of(type_keys(&mut state, "<ret>"));
    assert_eq!(edit_of(&sending).to, EditTo::Drop);
    answer(&mut state, sending);
    let undo = sending_of(type_keys(&mut state, "u<ret>"));
    let EditTo::Put {
        body,
        expires_after,
        ..
    } = &edit_of(&undo).to
    else {
        panic!("{undo:?}")
    };
    assert_eq!(body["mode"], "shadow");
    assert_eq!(*expires_after, Some(Nanos::from_secs(60)));
}

#[test]
fn the_edit_of_a_rule_is_not_dropped_by_those_who_may_only_view() {
    let mut state = seen("shadow");
    state.settings.read_only = true;
    assert!(type_keys(&mut state, "D").is_empty());
    assert!(matches!(state.mode, Mode::Browse));
    assert!(messages(&state).contains("read-only"));
}
