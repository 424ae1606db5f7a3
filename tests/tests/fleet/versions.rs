//! Envoys whose configurations contain the same rule in two versions, as during a deployment. Each
//! version has separate edits and overrides, and none of them is lost.

use std::time::Duration;

use anyhow::{Context as _, Result, ensure};
use loudou_tests::{Config, Envoy, Operator, Relay, TempDir, Valkey, eventually, released_wasm};
use serde_json::{Value, json};

const PATIENCE: Duration = Duration::from_mins(1);

fn config(relay: &Relay, capacity: u32) -> Config {
    let rules = json!([{
        "name": "per-user", "scope": "fleet", "key": [{ "header": "x-user-id" }], "limits": limits(capacity),
    }]);
    Config::new(rules).fleet(&json!({ "timeout": "1s" }), relay.address())
}

fn limits(capacity: u32) -> Value {
    json!([{ "algorithm": "funnel", "capacity": capacity, "rate": "1/d" }])
}

/// Returns the capacity in force, and the scale of the key `vip`.
fn holds(envoy: &Envoy) -> Result<(u64, u64)> {
    let rules = Operator::viewer(envoy).get("/v1/rules")?;
    let number = |pointer| rules.pointer(pointer).and_then(Value::as_u64);
    let capacity = number("/rules/0/rule/limits/0/capacity");
    let scale = number("/rules/0/rule/overrides/vip/scale");
    Ok((capacity.context("a capacity")?, scale.unwrap_or(1)))
}

fn await_held(envoy: &Envoy, what: &str, expected: (u64, u64)) -> Result<()> {
    eventually(PATIENCE, what, || {
        let held = holds(envoy)?;
        Ok((held == expected).then_some(()))
    })
}

/// Waits until the engine has the changes made at an Envoy.
fn await_sent(envoy: &Envoy) -> Result<()> {
    eventually(PATIENCE, "the engine to have it", || {
        let status = Operator::viewer(envoy).get("/v1/status")?;
        Ok((status.pointer("/fleet/changes/unsent") == Some(&json!(0))).then_some(()))
    })
}

/// Waits until an Envoy knows a fleet of `all` Envoys.
fn await_known(envoy: &Envoy, all: u64) -> Result<()> {
    eventually(PATIENCE, "the fleet is known", || {
        let status = Operator::viewer(envoy).get("/v1/status")?;
        Ok((status.pointer("/fleet/envoys") == Some(&json!(all))).then_some(()))
    })
}

#[test]
fn each_version_of_a_rule_has_edits_of_its_own() -> Result<()> {
    let valkey = Valkey::start()?;
    let relay = Relay::start_with(&valkey, &["--timeout-ms", "900"])?;
    let dir = TempDir::new("versions")?;
    let (old, new) = (config(&relay, 5), config(&relay, 6));
    let mut old_one = Envoy::start(&old)?;
    let mut new_one = Envoy::start(&new)?;
    // This Envoy runs the previous release, which supports one edit per rule.
    let released = Envoy::start(&old.clone().wasm(released_wasm(&dir)?))?;
    for envoy in [&old_one, &new_one, &released] {
        await_known(envoy, 3)?;
    }
    let change = |envoy: &Envoy, capacity: u32, scale: u32| {
        let mut ops = Operator::editor(envoy);
        let edited = ops.edit("per-user", "", &json!({ "limits": limits(capacity) }))?;
        ensure!(edited.get("fleet") == Some(&json!("sending")), "{edited}");
        ops.set_override("per-user", "vip", "", &json!({ "scale": scale }))?;
        await_sent(envoy)
    };
    change(&old_one, 8, 3)?;
    await_held(&released, "the old rule at the release", (8, 3))?;
    change(&new_one, 9, 4)?;
    // The release sends its edit of the old rule under the rule name that it knows.
    let mut ops = Operator::editor(&released);
    ops.edit("per-user", "", &json!({ "limits": limits(10) }))?;
    await_held(&old_one, "the edit of the release", (10, 3))?;
    await_sent(&released)?;
    for round in 0..2 {
        old_one = old_one.restart(&old)?;
        new_one = new_one.restart(&new)?;
        await_held(&old_one, &format!("the old rule, round {round}"), (10, 3))?;
        await_held(&new_one, &format!("the new rule, round {round}"), (9, 4))?;
    }
    let newcomer = Envoy::start(&old)?;
    await_held(&newcomer, "the old rule at a new Envoy", (10, 3))?;
    // The deployment continues. An edit of the new rule applies at every Envoy that gets this rule.
    newcomer.push(&new)?;
    await_held(&newcomer, "the new rule where the old one was", (9, 4))?;
    // A removal applies only to its version of the rule.
    Operator::editor(&new_one).drop_edit("per-user", "")?;
    await_held(&newcomer, "the end of an edit", (6, 4))?;
    for envoy in [&old_one, &released] {
        ensure!(holds(envoy)? == (10, 3));
    }
    for envoy in [old_one, new_one, released, newcomer] {
        envoy.stop()?;
    }
    Ok(())
}
