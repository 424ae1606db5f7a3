//! Arbitrary JSON gives a file or at least one error, and never a panic.

use loudou_rules::config::{Severity, parse, parse_edit, parse_limits, parse_rule, parse_store};
use proptest::prelude::*;
use serde_json::{Map, Value, json};

/// The words of `refuse` and `respond`.
const ANSWERS: &[&str] = &[
    "body",
    "connection",
    "content_type",
    "grpc",
    "legacy",
    "problem",
    "ratelimit_headers",
    "refuse",
    "respond",
    "retry_after_jitter",
    "status",
    "text",
    "text/html",
    "x-a",
];

/// The words of matches, keys and costs.
const REQUESTS: &[&str] = &[
    "host",
    "query",
    "cookies",
    "cookie",
    "route",
    "metadata",
    "not",
    "suffix",
    "template",
    "when",
    "upstream_error_rate_over",
    "until_under",
    "within",
    "least",
    "segments",
    "settle",
    "reserve",
    "weights",
    "token_usage",
    "response_header",
    "5xx",
    "v4_prefix",
    "10.0.0.0/8",
    "/a/{b}",
];

/// Names and values that rule files have, so that the readers get below the surface.
const WORDS: &[&str] = &[
    "version",
    "store",
    "defaults",
    "rules",
    "name",
    "match",
    "key",
    "limits",
    "cost",
    "mode",
    "methods",
    "path",
    "headers",
    "prefix",
    "exact",
    "present",
    "header",
    "literal",
    "source",
    "algorithm",
    "capacity",
    "rate",
    "refill",
    "initial",
    "funnel",
    "token_bucket",
    "interval",
    "fixed_window",
    "sliding_window",
    "sliding_log",
    "sliding_counter",
    "window",
    "align",
    "clock",
    "slots",
    "slot_capacity",
    "count_refused",
    "1h",
    "day",
    "week",
    "month",
    "year",
    "zone",
    "+09:00",
    "CET-1CEST,M3.5.0,M10.5.0/3",
    "starts",
    "weekday",
    "mon",
    "leaky_queue",
    "smooth_bursty",
    "smooth_warmup",
    "concurrency",
    "immediate",
    "burst_seconds",
    "warmup",
    "cold_factor",
    "lease",
    "max_wait",
    "1/s",
    "30/60s",
    "0/s",
    "/x",
    "GET",
    "buckets",
    "namespace",
    "share",
    "file",
    "waiting",
    "requests",
    "memory_mib",
    "body_kib",
];

fn word() -> impl Strategy<Value = String> {
    prop_oneof![
        4 => prop::sample::select(WORDS.to_vec()).prop_map(str::to_string),
        1 => prop::sample::select(REQUESTS).prop_map(str::to_string),
        1 => prop::sample::select(ANSWERS).prop_map(str::to_string),
        1 => any::<String>(),
    ]
}

pub(super) fn any_json() -> impl Strategy<Value = Value> {
    let leaf = prop_oneof![
        Just(Value::Null),
        any::<bool>().prop_map(Value::from),
        any::<i64>().prop_map(Value::from),
        (0..20_u64).prop_map(Value::from),
        any::<f64>().prop_map(Value::from),
        word().prop_map(Value::from),
    ];
    leaf.prop_recursive(5, 40, 6, |inner| {
        let object = prop::collection::vec((word(), inner.clone()), 0..6);
        prop_oneof![
            prop::collection::vec(inner, 0..5).prop_map(Value::from),
            object.prop_map(|fields| Value::from(fields.into_iter().collect::<Map<_, _>>())),
        ]
    })
}

const PLACES: &[&str] = &[
    "/version",
    "/store",
    "/store/buckets",
    "/defaults",
    "/defaults/mode",
    "/rules",
    "/rules/0",
    "/rules/0/name",
    "/rules/0/match",
    "/rules/0/match/headers/0",
    "/rules/0/match/path",
    "/rules/0/when",
    "/rules/0/when/until_under",
    "/rules/0/key",
    "/rules/0/key/0",
    "/rules/0/limits",
    "/rules/0/limits/0",
    "/rules/0/limits/0/rate",
    "/rules/0/limits/0/capacity",
    "/rules/0/limits/1",
    "/rules/0/limits/1/window",
    "/rules/0/limits/1/slots",
    "/rules/0/limits/1/slot_capacity",
    "/rules/0/limits/2/align",
    "/rules/0/limits/3/capacity",
    "/rules/0/limits/3/count_refused",
    "/rules/0/limits/5",
    "/rules/0/limits/5/immediate",
    "/rules/0/limits/5/max_wait",
    "/rules/0/limits/6/burst_seconds",
    "/rules/0/limits/7/cold_factor",
    "/rules/0/limits/7/warmup",
    "/rules/0/cost",
];

/// A valid file with one value replaced.
fn nearly_right() -> impl Strategy<Value = Value> {
    (prop::sample::select(PLACES.to_vec()), any_json()).prop_map(|(place, value)| {
        let mut document = json!({
            "version": 1,
            "store": { "buckets": 64 },
            "defaults": { "mode": "shadow" },
            "rules": [{
                "name": "r",
                "match": { "headers": [{ "name": "x", "exact": "y" }], "path": { "prefix": "/" } },
                "key": [{ "header": "x" }],
                "limits": [
                    { "algorithm": "token_bucket", "capacity": 5, "rate": "1/s" },
                    {
                        "algorithm": "sliding_window", "capacity": 5, "window": "1m", "slots": 5,
                        "slot_capacity": 2
                    },
                    {
                        "algorithm": "fixed_window", "capacity": 5, "window": "1d", "align": "clock"
                    },
                    {
                        "name": "monthly", "algorithm": "fixed_window", "capacity": 5,
                        "window": "month", "zone": "UTC", "starts": { "day": 15 }
                    },
                    {
                        "algorithm": "sliding_log", "capacity": 5, "window": "1m",
                        "count_refused": true
                    },
                    { "algorithm": "sliding_counter", "capacity": 5, "window": "1m" },
                    {
                        "algorithm": "leaky_queue", "capacity": 5, "rate": "1/s", "immediate": 2,
                        "max_wait": "3s"
                    },
                    { "algorithm": "smooth_bursty", "rate": "1/s", "burst_seconds": 0.5 },
                    {
                        "algorithm": "smooth_warmup", "rate": "1/s", "warmup": "1m",
                        "cold_factor": 2.5
                    },
                ],
                "cost": 1
            }],
        });
        if let Some(target) = document.pointer_mut(place) {
            *target = value;
        }
        document
    })
}

/// Any JSON, or a valid file with one value replaced.
pub(super) fn document() -> impl Strategy<Value = Value> {
    prop_oneof![any_json(), nearly_right()]
}

proptest! {
    #![proptest_config(ProptestConfig { failure_persistence: None, ..ProptestConfig::with_cases(512) })]

    #[test]
    fn a_file_or_an_error(document in document()) {
        let parsed = parse(&document);
        let errors = parsed.problems.iter().filter(|p| p.severity == Severity::Error).count();
        prop_assert_eq!(parsed.file.is_some(), errors == 0);
        for problem in &parsed.problems {
            let line = problem.to_string();
            prop_assert!(!line.chars().any(char::is_control), "{:?}", line);
        }
        if let Some(file) = parsed.file {
            let written = serde_json::to_value(&file).expect("serialises");
            prop_assert_eq!(parse(&written).file, Some(file));
        }
    }

    #[test]
    fn parts_are_read_or_wrong(document in any_json()) {
        for errors in [
            parse_rule(&document).err(),
            parse_edit(&document).err(),
            parse_limits(&document).err(),
            parse_store(&document).err(),
        ] {
            prop_assert_ne!(errors.map(|problems| problems.len()), Some(0));
        }
    }
}
