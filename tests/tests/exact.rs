//! Exact counts across Envoy's workers. Not one request too many is admitted, even at the first
//! requests of a key.

use anyhow::{Result, ensure};
use loudou_tests::{Config, Envoy, Request};
use serde_json::{Value, json};

const REQUESTS: u64 = 5_000;
const CONNECTIONS: usize = 64;

fn rule(limits: &Value) -> Value {
    json!([{ "name": "per-user", "key": [{ "header": "x-user-id" }], "limits": limits }])
}

/// Sends many concurrent requests for each of `keys` new keys in turn. Exactly `admitted` requests
/// of each key must pass.
fn storms(limits: &Value, keys: u32, admitted: u64) -> Result<()> {
    let envoy = Envoy::start(&Config::new(rule(limits)).concurrency(4))?;
    for key in 0..keys {
        let key = format!("user-{key}");
        let counts = envoy.load(REQUESTS, CONNECTIONS, |_| {
            Request::get("/").header("x-user-id", &key)
        })?;
        ensure!(
            counts.of(200) == admitted && counts.of(429) == REQUESTS - admitted,
            "{key}: {counts:?}"
        );
    }
    let sent = u64::from(keys) * REQUESTS;
    let (passed, refused) = (envoy.verdicts("admitted")?, envoy.verdicts("refused")?);
    ensure!(
        passed == u64::from(keys) * admitted && passed + refused == sent,
        "{passed} {refused}"
    );
    for nothing in ["cas_give_ups", "lost_counts", "evicted_lossy"] {
        let count = envoy.counter(&format!("wasmcustom.loudou.store.{nothing}"))?;
        ensure!(count == 0, "{nothing}: {count}");
    }
    envoy.stop()
}

#[test]
fn twenty_fresh_keys_admit_their_capacity_each() -> Result<()> {
    let limits = json!([{ "algorithm": "funnel", "capacity": 100, "rate": "1/d" }]);
    storms(&limits, 20, 100)
}

#[test]
fn two_limits_in_one_rule_are_exact_together() -> Result<()> {
    let limits = json!([
        { "name": "wide", "algorithm": "token_bucket", "capacity": 150, "rate": "1/d" },
        { "name": "narrow", "algorithm": "funnel", "capacity": 100, "rate": "1/d" },
    ]);
    storms(&limits, 20, 100)
}
