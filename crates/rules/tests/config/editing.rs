//! Edits of a rule's overrides and penalty.

use loudou_rules::config::{
    RuleEdit, is_key, misfits, parse_edit, parse_limits, parse_override, parse_rule,
};
use loudou_rules::rule::Override;
use serde_json::{Value, json};

use super::rule;

fn limit() -> Value {
    json!({ "algorithm": "funnel", "capacity": 5, "rate": "1/s" })
}

fn edited(body: &Value) -> RuleEdit {
    parse_edit(body).expect("valid")
}

/// The places of the problems of an edit.
fn wrong(body: &Value) -> Vec<String> {
    let problems = parse_edit(body).expect_err("wrong");
    problems.iter().map(|p| p.path.to_string()).collect()
}

#[test]
fn an_edit_replaces_what_it_names() {
    let penalty = json!({ "after": 3, "within": "1m", "ban": "5m" });
    let base = rule(&json!({ "penalty": penalty, "overrides": { "eve": "banned" } }));
    let base = parse_rule(&base).expect("valid");
    let with = |body: Value| {
        let mut rule = base.clone();
        edited(&body).apply(&mut rule);
        rule
    };
    let changed = with(json!({ "penalty": null }));
    assert_eq!(
        (changed.penalty, changed.overrides),
        (None, base.overrides.clone())
    );
    let changed = with(json!({ "overrides": { "alice": "unlimited" } }));
    assert_eq!(changed.overrides.get("alice"), Some(&Override::Unlimited));
    assert_eq!(changed.overrides.get("eve"), None);
    assert_eq!(changed.penalty, base.penalty);
    assert!(with(json!({ "overrides": {} })).overrides.is_empty());
    // Equal values are not an edit.
    let same = json!({ "penalty": penalty, "overrides": { "eve": "banned" }, "mode": "enforce" });
    assert_eq!(edited(&same).beyond(&base), RuleEdit::default());
    let other = edited(&json!({ "penalty": null, "mode": "shadow" }));
    assert_eq!(other.clone().beyond(&base), other);
}

#[test]
fn an_edit_is_read_as_it_is_written() {
    for body in [
        json!({ "penalty": null }),
        json!({ "overrides": {} }),
        json!({ "penalty": { "after": 3, "within": "1m", "ban": "5m", "factor": 2, "max": "1h" } }),
        json!({ "mode": "off", "overrides": { "a": { "scale": 0.5 }, "b*": "banned" } }),
    ] {
        let written = serde_json::to_value(edited(&body)).expect("serialises");
        assert_eq!(written, body);
    }
}

#[test]
fn what_is_wrong_with_an_edit_is_told() {
    assert_eq!(wrong(&json!({})), ["(the whole file)"]);
    assert_eq!(wrong(&json!({ "mode": null })), ["(the whole file)"]);
    assert_eq!(wrong(&json!({ "penalty": { "after": 1 } })).len(), 2);
    assert_eq!(
        wrong(&json!({ "overrides": { "a b": "banned" } })),
        ["overrides.a b"]
    );
    let mut large = json!({ "limits": [limit()], "overrides": { "alice": { "scale": 1000 } } });
    large["limits"][0]["capacity"] = json!(4_000_000);
    assert_eq!(wrong(&large), ["overrides.alice.scale"]);
}

#[test]
fn one_override_is_read_against_the_limits() {
    let limits = parse_limits(&json!([limit()])).expect("valid");
    let read = |pattern: &str, value: Value| {
        let problems = |problems: Vec<loudou_rules::config::Problem>| {
            let paths = problems.iter().map(|p| p.path.to_string());
            paths.collect::<Vec<_>>().join(" ")
        };
        parse_override(pattern, &value, Some(&limits)).map_err(problems)
    };
    assert_eq!(read("alice", json!("banned")), Ok(Override::Banned));
    assert_eq!(read("team-*", json!("unlimited")), Ok(Override::Unlimited));
    assert!(read("a", json!({ "limits": [limit()] })).is_ok());
    assert!(read("a\n", json!("banned")).is_err());
    assert_eq!(read("a", json!({ "scale": 0 })), Err("scale".to_string()));
    assert!(read("a", json!({ "scale": 1, "limits": [limit()] })).is_err());
    assert!(read("a", json!("bannd")).is_err());
}

#[test]
fn scales_that_a_rule_cannot_bear_are_found() {
    let mut large =
        rule(&json!({ "overrides": { "alice": { "scale": 2 }, "bob": { "scale": 1000 } } }));
    assert_eq!(misfits(&parse_rule(&large).expect("valid")), []);
    large["overrides"] = json!({});
    let mut rule = parse_rule(&large).expect("valid");
    let edit = json!({ "overrides": { "alice": { "scale": 2 }, "bob": { "scale": 1000 } } });
    edited(&edit).apply(&mut rule);
    let mut wide = limit();
    wide["capacity"] = json!(4_000_000);
    edited(&json!({ "limits": [wide] })).apply(&mut rule);
    let found = misfits(&rule);
    let places: Vec<String> = found.iter().map(ToString::to_string).collect();
    assert_eq!(
        places,
        [
            "overrides.bob.scale: 1000: out of range for the rule's limits; allowed: a scale with which \
          the rule's limits stay within their bounds"
        ]
    );
}

#[test]
fn keys_are_printable_and_short() {
    for key in ["a", "a%20b:c", "~all", &"k".repeat(128)] {
        assert!(is_key(key), "{key}");
    }
    for key in ["", "a b", "ä", "a\u{7f}", &"k".repeat(129)] {
        assert!(!is_key(key), "{key}");
    }
}
