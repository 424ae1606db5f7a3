//! Rules and requests of a small world, in which they often meet.

use proptest::prelude::*;
use serde_json::{Value, json};

fn one_of(choices: Vec<Value>) -> impl Strategy<Value = Value> + Clone {
    prop::sample::select(choices)
}

fn list(choices: Vec<Value>, most: usize) -> impl Strategy<Value = Value> + Clone {
    prop::collection::vec(one_of(choices), 0..=most).prop_map(Value::from)
}

fn tests(name: &str, values: [&str; 2]) -> Vec<Value> {
    let [first, second] = values;
    vec![
        json!({ "name": name, "present": true }),
        json!({ "name": name, "present": false }),
        json!({ "name": name, "exact": first }),
        json!({ "name": name, "prefix": second }),
        json!({ "name": name, "suffix": first }),
        json!({ "name": name, "regex": format!("{first}|{second}.*") }),
    ]
}

/// Some of the fields, each now and then.
fn some(fields: Vec<(&'static str, BoxedStrategy<Value>)>) -> BoxedStrategy<Value> {
    let each: Vec<_> = fields
        .into_iter()
        .map(|(name, value)| {
            prop::option::weighted(0.2, value).prop_map(move |value| (name, value))
        })
        .collect();
    each.prop_map(|fields| {
        let given = fields
            .into_iter()
            .filter_map(|(name, value)| Some((name.to_owned(), value?)));
        Value::Object(given.collect())
    })
    .boxed()
}

fn plain_match() -> BoxedStrategy<Value> {
    let paths = vec![
        json!({ "prefix": "/a" }),
        json!({ "exact": "/a/b" }),
        json!({ "suffix": "b" }),
        json!({ "template": "/{x}/b" }),
        json!({ "regex": "/a.?" }),
    ];
    let hosts = vec![
        json!({ "exact": "a.test" }),
        json!({ "suffix": ".test" }),
        json!({ "prefix": "b" }),
    ];
    let routes = vec![json!({ "exact": "main" }), json!({ "prefix": "o" })];
    let mut headers = tests("x-user-id", ["alice", "b"]);
    headers.extend(tests("x-plan", ["free", "pa"]));
    let metadata = |test: &str, value: Value| json!({ "path": ["ns", "plan"], test: value });
    let metadata = vec![
        metadata("exact", json!("free")),
        metadata("present", json!(false)),
        metadata("prefix", json!("f")),
    ];
    let networks = vec![
        json!("10.0.0.0/8"),
        json!("192.0.2.7"),
        json!("2001:db8::/32"),
    ];
    some(vec![
        (
            "methods",
            list(vec![json!("GET"), json!("POST")], 2).boxed(),
        ),
        ("path", one_of(paths).boxed()),
        ("host", one_of(hosts).boxed()),
        ("headers", list(headers, 2).boxed()),
        ("query", list(tests("q", ["1", "2"]), 2).boxed()),
        ("cookies", list(tests("c", ["1", "2"]), 2).boxed()),
        ("source", list(networks, 2).boxed()),
        ("route", one_of(routes).boxed()),
        ("metadata", list(metadata, 2).boxed()),
    ])
}

fn matches() -> impl Strategy<Value = Value> {
    let not = prop::option::weighted(0.2, plain_match());
    (plain_match(), not).prop_map(|(mut matches, not)| {
        if let Some(not) = not {
            matches["not"] = not;
        }
        matches
    })
}

fn key() -> impl Strategy<Value = Value> {
    let parts = vec![
        json!({ "header": "x-user-id" }),
        json!({ "header": "x-user-id" }),
        json!({ "query": "q" }),
        json!({ "cookie": "c" }),
        json!({ "literal": "x" }),
        json!({ "metadata": ["ns", "plan"] }),
        json!("source"),
        json!({ "source": { "v4_prefix": 8, "v6_prefix": 32 } }),
        json!("path"),
        json!({ "path": { "segments": 1 } }),
        json!("route"),
        json!("method"),
        json!("host"),
        json!("client_cert"),
    ];
    list(parts, 3)
}

fn limits() -> impl Strategy<Value = Value> {
    let choices = vec![
        json!({ "algorithm": "funnel", "capacity": 3, "rate": "1/s" }),
        json!({ "algorithm": "funnel", "capacity": 2, "rate": "1/s", "max_wait": "2s" }),
        json!({ "algorithm": "token_bucket", "capacity": 4, "rate": "2/s", "initial": 1 }),
        json!({ "algorithm": "token_bucket", "capacity": 2, "rate": "1/s", "max_wait": "3s" }),
        json!({ "algorithm": "token_bucket", "capacity": 3, "rate": "3/5s", "refill": "interval" }),
        json!({ "algorithm": "fixed_window", "capacity": 3, "window": "4s" }),
        json!({ "algorithm": "fixed_window", "capacity": 3, "window": "7s", "align": "clock" }),
        json!({ "algorithm": "sliding_window", "capacity": 3, "window": "6s", "slots": 3 }),
        json!({ "algorithm": "sliding_log", "capacity": 3, "window": "5s" }),
        json!({ "algorithm": "sliding_log", "capacity": 2, "window": "5s", "count_refused": true }),
        json!({ "algorithm": "sliding_counter", "capacity": 3, "window": "5s" }),
        json!({ "algorithm": "leaky_queue", "capacity": 3, "rate": "1/s", "immediate": 1 }),
        json!({ "algorithm": "smooth_bursty", "rate": "1/s", "max_wait": "4s" }),
        json!({ "algorithm": "smooth_warmup", "rate": "1/s", "warmup": "5s", "max_wait": "4s" }),
        json!({ "algorithm": "concurrency", "capacity": 3 }),
    ];
    prop::collection::vec(one_of(choices), 1..=3).prop_map(|mut limits| {
        for (n, limit) in limits.iter_mut().enumerate() {
            limit["name"] = json!(format!("l{n}"));
        }
        Value::from(limits)
    })
}

/// Overrides and penalties.
fn exceptions() -> BoxedStrategy<Value> {
    let limits = json!([{ "algorithm": "funnel", "capacity": 1, "rate": "1/s", "max_wait": "1s" }]);
    let overrides = vec![
        json!({ "alice": { "scale": 2 }, "*": "unlimited" }),
        json!({ "bob": "banned", "~missing": "banned" }),
        json!({ "b*": { "limits": limits }, "alice": "unlimited" }),
    ];
    let penalty = json!({ "after": 2, "within": "5s", "ban": "2s", "factor": 2, "max": "9s" });
    some(vec![
        ("overrides", one_of(overrides).boxed()),
        ("penalty", one_of(vec![penalty]).boxed()),
    ])
}

fn rule() -> impl Strategy<Value = Value> {
    let costs = vec![
        json!(1),
        json!(2),
        json!({ "header": "x-cost", "default": 2, "max": 3 }),
        json!({ "request_bytes": 10 }),
    ];
    let modes = ["enforce", "enforce", "enforce", "shadow", "off"].map(Value::from);
    let missing = ["skip", "refuse", "share"].map(Value::from);
    let fields = (
        matches(),
        key(),
        limits(),
        one_of(costs),
        one_of(modes.to_vec()),
        one_of(missing.to_vec()),
        prop::bool::weighted(0.15),
        exceptions(),
    );
    fields.prop_map(|(matches, key, limits, cost, mode, missing, stop, exceptions)| {
        let mut rule = json!({ "match": matches, "key": key, "limits": limits, "cost": cost, "mode": mode,
            "on_missing_key": missing, "stop": stop });
        for (field, value) in exceptions.as_object().expect("fields") {
            rule[field] = value.clone();
        }
        rule
    })
}

/// A few rules, or enough rules for the index to be used.
pub(crate) fn rules() -> impl Strategy<Value = Value> {
    let count = prop_oneof![4 => 1..5_usize, 1 => 5..40_usize];
    count
        .prop_flat_map(|count| prop::collection::vec(rule(), count))
        .prop_map(|mut rules| {
            for (n, rule) in rules.iter_mut().enumerate() {
                rule["name"] = json!(format!("r{n}"));
            }
            Value::from(rules)
        })
}

pub(crate) fn sample() -> impl Strategy<Value = Value> {
    let texts = |texts: &[&str]| -> BoxedStrategy<Value> {
        let texts: Vec<Value> = texts.iter().map(|text| json!(text)).collect();
        one_of(texts).boxed()
    };
    let headers = vec![
        json!({}),
        json!({ "X-User-Id": "alice", "x-plan": "free" }),
        json!({ "x-user-id": ["bob", "alice"], "x-plan": "paid", "x-cost": "3" }),
        json!({ "x-user-id": "", "cookie": "c=1", "x-cost": "many" }),
        json!({ "x-user-id": "bob", "cookie": "d=2; c=\"2\"", "content-length": "25" }),
    ];
    let metadata = vec![
        json!({ "ns": { "plan": "free" } }),
        json!({ "ns.plan": "paid" }),
        json!({ "ns": { "plan": "" } }),
    ];
    let sources = ["10.1.2.3", "192.0.2.7", "2001:db8::7", "203.0.113.1"];
    let paths = ["/", "/a", "/a/b?q=1", "/x/b?q=2&q=1", "/ab?q"];
    let mut fields = vec![
        ("method", texts(&["GET", "POST", "PUT"])),
        ("path", texts(&paths)),
        ("host", texts(&["a.test", "B.test:80", "c"])),
        ("headers", one_of(headers).boxed()),
        ("source", texts(&sources)),
        ("route", texts(&["main", "other"])),
        ("metadata", one_of(metadata).boxed()),
        ("client_cert", texts(&["spiffe://a"])),
    ];
    // Most requests have most of it.
    let each: Vec<_> = fields
        .drain(..)
        .map(|(name, value)| prop::option::weighted(0.8, value).prop_map(move |v| (name, v)))
        .collect();
    let cost = prop::option::weighted(0.1, 0..4_u32);
    (each, cost).prop_map(|(fields, cost)| {
        let given = fields
            .into_iter()
            .filter_map(|(name, value)| Some((name.to_owned(), value?)));
        let mut sample = Value::Object(given.collect());
        if let Some(cost) = cost {
            sample["cost"] = json!(cost);
        }
        sample
    })
}
