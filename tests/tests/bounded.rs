//! The store is bounded. A flood of new keys neither makes Envoy grow nor admits keys that are over
//! their limit.

use std::sync::atomic::{AtomicBool, AtomicU64, Ordering};
use std::thread;

use anyhow::{Context as _, Result, anyhow, ensure};
use loudou_tests::{Config, Counts, Envoy, Http, Operator, Request};
use serde_json::{Value, json};

const BUCKETS: u64 = 4_096;
const FLOOD: u64 = 100_000;
const CONNECTIONS: usize = 16;
/// Growth of Envoy's heap that is allowed outside the store, for connections, statistics and
/// samples.
const SLACK: u64 = 1 << 20;

fn config(capacity: u32) -> Config {
    let limits = json!([{ "algorithm": "funnel", "capacity": capacity, "rate": "1/d" }]);
    let rule = json!({ "name": "r", "key": [{ "header": "x-user-id" }], "limits": limits });
    Config::new(json!([rule])).buckets(BUCKETS)
}

fn user(name: &str) -> Request {
    Request::get("/").header("x-user-id", name)
}

/// Sends requests for one key without pause until `done` is set. Returns the number of admitted
/// requests.
fn hammer(mut http: Http, key: &str, done: &AtomicBool, tries: &AtomicU64) -> Result<u64> {
    let mut admitted = 0;
    while !done.load(Ordering::Acquire) {
        admitted += u64::from(http.send(&user(key))?.status == 200);
        tries.fetch_add(1, Ordering::Relaxed);
    }
    Ok(admitted)
}

/// Sends a flood of new keys, each `times` times in a row, while `attacker` keeps sending. Returns
/// the responses to the flood by status, and the number of the attacker's requests that were
/// admitted.
fn flood(envoy: &Envoy, wave: u64, times: u64, attacker: &str) -> Result<(Counts, u64)> {
    let (done, tries) = (AtomicBool::new(false), AtomicU64::new(0));
    thread::scope(|scope| {
        let hammering = scope.spawn(|| hammer(envoy.data(), attacker, &done, &tries));
        let counts = envoy.load(FLOOD, CONNECTIONS, |n| {
            user(&format!("{wave}-{}", n / times))
        });
        done.store(true, Ordering::Release);
        let admitted = hammering
            .join()
            .map_err(|_panic| anyhow!("the attacker panicked"))??;
        let tries = tries.load(Ordering::Relaxed);
        ensure!(tries > 1_000, "the attacker tried only {tries} times");
        Ok((counts?, admitted))
    })
}

fn exhaust(envoy: &Envoy, key: &str, capacity: u32) -> Result<()> {
    let mut http = envoy.data();
    for _ in 0..capacity {
        ensure!(http.send(&user(key))?.status == 200);
    }
    ensure!(http.send(&user(key))?.status == 429);
    Ok(())
}

fn store(ops: &mut Operator) -> Result<Value> {
    let status = ops.get("/v1/status")?;
    status.get("store").cloned().context("a store")
}

#[test]
fn memory_stops_growing_once_the_store_is_full() -> Result<()> {
    let envoy = Envoy::start(&config(3))?;
    let mut ops = Operator::editor(&envoy);
    exhaust(&envoy, "attacker", 3)?;
    let (counts, admitted) = flood(&envoy, 1, 1, "attacker")?;
    ensure!(
        counts.of(200) == FLOOD && admitted == 0,
        "{counts:?}, attacker {admitted}"
    );
    let full = envoy.memory()?;
    let (counts, admitted) = flood(&envoy, 2, 1, "attacker")?;
    ensure!(
        counts.of(200) == FLOOD && admitted == 0,
        "{counts:?}, attacker {admitted}"
    );
    let after = envoy.memory()?;
    ensure!(
        after.allocated <= full.allocated + SLACK,
        "{full:?} grew to {after:?}"
    );
    ensure!(
        after.resident <= full.resident + 8 * SLACK,
        "{full:?} grew to {after:?}"
    );

    let store = store(&mut ops)?;
    let number = |field: &str| {
        store
            .get(field)
            .and_then(Value::as_u64)
            .context(field.to_owned())
    };
    ensure!(
        number("buckets")? == BUCKETS && number("used")? <= BUCKETS,
        "{store}"
    );
    // Every key was new. Each of these keys either is still in the store or was evicted.
    ensure!(
        number("evicted_lossy")? + number("used")? == 2 * FLOOD + 1,
        "{store}"
    );
    ensure!(
        number("evicted_lossless")? == 0,
        "nothing of 1/d is idle yet: {store}"
    );
    let listed = ops.buckets("limit=500")?;
    ensure!(
        u64::try_from(listed.len())? == number("used")?,
        "{} are listed: {store}",
        listed.len()
    );
    let unnamed = listed
        .iter()
        .filter(|b| b.get("key").is_some_and(|k| k.to_string().contains('#')));
    ensure!(unnamed.count() == 0, "a bucket has lost its name");
    let status = ops.get("/v1/status")?;
    let warnings = status
        .get("warnings")
        .map(Value::to_string)
        .unwrap_or_default();
    ensure!(warnings.contains("store.buckets"), "{status}");
    envoy.stop()
}

#[test]
fn a_flood_of_full_buckets_frees_no_refused_key() -> Result<()> {
    // With capacity 1, the first request of a flood key fills its bucket as much as the attacker's.
    let envoy = Envoy::start(&config(1))?;
    exhaust(&envoy, "attacker", 1)?;
    let (counts, admitted) = flood(&envoy, 1, 1, "attacker")?;
    ensure!(counts.of(200) == FLOOD, "{counts:?}");
    ensure!(admitted == 0, "the attacker got in {admitted} times");
    envoy.stop()
}

#[test]
fn a_flood_of_refused_buckets_frees_no_refused_key() -> Result<()> {
    // Each key of the flood sends three requests, so its bucket is refusing like the attacker's.
    let envoy = Envoy::start(&config(1))?;
    exhaust(&envoy, "attacker", 1)?;
    let (_, admitted) = flood(&envoy, 1, 3, "attacker")?;
    ensure!(admitted == 0, "the attacker got in {admitted} times");
    envoy.stop()
}

#[test]
fn idle_buckets_make_room_without_loss() -> Result<()> {
    let limits = json!([{ "algorithm": "funnel", "capacity": 10, "rate": "10/ms" }]);
    let rule = json!({ "name": "r", "key": [{ "header": "x-user-id" }], "limits": limits });
    let envoy = Envoy::start(&Config::new(json!([rule])).buckets(64))?;
    let counts = envoy.load(20_000, CONNECTIONS, |n| user(&n.to_string()))?;
    ensure!(counts.of(200) == 20_000, "{counts:?}");
    let mut ops = Operator::editor(&envoy);
    let store = store(&mut ops)?;
    let number = |field: &str| {
        store
            .get(field)
            .and_then(Value::as_u64)
            .context(field.to_owned())
    };
    ensure!(
        number("used")? <= 64 && number("evicted_lossless")? > 19_000,
        "{store}"
    );
    envoy.stop()
}
