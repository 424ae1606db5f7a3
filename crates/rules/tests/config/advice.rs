//! Rules that are valid but probably a mistake.

use loudou_rules::config::{Problem, Severity, advice, parse, preflight_advice};
use serde_json::{Value, json};

use super::{file, read, rule};

fn lines(problems: &[Problem]) -> Vec<String> {
    problems.iter().map(ToString::to_string).collect()
}

/// A warning about a file whose only rule has `fields`, without the path to the rule.
fn advised(fields: &Value) -> Vec<String> {
    let problems = advice(&read(&file(&[rule(fields)])));
    assert!(problems.iter().all(|p| p.severity == Severity::Warning));
    let lines = lines(&problems).into_iter();
    lines
        .map(|line| line.strip_prefix("rules[0].").unwrap_or(&line).to_string())
        .collect()
}

fn limits(limit: &Value) -> Value {
    json!({ "limits": [limit] })
}

fn funnel(max_wait: &str) -> Value {
    json!({ "algorithm": "funnel", "capacity": 5, "rate": "1/s", "max_wait": max_wait })
}

#[test]
fn preflights_that_are_always_refused() {
    let of = |more: Value| {
        let mut fields = json!({ "key": [{ "header": "x-api-key" }], "on_missing_key": "refuse" });
        for (name, value) in more.as_object().expect("an object") {
            fields[name] = value.clone();
        }
        let problems = preflight_advice(&read(&file(&[rule(&fields)])));
        problems.iter().map(ToString::to_string).collect::<Vec<_>>()
    };
    assert_eq!(
        of(json!({})),
        [
            "rules[0].on_missing_key: \"refuse\": refuses every CORS preflight, because browsers send no \
             header x-api-key in it; if browsers call this API, put Envoy's cors filter before Loudou, or \
             add `not: { methods: [OPTIONS] }` to the match"
        ]
    );
    let header = |name: &str, test: Value| {
        let mut test = test;
        test["name"] = json!(name);
        json!({ "match": { "headers": [test] } })
    };
    for warned in [
        json!({ "key": ["source", { "cookie": "sid" }] }),
        json!({ "match": { "methods": ["POST", "OPTIONS"] } }),
        json!({ "match": { "not": { "methods": ["OPTIONS"], "path": { "prefix": "/a" } } } }),
        json!({ "match": { "not": { "methods": ["GET"] } } }),
        header("origin", json!({ "present": true })),
        header("authorization", json!({ "present": false })),
    ] {
        assert_eq!(of(warned.clone()).len(), 1, "{warned}");
    }
    for fine in [
        json!({ "on_missing_key": "skip" }),
        json!({ "on_missing_key": "share" }),
        json!({ "mode": "shadow" }),
        json!({ "key": ["source", { "header": "user-agent" }, { "query": "user" }] }),
        json!({ "match": { "methods": ["GET", "POST"] } }),
        json!({ "match": { "not": { "methods": ["OPTIONS", "HEAD"] } } }),
        json!({ "match": { "cookies": [{ "name": "sid", "present": true }] } }),
        header("content-type", json!({ "prefix": "application/grpc" })),
        header(":method", json!({ "exact": "POST" })),
        json!({ "match": { "not": { "headers": [
            { "name": "access-control-request-method", "present": true },
        ] } } }),
    ] {
        assert_eq!(of(fine.clone()), [""; 0], "{fine}");
    }
}

#[test]
fn matches_that_never_hold() {
    let of = |match_: Value| advised(&json!({ "match": match_ }));
    let header = |name: &str, test: &str, value: Value| json!({ "name": name, test: value });
    let pair = |one: Value, two: Value| of(json!({ "headers": [one, two] }));
    let never = "no request ever matches:";
    assert_eq!(
        pair(
            header("x-a", "present", json!(true)),
            header("X-A", "present", json!(false))
        ),
        [format!(
            "match.headers[1]: {never} `x-a` present and `x-a` absent contradict each other"
        )]
    );
    assert_eq!(
        pair(
            header("x-a", "exact", json!("1")),
            header("x-a", "exact", json!("2"))
        ),
        [
            "match.headers[1]: only requests that repeat the header may match: `x-a` = `1` and \
             `x-a` = `2` contradict each other"
        ]
    );
    for (one, two) in [
        (("x", "exact", json!("1")), ("x", "exact", json!("1"))),
        (("x", "exact", json!("1")), ("x", "present", json!(true))),
        (
            ("x", "present", json!(false)),
            ("y", "present", json!(true)),
        ),
    ] {
        assert_eq!(
            pair(header(one.0, one.1, one.2), header(two.0, two.1, two.2)),
            [""; 0]
        );
    }
    let pseudo = |name: &str, value: &str| {
        let exact = header(name, "exact", json!(value));
        let match_ = json!({ "methods": ["GET"], "path": { "prefix": "/a" }, "headers": [exact] });
        of(match_).len()
    };
    assert_eq!(
        [pseudo(":method", "GET"), pseudo(":method", "POST")],
        [0, 1]
    );
    assert_eq!(
        [pseudo(":path", "/a/b?c"), pseudo(":path", "/b?/a")],
        [0, 1]
    );
    let absent = header(":path", "present", json!(false));
    assert_eq!(
        of(json!({ "headers": [absent] })),
        [format!(
            "match.headers[0]: {never} `:path` absent never matches: every request has it"
        )]
    );
}

#[test]
fn waits_that_hold_almost_no_request() {
    let of =
        |max_wait: &str, cost: u64| advised(&json!({ "limits": [funnel(max_wait)], "cost": cost }));
    assert_eq!(
        of("999ms", 1),
        [
            "limits[0].max_wait: \"999ms\": shorter than the 1s that one request takes: simultaneous \
         requests are refused, not held"
        ]
    );
    assert_eq!(of("1s", 1), [""; 0]);
    assert_eq!(of("0s", 1), [""; 0]);
    assert_eq!(of("1s", 2).len(), 1);
}

#[test]
fn large_buckets() {
    let log = |capacity: u64| {
        let log = json!({ "algorithm": "sliding_log", "capacity": capacity, "window": "1m" });
        advised(&limits(&log))
    };
    assert_eq!(log(128), [""; 0]);
    assert_eq!(
        log(256),
        [
            "limits[0].algorithm: \"sliding_log\": a bucket takes up to 2048 bytes, and each request reads \
          and writes a page of 16, 32 KiB; a sliding_window is exact to a slot and much smaller"
        ]
    );
}

#[test]
fn expensive_regular_expressions() {
    let of =
        |pattern: &str| advised(&json!({ "match": { "not": { "path": { "regex": pattern } } } }));
    assert_eq!(of("/v[0-9]+/.*"), [""; 0]);
    let told = of("(?:.*a){60}x").join("\n");
    let expected =
        "match.not.path.regex: \"(?:.*a){60}x\": expensive: up to 100 µs for a value of ";
    assert!(told.starts_with(expected), "{told}");

    let test = |n: u32| json!({ "name": format!("x-{n}"), "regex": "/v[0-9]+/.*" });
    let rule = |name: &str| {
        let headers: Vec<Value> = (0..6).map(test).collect();
        let mut rule = rule(&json!({ "match": { "headers": headers } }));
        rule["name"] = json!(name);
        rule
    };
    let lines_of = |rules: &[Value]| lines(&advice(&read(&file(rules))));
    assert_eq!(lines_of(&[rule("a")]), [""; 0]);
    let both = lines_of(&[rule("a"), rule("b")]).join("\n");
    assert!(
        both.contains("rules: the 12 regular expressions of these rules may take up to 2 ms"),
        "{both}"
    );
}

/// A client must not avoid the later rules by making a value longer.
#[test]
fn a_long_value_that_avoids_later_rules() {
    let of = |stop: bool, policy: &str| {
        let matches = json!({ "path": { "regex": "/health.*" } });
        advised(&json!({ "match": matches, "stop": stop, "on_long_value": policy })).len()
    };
    assert_eq!(
        [of(true, "apply"), of(true, "skip"), of(true, "refuse")],
        [1, 0, 0]
    );
    assert_eq!(of(false, "apply"), 0);
}

#[test]
fn the_same_rule_twice() {
    let named = |name: &str, fields: Value| {
        let mut rule = rule(&fields);
        rule["name"] = json!(name);
        rule
    };
    let of = |second: Value| {
        let rules = [named("a", json!({})), second];
        lines(&advice(&read(&file(&rules))))
    };
    assert_eq!(
        of(named("b", json!({}))),
        ["rules[1].name: \"b\": duplicate of the rule `a`: one of them is enough"]
    );
    assert_eq!(of(named("b", json!({ "mode": "shadow" }))), [""; 0]);
    assert_eq!(of(named("b", json!({ "key": [] }))), [""; 0]);
}

/// Warnings about a file with these settings of the fleet, and a rule with these fields.
fn advised_fleet(fleet: &Value, fields: &Value) -> Vec<String> {
    let mut document = file(&[rule(fields)]);
    document["fleet"] = fleet.clone();
    lines(&advice(&read(&document)))
}

#[test]
fn fleets() {
    let shared = json!({ "scope": "fleet" });
    let of = |fleet: Value| advised_fleet(&fleet, &shared);
    assert_eq!(of(json!({ "cluster": "relay" })), [""; 0]);
    assert_eq!(
        advised_fleet(&json!({ "cluster": "relay" }), &json!({})),
        ["fleet: no rule has `scope: fleet`: each Envoy has its own buckets"]
    );
    let late = "not shorter than the lease: tokens may have expired when the relay answers";
    assert_eq!(
        of(json!({ "cluster": "relay", "timeout": "30ms", "lease": "30ms" })),
        [format!(
            "fleet.timeout: \"30ms\": {late}; allowed: less than 30ms"
        )]
    );
    assert_eq!(
        of(json!({ "cluster": "relay", "timeout": "30ms", "lease": "31ms" })),
        [""; 0]
    );
    // The capacity is 5.
    assert_eq!(of(json!({ "cluster": "relay", "credit": 5 })), [""; 0]);
    assert_eq!(
        of(json!({ "cluster": "relay", "credit": 6 })),
        [
            "rules[0].limits[0].capacity: 5: less than the fleet's credit of 6, which passes in each Envoy before \
          the relay answers"
        ]
    );
    let off = json!({ "scope": "fleet", "mode": "off" });
    assert_eq!(
        advised_fleet(&json!({ "cluster": "relay", "credit": 6 }), &off),
        [""; 0]
    );
}

/// The overrides of a rule replace the default overrides, including their bans.
#[test]
fn overrides_that_drop_a_ban_of_the_defaults() {
    let of = |overrides: Value| {
        let mut document = file(&[rule(&json!({})), rule(&json!({ "overrides": overrides }))]);
        document["rules"][0]["name"] = json!("without");
        document["defaults"] = json!({
            "overrides": { "mallory": "banned", "team-*": { "scale": 2 }, "trudy": "banned" },
        });
        let parsed = parse(&document);
        assert!(parsed.file.is_some(), "valid: {:?}", parsed.problems);
        lines(&parsed.problems)
    };
    let both = "rules[1].overrides: `mallory`, `trudy` are banned in `defaults`, and not by this rule: its own \
                overrides replace all of the defaults; did you mean `mallory: banned`?";
    assert_eq!(of(json!({ "alice": "unlimited" })), [both]);
    assert_eq!(of(json!({})), [both]);
    let one = both.replace("`mallory`, `trudy` are", "`trudy` is");
    assert_eq!(
        of(json!({ "mal*": "banned" })),
        [one.replace("mallory: b", "trudy: b")]
    );
    // Another override of the same key is meant.
    assert_eq!(
        of(json!({ "mallory": "unlimited", "trudy": "banned" })),
        [""; 0]
    );
}
