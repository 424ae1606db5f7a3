//! Overrides of single keys, set in the configuration or by live edits.

use anyhow::{Context as _, Result, ensure};
use loudou_tests::one_rule::{admitted, config, limits, user};
use loudou_tests::{Config, Envoy, Http, Operator, Request, expect, expect_problem};
use serde_json::{Value, json};

/// Number of connections, larger than the number of workers, so that every worker has some.
const CONNECTIONS: usize = 16;
/// Number of requests after which [`admitted`] stops.
const NO_END: u32 = 100;

fn with(overrides: &Value, capacity: u32) -> Config {
    Config::new(json!([{
        "name": "r",
        "key": [{ "header": "x-user-id" }],
        "limits": limits(capacity),
        "overrides": overrides,
    }]))
}

#[test]
fn configured_overrides_apply_to_their_keys() -> Result<()> {
    let overrides = json!({
        "alice": { "scale": 4 },
        "half": { "scale": 0.5 },
        "team-*": { "limits": limits(7) },
        "team-red": { "limits": limits(9) },
        "team-red-*": "banned",
        "root": "unlimited",
        "eve": "banned",
    });
    let envoy = Envoy::start(&with(&overrides, 5).concurrency(4))?;
    let mut http = envoy.data();
    for (key, expected) in [
        ("bob", 5),
        ("alice", 20),
        ("alice2", 5),
        // Capacities are rounded up.
        ("half", 3),
        ("team-", 7),
        ("team-blue", 7),
        ("team-red", 9),
        ("team-redder", 7),
        ("team-red-1", 0),
        ("tea", 5),
        ("root", NO_END),
        ("eve", 0),
    ] {
        let count = admitted(&mut http, key)?;
        ensure!(count == expected, "{key}: {count}");
    }
    let refused = http.send(&user("eve"))?;
    ensure!(refused.header("retry-after").is_none(), "{refused:?}");
    ensure!(refused.json()?["detail"] == "banned by rule r until further notice");
    let mut ops = Operator::viewer(&envoy);
    let bucket = ops.bucket("r", "team-blue")?.context("a bucket")?;
    ensure!(
        bucket["override"] == json!({ "pattern": "team-*", "gives": "limits" }),
        "{bucket}"
    );
    ensure!(bucket["limits"][0]["capacity"] == 7, "{bucket}");
    for (key, gives) in [("root", "unlimited"), ("eve", "banned")] {
        let answer = ops.send(Request::get(&format!("/v1/buckets/r/{key}")))?;
        let detail = expect_problem(&answer, 404)?;
        ensure!(detail.contains(gives), "{detail}");
    }
    let export = ops.get("/v1/export")?;
    ensure!(export["rules"][0]["overrides"] == overrides, "{export}");
    envoy.stop()
}

#[test]
fn a_live_override_applies_on_every_worker_from_the_next_request() -> Result<()> {
    let envoy = Envoy::start(&config(3).concurrency(4))?;
    let mut ops = Operator::editor(&envoy);
    let mut clients: Vec<Http> = (0..CONNECTIONS).map(|_| envoy.data()).collect();
    ensure!(admitted(&mut envoy.data(), "alice")? == 3);
    let mut all = |status: u16| -> Result<()> {
        for client in &mut clients {
            let answer = client.send(&user("alice"))?;
            ensure!(answer.status == status, "{status}: {answer:?}");
        }
        Ok(())
    };
    all(429)?;
    ops.set_override("r", "alice", "reason=ticket%207", &json!("unlimited"))?;
    all(200)?;
    ops.set_override("r", "al*", "", &json!("banned"))?;
    all(200)?;
    ops.set_override("r", "alice", "", &json!("banned"))?;
    all(429)?;
    ops.set_override("r", "alice", "", &json!("unlimited"))?;
    all(200)?;
    expect(&ops.drop_override("r", "alice")?, 200)?;
    all(429)?;
    expect(&ops.drop_override("r", "al*")?, 200)?;
    // The unlimited override took no units, and no units were left before it.
    all(429)?;
    // Used units stay used when the limit grows, so three of thirty are used.
    ops.set_override("r", "alice", "", &json!({ "scale": 10 }))?;
    ensure!(admitted(&mut envoy.data(), "alice")? == 27);
    ops.reset("r", "alice")?;
    all(200)?;
    envoy.stop()
}

#[test]
fn configured_overrides_are_replaced_and_come_back() -> Result<()> {
    let overrides = json!({ "alice": { "scale": 2 } });
    let envoy = Envoy::start(&with(&overrides, 5))?;
    let (mut http, mut ops) = (envoy.data(), Operator::editor(&envoy));
    let detail = expect_problem(&ops.drop_override("r", "alice")?, 409)?;
    ensure!(detail.contains("another value"), "{detail}");
    expect_problem(&ops.drop_override("r", "bob")?, 404)?;
    ops.set_override("r", "alice", "", &json!("banned"))?;
    ensure!(admitted(&mut http, "alice")? == 0);
    let export = ops.get("/v1/export")?;
    ensure!(
        export["rules"][0]["overrides"] == json!({ "alice": "banned" }),
        "{export}"
    );
    let answer = expect(&ops.drop_override("r", "alice")?, 200)?;
    ensure!(
        answer["change"] == "override of alice: banned → scale 2",
        "{answer}"
    );
    ensure!(admitted(&mut http, "alice")? == 10);
    envoy.stop()
}
