//! Overrides of single keys: by configuration, and live.

use std::time::Duration;

use anyhow::{Context as _, Result, ensure};
use loudou_tests::one_rule::{admitted, config, edit, limits, user};
use loudou_tests::{
    Config, Envoy, Http, Operator, Request, Update, eventually, expect, expect_problem,
};
use serde_json::{Value, json};

const SOON: Duration = Duration::from_secs(30);
/// More connections than workers, so that every worker has some.
const CONNECTIONS: usize = 16;
/// The number at which [`admitted`] stops.
const NO_END: u32 = 100;

fn with(overrides: &Value, capacity: u32) -> Config {
    Config::new(json!([{
        "name": "r",
        "key": [{ "header": "x-user-id" }],
        "limits": limits(capacity),
        "overrides": overrides,
    }]))
}

fn of_kind(ops: &mut Operator, kind: &str) -> Result<Vec<Value>> {
    let mut events = ops.events(0)?;
    events.retain(|event| event.get("kind").is_some_and(|own| own == kind));
    Ok(events)
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
    // Unlimited took nothing; nothing was left before it.
    all(429)?;
    // Used amounts stay used under larger limits: three of thirty.
    ops.set_override("r", "alice", "", &json!({ "scale": 10 }))?;
    ensure!(admitted(&mut envoy.data(), "alice")? == 27);
    ops.reset("r", "alice")?;
    all(200)?;
    envoy.stop()
}

#[test]
fn a_temporary_override_expires() -> Result<()> {
    let envoy = Envoy::start(&config(3).concurrency(4))?;
    let mut ops = Operator::editor(&envoy);
    let answer = ops.set_override("r", "alice", "for=300ms", &json!("banned"))?;
    ensure!(
        answer["after"]["overrides"][0]["edit"]["expires_at_ns"].is_u64(),
        "{answer}"
    );
    let mut http = envoy.data();
    ensure!(http.send(&user("alice"))?.status == 429);
    eventually(SOON, "the override to run out", || {
        Ok((http.send(&user("alice"))?.status == 200).then_some(()))
    })?;
    eventually(SOON, "an event that tells of it", || {
        let events = of_kind(&mut ops, "edit_expired")?;
        ensure!(events.len() <= 1, "{events:?}");
        Ok(events
            .first()
            .filter(|event| event["key"] == "alice")
            .map(|_| ()))
    })?;
    let rule = ops.get("/v1/rules/r")?;
    ensure!(
        rule.get("overrides").is_none() && rule["rule"] == rule["base"],
        "{rule}"
    );
    // Also without any request.
    ops.set_override("r", "bob", "for=200ms", &json!("banned"))?;
    eventually(SOON, "the other to run out", || {
        Ok(ops
            .get("/v1/rules/r")?
            .get("overrides")
            .is_none()
            .then_some(()))
    })?;
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

#[test]
fn concurrent_edits_are_noticed_and_invalid_ones_refused() -> Result<()> {
    let envoy = Envoy::start(&config(5))?;
    let mut ops = Operator::editor(&envoy);
    let put = |key: &str| Request::new("PUT", &format!("/v1/overrides/r/{key}"));
    let twice = json!({ "scale": 2 });
    expect_problem(&ops.send(put("alice").json(&twice))?, 428)?;
    let stale = ops.send(put("alice").header("if-match", "\"9\"").json(&twice))?;
    expect_problem(&stale, 412)?;
    ensure!(stale.json()?["current"]["generation"] == 1);
    let any = |key: &str| put(key).header("if-match", "*");
    for body in [
        json!({ "scale": 0 }),
        json!({ "scale": 2, "limits": [] }),
        json!("none"),
        json!(null),
    ] {
        expect_problem(&ops.send(any("alice").json(&body))?, 400)?;
    }
    for key in ["a%20b", "%0A", "", "%F0%9F%92%A9"] {
        expect_problem(&ops.send(any(key).json(&twice))?, 400)?;
    }
    // Overrides that do not fit the limits, now or after an edit of them.
    let answer = ops.send(any("alice").json(&json!({ "scale": 1000 })))?;
    ensure!(answer.status == 200, "{answer:?}");
    let wide =
        json!({ "limits": [{ "algorithm": "funnel", "capacity": 3_000_000, "rate": "1/s" }] });
    let answer = ops.put("r", "", &wide)?;
    expect_problem(&answer, 400)?;
    ensure!(
        answer.json()?["problems"][0]["path"] == "overrides.alice.scale",
        "{answer:?}"
    );
    ops.set_override("r", "alice", "dry_run=true", &json!("banned"))?;
    ensure!(ops.generation()? == 2, "a dry run changes nothing");
    envoy.stop()
}

#[test]
fn a_configuration_that_changes_the_rule_ends_overrides() -> Result<()> {
    let envoy = Envoy::start(&config(5))?;
    let mut ops = Operator::editor(&envoy);
    ops.set_override("r", "alice", "", &json!("unlimited"))?;
    ops.edit("r", "", &edit(50))?;
    ensure!(envoy.push(&config(6))? == Update::Accepted);
    eventually(SOON, "the override to be retired", || {
        Ok(ops
            .get("/v1/rules/r")?
            .get("overrides")
            .is_none()
            .then_some(()))
    })?;
    eventually(SOON, "two events", || {
        let events = of_kind(&mut ops, "edit_retired")?;
        let keys: Vec<&Value> = events.iter().map(|event| &event["key"]).collect();
        Ok((keys == [&Value::Null, &json!("alice")]).then_some(()))
    })?;
    ensure!(admitted(&mut envoy.data(), "alice")? == 6);
    envoy.stop()
}

/// A key over 128 bytes is cut, and its hash is the same in every process: a key copied from the
/// screen of one Envoy applies in another.
#[test]
fn a_cut_key_is_the_same_in_every_envoy() -> Result<()> {
    let long = "t".repeat(500);
    let (one, two) = (Envoy::start(&config(3))?, Envoy::start(&config(3))?);
    ensure!(one.data().send(&user(&long))?.status == 200);
    let mut ops = Operator::editor(&one);
    let shown = ops.buckets("")?;
    let key = shown.first().and_then(|bucket| bucket["key"].as_str());
    let key = key.context("a bucket")?;
    ensure!(key.len() == 128, "{key}");
    let (mut http, mut ops) = (two.data(), Operator::editor(&two));
    ops.set_override("r", key, "", &json!({ "scale": 4 }))?;
    ensure!(admitted(&mut http, &long)? == 12);
    ensure!(ops.bucket("r", key)?.is_some(), "another key");
    ops.set_override("r", key, "", &json!("unlimited"))?;
    ops.ban("r", key, "")?;
    ensure!(http.send(&user(&long))?.status == 429);
    one.stop()?;
    two.stop()
}
