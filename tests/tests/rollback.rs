//! Rollbacks within the drain time. Envoy reuses the sandboxes of the first configuration without a
//! call to the filter. Enforcement, the admin API and edits must still agree.

use std::time::Duration;

use anyhow::{Context as _, Result, bail, ensure};
use loudou_tests::one_rule::{admitted, config, edit, user};
use loudou_tests::{Config, Envoy, Http, Operator, Update, eventually};
use serde_json::{Value, json};

/// Timeout within which every worker has applied an update.
const SOON: Duration = Duration::from_secs(20);

/// Returns a configuration that drains for longer than any test.
fn with(capacity: u32) -> Config {
    config(capacity).drain_s(3_600)
}

/// Returns the capacity that the admin API shows.
fn shown(ops: &mut Operator) -> Result<Option<u64>> {
    let rule = ops.get("/v1/rules/r")?;
    Ok(rule
        .pointer("/rule/limits/0/capacity")
        .and_then(Value::as_u64))
}

/// Pushes a configuration and waits until the admin API shows it.
fn update(envoy: &Envoy, ops: &mut Operator, capacity: u32) -> Result<()> {
    ensure!(envoy.push(&with(capacity))? == Update::Accepted);
    eventually(SOON, "the configuration to be in force", || {
        Ok((shown(ops)? == Some(capacity.into())).then_some(()))
    })
}

/// Sends requests of one user over new connections until the admin API shows this capacity. Workers
/// switch to a listener one after another, and only a later connection reveals the rollback to the
/// filter.
fn noticed(envoy: &Envoy, ops: &mut Operator, capacity: u32) -> Result<()> {
    eventually(SOON, "the rollback to be noticed", || {
        match envoy.data().send(&user("somebody"))?.status {
            200 | 429 => {}
            other => bail!("{other}"),
        }
        Ok((shown(ops)? == Some(capacity.into())).then_some(()))
    })
}

fn details(ops: &mut Operator, kind: &str) -> Result<Vec<Value>> {
    let events = ops.events(0)?;
    let of_kind = events
        .into_iter()
        .filter(|event| event.get("kind") == Some(&json!(kind)));
    Ok(of_kind.collect())
}

#[test]
fn a_rollback_is_in_force_shown_and_edited() -> Result<()> {
    let envoy = Envoy::start(&with(3))?;
    let mut ops = Operator::editor(&envoy);
    ensure!(admitted(&mut envoy.data(), "first")? == 3);
    update(&envoy, &mut ops, 5)?;
    ensure!(admitted(&mut envoy.data(), "second")? == 5);
    ensure!(envoy.push(&with(3))? == Update::Accepted);
    noticed(&envoy, &mut ops, 3)?;
    ensure!(
        admitted(&mut envoy.data(), "third")? == 3,
        "the first numbers again"
    );
    ensure!(admitted(&mut envoy.data(), "second")? == 0);
    let configured = details(&mut ops, "configured")?;
    ensure!(configured.len() == 3, "{configured:?}");
    // The rules can be edited as after any configuration, per rule and per key.
    ops.edit("r", "carry=keep", &edit(6))?;
    ensure!(admitted(&mut envoy.data(), "fourth")? == 6);
    ops.set_override("r", "fifth", "", &json!("banned"))?;
    ensure!(admitted(&mut envoy.data(), "fifth")? == 0);
    let status = ops.get("/v1/status")?;
    ensure!(status.get("warnings") == Some(&json!([])), "{status}");
    envoy.stop()
}

/// If no connection reached the second configuration, a rollback must keep the edits made in
/// between.
#[test]
fn a_rollback_of_an_unused_configuration_keeps_the_edits() -> Result<()> {
    let envoy = Envoy::start(&with(3))?;
    let mut ops = Operator::editor(&envoy);
    ensure!(admitted(&mut envoy.data(), "first")? == 3);
    update(&envoy, &mut ops, 5)?;
    ensure!(envoy.push(&with(3))? == Update::Accepted);
    ops.set_override("r", "mallory", "", &json!("banned"))?;
    ops.set_override("r", "alice", "", &json!({ "scale": 2 }))?;
    ensure!(admitted(&mut envoy.data(), "mallory")? == 0);
    noticed(&envoy, &mut ops, 3)?;
    ensure!(admitted(&mut envoy.data(), "mallory")? == 0);
    ensure!(admitted(&mut envoy.data(), "alice")? == 6);
    ensure!(admitted(&mut envoy.data(), "bob")? == 3);
    ensure!(details(&mut ops, "edit_retired")?.is_empty());
    envoy.stop()
}

/// Requests on connections of a draining listener must not cause a rollback, even if they are many.
#[test]
fn connections_that_drain_do_not_roll_back() -> Result<()> {
    let envoy = Envoy::start(&with(3))?;
    let mut ops = Operator::editor(&envoy);
    let mut old: Vec<Http> = (0..8).map(|_| envoy.data()).collect();
    for (n, http) in old.iter_mut().enumerate() {
        ensure!(http.send(&user(&format!("old-{n}")))?.status == 200);
    }
    update(&envoy, &mut ops, 5)?;
    let before = ops.generation()?;
    // Send requests for longer than workers take to switch to a new configuration.
    let mut now = || -> Result<u64> {
        let status = ops.get("/v1/status")?;
        status
            .get("now_ns")
            .and_then(Value::as_u64)
            .context("a clock")
    };
    let ends = now()? + 1_500_000_000;
    let mut requests = 0_u32;
    while now()? < ends {
        for http in &mut old {
            http.send(&user("crowd"))?;
            requests += 1;
        }
    }
    ensure!(ops.generation()? == before, "after {requests} requests");
    ensure!(shown(&mut ops)? == Some(5));
    ensure!(admitted(&mut envoy.data(), "new")? == 5);
    for http in &mut old {
        http.send(&user("crowd"))?;
    }
    ensure!(ops.generation()? == before);
    envoy.stop()
}

/// When configurations alternate within one drain, the last configuration must always be enforced.
#[test]
fn each_of_many_updates_within_one_drain_is_enforced() -> Result<()> {
    let envoy = Envoy::start(&with(5))?;
    let mut ops = Operator::editor(&envoy);
    ensure!(admitted(&mut envoy.data(), "first")? == 5);
    update(&envoy, &mut ops, 6)?;
    for (number, capacity) in (3..=20).zip([5, 6].into_iter().cycle()) {
        ensure!(envoy.push(&with(capacity))? == Update::Accepted);
        noticed(&envoy, &mut ops, capacity).with_context(|| format!("update {number}"))?;
        let of = admitted(&mut envoy.data(), &format!("user-{number}"))?;
        ensure!(of == capacity, "{of} of {capacity} after update {number}");
    }
    envoy.stop()
}
