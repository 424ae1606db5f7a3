//! A sandbox crashes. `FAIL_RELOAD` loads it again, with the same buckets, edits and counts.

use std::io::Write as _;
use std::net::TcpStream;
use std::sync::atomic::{AtomicBool, Ordering};
use std::thread;
use std::time::Duration;

use anyhow::{Context as _, Result, anyhow, ensure};
use loudou_tests::one_rule::{admitted, config, edit, limits, user};
use loudou_tests::{
    Config, Crowd, EDIT_TOKEN, Envoy, Http, Operator, Request, Update, eventually, trap_wasm_path,
};
use serde_json::{Value, json};

/// Timeout of a reload. Envoy waits for a second or more before it reloads a sandbox.
const RELOADED: Duration = Duration::from_secs(30);
const WORKERS: u32 = 2;
/// Number of consecutive new connections that reaches every worker.
const CONNECTIONS: usize = 24;
/// Header that makes a filter built for this test panic.
const TRAP: &str = "x-loudou-trap";
const LAST_WORDS: &str = "a test requested it";

fn start() -> Result<Envoy> {
    Envoy::start(&config(3).concurrency(WORKERS).wasm(trap_wasm_path()?))
}

/// Crashes the sandbox of every worker, as a defect of the filter would.
fn kill(envoy: &Envoy) -> Result<()> {
    for _ in 0..CONNECTIONS {
        let answer = envoy.data().send(&user("mallory").header(TRAP, "1"))?;
        ensure!(answer.status == 503, "{answer:?}");
    }
    let log = envoy.log()?;
    ensure!(log.contains(LAST_WORDS), "the log does not tell why");
    Ok(())
}

/// Waits until every worker answers again. Until then, an exhausted key must never be admitted.
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

/// Waits until the admin API answers again on any worker.
fn back(ops: &mut Operator) -> Result<()> {
    eventually(RELOADED, "the admin API to be back", || {
        let answer = ops.send(Request::get("/v1/status"))?;
        ensure!(matches!(answer.status, 200 | 503), "{answer:?}");
        Ok((answer.status == 200).then_some(()))
    })
}

/// Fails unless a rule is in force unchanged. Its counts may differ.
fn unchanged(before: &Value, after: &Value) -> Result<()> {
    for field in ["generation", "rule", "base", "edit", "overrides"] {
        ensure!(
            after.get(field) == before.get(field),
            "{field}: {before} became {after}"
        );
    }
    Ok(())
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
    // Other tests use these numbers to detect a crash.
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
    unchanged(&rule, &ops.get("/v1/rules/r")?)?;
    ensure!(ops.events(0)? == events, "a reload is no new configuration");
    let status = ops.get("/v1/status")?;
    let warnings = status["warnings"].to_string();
    ensure!(
        warnings.contains("crashed and were loaded again"),
        "{status}"
    );
    let totals = envoy.verdicts("admitted")?;
    ensure!(totals == 5 + 5 + 5 + 10, "{totals} admitted: counts go on");
    // Edits work as before the crash.
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

/// When a sandbox crashes, its held requests must get an answer and no longer count as waiting.
/// Without an answer, Envoy would leave them paused until their clients disconnect.
#[test]
fn held_requests_of_a_dead_sandbox_are_answered_and_not_counted() -> Result<()> {
    let rule = |name: &str, header: &str, capacity: u32, rate: &str| {
        let queue = json!({ "algorithm": "leaky_queue", "capacity": capacity, "rate": rate });
        json!({ "name": name, "key": [{ "header": header }], "limits": [queue] })
    };
    let rules = json!([
        rule("few", "x-user-id", 20, "1/m"),
        rule("many", "x-crowd", 1_000, "20/m"),
    ]);
    let config = Config::new(rules).concurrency(1).wasm(trap_wasm_path()?);
    let envoy = Envoy::start(&config)?;
    let waiting = || envoy.counter("wasmcustom.loudou.waiting");
    let waits = |what: &str, is_right: fn(u64) -> bool| {
        eventually(RELOADED, what, || Ok(is_right(waiting()?).then_some(())))
    };
    ensure!(envoy.data().send(&user("alice"))?.status == 200);
    let waiter = || envoy.data().send(&user("alice"));
    thread::scope(|scope| -> Result<()> {
        let waiters: Vec<_> = (0..5).map(|_| scope.spawn(waiter)).collect();
        waits("five to wait", |count| count == 5)?;
        let _crowd = Crowd::send(envoy.data_address(), ("x-crowd", "1"), 1_000)?;
        waits("a crowd to wait", |count| count > 900)?;
        let trap = envoy.data().send(&user("mallory").header(TRAP, "1"))?;
        ensure!(trap.status == 503, "{trap:?}");
        for waiter in waiters {
            let answer = waiter.join().ok().context("a client panicked")??;
            ensure!(answer.status == 503, "{answer:?}");
        }
        Ok(())
    })?;
    ensure!(waiting()? == 0);
    // The reloaded sandbox continues the gauge of waiting requests.
    eventually(RELOADED, "the worker to serve again", || {
        Ok((envoy.data().send(&user("bob"))?.status == 200).then_some(()))
    })?;
    let mut socket = TcpStream::connect(envoy.data_address())?;
    socket.write_all(b"GET / HTTP/1.1\r\nhost: a\r\nx-user-id: alice\r\n\r\n")?;
    waits("one to wait", |count| count == 1)?;
    drop(socket);
    waits("no request to wait", |count| count == 0)?;
    envoy.stop()
}

/// A sandbox that is reloaded for a draining listener must not bring its old configuration back.
/// This sandbox starts later than the sandbox of the new listener, but its configuration is older.
#[test]
fn a_dead_sandbox_does_not_bring_an_old_configuration_back() -> Result<()> {
    let config = |capacity: u32| -> Result<Config> {
        let rules = json!([{
            "name": "r", "key": [{ "header": "x-user-id" }], "limits": limits(capacity),
            "respond": { "ratelimit_headers": "draft11" },
        }]);
        let config = Config::new(rules).concurrency(1);
        // The drain time is long enough that Envoy keeps a connection to the old listener open.
        Ok(config.drain_s(600).wasm(trap_wasm_path()?))
    };
    let quota = |http: &mut Http| -> Result<Option<String>> {
        let answer = http.send(&user("alice"))?;
        Ok(answer.header("ratelimit-policy").map(str::to_owned))
    };
    let is_of = |policy: &Option<String>, capacity: u32| {
        let part = format!(";q={capacity};");
        policy.as_ref().is_some_and(|policy| policy.contains(&part))
    };
    let envoy = Envoy::start(&config(3)?)?;
    let mut ops = Operator::editor(&envoy);
    let (mut old, mut new) = (envoy.data(), envoy.data());
    ensure!(is_of(&quota(&mut old)?, 3));
    ensure!(envoy.push(&config(7)?)? == Update::Accepted);
    eventually(RELOADED, "the new rules to be in force", || {
        let rule = ops.get("/v1/rules/r")?;
        Ok((rule.pointer("/rule/limits/0/capacity") == Some(&json!(7))).then_some(()))
    })?;
    ops.edit("r", "for=1h&reason=keep", &edit(9))?;
    let (rule, events) = (ops.get("/v1/rules/r")?, ops.events(0)?);

    ensure!(old.send(&user("mallory").header(TRAP, "1"))?.status == 503);
    let policy = eventually(RELOADED, "the old listener to serve again", || {
        quota(&mut old)
    })?;
    // The old connection is limited by the newest configuration, with its edit.
    ensure!(
        is_of(&Some(policy), 9),
        "the old connection is limited by itself"
    );
    let draining = envoy.stats(r"^listener_manager\.total_filter_chains_draining$")?;
    ensure!(draining.values().any(|count| *count > 0), "{draining:?}");
    let policy = eventually(RELOADED, "the new listener to serve", || quota(&mut new))?;
    ensure!(is_of(&Some(policy.clone()), 9), "{policy}");
    back(&mut ops)?;
    unchanged(&rule, &ops.get("/v1/rules/r")?)?;
    ensure!(ops.events(0)? == events, "{:?}", ops.events(0)?);
    envoy.stop()
}

#[test]
fn the_real_filter_ignores_the_trap() -> Result<()> {
    let envoy = Envoy::start(&config(3))?;
    let status = envoy.data().send(&user("alice").header(TRAP, "1"))?.status;
    ensure!(status == 200, "{status}");
    let look = Request::get("/v1/status").header(TRAP, "1");
    ensure!(Operator::viewer(&envoy).send(look)?.status == 200);
    envoy.stop()
}

/// A sandbox that starts under load must not count as a crashed sandbox. Requests arrive during
/// each update, so the first request of a sandbox comes right after its start.
#[test]
fn a_start_under_load_is_no_death() -> Result<()> {
    let envoy = Envoy::start(&config(3).concurrency(WORKERS))?;
    let mut ops = Operator::editor(&envoy);
    let stop = AtomicBool::new(false);
    thread::scope(|scope| {
        let senders: Vec<_> = (0..4)
            .map(|_| {
                scope.spawn(|| -> Result<()> {
                    while !stop.load(Ordering::Relaxed) {
                        // Each request opens a new connection, because an old connection would
                        // reach the draining listener.
                        envoy.data().send(&user("alice"))?;
                    }
                    Ok(())
                })
            })
            .collect();
        let pushed = (4..24).try_for_each(|capacity| {
            let config = config(capacity).concurrency(WORKERS);
            ensure!(envoy.push(&config)? == Update::Accepted);
            Ok(())
        });
        stop.store(true, Ordering::Relaxed);
        for sender in senders {
            sender
                .join()
                .map_err(|_panic| anyhow!("a sender panicked"))??;
        }
        pushed
    })?;
    let status = ops.get("/v1/status")?;
    let warnings = status["warnings"].to_string();
    ensure!(!warnings.contains("crashed"), "{warnings}");
    envoy.stop()
}
