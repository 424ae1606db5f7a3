//! Overrides, penalties and what a rule shadows.

use loudou_rules::config::{advice, parse, parse_rule};
use serde_json::{Value, json};

use super::{file, rule};

/// Returns the problems of a rule with these fields, as path, message and suggestion.
fn wrong(fields: &Value) -> Vec<(String, String, Option<String>)> {
    let problems = parse(&file(&[rule(fields)])).problems;
    let told = problems.into_iter().map(|problem| {
        let place = problem.path.to_string();
        let place = place.trim_start_matches("rules[0].").to_string();
        (place, problem.message, problem.suggestion)
    });
    told.collect()
}

fn problem(
    place: &str,
    message: &str,
    suggestion: Option<&str>,
) -> (String, String, Option<String>) {
    let own = str::to_string;
    (own(place), own(message), suggestion.map(own))
}

#[test]
fn what_is_wrong_with_an_override_is_told() {
    for (overrides, told) in [
        (
            json!([]),
            problem("overrides", "a list instead of an object", None),
        ),
        (
            json!({ "a": "unlimitd" }),
            problem("overrides.a", "unknown value", Some("unlimited")),
        ),
        (
            json!({ "a": { "scal": 2 } }),
            problem("overrides.a.scal", "unknown field", Some("scale")),
        ),
        (
            json!({ "a": { "scale": 0 } }),
            problem("overrides.a.scale", "out of range", None),
        ),
        (
            json!({ "a": { "limits": [] } }),
            problem("overrides.a.limits", "0 limits", None),
        ),
        (
            json!({ "a": { "limits": [{ "algorithm": "funnel", "rate": "1/s",
                "capacity": { "metadata": ["jwt", "quota"], "default": 1, "max": 9 } }] } }),
            problem(
                "overrides.a.limits",
                "the limits of an override are fixed",
                None,
            ),
        ),
        (
            json!({ "": "banned" }),
            problem("overrides.", "invalid key", None),
        ),
    ] {
        let problems = wrong(&json!({ "overrides": overrides }));
        assert!(problems.contains(&told), "{problems:?}");
    }
    let both = json!({ "a": { "scale": 2, "limits": [] } });
    assert_eq!(
        wrong(&json!({ "overrides": both })),
        [problem(
            "overrides.a",
            "more than one of the fields is given",
            None
        )]
    );
    let spaced = wrong(&json!({ "overrides": { "jos\u{e9} a*": "banned" } }));
    assert_eq!(spaced.len(), 1);
    assert_eq!(spaced[0].1, "invalid characters in a key");
    assert_eq!(spaced[0].2.as_deref(), Some("jos%C3%A9%20a*"));
    let large = json!([{ "algorithm": "funnel", "capacity": 4_000_000, "rate": "1/s" }]);
    assert_eq!(
        wrong(&json!({ "limits": large, "overrides": { "a": { "scale": 1000 } } })),
        [problem(
            "overrides.a.scale",
            "out of range for the rule's limits",
            None
        )]
    );
    let many = (0..1_025).map(|n| (format!("k{n}"), json!("banned")));
    let many = Value::Object(many.collect());
    assert_eq!(
        wrong(&json!({ "overrides": many })),
        [problem("overrides", "too many overrides", None)]
    );
}

#[test]
fn what_is_wrong_with_a_penalty_is_told() {
    let penalty = |fields: Value| {
        let mut penalty = json!({ "after": 3, "within": "1m", "ban": "5m" });
        for (name, value) in fields.as_object().expect("an object") {
            penalty[name] = value.clone();
        }
        wrong(&json!({ "penalty": penalty }))
    };
    assert_eq!(penalty(json!({})), []);
    assert_eq!(
        penalty(json!({ "after": 0 })),
        [problem("penalty.after", "out of range", None)]
    );
    assert_eq!(
        penalty(json!({ "max": "1m" })),
        [problem("penalty.max", "shorter than the first ban", None)]
    );
    assert_eq!(
        penalty(json!({ "factor": 0.5 })),
        [problem("penalty.factor", "out of range", None)]
    );
    assert_eq!(
        penalty(json!({ "within": null })),
        [problem("penalty", "`within` is missing", None)]
    );
    assert_eq!(
        penalty(json!({ "baan": "1m" })),
        [problem("penalty.baan", "unknown field", Some("ban"))]
    );
    // Defaults.
    let said = json!({ "penalty": { "after": 3, "within": "1m", "ban": "5m" } });
    let rule = parse_rule(&rule(&said)).expect("valid");
    let written = serde_json::to_value(rule.penalty).expect("serialises");
    assert_eq!(
        written,
        json!({ "after": 3, "within": "1m", "ban": "5m", "factor": 1, "max": "5m" })
    );
}

#[test]
fn a_rule_shadows_another_rule_of_the_file() {
    let named = |name: &str, fields: Value| {
        let mut rule = rule(&fields);
        rule["name"] = json!(name);
        rule
    };
    let told = |shadows: &str| {
        let rules = [
            named("old", json!({})),
            named("new", json!({ "shadows": shadows })),
        ];
        let problems = parse(&file(&rules)).problems;
        let told = problems
            .into_iter()
            .map(|p| (p.path.to_string(), p.suggestion));
        told.collect::<Vec<_>>()
    };
    assert_eq!(told("old"), []);
    let place = || "rules[1].shadows".to_string();
    assert_eq!(told("olds"), [(place(), Some("old".to_string()))]);
    assert_eq!(told("new").len(), 1);
    // In any order.
    let rules = [
        named("new", json!({ "shadows": "old" })),
        named("old", json!({})),
    ];
    assert_eq!(parse(&file(&rules)).problems, []);
}

/// An override or a ban of a key that no request can have would be useless.
#[test]
fn keys_that_no_request_has_are_refused() {
    let with = |fields: Value| parse_rule(&rule(&fields)).expect("valid");
    let one = with(json!({ "key": [{ "header": "x-user" }] }));
    let two = with(json!({ "key": ["source", "path"], "on_missing_key": "share" }));
    let all = with(json!({ "key": [] }));
    for (rule, key, is_beginning, possible) in [
        (&one, "alice", false, Ok(())),
        (&one, "a:b", false, Err(Some("a%3Ab"))),
        (&one, "a:", true, Err(Some("a%3A"))),
        (&one, "a%3Ab%20c", false, Ok(())),
        (&one, "a%3ab", false, Err(None)),
        (&one, "q%2Fz", false, Err(None)),
        (&one, "100%", false, Err(None)),
        (&one, "100%2", true, Ok(())),
        (&one, "a~b", false, Err(Some("a%7Eb"))),
        (&one, "~missing", false, Err(Some("%7Emissing"))),
        (&one, "", true, Ok(())),
        (&two, "10.0.0.1:/a", false, Ok(())),
        (&two, "10.0.0.1", false, Err(None)),
        (&two, "10.0.0.1", true, Ok(())),
        (&two, "10.0.0.1:/a:b", true, Err(None)),
        (&two, "~missing", false, Ok(())),
        (&all, "~all", false, Ok(())),
        (&all, "~", true, Ok(())),
        (&all, "x", false, Err(Some("~all"))),
    ] {
        let found = rule.may_have(key, is_beginning).map_err(|no| no.meant);
        let expected = possible.map_err(|meant| meant.map(str::to_string));
        assert_eq!(found, expected, "{key} {is_beginning}");
    }
    let cut = format!("{}~{}", "a".repeat(95), "0".repeat(32));
    assert!(one.may_have(&cut, false).is_ok());
    let file = file(&[rule(
        &json!({ "key": ["source"], "overrides": { "::1*": "banned" } }),
    )]);
    let told = advice(&parse(&file).file.expect("valid"));
    let told: Vec<_> = told.iter().map(ToString::to_string).collect();
    assert_eq!(
        told,
        [
            "rules[0].overrides.::1*: no request can have this key; allowed: the rule's key has 1 part, joined \
             with `:`; within a part that is written %3A; did you mean `%3A%3A1*`?"
        ]
    );
}

#[test]
fn keys_have_addresses_in_the_form_of_their_rule() {
    let with = |fields: Value| parse_rule(&rule(&fields)).expect("valid");
    let v6 = with(json!({ "key": ["source", "method"] }));
    let wide = with(json!({ "key": [{ "source": { "v4_prefix": 24 } }] }));
    for (rule, key, possible) in [
        (&v6, "10.0.0.1:GET", Ok(())),
        (&v6, "2001%3Adb8%3A%3A/64:GET", Ok(())),
        (&v6, "/tmp/socket:GET", Ok(())),
        (
            &v6,
            "2001%3Adb8%3A%3A1:GET",
            Err(Some("2001%3Adb8%3A%3A/64:GET")),
        ),
        (&v6, "%3A%3Affff%3A10.0.0.1:GET", Err(Some("10.0.0.1:GET"))),
        (&v6, "2001%3Adb8%3A%3A/48:GET", Err(None)),
        (&v6, "10.0.0.0/24:GET", Err(None)),
        (&v6, "alice:GET", Err(None)),
        (&wide, "10.0.0.0/24", Ok(())),
        (&wide, "10.0.0.1", Err(Some("10.0.0.0/24"))),
        (&wide, "10.0.0.1/24", Err(None)),
    ] {
        let found = rule.may_have(key, false).map_err(|no| no.meant);
        let expected = possible.map_err(|meant: Option<&str>| meant.map(str::to_string));
        assert_eq!(found, expected, "{key}");
    }
}
