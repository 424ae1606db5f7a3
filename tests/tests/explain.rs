//! Explanations of requests, compared with the outcome of the same requests in a real Envoy.

use std::collections::BTreeSet;

use anyhow::{Context as _, Result, ensure};
use loudou_tests::filters::header_to_metadata;
use loudou_tests::{Config, Envoy, Operator, Request, Response, expect};
use serde_json::{Map, Value, json};

/// A request that is first explained and then sent.
struct Sample {
    method: &'static str,
    path: &'static str,
    headers: Vec<(&'static str, &'static str)>,
    /// Properties that Envoy adds to the request.
    around: Value,
}

fn sample(
    method: &'static str,
    path: &'static str,
    headers: &[(&'static str, &'static str)],
) -> Sample {
    Sample {
        method,
        path,
        headers: headers.to_vec(),
        around: json!({ "host": "loudou.test", "source": "127.0.0.1", "route": "data" }),
    }
}

fn get(path: &'static str, headers: &[(&'static str, &'static str)]) -> Sample {
    sample("GET", path, headers)
}

impl Sample {
    /// Adds metadata. An earlier filter creates this metadata from the header `x-plan-from-jwt`.
    fn with_plan(mut self, plan: &'static str) -> Self {
        self.headers.push(("x-plan-from-jwt", plan));
        if let Some(around) = self.around.as_object_mut() {
            let metadata = json!({ "envoy.filters.http.jwt_authn": { "plan": plan } });
            around.insert("metadata".to_owned(), metadata);
        }
        self
    }

    fn request(&self) -> Request {
        let request = Request::new(self.method, self.path);
        let headers = self.headers.iter();
        headers.fold(request, |request, (name, value)| {
            request.header(name, value)
        })
    }

    /// Returns the body of `POST /v1/explain`.
    fn call(&self) -> Value {
        let mut call = self.around.clone();
        let mut headers = Map::new();
        for (name, value) in &self.headers {
            match *name {
                "host" => put(&mut call, "host", json!(value)),
                // The earlier filter removes this header.
                "x-plan-from-jwt" => {}
                name => {
                    let values = headers.entry(name).or_insert_with(|| json!([]));
                    if let Some(values) = values.as_array_mut() {
                        values.push(json!(value));
                    }
                }
            }
        }
        put(&mut call, "method", json!(self.method));
        put(&mut call, "path", json!(self.path));
        put(&mut call, "headers", Value::Object(headers));
        call
    }
}

fn put(object: &mut Value, field: &str, value: Value) {
    if let Some(fields) = object.as_object_mut() {
        fields.insert(field.to_owned(), value);
    }
}

fn explain(ops: &mut Operator, call: &Value) -> Result<Value> {
    expect(&ops.send(Request::post("/v1/explain").json(call))?, 200)
}

/// Rules that give different verdicts on the samples.
fn rules() -> Value {
    let rule = |name: &str, capacity: u32, more: Value| {
        let limit =
            json!({ "name": "l", "algorithm": "funnel", "capacity": capacity, "rate": "1/d" });
        let mut rule = json!({
            "name": name, "key": [{ "header": "x-user-id" }], "limits": [limit],
            "respond": { "ratelimit_headers": "draft11" },
        });
        for (field, value) in more.as_object().into_iter().flatten() {
            put(&mut rule, field, value.clone());
        }
        rule
    };
    let plan = json!({ "metadata": [{ "path": ["envoy.filters.http.jwt_authn", "plan"], "exact": "free" }] });
    let packed = json!({
        "query": [{ "name": "q", "exact": "a b" }], "cookies": [{ "name": "c", "present": true }],
    });
    let around = json!({
        "host": { "suffix": ".test" }, "source": ["127.0.0.0/8"], "route": { "exact": "data" },
        "path": { "prefix": "/around" },
    });
    let stop = json!({ "match": { "path": { "exact": "/stop" } }, "stop": true });
    let cost = json!({ "header": "x-cost", "default": 2, "max": 5 });
    json!([
        rule("wide", 100, json!({ "key": ["source"], "cost": cost })),
        rule(
            "posts",
            3,
            json!({ "match": { "methods": ["POST"], "path": { "prefix": "/reply" } } })
        ),
        rule("plan", 2, json!({ "match": plan })),
        rule(
            "packed",
            2,
            json!({ "match": packed, "key": [{ "cookie": "c" }, { "query": "q" }] })
        ),
        rule(
            "around",
            4,
            json!({ "match": around, "key": ["host", "route", "path"] })
        ),
        rule("stop", 9, stop),
        rule("shadow", 1, json!({ "mode": "shadow" })),
        rule("off", 1, json!({ "mode": "off" })),
        rule(
            "named",
            6,
            json!({
                "match": { "not": { "path": { "prefix": "/around" } } }, "on_missing_key": "refuse",
            })
        ),
        rule("last", 50, json!({ "key": [], "on_error": "refuse" })),
    ])
}

fn samples() -> Vec<Sample> {
    let alice = ("x-user-id", "alice");
    let bob = ("x-user-id", "bob");
    vec![
        get("/", &[alice]),
        get("/", &[alice, ("x-cost", "4")]),
        get("/", &[alice, ("x-cost", "many")]),
        get("/", &[]),
        sample("POST", "/reply", &[alice]),
        sample("POST", "/reply/7?x", &[alice]),
        sample("POST", "/reply?draft", &[alice]),
        sample("POST", "/reply", &[alice]),
        sample("POST", "/reply", &[bob]),
        sample("POST", "/replyall", &[bob]),
        sample("PUT", "/reply", &[bob]),
        get("/", &[bob]).with_plan("free"),
        get("/", &[bob]).with_plan("paid"),
        get("/", &[bob]).with_plan("free"),
        get("/", &[bob]).with_plan("free"),
        get("/", &[("x-user-id", "carol")]).with_plan("free"),
        get("/?q=a%20b", &[("x-user-id", "carol"), ("cookie", "c=1")]),
        get(
            "/?q=a+b&q=c",
            &[("x-user-id", "carol"), ("cookie", "b=2; c=\"1\"")],
        ),
        get("/?q=%61+b", &[("x-user-id", "dave"), ("cookie", "c=1")]),
        get("/?q=a+b", &[("x-user-id", "dave"), ("cookie", "d=1")]),
        get("/?q=a+b", &[("x-user-id", "dave"), ("cookie", "c=")]),
        get("/around/a", &[]),
        get("/around/a?x", &[("host", "loudou.TEST:80")]),
        get("/around/a", &[("host", "other.example")]),
        get("/around/b", &[("x-user-id", "eve")]),
        get("/around", &[("x-user-id", "eve"), ("x-user-id", "frank")]),
        get("/stop", &[("x-user-id", "eve")]),
        get("/stop?x", &[("x-user-id", "eve")]),
        get("/stop", &[]),
        get("/stop/x", &[("x-user-id", "eve")]),
        get("/", &[("x-user-id", "")]),
        get("/", &[("x-user-id", "a:b%c \u{e9}")]),
        get("/%2F..;x", &[("x-user-id", "a:b%c \u{e9}")]),
        get("/", &[("X-User-Id", " alice ")]),
        get("/", &[alice]),
        get("/", &[("x-user-id", "mallory"), ("x-cost", "5")]),
    ]
}

/// Returns the remaining units of each enforced rule that admitted, with the name of its policy.
fn left(answer: &Value) -> Vec<(String, u64)> {
    let rules = answer.get("rules").and_then(Value::as_array);
    let admits = rules.into_iter().flatten().filter(|rule| {
        let counts = rule.get("mode").is_some_and(|mode| mode == "enforce");
        counts && rule.get("says").is_some_and(|word| word == "admit")
    });
    let each = admits.filter_map(|rule| {
        let name = rule.get("rule")?.as_str()?;
        Some((
            format!("\"{name}.l\""),
            rule.pointer("/limits/0/remaining")?.as_u64()?,
        ))
    });
    each.collect()
}

/// Returns the verdict of each rule.
fn verdict_words(answer: &Value) -> Vec<String> {
    let rules = answer.get("rules").and_then(Value::as_array);
    let verdict_words = rules
        .into_iter()
        .flatten()
        .filter_map(|rule| rule.get("says")?.as_str());
    verdict_words.map(str::to_owned).collect()
}

/// Fails unless the response lists the rules and the remaining units of the explanation.
fn agrees(explained: &Value, answer: &Response) -> Result<()> {
    let state = answer.header("ratelimit").unwrap_or_default();
    let items: Vec<&str> = state.split(", ").collect();
    let left = left(explained);
    ensure!(items.len() == left.len(), "{left:?} but {state}");
    for (item, (name, left)) in items.iter().zip(left) {
        let expected = format!("{name};r={left};");
        ensure!(
            format!("{item};").starts_with(&expected),
            "{expected} but {state}"
        );
    }
    Ok(())
}

/// Every explanation must match the outcome of the request. Each sample is explained and then sent,
/// so that buckets fill up in between.
#[test]
fn explanations_match_what_happens() -> Result<()> {
    let envoy = Envoy::start(&Config::new(rules()).filter_before(header_to_metadata()))?;
    let (mut http, mut ops) = (envoy.data(), Operator::viewer(&envoy));
    let samples = samples();
    ensure!(samples.len() >= 30);
    let mut refused = Vec::new();
    let mut verdicts = BTreeSet::new();
    for sample in &samples {
        let call = sample.call();
        let explained = explain(&mut ops, &call)?;
        let answer = http.send(&sample.request())?;
        verdicts.extend(verdict_words(&explained));
        let by = explained.get("refused_by").and_then(Value::as_str);
        let verdict = if answer.status == 429 {
            "refuse"
        } else {
            "admit"
        };
        ensure!(
            explained.get("verdict").is_some_and(|word| word == verdict),
            "{call}: {explained:#} but {answer:?}"
        );
        if let Some(by) = by {
            refused.push(by.to_owned());
            let body = answer.text();
            ensure!(body.contains(by), "{call}: {by} but {body}");
            continue;
        }
        agrees(&explained, &answer).with_context(|| call.to_string())?;
    }
    let passed = samples.len().saturating_sub(refused.len());
    refused.sort();
    refused.dedup();
    ensure!(
        refused == ["named", "packed", "plan", "posts"],
        "{refused:?}"
    );
    let all = [
        "admit",
        "no_match",
        "not_asked",
        "off",
        "refuse",
        "skip",
        "stopped",
    ];
    ensure!(verdicts.iter().eq(all), "{verdicts:?}");
    // Only requests that were sent and admitted count. Explanations do not count.
    let wide = ops.bucket("wide", "127.0.0.1")?.context("a bucket")?;
    let admitted = wide.get("admitted").and_then(Value::as_u64);
    ensure!(
        admitted == Some(u64::try_from(passed)?),
        "{wide} of {passed}"
    );
    envoy.stop()
}
