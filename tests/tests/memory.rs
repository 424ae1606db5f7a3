//! `loudou check` reports the memory that Envoy actually uses.

use anyhow::{Context as _, Result, ensure};
use loudou_rules::size;
use loudou_tests::one_rule::{edit, user};
use loudou_tests::{Config, Envoy, Operator, TempDir, loudou_command};
use serde_json::{Map, Value, json};

const BUCKETS: u64 = 16_384;
/// Number of keys. It exceeds the number of buckets, so that every page is full and still contains
/// names of evicted buckets.
const KEYS: u64 = 4 * BUCKETS;
const CONNECTIONS: usize = 16;
const WORKERS: u32 = 2;
/// Maximum difference between the reported and the used memory, in percent.
const TOLERANCE: u64 = 15;

/// Memory that `loudou check` reports for a file, in bytes.
#[derive(Debug)]
struct Reported {
    full: u64,
    most: u64,
    worker: u64,
}

fn reported(rules: &[Value], buckets: u64) -> Result<Reported> {
    let dir = TempDir::new("memory")?;
    let document = json!({ "version": 1, "store": { "buckets": buckets }, "rules": rules });
    let file = dir.write("rules.json", &document.to_string())?;
    let output = loudou_command()?
        .args(["check", "--output", "json"])
        .arg(file)
        .output()?;
    let report: Value = serde_json::from_slice(&output.stdout)?;
    let number = |name: &str| {
        let number = report.pointer(&format!("/0/store/{name}"));
        let number = number.and_then(Value::as_u64);
        number.with_context(|| format!("no {name}"))
    };
    Ok(Reported {
        full: number("memory_bytes")?,
        most: number("memory_bytes_at_most")?,
        worker: number("memory_bytes_per_worker")?,
    })
}

fn close(reported: u64, used: u64) -> Result<()> {
    let off = reported.abs_diff(used) * 100;
    ensure!(off <= used * TOLERANCE, "{reported} reported, {used} used");
    Ok(())
}

fn limits(count: u32, capacity: u32) -> Value {
    // At this rate, levels have fractions of a nanosecond, so both words of a funnel are in use.
    let rate = "3/86400000000001ns";
    let limit = |n| json!({ "name": format!("l{n}"), "algorithm": "funnel", "capacity": capacity, "rate": rate });
    (0..count).map(limit).collect()
}

fn rule(name: &str, limits: &Value) -> Value {
    json!({ "name": name, "key": [{ "header": "x-user-id" }], "limits": limits })
}

/// Returns the growth of Envoy's allocated memory when every bucket is in use. The keys have `key`
/// bytes, and each key is sent `times` times.
fn growth(rules: &[Value], key: usize, times: u64) -> Result<u64> {
    let config = Config::new(json!(rules)).buckets(BUCKETS);
    let envoy = Envoy::start(&config.concurrency(WORKERS))?;
    // Envoy allocates its memory for connections and requests before the first measurement.
    envoy.load(2_000, CONNECTIONS, |_| user("first"))?;
    let before = envoy.memory()?.allocated;
    envoy.load(KEYS * times, CONNECTIONS, |n| {
        user(&format!("{:0key$}", n / times))
    })?;
    let after = envoy.memory()?.allocated;
    envoy.stop()?;
    after.checked_sub(before).context("it shrank")
}

#[test]
fn a_full_store_takes_the_reported_memory() -> Result<()> {
    for count in [1, 3] {
        let rules = [rule("r", &limits(count, 3))];
        close(reported(&rules, BUCKETS)?.full, growth(&rules, 24, 1)?)
            .with_context(|| format!("{count} limits"))?;
    }
    Ok(())
}

#[test]
fn the_longest_keys_and_strikes_take_the_reported_maximum() -> Result<()> {
    // The second request of each key is refused, which counts as a strike.
    let mut rule = rule("r", &limits(1, 1));
    if let Some(fields) = rule.as_object_mut() {
        let penalty = json!({ "after": 100, "within": "1d", "ban": "1d" });
        fields.insert("penalty".to_owned(), penalty);
    }
    let rules = [rule];
    let (most, used) = (reported(&rules, BUCKETS)?.most, growth(&rules, 128, 2)?);
    ensure!(used <= most, "{most} at most, {used} used");
    // This test causes almost no events, so their memory is subtracted.
    close(most.saturating_sub(u64::try_from(size::audit())?), used)
}

#[test]
fn the_events_take_at_most_the_reported_memory() -> Result<()> {
    let envoy = Envoy::start(&Config::new(json!([rule("r", &limits(1, 3))])).buckets(64))?;
    let mut ops = Operator::editor(&envoy);
    ops.ban("r", "mallory", "for=1h")?;
    let before = envoy.memory()?.allocated;
    let reason = "x".repeat(200);
    for n in 1..=1_300 {
        // Each ban lasts longer than the previous one, so that it is a change.
        let span = 3_600 + n;
        ops.ban("r", "mallory", &format!("for={span}s&reason={reason}"))?;
    }
    ensure!(
        ops.events(0)?.len() == 1_024 + 1,
        "the actions and the configuration"
    );
    let used = envoy.memory()?.allocated.saturating_sub(before);
    let most = u64::try_from(size::audit())?;
    // The reason takes half of the memory of an event here. Sandboxes and connections also grow a
    // little.
    ensure!(used <= most, "{most} at most, {used} used");
    envoy.stop()
}

/// Number of edits after which a sandbox no longer grows.
const EDITS: u32 = 8;

/// Returns the allocated memory of an Envoy whose sandboxes have applied the edits, and the linear
/// memories of the sandboxes in descending order.
fn edited(rules: &[Value]) -> Result<(u64, Vec<u64>)> {
    let config = Config::new(json!(rules)).buckets(64);
    let envoy = Envoy::start(&config.concurrency(WORKERS))?;
    let mut ops = Operator::editor(&envoy);
    for capacity in 0..EDITS {
        ops.edit("r0", "", &edit(4 + capacity))?;
        envoy.load(1_000, CONNECTIONS, |_| user("somebody"))?;
    }
    let memory = (envoy.memory()?.allocated, envoy.linear_memories()?);
    envoy.stop()?;
    Ok(memory)
}

/// Returns rules that give the same override to each of `keys` keys.
fn overridden(rules: usize, keys: u32, own: &Value) -> Vec<Value> {
    let keys: Map<String, Value> = (0..keys)
        .map(|n| (format!("{n:024}"), own.clone()))
        .collect();
    let rule = |n| {
        let mut rule = rule(&format!("r{n}"), &limits(1, 3));
        if let Some(fields) = rule.as_object_mut() {
            fields.insert("overrides".to_owned(), Value::Object(keys.clone()));
        }
        rule
    };
    (0..rules).map(rule).collect()
}

#[test]
fn overrides_take_the_reported_memory_in_each_worker() -> Result<()> {
    let own = json!({ "limits": limits(1, 7) });
    for (rules, own) in [(16, json!({ "scale": 2 })), (7, own), (16, json!("banned"))] {
        let (none, all) = (overridden(rules, 0, &own), overridden(rules, 1_024, &own));
        let (said_none, said_all) = (reported(&none, 64)?, reported(&all, 64)?);
        let ((shared, before), (shared_all, after)) = (edited(&none)?, edited(&all)?);
        let shared = shared_all.checked_sub(shared).context("it shrank")?;
        close(said_all.full - said_none.full, shared)
            .with_context(|| format!("shared, {rules} rules, {own}"))?;
        // The worker that an edit reaches first uses a little more memory than the other worker and
        // the main thread, so its growth is compared with the report.
        let grown = after.first().zip(before.first());
        let grown = grown.and_then(|(after, before)| after.checked_sub(*before));
        close(
            said_all.worker - said_none.worker,
            grown.context("it shrank")?,
        )
        .with_context(|| format!("a worker, {rules} rules, {own}"))?;
        let second = after.get(1).context("one sandbox of two workers")?;
        ensure!(
            second * 2 > said_all.worker,
            "{second} in the second worker: the edits did not reach it"
        );
    }
    Ok(())
}
