//! Edits of a rule whose buckets the fleet shares.

use super::*;

const RULE: &str = "/v1/rules/shared?carry=keep";
const OVERRIDE: &str = "/v1/overrides/shared/alice";

fn bench() -> Bench {
    let file = json!({
        "version": 1,
        "fleet": { "cluster": "relay", "token": "geheim" },
        "rules": [{
            "name": "shared",
            "scope": "fleet",
            "key": [{ "header": "x-user-id" }],
            "limits": [{ "algorithm": "funnel", "capacity": 2, "rate": "1/d" }],
        }],
    });
    Bench::with_file(FakeHost::default(), &file)
}

/// The problems of an edit, by their places.
fn problems(answer: &Value) -> Vec<&str> {
    let problems = answer["problems"].as_array().into_iter().flatten();
    problems
        .filter_map(|problem| problem["path"].as_str())
        .collect()
}

fn log() -> Value {
    json!([{ "algorithm": "sliding_log", "capacity": 5, "window": "1m" }])
}

#[test]
fn an_edit_keeps_a_rule_that_a_fleet_can_share() {
    let mut bench = bench();
    let before = bench.get("/v1/rules");
    for (path, body, place) in [
        (RULE, json!({ "limits": log() }), "limits[0].algorithm"),
        (
            RULE,
            json!({ "overrides": { "alice": { "limits": log() } } }),
            "overrides.alice.limits[0].algorithm",
        ),
        (
            OVERRIDE,
            json!({ "limits": log() }),
            "overrides.alice.limits[0].algorithm",
        ),
    ] {
        let (status, answer) = bench.edit("PUT", path, "*", Some(&body));
        assert_eq!((status, problems(&answer)), (400, vec![place]), "{answer}");
    }
    assert_eq!(bench.get("/v1/rules"), before);
    let limits = json!([{ "algorithm": "funnel", "capacity": 5, "rate": "1/d" }]);
    let (status, answer) = bench.edit("PUT", RULE, "*", Some(&json!({ "limits": limits })));
    assert_eq!(status, 200, "{answer}");
    let (status, answer) = bench.edit("PUT", OVERRIDE, "*", Some(&json!({ "limits": limits })));
    assert_eq!(status, 200, "{answer}");
    let shown = bench.get("/v1/rules");
    assert_eq!(shown["rules"][0]["rule"]["scope"], "fleet", "{shown}");
    let exported = bench.get("/v1/export");
    assert_eq!(exported["rules"][0]["scope"], "fleet", "{exported}");
}

#[test]
fn an_edit_leaves_the_scope() {
    let mut bench = bench();
    let (status, answer) = bench.edit(
        "PUT",
        RULE,
        "*",
        Some(&json!({ "mode": "shadow", "scope": "envoy" })),
    );
    assert_eq!(
        (status, problems(&answer)),
        (400, vec!["scope"]),
        "{answer}"
    );
    let message = answer["problems"][0]["message"]
        .as_str()
        .unwrap_or_default();
    assert!(message.contains("cannot change the scope"), "{message}");
}

#[test]
fn no_answer_shows_the_token() {
    let mut bench = bench();
    for path in ["/v1/rules", "/v1/rules/shared", "/v1/export", "/v1/status"] {
        let answer = bench.get(path).to_string();
        assert!(!answer.contains("geheim"), "{path}: {answer}");
    }
}
