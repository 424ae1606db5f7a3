//! Invalid files, and the exact lines of their problems.

use loudou_limiter::algorithm::Algorithm;
use loudou_rules::config::{Severity, parse};
use serde_json::{Value, json};

use super::{file, problems, rule};

/// The problems of a file whose only rule has `fields`, without the path to the rule.
fn of_rule(fields: &Value) -> Vec<String> {
    let lines = problems(&file(&[rule(fields)]));
    let local = lines
        .iter()
        .map(|line| line.strip_prefix("rules[0].").unwrap_or(line));
    local.map(str::to_string).collect()
}

/// The problems of a rule with this limit, without the path to the limit.
fn of_limit(limit: &Value) -> Vec<String> {
    let lines = of_rule(&json!({ "limits": [limit] }));
    let local = lines
        .iter()
        .map(|line| line.strip_prefix("limits[0].").unwrap_or(line));
    local.map(str::to_string).collect()
}

/// A funnel of 5 per second with one field changed.
fn funnel(field: &str, value: &Value) -> Value {
    let mut limit = json!({ "algorithm": "funnel", "capacity": 5, "rate": "5/s" });
    limit[field] = value.clone();
    limit
}

#[test]
fn the_path_of_the_file() {
    let longest = format!("/{}", "x".repeat(1_023));
    for (file, is_right) in [
        (json!("/a"), true),
        (json!(longest), true),
        (json!(longest + "x"), false),
        (json!("buckets"), false),
        (json!("./buckets"), false),
        (json!("/var/lib/loudou/"), false),
        (json!("/a\0b"), false),
        (json!(""), false),
        (json!(7), false),
    ] {
        let document = json!({ "version": 1, "store": { "file": file }, "rules": [] });
        let found = problems(&document);
        let told = found.iter().filter(|line| {
            line.starts_with("store.file: ")
                && line.ends_with(
                    "allowed: the absolute path of a file, of at most 1024 bytes; did you mean \
                     `/var/lib/loudou/buckets`?",
                )
        });
        assert_eq!(told.count(), usize::from(!is_right), "{file}: {found:?}");
        assert_eq!(found.is_empty(), is_right, "{file}: {found:?}");
    }
}

#[test]
fn names_of_fields() {
    assert_eq!(
        of_rule(&json!({ "on_eror": "admit" })),
        [
            "on_eror: unknown field; allowed: name, match, on_long_value, when, key, on_missing_key, on_ambiguous_key, limits, scope, cost, mode, \
          shadows, stop, on_error, overrides, penalty, refuse, respond; did you mean `on_error`?"
        ]
    );
    assert_eq!(
        of_rule(&json!({ "match": { "path": { "prefx": "/x" } } })),
        [
            "match.path.prefx: unknown field; allowed: prefix, exact, suffix, template, regex; did you mean `prefix`?",
            "match.path: none of the fields is given; allowed: exactly one of prefix, exact, suffix, template, regex",
        ]
    );
    assert_eq!(
        problems(&json!({ "version": 1, "rulez": [] })),
        [
            "rulez: unknown field; allowed: version, store, fleet, admin, defaults, rules; did you mean `rules`?",
            "(the whole file): `rules` is missing; allowed: a list of rules",
        ]
    );
    // A funnel has no refill, and no field with a similar name.
    assert_eq!(
        of_limit(&funnel("refill", &json!("greedy"))),
        ["refill: unknown field; allowed: name, algorithm, capacity, rate, max_wait"]
    );
}

/// The problem of a value that must be a number within bounds.
pub(crate) fn no_number(value: &Value) -> &'static str {
    if value.is_number() {
        "out of range"
    } else {
        "not a number"
    }
}

#[test]
fn capacities() {
    let allowed = "allowed: a whole number from 1 to 1000000000";
    for (value, shown) in [
        (json!(0), "0"),
        (json!(1.5), "1.5"),
        (json!(-1), "-1"),
        (json!("15"), "\"15\""),
        (json!(true), "true"),
        (json!(1_000_000_001), "1000000001"),
        (json!(1e300), "1e+300"),
        (json!([5]), "[5]"),
    ] {
        let problem = no_number(&value);
        let line = format!("capacity: {shown}: {problem}; {allowed}");
        assert_eq!(of_limit(&funnel("capacity", &value)), [line]);
    }
    assert_eq!(
        of_limit(&funnel("capacity", &Value::Null)),
        ["limits[0]: `capacity` is missing; allowed: a whole number from 1 to 1000000000"]
    );
    assert_eq!(
        of_limit(&funnel("capacity", &json!(1_000_000_000.0))),
        [""; 0]
    );
}

#[test]
fn rates() {
    let form = "an amount per period: 30/60s, 10/s, 5/m, 1000/d, 1/250ms; \
                at most 1000000000 per 366d";
    for (rate, message) in [
        ("0/s", "a rate of zero never admits"),
        ("00/1s", "a rate of zero never admits"),
        ("5/0s", "a rate of zero never admits"),
        ("5/00ms", "a rate of zero never admits"),
        ("5/0.5s", "invalid rate"),
        ("0.5/s", "invalid rate"),
        ("5", "invalid rate"),
        ("", "invalid rate"),
        ("5/fortnight", "invalid rate"),
        ("1000000001/s", "out of range"),
        ("1/367d", "out of range"),
    ] {
        let line = format!("rate: \"{rate}\": {message}; allowed: {form}");
        assert_eq!(of_limit(&funnel("rate", &json!(rate))), [line]);
    }
    let line = format!("rate: 5: invalid rate; allowed: {form}");
    assert_eq!(of_limit(&funnel("rate", &json!(5))), [line]);
    let line = format!("limits[0]: `rate` is missing; allowed: {form}");
    assert_eq!(of_limit(&funnel("rate", &Value::Null)), [line]);
    // Eleven times 366 days is more than ten years, but ten times is not.
    let slow =
        |capacity: u64| json!({ "algorithm": "funnel", "capacity": capacity, "rate": "1/366d" });
    assert_eq!(
        of_limit(&slow(11)),
        [
            "rate: \"1/366d\": too slow for this capacity; allowed: a capacity and a rate with which a full bucket \
          empties within 3660d"
        ]
    );
    assert_eq!(of_limit(&slow(10)), [""; 0]);
}

#[test]
fn algorithms() {
    let unknown =
        |name: Value| of_limit(&json!({ "algorithm": name, "capacity": 0, "rate": "0/s" }));
    let lines = unknown(json!("funel"));
    let names = Algorithm::NAMES.join(", ");
    assert_eq!(
        lines[0],
        format!(
            "algorithm: \"funel\": unknown algorithm; allowed: {names}; did you mean `funnel`?"
        )
    );
    assert!(lines[1].starts_with("capacity: 0: out of range"));
    assert!(lines[2].starts_with("rate: \"0/s\": a rate of zero never admits"));
    assert_eq!(lines.len(), 3);
    assert_eq!(
        unknown(json!("bucket"))[0],
        format!("algorithm: \"bucket\": unknown algorithm; allowed: {names}")
    );
    assert_eq!(
        of_limit(&json!({ "capacity": 5 })),
        [format!(
            "limits[0]: `algorithm` is missing; allowed: {names}"
        )]
    );
    assert_eq!(
        of_limit(&json!("funnel")),
        [
            "limits[0]: \"funnel\": a text instead of an object; allowed: an object with name, \
             algorithm, …"
        ]
    );
}

#[test]
fn token_buckets() {
    let bucket = |refill: Value, initial: Value| {
        of_limit(&json!({
            "algorithm": "token_bucket", "capacity": 5, "rate": "1/s",
            "refill": refill, "initial": initial
        }))
    };
    assert_eq!(
        bucket(json!("lumps"), json!(6)),
        [
            "refill: \"lumps\": unknown value; allowed: greedy, interval",
            "initial: 6: out of range; allowed: a whole number from 0 to 5",
        ]
    );
    assert_eq!(bucket(json!("interval"), json!(5)), [""; 0]);
    assert_eq!(bucket(json!("greedy"), json!(0)), [""; 0]);
    let aligned = |refill: &str| {
        of_limit(&json!({
            "algorithm": "token_bucket", "capacity": 5, "rate": "1/s",
            "refill": refill, "align": "clock"
        }))
    };
    assert_eq!(aligned("interval"), [""; 0]);
    assert_eq!(
        aligned("greedy"),
        [
            "align: \"clock\": continuous refills have no periods to align; allowed: process, or refill: interval"
        ]
    );
}

#[test]
fn limits_of_a_rule() {
    let limit =
        |name: &str| json!({ "name": name, "algorithm": "funnel", "capacity": 5, "rate": "1/s" });
    assert_eq!(
        of_rule(&json!({ "limits": [] })),
        ["limits: []: 0 limits; allowed: 1 to 8 limits"]
    );
    let nine: Vec<Value> = (0..9).map(|n| limit(&format!("l{n}"))).collect();
    let lines = of_rule(&json!({ "limits": nine }));
    assert!(
        lines[0].ends_with("9 limits; allowed: 1 to 8 limits"),
        "{lines:?}"
    );
    assert_eq!(
        of_rule(&json!({ "limits": [limit("a"), limit("b"), limit("a")] })),
        ["limits[2].name: \"a\": duplicate limit name in this rule"]
    );
    // Two without a name are both named after their algorithm.
    assert_eq!(
        of_rule(
            &json!({ "limits": [funnel("capacity", &json!(5)), funnel("capacity", &json!(6))] })
        ),
        ["limits[1].name: \"funnel\": duplicate limit name in this rule"]
    );
    assert_eq!(
        of_rule(&json!({ "limits": [limit("Burst!")] })),
        [
            "limits[0].name: \"Burst!\": invalid name; allowed: 1 to 63 of a-z, 0-9, - and _; \
          did you mean `burst-`?"
        ]
    );
}

#[test]
fn costs() {
    assert_eq!(
        of_rule(&json!({ "cost": 0 })),
        ["cost: 0: out of range; allowed: a whole number from 1 to 1000000000"]
    );
    // Above a capacity it is valid, but probably a mistake.
    let document = file(&[rule(&json!({ "cost": 6 }))]);
    assert_eq!(
        problems(&document),
        ["rules[0].cost: 6: no request is ever admitted: the cost is above the capacity of funnel"]
    );
    let parsed = parse(&document);
    assert!(parsed.file.is_some());
    assert_eq!(parsed.problems[0].severity, Severity::Warning);
    assert_eq!(problems(&file(&[rule(&json!({ "cost": 5 }))])), [""; 0]);
}

/// Three problems in three rules, each with its place.
#[test]
fn three_at_once() {
    let document = file(&[
        rule(&json!({ "name": "a", "mach": {} })),
        rule(&json!({ "name": "b", "limits": [funnel("rate", &json!("0/s"))] })),
        rule(&json!({ "name": "a", "limits": [funnel("algorithm", &json!("bucket"))] })),
    ]);
    let names = Algorithm::NAMES.join(", ");
    let unknown =
        format!("rules[2].limits[0].algorithm: \"bucket\": unknown algorithm; allowed: {names}");
    assert_eq!(
        problems(&document),
        [
            "rules[0].mach: unknown field; allowed: name, match, on_long_value, when, key, on_missing_key, on_ambiguous_key, limits, scope, cost, \
             mode, shadows, stop, on_error, overrides, penalty, refuse, respond; did you mean `match`?",
            "rules[1].limits[0].rate: \"0/s\": a rate of zero never admits; allowed: an amount \
             per period: 30/60s, 10/s, 5/m, 1000/d, 1/250ms; at most 1000000000 per 366d",
            unknown.as_str(),
            "rules[2].name: \"a\": duplicate rule name",
        ]
    );
    assert!(parse(&document).file.is_none());
}

/// The name of a rule or limit is taken even if the rule or limit is invalid.
#[test]
fn names_taken_by_broken_ones() {
    let broken = json!({ "name": "a", "cost": 0 });
    let taken = "duplicate rule name";
    for (first, second) in [
        (&broken, &json!({ "name": "a" })),
        (&json!({ "name": "a" }), &broken),
    ] {
        let lines = problems(&file(&[rule(first), rule(second)]));
        assert_eq!(lines.len(), 2, "{lines:?}");
        assert!(
            lines.contains(&format!("rules[1].name: \"a\": {taken}")),
            "{lines:?}"
        );
    }
    let limit = |capacity: u64| json!({ "name": "a", "algorithm": "funnel", "capacity": capacity, "rate": "1/s" });
    for (first, second) in [(0, 5), (5, 0)] {
        let lines = of_rule(&json!({ "limits": [limit(first), limit(second)] }));
        assert_eq!(lines.len(), 2, "{lines:?}");
        let line = "limits[1].name: \"a\": duplicate limit name in this rule".to_string();
        assert!(lines.contains(&line), "{lines:?}");
    }
}

#[test]
fn a_file_has_bounds() {
    let many: Vec<Value> = (0..257)
        .map(|n| rule(&json!({ "name": format!("r{n}") })))
        .collect();
    assert_eq!(
        problems(&file(&many)),
        ["rules: 257 rules are too many; allowed: at most 256"]
    );
    assert_eq!(problems(&file(&many[..256])), [""; 0]);
    // The number of problems is bounded.
    let all_wrong: Vec<Value> = (0..256).map(|_| json!({})).collect();
    assert_eq!(problems(&file(&all_wrong)).len(), 100);
}

#[test]
fn what_is_no_rule_file() {
    for (document, shown) in [
        (json!(null), "the file is empty"),
        (json!("x"), "\"x\": this is not a rule file"),
        (json!([]), "[]: this is not a rule file"),
        (json!(1), "1: this is not a rule file"),
        (json!(true), "true: this is not a rule file"),
    ] {
        let line = format!(
            "(the whole file): {shown}; allowed: an object with version, store, fleet, admin, \
             defaults, rules"
        );
        assert_eq!(problems(&document), [line]);
    }
    assert_eq!(
        problems(&json!({})),
        [
            "(the whole file): `version` is missing; write `version: 1`",
            "(the whole file): `rules` is missing; allowed: a list of rules",
        ]
    );
    assert_eq!(
        problems(&json!({ "version": 2, "rules": {} })),
        [
            "version: 2: unknown version; allowed: 1",
            "rules: {}: an object instead of a list; allowed: a list",
        ]
    );
}

/// Texts on terminals and in logs have no control characters and a bounded length.
#[test]
fn nothing_hostile_is_shown() {
    let long = "x".repeat(10_000);
    let document = json!({ "version": "\u{1b}[2J", "ru\nles\u{7f}": 1, "rules": long });
    let lines = problems(&document);
    assert_eq!(lines.len(), 3);
    for line in &lines {
        assert!(!line.chars().any(char::is_control), "{line:?}");
        assert!(line.chars().count() < 300, "{line:?}");
    }
}
