//! The CPU time of a call depends on the data that the call concerns, and not on the size of other
//! rules.

use std::fs;

use anyhow::{Context as _, Result, ensure};
use loudou_tests::one_rule::{edit, user};
use loudou_tests::{Config, Envoy, Http, Operator, Request, expect};
use serde_json::{Map, Value, json};

/// Number of calls of each kind. The test uses the cheapest call. Other programs on the machine
/// cause cache misses, which slow calls down, mostly calls that read much.
const TIMES: u32 = 20;
/// Maximum ratio between the cost with the large configuration and with the small configuration. If
/// every call read the whole record, the ratio would be a hundred and more.
const FACTOR: u64 = 12;

fn rules(count: u32, overrides: u32) -> Value {
    let keys: Map<String, Value> = (0..overrides)
        .map(|n| (format!("user-{n:019}"), json!({ "scale": 2 })))
        .collect();
    let rule = |n| {
        json!({
            "name": format!("r{n}"),
            "key": [{ "header": "x-user-id" }],
            "limits": [{ "name": "l", "algorithm": "funnel", "capacity": 9, "rate": "1/s" }],
            "overrides": keys,
        })
    };
    (0..count).map(rule).collect()
}

/// An Envoy with one worker, with an operator and a client.
struct Bench {
    envoy: Envoy,
    ops: Operator,
    data: Http,
}

impl Bench {
    fn new(rules: Value) -> Result<Self> {
        let envoy = Envoy::start(&Config::new(rules).buckets(1_024).concurrency(1))?;
        let (ops, data) = (Operator::editor(&envoy), envoy.data());
        let mut bench = Self { envoy, ops, data };
        // One edit and one call of each kind, so that all caches are filled.
        bench.ops.edit("r0", "", &edit(50))?;
        bench.request()?;
        bench.ops.get("/v1/rules")?;
        Ok(bench)
    }

    fn request(&mut self) -> Result<()> {
        self.data.send(&user("alice"))?;
        Ok(())
    }

    /// Returns the CPU time of the worker so far, in nanoseconds.
    fn worker(&self) -> Result<u64> {
        let tasks = format!("/proc/{}/task", self.envoy.pid());
        for task in fs::read_dir(tasks)? {
            let task = task?.path();
            if fs::read_to_string(task.join("comm"))?.starts_with("wrk:worker") {
                let times = fs::read_to_string(task.join("schedstat"))?;
                let running = times.split_whitespace().next();
                return Ok(running.context("no times")?.parse()?);
            }
        }
        anyhow::bail!("no worker")
    }

    /// Returns the minimum CPU time of the worker for `call`, without the time of `before`.
    fn cost(
        &mut self,
        mut before: impl FnMut(&mut Self, u32) -> Result<()>,
        mut call: impl FnMut(&mut Self, u32) -> Result<()>,
    ) -> Result<u64> {
        let mut least = u64::MAX;
        for n in 0..TIMES {
            before(self, n)?;
            let start = self.worker()?;
            call(self, n)?;
            least = least.min(self.worker()? - start);
        }
        Ok(least)
    }

    fn get(&mut self, path: &str) -> Result<u64> {
        let call = |bench: &mut Self, _| bench.ops.get(path).map(|_| ());
        self.cost(|_, _| Ok(()), call)
    }
}

/// Returns the cost of each kind of call, in nanoseconds.
fn costs(rules: Value) -> Result<Vec<(String, u64)>> {
    let mut bench = Bench::new(rules)?;
    let mut costs = Vec::new();
    for path in [
        "/v1/status",
        "/v1/rules",
        "/v1/rules/r0",
        "/v1/export",
        "/v1/buckets",
        "/v1/buckets/r0/alice",
        "/v1/top",
        "/v1/events",
    ] {
        costs.push((format!("GET {path}"), bench.get(path)?));
    }
    let explain = Request::post("/v1/explain").json(&json!({
        "path": "/", "headers": { "x-user-id": "alice" },
    }));
    let call = |bench: &mut Bench, _| bench.ops.send(explain.clone()).map(|_| ());
    costs.push((
        "POST /v1/explain".to_owned(),
        bench.cost(|_, _| Ok(()), call)?,
    ));
    let put = |bench: &mut Bench, n| {
        let put = Request::new("PUT", "/v1/rules/r0").header("if-match", "*");
        expect(&bench.ops.send(put.json(&edit(60 + n)))?, 200).map(|_| ())
    };
    let request = |bench: &mut Bench, _| bench.request();
    costs.push(("an edit".to_owned(), bench.cost(request, put)?));
    costs.push((
        "the first request after an edit".to_owned(),
        bench.cost(put, request)?,
    ));
    bench.envoy.stop()?;
    Ok(costs)
}

#[test]
fn calls_cost_what_they_are_about() -> Result<()> {
    let small = costs(rules(1, 0))?;
    let large = costs(rules(16, 1_024))?;
    let many = costs(rules(256, 64))?;
    let mut dear = Vec::new();
    for (((name, small), (_, large)), (_, many)) in small.into_iter().zip(large).zip(many) {
        let us = |ns: u64| ns / 1_000;
        let line = format!(
            "{name}: {} µs; with 16 rules of 1024 overrides {} µs; with 256 of 64, {} µs",
            us(small),
            us(large),
            us(many)
        );
        println!("{line}");
        // The answers to these two calls contain all rules.
        let is_list = name.ends_with("/v1/rules") || name.ends_with("/v1/export");
        if large > small * FACTOR && !is_list {
            dear.push(line);
        }
    }
    ensure!(dear.is_empty(), "{dear:#?}");
    Ok(())
}
