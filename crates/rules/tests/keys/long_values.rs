//! If a value is longer than a regular expression can test, the match is undecided, and the rule's
//! `on_long_value` decides.

use loudou_rules::rule::{Fit, Part, Reach, Rule};
use serde_json::{Value, json};

use super::Fake;

/// A value that no pattern tests.
const LONG: usize = 60_000;

fn rule(matches: &Value, on_long: &str) -> Rule {
    super::rule(&json!({ "match": matches, "on_long_value": on_long }))
}

fn fit(matches: &Value, request: &Fake) -> Fit {
    rule(matches, "apply").matches.fit(&mut request.clone())
}

fn long() -> Fake {
    let mut request = Fake::to("/a?q=1")
        .with("x", "a".repeat(LONG))
        .with("y", "b");
    request.method = Some(b"GET".to_vec());
    request
}

/// False decides over open, and open over true.
#[test]
fn a_part_that_fails_decides() {
    let open = json!({ "name": "x", "regex": "a*" });
    let (yes, no) = (
        json!({ "name": "y", "regex": "b" }),
        json!({ "name": "y", "exact": "c" }),
    );
    for (matches, expected) in [
        (json!({ "headers": [open] }), Fit::TooLong(Part::Header(0))),
        (
            json!({ "headers": [yes, open] }),
            Fit::TooLong(Part::Header(1)),
        ),
        (
            json!({ "headers": [open, yes, open] }),
            Fit::TooLong(Part::Header(0)),
        ),
        (json!({ "headers": [open, no] }), Fit::No(Part::Header(1))),
        (json!({ "headers": [no, open] }), Fit::No(Part::Header(0))),
        (
            json!({ "headers": [open], "query": [{ "name": "q", "exact": "2" }] }),
            Fit::No(Part::Query(0)),
        ),
        (
            json!({ "headers": [open], "methods": ["POST"] }),
            Fit::No(Part::Methods),
        ),
        (
            json!({ "headers": [{ "name": "x", "regex": "b.*" }] }),
            Fit::No(Part::Header(0)),
        ),
        // The `not` of an undecided part is undecided. The `not` of a failing part is true.
        (
            json!({ "not": { "headers": [open] } }),
            Fit::TooLong(Part::Not),
        ),
        (json!({ "not": { "headers": [open, no] } }), Fit::Yes),
        (json!({ "not": { "headers": [yes] } }), Fit::No(Part::Not)),
        (
            json!({ "not": { "not": { "headers": [open] } } }),
            Fit::TooLong(Part::Not),
        ),
        (
            json!({ "methods": ["POST"], "not": { "headers": [open] } }),
            Fit::No(Part::Methods),
        ),
    ] {
        assert_eq!(fit(&matches, &long()), expected, "{matches}");
    }
}

#[test]
fn the_rule_decides_about_open_matches() {
    let open = json!({ "headers": [{ "name": "x", "regex": "a*" }] });
    let closed = json!({ "headers": [{ "name": "x", "regex": "b*" }] });
    for (policy, expected) in [
        ("apply", Reach::Yes),
        ("skip", Reach::No),
        ("refuse", Reach::Refuse),
    ] {
        let reach =
            |matches: &Value, request: &Fake| rule(matches, policy).reach(&mut request.clone());
        assert_eq!(reach(&open, &long()), expected, "{policy}");
        assert_eq!(reach(&closed, &long()), Reach::No, "{policy}");
        let short = Fake::default().with("x", "aa");
        assert_eq!(reach(&open, &short), Reach::Yes, "{policy}");
    }
}

/// Paths are tested without their query, however long it is.
#[test]
fn a_long_query_does_not_make_a_path_long() {
    let matches = json!({ "path": { "regex": "/a" } });
    let request = Fake::to(&format!("/a?{}", "x".repeat(LONG)));
    assert_eq!(fit(&matches, &request), Fit::Yes);
    let matches = json!({ "path": { "regex": "/a/?.*" } });
    let request = Fake::to(&format!("/a/{}", "x".repeat(LONG)));
    assert_eq!(fit(&matches, &request), Fit::TooLong(Part::Path));
}

/// A rule file without the field has the default, and the default is not written.
#[test]
fn the_default_applies_the_rule() {
    let written = |rule: &Rule| serde_json::to_value(rule).expect("an object");
    let default = super::rule(&json!({}));
    assert_eq!(
        default.on_long_value,
        loudou_rules::rule::OnLongValue::Apply
    );
    assert_eq!(written(&default).get("on_long_value"), None);
    let skip = written(&rule(&json!({}), "skip"));
    assert_eq!(skip.get("on_long_value"), Some(&json!("skip")));
}
