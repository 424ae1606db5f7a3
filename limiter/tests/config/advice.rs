//! What this version cannot hold, and what is allowed but hardly meant.

use loudou_limiter::config::{
    Problem, Severity, advice, held_by_edit, held_by_file, parse_edit, parse_rule,
};
use serde_json::{Value, json};

use super::{file, read, rule};

fn lines(problems: &[Problem]) -> Vec<String> {
    problems.iter().map(ToString::to_string).collect()
}

fn held(fields: &[Value]) -> Vec<String> {
    let rules: Vec<Value> = (0..)
        .zip(fields)
        .map(|(n, fields)| {
            let mut rule = rule(fields);
            rule["name"] = json!(format!("r{n}"));
            rule
        })
        .collect();
    let problems = held_by_file(&read(&file(&rules)));
    assert!(problems.iter().all(|p| p.severity == Severity::Error));
    lines(&problems)
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

fn queue() -> Value {
    json!({ "algorithm": "leaky_queue", "capacity": 5, "rate": "1/s" })
}

const CANNOT: &str = "this version of the filter cannot hold requests yet; allowed:";
const REFUSES: &str = "(what is over the limit is refused then), or mode off";

#[test]
fn what_holds_is_told_with_its_place() {
    let plain = json!({ "name": "plain", "algorithm": "funnel", "capacity": 5, "rate": "1/s" });
    assert_eq!(
        held(&[
            json!({}),
            json!({ "limits": [plain, funnel("5s")] }),
            limits(&queue())
        ]),
        [
            format!("rules[1].limits[1].max_wait: \"5s\": {CANNOT} no max_wait {REFUSES}"),
            format!(
                "rules[2].limits[0].algorithm: \"leaky_queue\": {CANNOT} algorithm funnel {REFUSES}"
            ),
        ]
    );
    let waiting = |mut limit: Value| {
        limit["max_wait"] = json!("5s");
        held(&[limits(&limit)])
    };
    for limit in [
        json!({ "algorithm": "token_bucket", "capacity": 5, "rate": "1/s" }),
        json!({ "algorithm": "smooth_bursty", "rate": "1/s" }),
        json!({ "algorithm": "smooth_warmup", "rate": "1/s", "warmup": "5s" }),
    ] {
        let line = format!("rules[0].limits[0].max_wait: \"5s\": {CANNOT} no max_wait {REFUSES}");
        assert_eq!(waiting(limit), [line]);
    }
    let line = format!(
        "rules[0].limits[0].algorithm: \"leaky_queue\": {CANNOT} algorithm funnel {REFUSES}"
    );
    assert_eq!(waiting(queue()), [line]);
}

#[test]
fn what_holds_nothing_is_fine() {
    let off = |mode: &str| held(&[json!({ "mode": mode, "limits": [funnel("5s")] })]).len();
    assert_eq!([off("off"), off("shadow"), off("enforce")], [0, 1, 1]);
    let mut no_wait = queue();
    no_wait["max_wait"] = json!("0s");
    let mut immediate = queue();
    immediate["immediate"] = json!(5);
    for limit in [funnel("0s"), no_wait, immediate] {
        assert_eq!(held(&[limits(&limit)]), [""; 0], "{limit}");
    }
}

#[test]
fn an_edit_is_told_where_it_goes_wrong() {
    let off =
        parse_rule(&rule(&json!({ "mode": "off", "limits": [funnel("5s")] }))).expect("valid");
    let told = |edit: Value| {
        let edit = parse_edit(&edit).expect("valid");
        let mut after = off.clone();
        after.mode = edit.mode.unwrap_or(after.mode);
        after.limits = edit.limits.clone().unwrap_or(after.limits);
        lines(&held_by_edit(&edit, &after))
    };
    assert_eq!(
        told(json!({ "limits": [funnel("9s")] })),
        [""; 0],
        "it is off"
    );
    let line = format!("mode: \"shadow\": {CANNOT} no max_wait {REFUSES}");
    assert_eq!(told(json!({ "mode": "shadow" })), [line]);
    let line = format!("limits[0].max_wait: \"9s\": {CANNOT} no max_wait {REFUSES}");
    assert_eq!(
        told(json!({ "mode": "enforce", "limits": [funnel("9s")] })),
        [line]
    );
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
            "match.headers[1]: {never} `x-a` present and `x-a` absent never hold together"
        )]
    );
    assert_eq!(
        pair(
            header("x-a", "exact", json!("1")),
            header("x-a", "exact", json!("2"))
        ),
        [format!(
            "match.headers[1]: {never} `x-a` = `1` and `x-a` = `2` never hold together"
        )]
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
            "match.headers[0]: {never} `:path` absent never holds: every request has it"
        )]
    );
}

#[test]
fn waits_that_hold_hardly_anybody() {
    let of =
        |max_wait: &str, cost: u64| advised(&json!({ "limits": [funnel(max_wait)], "cost": cost }));
    assert_eq!(
        of("999ms", 1),
        [
            "limits[0].max_wait: \"999ms\": shorter than the 1s that one request takes: of requests that \
          come at once, none waits"
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
          and writes a page of 16, 32 KiB; a sliding_window is exact to a slot and takes little"
        ]
    );
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
        ["rules[1].name: \"b\": it does the same as `a`: one of them is enough"]
    );
    assert_eq!(of(named("b", json!({ "mode": "shadow" }))), [""; 0]);
    assert_eq!(of(named("b", json!({ "key": [] }))), [""; 0]);
}
