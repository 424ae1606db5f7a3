//! Defaults for absent fields of rules, which may have any field except the name.

use loudou_rules::rule::{Cost, KeyPart, Mode, OnError, SourcePrefix};
use serde_json::json;

use super::{problems, read, rule};

#[test]
fn a_rule_goes_before_the_defaults() {
    let read = read(&json!({
        "version": 1,
        "defaults": {
            "mode": "shadow", "stop": true, "on_error": "refuse", "cost": 2, "key": ["route"],
            "on_missing_key": "share", "match": { "methods": ["GET"] },
            "limits": [{ "algorithm": "funnel", "capacity": 9, "rate": "9/s" }],
            "respond": { "ratelimit_headers": "draft11" },
        },
        "rules": [
            { "name": "silent" },
            rule(&json!({
                "name": "loud", "mode": "off", "stop": false, "on_error": "admit", "cost": 3, "match": {},
                "on_missing_key": "skip", "respond": { "ratelimit_headers": "none" },
            })),
            { "name": "nulls", "mode": null, "key": [] },
        ],
    }));
    let [silent, loud, nulls] = read.rules.as_slice() else {
        panic!("three rules");
    };
    assert_eq!(
        (silent.mode, silent.stop, silent.on_error, &silent.cost),
        (Mode::Shadow, true, OnError::Refuse, &Cost::Fixed(2))
    );
    assert_eq!(silent.key, [KeyPart::Route]);
    assert_eq!(silent.matches.methods, ["GET"]);
    assert_eq!(
        (loud.mode, loud.stop, loud.on_error, &loud.cost),
        (Mode::Off, false, OnError::Admit, &Cost::Fixed(3))
    );
    assert_eq!(loud.key, [KeyPart::Source(SourcePrefix::default())]);
    assert!(loud.matches.is_everything());
    assert_ne!(loud.limits, silent.limits);
    assert_ne!(loud.on_missing_key, silent.on_missing_key);
    assert_ne!(loud.respond, silent.respond);
    assert_eq!((nulls.mode, &nulls.limits), (Mode::Shadow, &silent.limits));
    assert!(nulls.key.is_empty());
}

/// A problem in the defaults is reported once, even if several rules use them.
#[test]
fn a_problem_in_the_defaults_is_told_once() {
    let document = json!({
        "version": 1,
        "defaults": { "mode": "enforced", "limts": [], "cost": 0 },
        "rules": [
            rule(&json!({ "name": "a" })),
            rule(&json!({ "name": "b" })),
            rule(&json!({ "name": "c" })),
        ],
    });
    assert_eq!(
        problems(&document),
        [
            "defaults.limts: unknown field; allowed: match, on_long_value, when, key, on_missing_key, on_ambiguous_key, limits, scope, cost, mode, \
             shadows, stop, on_error, overrides, penalty, refuse, respond; did you mean `limits`?",
            "defaults.cost: 0: out of range; allowed: a whole number from 1 to 1000000000",
            "defaults.mode: \"enforced\": unknown value; allowed: enforce, shadow, off; \
             did you mean `enforce`?",
        ]
    );
}

/// A problem in the defaults is reported even if no rule uses them.
#[test]
fn a_problem_in_unused_defaults_is_told() {
    let expected = [
        "defaults.match.path: none of the fields is given; allowed: exactly one of prefix, exact, suffix, template, regex",
        "defaults.mode: \"on\": unknown value; allowed: enforce, shadow, off",
    ];
    let own = rule(&json!({ "mode": "off", "match": {} }));
    for rules in [json!([own]), json!([])] {
        let document = json!({
            "version": 1, "defaults": { "mode": "on", "match": { "path": {} } }, "rules": rules,
        });
        assert_eq!(problems(&document), expected);
    }
}

#[test]
fn defaults_have_no_name() {
    let document = json!({ "version": 1, "defaults": { "name": "x" }, "rules": [] });
    let found = problems(&document);
    assert_eq!(found.len(), 1);
    assert!(
        found[0].starts_with("defaults.name: unknown field; allowed: match, on_long_value, "),
        "{found:?}"
    );
    let document = json!({ "version": 1, "defaults": [1], "rules": [] });
    let found = problems(&document);
    assert!(
        found[0].starts_with("defaults: [1]: a list instead of an object"),
        "{found:?}"
    );
}
