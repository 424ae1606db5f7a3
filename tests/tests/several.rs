//! Several rules match one request. All of them have to admit, and a refused request gets its cost
//! back.

use std::io::Write as _;
use std::net::TcpStream;
use std::time::Duration;

use anyhow::{Context as _, Result, ensure};
use loudou_tests::{Config, Envoy, Operator, Request, eventually};
use serde_json::{Value, json};

const SOON: Duration = Duration::from_secs(30);

fn rule(name: &str, limits: &Value, more: &Value) -> Value {
    let mut rule = json!({ "name": name, "key": [{ "header": "x-user-id" }], "limits": limits });
    if let (Some(rule), Some(more)) = (rule.as_object_mut(), more.as_object()) {
        rule.extend(more.clone());
    }
    rule
}

fn per_day(capacity: u32) -> Value {
    json!([{ "algorithm": "funnel", "capacity": capacity, "rate": "1/d" }])
}

/// Limits of each algorithm that can return cost, with room for all requests.
fn every_way() -> Value {
    json!([
        { "name": "funnel", "algorithm": "funnel", "capacity": 250, "rate": "1/d" },
        { "name": "greedy", "algorithm": "token_bucket", "capacity": 250, "rate": "1/d" },
        { "name": "lumps", "algorithm": "token_bucket", "capacity": 250, "rate": "1/d", "refill": "interval" },
        { "name": "fixed", "algorithm": "fixed_window", "capacity": 250, "window": "366d" },
        { "name": "sliding", "algorithm": "sliding_window", "capacity": 250, "window": "366d", "slots": 2 },
        { "name": "log", "algorithm": "sliding_log", "capacity": 250, "window": "366d" },
        { "name": "counter", "algorithm": "sliding_counter", "capacity": 250, "window": "366d" },
        { "name": "flights", "algorithm": "concurrency", "capacity": 250 },
    ])
}

fn alice(path: &str) -> Request {
    Request::get(path).header("x-user-id", "alice")
}

/// Returns the remaining units of each limit in alice's bucket, and the number of admitted
/// requests.
fn bucket(ops: &mut Operator, rule: &str) -> Result<(Vec<u64>, u64)> {
    let bucket = ops.get(&format!("/v1/buckets/{rule}/alice"))?;
    let limits = bucket.get("limits").and_then(Value::as_array);
    let limits = limits.with_context(|| format!("no limits: {bucket}"))?;
    let left = limits
        .iter()
        .filter_map(|limit| limit.get("remaining")?.as_u64());
    let admitted = bucket.get("admitted").and_then(Value::as_u64);
    let admitted = admitted.with_context(|| format!("no count: {bucket}"))?;
    Ok((left.collect(), admitted))
}

fn counted(envoy: &Envoy, rule: &str, what: &str) -> Result<u64> {
    envoy.counter(&format!("wasmcustom.loudou.rule.{rule}.{what}"))
}

/// Sends `count` requests of alice and returns their statuses.
fn statuses(envoy: &Envoy, path: &str, count: usize) -> Result<Vec<u16>> {
    let mut http = envoy.data();
    let answers = (0..count).map(|_| Ok(http.send(&alice(path))?.status));
    answers.collect()
}

/// The strictest rule must decide how many requests pass, and the other rule must be charged only
/// for these requests.
#[test]
fn a_storm_is_charged_for_admitted_requests() -> Result<()> {
    let rules = json!([
        rule("loose", &every_way(), &json!({})),
        rule("strict", &per_day(100), &json!({})),
    ]);
    let envoy = Envoy::start(&Config::new(rules).concurrency(4))?;
    let mut ops = Operator::viewer(&envoy);
    let counts = envoy.load(5_000, 64, |_| alice("/"))?;
    ensure!(
        counts.of(200) == 100 && counts.of(429) == 4_900,
        "{counts:?}"
    );
    let expected = (vec![150, 150, 150, 150, 150, 150, 150, 250], 100);
    eventually(SOON, "the flights to end", || {
        let loose = bucket(&mut ops, "loose")?;
        ensure!(
            loose.0.iter().all(|left| *left <= 250) && loose.1 == 100,
            "{loose:?}"
        );
        Ok((loose == expected).then_some(()))
    })
    .with_context(|| format!("{:?}", bucket(&mut ops, "loose")))?;
    ensure!(bucket(&mut ops, "strict")? == (vec![0], 100));
    ensure!(counted(&envoy, "loose", "admitted")? == 100);
    ensure!(counted(&envoy, "loose", "refused")? == 0);
    ensure!(counted(&envoy, "strict", "refused")? == 4_900);
    ensure!(envoy.counter("wasmcustom.loudou.store.lost_returns")? == 0);
    envoy.stop()
}

#[test]
fn rules_after_one_that_stops_are_skipped() -> Result<()> {
    let first = json!({ "match": { "path": { "prefix": "/first" } }, "stop": true });
    let rules = json!([
        rule("first", &per_day(4), &first),
        rule("behind", &per_day(2), &json!({})),
    ]);
    let envoy = Envoy::start(&Config::new(rules))?;
    ensure!(statuses(&envoy, "/first", 5)? == [200, 200, 200, 200, 429]);
    ensure!(counted(&envoy, "behind", "admitted")? == 0);
    ensure!(statuses(&envoy, "/", 3)? == [200, 200, 429]);
    envoy.stop()
}

/// An exhausted shadow rule must not hide requests from an enforced rule, and an exhausted enforced
/// rule must not hide requests from a shadow rule.
#[test]
fn a_shadow_rule_behaves_as_if_alone() -> Result<()> {
    let shadow = |capacity| {
        rule(
            "shadow",
            &per_day(capacity),
            &json!({ "mode": "shadow", "shadows": "enforced" }),
        )
    };
    let enforced = |capacity| rule("enforced", &per_day(capacity), &json!({}));
    for (shadow_first, rules) in [
        (true, json!([shadow(1), enforced(3)])),
        (false, json!([enforced(1), shadow(3)])),
    ] {
        let envoy = Envoy::start(&Config::new(rules))?;
        let got = statuses(&envoy, "/", 6)?;
        let (expected, would_refuse) = if shadow_first {
            ([200, 200, 200, 429, 429, 429], 5)
        } else {
            ([200, 429, 429, 429, 429, 429], 3)
        };
        ensure!(got == expected, "{got:?}");
        ensure!(counted(&envoy, "shadow", "shadow_refused")? == would_refuse);
        let mut ops = Operator::viewer(&envoy);
        ensure!(bucket(&mut ops, "shadow")? == (vec![0], 6 - would_refuse));
        envoy.stop()?;
    }
    Ok(())
}

/// A client that disconnects at the end of a queue must free its slot and get its cost in the other
/// rule back.
#[test]
fn a_client_that_leaves_frees_its_slot() -> Result<()> {
    let queue = json!([{ "algorithm": "leaky_queue", "capacity": 40, "rate": "1/m" }]);
    let rules = json!([
        rule("quota", &per_day(9), &json!({})),
        rule("queue", &queue, &json!({})),
    ]);
    let envoy = Envoy::start(&Config::new(rules))?;
    let mut ops = Operator::viewer(&envoy);
    ensure!(statuses(&envoy, "/", 1)? == [200]);
    let before = (bucket(&mut ops, "quota")?.0, bucket(&mut ops, "queue")?.0);
    for _ in 0..3 {
        let mut socket = TcpStream::connect(envoy.data_address())?;
        socket.write_all(b"GET / HTTP/1.1\r\nhost: a\r\nx-user-id: alice\r\n\r\n")?;
        eventually(SOON, "the request to wait", || {
            Ok((ops.waiting()? == 1).then_some(()))
        })?;
        ensure!(bucket(&mut ops, "quota")?.0 == [7]);
        drop(socket);
        eventually(SOON, "its place to come back", || {
            let now = (bucket(&mut ops, "quota")?.0, bucket(&mut ops, "queue")?.0);
            Ok((now == before).then_some(()))
        })?;
    }
    envoy.stop()
}

/// A shadow rule must be evaluated even if an earlier rule stops the evaluation.
#[test]
fn a_shadow_rule_after_one_that_stops_is_evaluated() -> Result<()> {
    let envoy = Envoy::start(&Config::new(json!([
        rule("stops", &per_day(2), &json!({ "stop": true })),
        rule(
            "tried",
            &per_day(1),
            &json!({ "mode": "shadow", "stop": true })
        ),
        rule("enforced", &per_day(1), &json!({})),
    ])))?;
    ensure!(statuses(&envoy, "/", 3)? == [200, 200, 429]);
    let would_refuse = counted(&envoy, "tried", "shadow_refused")?;
    ensure!(would_refuse == 2, "{would_refuse}");
    let mut ops = Operator::viewer(&envoy);
    ensure!(bucket(&mut ops, "tried")? == (vec![0], 1));
    ensure!(ops.bucket("enforced", "alice")?.is_none());
    envoy.stop()
}
