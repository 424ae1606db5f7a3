//! Regular expressions and values that are built to take long. No request takes much more CPU time
//! of a worker than a plain request, and a longer value does not avoid a rule.

use std::fs;

use anyhow::{Context as _, Result, ensure};
use loudou_tests::{Config, Envoy, Operator, Request, expect};
use serde_json::{Value, json};

/// Length of the hostile value in bytes. Envoy accepts 60 KiB of headers.
const LONG: usize = 58 * 1024;
const REQUESTS: u32 = 20;
/// Maximum ratio between the CPU time of a hostile and of a plain request. The measured ratio is
/// about 1.5. Without a bound on the steps of the regex engine, the ratio is several hundred.
const MOST: u64 = 5;

fn rule(name: &str, pattern: &str, more: Value) -> Value {
    let mut rule = json!({
        "name": name,
        "match": {
            "path": { "prefix": format!("/{name}") }, "headers": [{ "name": "x-attack", "regex": pattern }],
        },
        "key": [],
        "limits": [{ "algorithm": "funnel", "capacity": 1, "rate": "1/d" }],
    });
    if let (Some(rule), Value::Object(more)) = (rule.as_object_mut(), more) {
        rule.extend(more);
    }
    rule
}

/// Returns the CPU time of Envoy's worker so far, in nanoseconds.
fn worker_time(envoy: &Envoy) -> Result<u64> {
    for task in fs::read_dir(format!("/proc/{}/task", envoy.pid()))? {
        let task = task?.path();
        if fs::read_to_string(task.join("comm"))?.trim() == "wrk:worker_0" {
            let stat = fs::read_to_string(task.join("schedstat"))?;
            let time = stat.split(' ').next().context("no time")?;
            return Ok(time.parse()?);
        }
    }
    anyhow::bail!("no worker")
}

#[test]
fn a_hostile_value_takes_little_more_than_a_plain_one() -> Result<()> {
    let off = json!({ "mode": "shadow" });
    let rules = [
        ("repeated", "(?:.*a){60}x"),
        ("nested", "(?:(?:a*)*b?){9}c"),
        ("wide", "(?:a?){200}a*b"),
    ];
    let rules: Vec<Value> = rules
        .map(|(name, pattern)| rule(name, pattern, off.clone()))
        .into();
    let envoy = Envoy::start(&Config::new(json!(rules)).concurrency(1))?;
    let (mut attacker, mut neighbour) = (envoy.data(), envoy.data());
    let mut time_of = |path: &str| -> Result<u64> {
        let request = Request::get(path).header("x-attack", "a".repeat(LONG));
        let mut least = u64::MAX;
        for _ in 0..REQUESTS {
            let before = worker_time(&envoy)?;
            ensure!(attacker.send(&request)?.status == 200, "{path}");
            least = least.min(worker_time(&envoy)?.saturating_sub(before));
            ensure!(neighbour.get("/")?.status == 200);
        }
        Ok(least)
    };
    // The first requests are slower, because V8 optimises code only after it has run often.
    time_of("/repeated")?;
    let plain = time_of("/plain")?;
    for path in ["/repeated", "/nested", "/wide"] {
        let hostile = time_of(path)?;
        println!("{path}: {hostile} ns, plain {plain} ns");
        ensure!(
            hostile <= plain.saturating_mul(MOST),
            "{path}: {hostile} ns of a worker, {plain} ns for a plain request"
        );
    }
    envoy.stop()
}

#[test]
fn the_rule_decides_about_values_that_are_too_long() -> Result<()> {
    let policies = ["apply", "skip", "refuse"];
    let rules = policies.map(|policy| rule(policy, "a*", json!({ "on_long_value": policy })));
    let envoy = Envoy::start(&Config::new(json!(rules)).concurrency(1))?;
    let (mut http, mut ops) = (envoy.data(), Operator::viewer(&envoy));
    for (policy, statuses) in [
        ("apply", [200, 429]),
        ("skip", [200, 200]),
        ("refuse", [429, 429]),
    ] {
        let request = Request::get(&format!("/{policy}")).header("x-attack", "a".repeat(LONG));
        for expected in statuses {
            let answer = http.send(&request)?;
            ensure!(answer.status == expected, "{policy}: {answer:?}");
            let is_named = answer.text().contains("too long for rule refuse");
            ensure!(is_named == (policy == "refuse"), "{policy}: {answer:?}");
        }
        // If the first bytes already decide, the length of the value does not matter.
        let other = Request::get(&format!("/{policy}")).header("x-attack", "b".repeat(LONG));
        ensure!(http.send(&other)?.status == 200, "{policy}");

        let sample =
            json!({ "path": format!("/{policy}"), "headers": { "x-attack": "a".repeat(8_000) } });
        let explained = expect(&ops.send(Request::post("/v1/explain").json(&sample))?, 200)?;
        let rules = explained["rules"].as_array().context("rules")?;
        let rule = rules.iter().find(|rule| rule["rule"] == policy);
        let rule = rule.context("the rule")?;
        let part = if policy == "skip" {
            "failing"
        } else {
            "too_long"
        };
        ensure!(rule[part]["place"] == "match.headers[0]", "{rule}");
        ensure!(rule[part]["longest"].as_u64() > Some(1_000), "{rule}");
    }
    // A short value is matched in full.
    let mut short = |value: &str| -> Result<u16> {
        Ok(http
            .send(&Request::get("/skip").header("x-attack", value))?
            .status)
    };
    ensure!([short("aa")?, short("aa")?, short("ab")?] == [200, 429, 200]);
    envoy.stop()
}
