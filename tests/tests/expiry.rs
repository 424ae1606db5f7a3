//! Temporary edits expire exactly once, with or without traffic, and the base applies again.

use std::time::Duration;

use anyhow::{Result, ensure};
use loudou_tests::one_rule::{admitted, config, edit};
use loudou_tests::{Envoy, Operator, eventually, now};
use serde_json::Value;

const SOON: Duration = Duration::from_secs(10);
/// Lifetime of the edit. It must be longer than fifty requests take on a busy machine.
const LASTS: Duration = Duration::from_secs(3);

/// Waits until the base applies again, and until exactly one event reports the expiry.
fn expires(envoy: &Envoy, ops: &mut Operator) -> Result<()> {
    eventually(SOON, "the edit to run out", || {
        let rule = ops.get("/v1/rules/r")?;
        Ok((rule.get("edit").is_none() && rule.get("rule") == rule.get("base")).then_some(()))
    })?;
    // The event follows the change, whichever worker made the change.
    eventually(SOON, "an event that tells of it", || {
        let events = ops.events(0)?;
        let is_expiry =
            |event: &&Value| event.get("kind").is_some_and(|kind| kind == "edit_expired");
        let count = events.iter().filter(is_expiry).count();
        ensure!(count <= 1, "{events:?}");
        Ok((count == 1).then_some(()))
    })?;
    ensure!(
        ops.get("/v1/export")?
            .pointer("/rules/0/limits/0/capacity")
            .and_then(Value::as_u64)
            == Some(3)
    );
    ensure!(
        admitted(&mut envoy.data(), "new")? == 3,
        "the base is in force"
    );
    Ok(())
}

#[test]
fn an_edit_runs_out_under_traffic() -> Result<()> {
    let envoy = Envoy::start(&config(3).concurrency(4))?;
    let mut ops = Operator::editor(&envoy);
    let before = now();
    let answer = ops.edit("r", "for=3s&reason=a%20test", &edit(50))?;
    ensure!(
        answer["after"]["edit"]["expires_at_ns"].is_u64(),
        "{answer}"
    );
    let mut fresh = 0..;
    let mut next = || {
        fresh
            .next()
            .map(|n: u32| format!("user-{n}"))
            .unwrap_or_default()
    };
    ensure!(admitted(&mut envoy.data(), &next())? == 50);
    eventually(SOON, "the base to be back", || {
        let admitted = admitted(&mut envoy.data(), &next())?;
        ensure!(
            admitted == 3 || admitted == 50 || before.elapsed() > LASTS,
            "{admitted}"
        );
        Ok((admitted == 3).then_some(()))
    })?;
    ensure!(before.elapsed() >= LASTS, "it ran out too early");
    expires(&envoy, &mut ops)?;
    envoy.stop()
}
