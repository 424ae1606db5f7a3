//! The failing or missing part, with its place, its requirement, and the value found.

use loudou_limiter::{Clock, Nanos};
use loudou_rules::config;
use loudou_rules::explain::RuleExplained;
use loudou_rules::rule::{Failing, Found, Pattern};
use serde_json::{Value, json};

use super::{World, limit};

fn explained(rule: Value, sample: &Value) -> RuleExplained {
    let mut rule = rule;
    rule["name"] = json!("r");
    rule["limits"] = limit(1);
    let mut world = World::new(&json!([rule]), 64);
    let mut explained = world.explain(sample, Clock::at(Nanos::ZERO));
    explained.rules.pop().expect("one rule")
}

/// Returns the place, the requirement, and the value found, which is a text, `-` for none, or `*`
/// for everything.
fn failing(matches: &Value, sample: &Value) -> Option<(String, Value, String)> {
    let explained = explained(json!({ "match": matches, "key": [] }), sample);
    let failing = explained.failing?;
    let found = match failing.found {
        Found::Nothing => "-".to_owned(),
        Found::AllOfIt => "*".to_owned(),
        Found::Text(text) => text,
    };
    Some((failing.place, failing.asked, found))
}

fn request() -> Value {
    json!({
        "method": "PUT", "path": "/a/b?q=%31&debug", "host": "API.Test:8443", "source": "10.0.0.7",
        "route": "main", "client_cert": "spiffe://a",
        "headers": { "x-plan": "paid", "cookie": "c=\"1\"" },
        "metadata": { "ns": { "plan": "paid" } },
    })
}

/// Checks that each match fails for the request, with the place, the requirement, and the value
/// found.
fn all_fail<const N: usize>(cases: [(Value, &str, Value, &str); N]) {
    for (matches, place, asked, found) in cases {
        let told = failing(&matches, &request()).unwrap_or_else(|| panic!("{matches} holds"));
        let expected = (place.to_owned(), asked, found.to_owned());
        assert_eq!(told, expected, "{matches}");
    }
}

#[test]
fn every_part_is_named() {
    let plan = |test: &str, value: Value| json!({ "name": "x-plan", test: value });
    all_fail([
        (
            json!({ "methods": ["GET", "POST"] }),
            "match.methods",
            json!(["GET", "POST"]),
            "PUT",
        ),
        (
            json!({ "path": { "prefix": "/reply" } }),
            "match.path",
            json!({ "prefix": "/reply" }),
            "/a/b",
        ),
        (
            json!({ "path": { "regex": "/[0-9]+" } }),
            "match.path",
            json!({ "regex": "/[0-9]+" }),
            "/a/b",
        ),
        (
            json!({ "host": { "exact": "test" } }),
            "match.host",
            json!({ "exact": "test" }),
            "api.test",
        ),
        (
            json!({ "headers": [plan("exact", json!("paid")), plan("exact", json!("free"))] }),
            "match.headers[1]",
            plan("exact", json!("free")),
            "paid",
        ),
        (
            json!({ "headers": [{ "name": "x-none", "present": true }] }),
            "match.headers[0]",
            json!({ "name": "x-none", "present": true }),
            "-",
        ),
    ]);
}

#[test]
fn every_part_of_what_is_packed_or_around_is_named() {
    let plan = json!({ "name": "x-plan", "present": true });
    let in_ns = |value: &str| json!({ "path": ["ns", "plan"], "exact": value });
    let not = json!({ "path": { "prefix": "/a" }, "headers": [plan] });
    all_fail([
        (
            json!({ "query": [{ "name": "debug", "present": true }, { "name": "q", "exact": "2" }] }),
            "match.query[1]",
            json!({ "name": "q", "exact": "2" }),
            "1",
        ),
        (
            json!({ "cookies": [{ "name": "c", "suffix": "2" }] }),
            "match.cookies[0]",
            json!({ "name": "c", "suffix": "2" }),
            "1",
        ),
        (
            json!({ "source": ["192.0.2.0/24", "::1"] }),
            "match.source",
            json!(["192.0.2.0/24", "::1"]),
            "10.0.0.7",
        ),
        (
            json!({ "route": { "prefix": "o" } }),
            "match.route",
            json!({ "prefix": "o" }),
            "main",
        ),
        (
            json!({ "metadata": [in_ns("paid"), in_ns("free")] }),
            "match.metadata[1]",
            in_ns("free"),
            "paid",
        ),
        (json!({ "not": not }), "match.not", not, "*"),
    ]);
}

/// In the order of the tests, and none if all pass.
#[test]
fn the_first_part_is_named() {
    let matches = json!({
        "methods": ["GET"], "path": { "exact": "/a" }, "headers": [{ "name": "x", "exact": "1" }],
        "not": { "headers": [{ "name": "y", "present": true }] },
    });
    for (sample, place) in [
        (json!({ "method": "PUT" }), Some("match.methods")),
        (json!({ "path": "/b" }), Some("match.path")),
        (json!({ "path": "/a" }), Some("match.headers[0]")),
        (
            json!({ "path": "/a", "headers": { "x": "1", "y": "" } }),
            Some("match.not"),
        ),
        (
            json!({ "path": "/a?q", "headers": { "X": ["1", "2"] } }),
            None,
        ),
    ] {
        let told = failing(&matches, &sample).map(|(place, ..)| place);
        assert_eq!(told.as_deref(), place, "{sample}");
    }
}

/// If a match inside of `not` fails, the other parts decide.
#[test]
fn what_must_not_hold_in_part_is_no_failure() {
    let matches = json!({ "not": { "methods": ["GET"], "not": { "path": { "prefix": "/a" } } } });
    assert_eq!(failing(&matches, &json!({ "path": "/a" })), None);
    assert_eq!(failing(&matches, &json!({ "method": "PUT" })), None);
    let (place, ..) = failing(&matches, &json!({ "path": "/b" })).expect("it must not hold");
    assert_eq!(place, "match.not");
}

/// A value that is too long is named with the longest that is tested, whether the rule applies or not.
#[test]
fn values_that_are_too_long_are_named() {
    let of = |matches: Value, policy: &str| {
        let sample = json!({ "headers": { "x": "a".repeat(8_000) } });
        let rule = json!({ "key": [], "match": matches, "on_long_value": policy });
        let explained = explained(rule, &sample);
        let of = |part: Option<Failing>| part.map(|part| (part.place, part.longest));
        (of(explained.failing), of(explained.too_long))
    };
    let headers = json!({ "headers": [{ "name": "x", "regex": "a*" }] });
    let longest = Pattern::new("a*").expect("valid").longest();
    let part = |place: &str| Some((place.to_owned(), Some(longest)));
    assert_eq!(
        of(headers.clone(), "apply"),
        (None, part("match.headers[0]"))
    );
    assert_eq!(
        of(headers.clone(), "refuse"),
        (None, part("match.headers[0]"))
    );
    assert_eq!(
        of(headers.clone(), "skip"),
        (part("match.headers[0]"), None)
    );
    let not = json!({ "not": headers });
    assert_eq!(
        of(not.clone(), "apply"),
        (None, part("match.not.headers[0]"))
    );
    assert_eq!(
        of(json!({ "not": not }), "skip"),
        (part("match.not.not.headers[0]"), None)
    );
}

#[test]
fn a_missing_part_of_the_key_is_named() {
    let key = json!([{ "literal": "x" }, { "header": "x-user-id" }, "source"]);
    let with = |on_missing: &str, sample: &Value| {
        let rule = json!({ "key": key, "on_missing_key": on_missing });
        let explained = explained(rule, sample);
        let missing = explained
            .missing
            .map(|missing| (missing.place, missing.asked));
        (missing, explained.key)
    };
    let user = || Some(("key[1]".to_owned(), json!({ "header": "x-user-id" })));
    for sample in [json!({}), json!({ "headers": { "x-user-id": " " } })] {
        assert_eq!(with("skip", &sample), (user(), None));
        assert_eq!(with("refuse", &sample), (user(), None));
        assert_eq!(
            with("share", &sample),
            (user(), Some("~missing".to_owned()))
        );
    }
    let named = json!({ "headers": { "x-user-id": "al:ice" } });
    let source = Some(("key[2]".to_owned(), json!("source")));
    assert_eq!(with("skip", &named), (source, None));
    let whole = json!({ "headers": { "x-user-id": "al:ice" }, "source": "10.0.0.7" });
    let key = Some("x:al%3Aice:10.0.0.7".to_owned());
    assert_eq!(with("skip", &whole), (None, key));
}

/// The requirement is shown as in the rule file, so that it can be found there.
#[test]
fn what_is_asked_reads_back() {
    let (_, asked, _) = failing(
        &json!({ "not": { "source": ["10.0.0.0/8"], "route": { "exact": "main" } } }),
        &json!({ "source": "10.0.0.7", "route": "main" }),
    )
    .expect("it holds");
    let rule = json!({ "name": "r", "key": [], "limits": limit(1), "match": asked });
    assert!(config::parse_rule(&rule).is_ok(), "{asked}");
}
