//! Edits, overrides and bans made at one Envoy apply at the whole fleet, outlive that Envoy and the
//! engine's data, and expire on time.

use std::time::Duration;

use anyhow::{Context as _, Result, ensure};
use loudou_tests::{Config, Envoy, Fleet, Operator, Relay, Request, eventually, now};
use serde_json::{Value, json};

const PATIENCE: Duration = Duration::from_mins(1);

fn rules(capacity: u32) -> Value {
    json!([
        {
            "name": "per-user", "scope": "fleet", "key": [{ "header": "x-user-id" }],
            "limits": [{ "algorithm": "funnel", "capacity": capacity, "rate": "1/d" }],
        },
        {
            "name": "here", "key": [{ "header": "x-here" }],
            "limits": [{ "algorithm": "funnel", "capacity": 100, "rate": "1/d" }],
        },
    ])
}

fn settings() -> Value {
    json!({ "timeout": "1s" })
}

fn config(relay: &Relay, capacity: u32) -> Config {
    Config::new(rules(capacity)).fleet(&settings(), relay.address())
}

fn edit(capacity: u32) -> Value {
    json!({ "limits": [{ "algorithm": "funnel", "capacity": capacity, "rate": "1/d" }] })
}

/// Returns the capacity in force of the first rule.
fn capacity(envoy: &Envoy) -> Result<u64> {
    let rules = Operator::viewer(envoy).get("/v1/rules")?;
    let found = rules.pointer("/rules/0/rule/limits/0/capacity");
    let found = found.and_then(Value::as_u64);
    found.with_context(|| format!("no capacity: {rules}"))
}

fn scale(envoy: &Envoy, key: &str) -> Result<Option<Value>> {
    let rules = Operator::viewer(envoy).get("/v1/rules")?;
    let found = rules.pointer(&format!("/rules/0/rule/overrides/{key}/scale"));
    Ok(found.cloned())
}

fn is_banned(envoy: &Envoy, header: &str, key: &str) -> Result<bool> {
    let answer = envoy.data().send(&Request::get("/").header(header, key))?;
    Ok(answer.status != 200)
}

fn changes(envoy: &Envoy, field: &str) -> Result<u64> {
    let status = Operator::viewer(envoy).get("/v1/status")?;
    let found = status.pointer(&format!("/fleet/changes/{field}"));
    found
        .and_then(Value::as_u64)
        .with_context(|| format!("no {field}: {status}"))
}

/// Waits until `is_so` returns true for each of these Envoys. Prints how long this took.
fn at_all(envoys: &[Envoy], what: &str, is_so: impl Fn(&Envoy) -> Result<bool>) -> Result<()> {
    let begun = now();
    for envoy in envoys {
        eventually(PATIENCE, what, || Ok(is_so(envoy)?.then_some(())))?;
    }
    println!(
        "{what}: at all {} Envoys after {:?}",
        envoys.len(),
        now().duration_since(begun)
    );
    Ok(())
}

/// Waits until every Envoy knows the whole fleet. Only then do changes arrive within a second.
fn await_fleet(fleet: &Fleet) -> Result<()> {
    let all = u64::try_from(fleet.envoys.len())?;
    at_all(&fleet.envoys, "the fleet is known", |envoy| {
        let status = Operator::viewer(envoy).get("/v1/status")?;
        let known = status.pointer("/fleet/envoys").and_then(Value::as_u64);
        Ok(known == Some(all))
    })
}

/// Fails unless the events of the fourth Envoy show who banned mallory, and at which Envoy.
fn made_known(all: &[Envoy]) -> Result<()> {
    let instance = Operator::viewer(&all[0]).get("/v1/status")?["instance"].clone();
    let instance = instance.as_str().context("an instance")?;
    let events = Operator::viewer(&all[3]).get("/v1/events")?;
    let events = events["events"].as_array().context("events")?;
    let ban = events.iter().find(|event| event["key"] == "mallory");
    let ban = ban.with_context(|| format!("no ban: {events:?}"))?;
    ensure!(ban["kind"] == "ban" && ban["reason"] == "abuse", "{ban}");
    ensure!(ban["by"] == "ops", "{ban}");
    let detail = ban["detail"].as_str().context("a detail")?;
    ensure!(detail.contains(instance), "{ban}");
    Ok(())
}

#[test]
fn a_change_made_at_one_envoy_holds_at_all() -> Result<()> {
    let fleet = Fleet::start(4, &rules(5), &settings())?;
    await_fleet(&fleet)?;
    let all = &fleet.envoys;
    let answer = Operator::editor(&all[0]).ban("per-user", "mallory", "for=1h&reason=abuse")?;
    ensure!(answer["fleet"] == "sending", "{answer}");
    at_all(all, "a ban", |envoy| {
        is_banned(envoy, "x-user-id", "mallory")
    })?;
    // A ban also applies to a rule whose buckets each Envoy decides alone.
    Operator::editor(&all[1]).ban("here", "h", "for=1h")?;
    at_all(all, "a ban of a rule of each Envoy", |envoy| {
        is_banned(envoy, "x-here", "h")
    })?;
    let answer = Operator::editor(&all[1]).set_override(
        "per-user",
        "vip",
        "for=1h",
        &json!({ "scale": 3 }),
    )?;
    ensure!(answer["fleet"] == "sending", "{answer}");
    at_all(all, "an override", |envoy| {
        Ok(scale(envoy, "vip")?.is_some())
    })?;
    let answer = Operator::editor(&all[2]).edit("per-user", "for=1h", &edit(8))?;
    ensure!(answer["fleet"] == "sending", "{answer}");
    at_all(all, "an edit", |envoy| Ok(capacity(envoy)? == 8))?;
    // The limit is shared, so 8 requests of nina pass in total, and 24 requests of the key with the
    // scale of 3.
    for (user, most) in [("nina", 8), ("vip", 24)] {
        let mut passed = 0;
        for n in 0..40 {
            let request = Request::get("/").header("x-user-id", user);
            passed += u64::from(all[n % 4].data().send(&request)?.status == 200);
        }
        ensure!(passed == most, "{user}: {passed}");
    }
    made_known(all)?;
    // A removal at one Envoy applies at all Envoys.
    Operator::editor(&all[3]).unban("per-user", "mallory")?;
    ensure!(
        Operator::editor(&all[3])
            .drop_override("per-user", "vip")?
            .status
            == 200
    );
    Operator::editor(&all[3]).drop_edit("per-user", "")?;
    at_all(all, "the end of the ban", |envoy| {
        let bucket = Operator::viewer(envoy).bucket("per-user", "mallory")?;
        Ok(bucket.is_some_and(|bucket| bucket.get("ban").is_none()))
    })?;
    at_all(all, "the end of the edits", |envoy| {
        Ok(capacity(envoy)? == 5 && scale(envoy, "vip")?.is_none())
    })?;
    for envoy in all {
        ensure!(changes(envoy, "waiting")? == 0 && changes(envoy, "unsent")? == 0);
    }
    fleet.stop()
}

/// Changes must stay in force after the Envoy at which they were made stops, and after the engine
/// loses its data.
#[test]
fn a_change_outlives_its_envoy_and_the_engine() -> Result<()> {
    let mut fleet = Fleet::start(3, &rules(5), &settings())?;
    await_fleet(&fleet)?;
    let mut operator = Operator::editor(&fleet.envoys[2]);
    operator.edit("per-user", "", &edit(8))?;
    operator.set_override("per-user", "vip", "", &json!({ "scale": 3 }))?;
    operator.ban("per-user", "mallory", "")?;
    drop(operator);
    let has_all = |envoy: &Envoy| {
        Ok(capacity(envoy)? == 8
            && scale(envoy, "vip")?.is_some()
            && is_banned(envoy, "x-user-id", "mallory")?)
    };
    at_all(&fleet.envoys, "all changes", has_all)?;
    let maker = fleet.envoys.pop().context("the third")?;
    drop(maker);
    fleet.envoys.push(Envoy::start(&config(&fleet.relay, 5))?);
    at_all(&fleet.envoys, "all changes, with a new Envoy", has_all)?;
    // The engine loses all data, and the Envoys send the changes again.
    fleet.valkey.restart()?;
    fleet.relay.await_engine()?;
    fleet.envoys.push(Envoy::start(&config(&fleet.relay, 5))?);
    at_all(&fleet.envoys, "all changes, with a new engine", has_all)?;
    fleet.stop()
}

/// A change made while the engine is down must apply at its Envoy at once and at the others when
/// the engine is back. If two such changes conflict, the later change wins.
#[test]
fn a_change_without_the_engine_travels_afterwards() -> Result<()> {
    let mut fleet = Fleet::start(2, &rules(5), &settings())?;
    await_fleet(&fleet)?;
    fleet.valkey.kill();
    let [one, two] = fleet.envoys.as_slice() else {
        anyhow::bail!("two Envoys");
    };
    Operator::editor(one).edit("per-user", "", &edit(8))?;
    // The engine knows the age of a change only to within the duration of a call, which is at most
    // the timeout. So the second edit must be later than that.
    let unix_ms = || -> Result<u64> {
        let status = Operator::viewer(two).get("/v1/status")?;
        let now = status.get("unix_ms").and_then(Value::as_u64);
        now.context("a time")
    };
    let edited = unix_ms()?;
    eventually(PATIENCE, "more than a call's time", || {
        Ok((unix_ms()? > edited + 1_000).then_some(()))
    })?;
    Operator::editor(two).edit("per-user", "", &edit(9))?;
    ensure!((capacity(one)?, capacity(two)?) == (8, 9));
    ensure!(changes(one, "unsent")? == 1);
    fleet.valkey.restart()?;
    fleet.relay.await_engine()?;
    at_all(&fleet.envoys, "the later edit", |envoy| {
        Ok(capacity(envoy)? == 9 && changes(envoy, "unsent")? == 0)
    })?;
    fleet.stop()
}

/// A ban and an edit must expire everywhere on time, even if the engine is down by then.
#[test]
fn a_change_ends_everywhere_at_its_time() -> Result<()> {
    let mut fleet = Fleet::start(2, &rules(5), &settings())?;
    await_fleet(&fleet)?;
    let mut operator = Operator::editor(&fleet.envoys[0]);
    operator.ban("per-user", "mallory", "for=8s")?;
    operator.edit("per-user", "for=8s", &edit(8))?;
    drop(operator);
    at_all(&fleet.envoys, "both", |envoy| {
        Ok(capacity(envoy)? == 8 && is_banned(envoy, "x-user-id", "mallory")?)
    })?;
    fleet.valkey.kill();
    at_all(&fleet.envoys, "the end of both", |envoy| {
        let bucket = Operator::viewer(envoy).bucket("per-user", "mallory")?;
        let is_free = bucket.is_none_or(|bucket| bucket.get("ban").is_none());
        Ok(capacity(envoy)? == 5 && is_free)
    })?;
    fleet.stop()
}

/// An edit must apply only where the configured rule equals the rule it was made for. Elsewhere it
/// waits, and the status counts it as waiting.
#[test]
fn an_edit_waits_where_the_rule_is_another() -> Result<()> {
    let mut fleet = Fleet::start(1, &rules(5), &settings())?;
    let other = Envoy::start(&config(&fleet.relay, 6))?;
    fleet.envoys.push(other);
    await_fleet(&fleet)?;
    let [one, other] = fleet.envoys.as_slice() else {
        anyhow::bail!("two Envoys");
    };
    Operator::editor(one).edit("per-user", "", &edit(8))?;
    eventually(PATIENCE, "it waits", || {
        Ok((changes(other, "waiting")? == 1).then_some(()))
    })?;
    ensure!(capacity(other)? == 6);
    other.push(&config(&fleet.relay, 5))?;
    eventually(PATIENCE, "it holds", || {
        let holds = capacity(other)? == 8 && changes(other, "waiting")? == 0;
        Ok(holds.then_some(()))
    })?;
    // In the other direction, a different configuration retires the edit, and the edit applies
    // again when the rule returns.
    other.push(&config(&fleet.relay, 7))?;
    eventually(PATIENCE, "it waits again", || {
        let waits = capacity(other)? == 7 && changes(other, "waiting")? == 1;
        Ok(waits.then_some(()))
    })?;
    other.push(&config(&fleet.relay, 5))?;
    eventually(PATIENCE, "it holds again", || {
        // Envoy activates a rollback only at a new connection.
        other.data().send(&Request::get("/"))?;
        Ok((capacity(other)? == 8).then_some(()))
    })?;
    ensure!(capacity(one)? == 8);
    fleet.stop()
}
