//! Edits, overrides and bans: made at one Envoy, they hold at all of the fleet, outlive that Envoy and the
//! engine's data, and end at their time.

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

/// The capacity in force of the first rule.
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

/// Waits until something is so at all of these Envoys; prints how long that took.
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

/// Waits until every Envoy has heard of the engine: only then changes travel within a second.
fn await_fleet(fleet: &Fleet) -> Result<()> {
    let all = u64::try_from(fleet.envoys.len())?;
    at_all(&fleet.envoys, "the fleet is known", |envoy| {
        let status = Operator::viewer(envoy).get("/v1/status")?;
        let known = status.pointer("/fleet/envoys").and_then(Value::as_u64);
        Ok(known == Some(all))
    })
}

/// Who banned mallory, and where, is in the events of each.
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
    // Also under a rule that each Envoy decides alone.
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
    // It is one limit: 8 of nina's requests pass, and 24 of the one who has three times as much.
    for (user, most) in [("nina", 8), ("vip", 24)] {
        let mut passed = 0;
        for n in 0..40 {
            let request = Request::get("/").header("x-user-id", user);
            passed += u64::from(all[n % 4].data().send(&request)?.status == 200);
        }
        ensure!(passed == most, "{user}: {passed}");
    }
    made_known(all)?;
    // An end at one is an end at all.
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

/// A change outlives the Envoy at which it was made, and the engine's data.
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
    // The engine forgets everything; the Envoys tell it again.
    fleet.valkey.restart()?;
    fleet.relay.await_engine()?;
    fleet.envoys.push(Envoy::start(&config(&fleet.relay, 5))?);
    at_all(&fleet.envoys, "all changes, with a new engine", has_all)?;
    fleet.stop()
}

/// A change that is made while the engine is away holds at its Envoy at once, and elsewhere afterwards; of two
/// such the one that was made last.
#[test]
fn a_change_without_the_engine_travels_afterwards() -> Result<()> {
    let mut fleet = Fleet::start(2, &rules(5), &settings())?;
    await_fleet(&fleet)?;
    fleet.valkey.kill();
    let [one, two] = fleet.envoys.as_slice() else {
        anyhow::bail!("two Envoys");
    };
    Operator::editor(one).edit("per-user", "", &edit(8))?;
    // The engine knows how long ago each was made as exactly as calls travel fast: for at most their time-out.
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

/// A ban ends everywhere at its time, though the engine is away by then.
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

/// An edit holds where the rule is the one that it was made for. Elsewhere it waits, and status says so.
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
    // The other way round: another configuration retires it here, and it comes back with the rule.
    other.push(&config(&fleet.relay, 7))?;
    eventually(PATIENCE, "it waits again", || {
        let waits = capacity(other)? == 7 && changes(other, "waiting")? == 1;
        Ok(waits.then_some(()))
    })?;
    other.push(&config(&fleet.relay, 5))?;
    eventually(PATIENCE, "it holds again", || {
        // Only a new connection shows that an earlier configuration is back.
        other.data().send(&Request::get("/"))?;
        Ok((capacity(other)? == 8).then_some(()))
    })?;
    ensure!(capacity(one)? == 8);
    fleet.stop()
}
