//! A sandbox that dies: `FAIL_RELOAD` brings it back, and buckets, edits and counts are as they were.

use std::time::Duration;

use anyhow::{Context as _, Result, ensure};
use loudou_tests::one_rule::{admitted, config, edit, user};
use loudou_tests::{EDIT_TOKEN, Envoy, Operator, Request, eventually, trap_wasm_path};
use serde_json::{Value, json};

/// Envoy waits for a second or more before it reloads a sandbox.
const RELOADED: Duration = Duration::from_secs(30);
const WORKERS: u32 = 2;
/// Fresh connections in a row, so that every worker is met.
const CONNECTIONS: usize = 24;
/// What a filter built for this test dies of.
const TRAP: &str = "x-loudou-trap";
const LAST_WORDS: &str = "a test asked for it";

fn start() -> Result<Envoy> {
    Envoy::start(&config(3).concurrency(WORKERS).wasm(trap_wasm_path()?))
}

/// Kills the sandbox of every worker, as a defect of the filter would.
fn kill(envoy: &Envoy) -> Result<()> {
    for _ in 0..CONNECTIONS {
        let answer = envoy.data().send(&user("mallory").header(TRAP, "1"))?;
        ensure!(answer.status == 503, "{answer:?}");
    }
    let log = envoy.log()?;
    ensure!(log.contains(LAST_WORDS), "the log does not tell why");
    Ok(())
}

/// Waits until every worker answers again; meanwhile an exhausted key is never admitted.
fn recovered(envoy: &Envoy, exhausted: &str) -> Result<()> {
    eventually(RELOADED, "every worker to serve again", || {
        for _ in 0..CONNECTIONS {
            let status = envoy.data().send(&user(exhausted))?.status;
            ensure!(status == 429 || status == 503, "{exhausted}: {status}");
            if status == 503 {
                return Ok(None);
            }
        }
        Ok(Some(()))
    })
}

/// Waits until the admin API answers again on a worker of its choice.
fn back(ops: &mut Operator) -> Result<()> {
    eventually(RELOADED, "the admin API to be back", || {
        let answer = ops.send(Request::get("/v1/status"))?;
        ensure!(matches!(answer.status, 200 | 503), "{answer:?}");
        Ok((answer.status == 200).then_some(()))
    })
}

#[test]
fn buckets_edits_and_counts_survive_a_dead_sandbox() -> Result<()> {
    let envoy = start()?;
    let mut ops = Operator::editor(&envoy);
    ops.edit("r", "for=1h&reason=keep", &edit(5))?;
    ensure!(admitted(&mut envoy.data(), "alice")? == 5);
    let half = envoy.load(2, 1, |_| user("half"))?;
    ensure!(half.of(200) == 2, "{half:?}");
    ops.ban("r", "eve", "reason=spam")?;
    ops.set_override("r", "vip", "for=1h", &json!("unlimited"))?;
    let (rule, events) = (ops.get("/v1/rules/r")?, ops.events(0)?);

    let sandboxes = envoy.sandboxes()?;
    kill(&envoy)?;
    recovered(&envoy, "alice")?;
    // Other tests rely on it that these numbers tell of a death.
    let reloaded = envoy.sandboxes()?;
    ensure!(reloaded != sandboxes, "{reloaded:?}");
    let reloads = envoy.counter("wasm.loudou.vm_reload_success")?;
    ensure!(reloads >= WORKERS.into(), "{reloaded:?}");
    let half = envoy.load(20, 8, |_| user("half"))?;
    ensure!(half.of(200) == 3, "what was left is left: {half:?}");
    ensure!(admitted(&mut envoy.data(), "fresh")? == 5);

    let others = envoy.load(20, 8, |n| user(if n % 2 == 0 { "eve" } else { "vip" }))?;
    ensure!(others.of(429) == 10 && others.of(200) == 10, "{others:?}");

    back(&mut ops)?;
    let eve = ops.bucket("r", "eve")?.context("a bucket")?;
    ensure!(
        eve["state"] == "banned" && eve["ban"]["until_ns"].is_null(),
        "{eve}"
    );
    let after = ops.get("/v1/rules/r")?;
    for field in ["generation", "rule", "base", "edit", "overrides"] {
        ensure!(
            after.get(field) == rule.get(field),
            "{field}: {rule} became {after}"
        );
    }
    ensure!(ops.events(0)? == events, "a reload is no new configuration");
    let totals = envoy.verdicts("admitted")?;
    ensure!(totals == 5 + 5 + 5 + 10, "{totals} admitted: counts go on");
    // And it can be edited as before.
    ops.drop_edit("r", "carry=keep")?;
    eventually(RELOADED, "the edit to be gone", || {
        let bucket = ops.bucket("r", "alice")?.context("a bucket")?;
        let capacity = bucket.pointer("/limits/0/capacity");
        Ok((capacity.and_then(Value::as_u64) == Some(3)).then_some(()))
    })?;
    ensure!(admitted(&mut envoy.data(), "alice")? == 0);
    envoy.stop()
}

#[test]
fn a_dead_admin_call_takes_no_bucket_along() -> Result<()> {
    let envoy = start()?;
    ensure!(admitted(&mut envoy.data(), "alice")? == 3);
    let trap = Request::get("/v1/status").token(EDIT_TOKEN);
    let answer = envoy.admin().send(&trap.header(TRAP, "1"))?;
    ensure!(answer.status == 503, "{answer:?}");
    ensure!(envoy.log()?.contains(LAST_WORDS));
    recovered(&envoy, "alice")?;
    let mut ops = Operator::viewer(&envoy);
    back(&mut ops)?;
    let bucket = ops.bucket("r", "alice")?.context("a bucket")?;
    ensure!(bucket["admitted"] == 3, "{bucket}");
    envoy.stop()
}

#[test]
fn the_filter_itself_does_not_die_of_it() -> Result<()> {
    let envoy = Envoy::start(&config(3))?;
    let status = envoy.data().send(&user("alice").header(TRAP, "1"))?.status;
    ensure!(status == 200, "{status}");
    let look = Request::get("/v1/status").header(TRAP, "1");
    ensure!(Operator::viewer(&envoy).send(look)?.status == 200);
    envoy.stop()
}
