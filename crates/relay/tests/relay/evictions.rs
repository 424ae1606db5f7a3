//! A full engine, which evicts leases or refuses writes.

use anyhow::{Context as _, Result};
use loudou_api::{KeyAnswer, LeaseError, LeaseKey, LeaseLimit, LeaseRequest, MAX_LEASE_KEYS};
use loudou_tests::valkey::{Reply, Resp};
use loudou_tests::{Relay, TempDir, Valkey, eventually};
use serde_json::json;

use crate::changes::change;
use crate::support::{SOON, TWO, USER, ask, call, daily, granted, metric, start, wants, with_keys};

const WARNING: &str = "the engine may evict leases";

fn with_policy(policy: &str) -> Result<Valkey> {
    Valkey::start_with(&["--maxmemory", "1gb", "--maxmemory-policy", policy])
}

/// Sets `maxmemory`. The server then evicts keys until it is below the limit or empty.
fn bound(valkey: &Valkey, bytes: &str) -> Result<()> {
    valkey.run(&["CONFIG", "SET", "maxmemory", bytes])?;
    Ok(())
}

#[test]
fn an_evicted_lease_is_full_again_and_that_is_told() -> Result<()> {
    let valkey = with_policy("allkeys-lru")?;
    let relay = start(&valkey)?;
    let warning = eventually(SOON, "the relay to warn", || relay.logged(WARNING))?;
    assert_eq!(warning["policy"], "allkeys-lru");
    assert_eq!(warning["level"], "warn");
    let advice = warning["advice"].as_str().context("no advice")?;
    assert!(advice.contains("maxmemory-policy noeviction"), "{advice}");
    assert_eq!(metric(&relay, "engine_evicts")?, 1);
    let key = || wants("k", 9, daily(5));
    assert_eq!((granted(&relay, key())?, granted(&relay, key())?), (5, 0));
    bound(&valkey, "1")?;
    eventually(SOON, "all keys to be evicted", || {
        Ok((valkey.run(&["DBSIZE"])?.number()? == 0).then_some(()))
    })?;
    bound(&valkey, "1gb")?;
    assert_eq!((granted(&relay, key())?, granted(&relay, key())?), (5, 0));
    // The warning is logged once, not for each connection.
    let connects = metric(&relay, "engine_connects_total")?;
    valkey.run(&["CLIENT", "KILL", "TYPE", "normal", "SKIPME", "yes"])?;
    eventually(SOON, "the relay to connect again", || {
        Ok((metric(&relay, "engine_connects_total")? > connects).then_some(()))
    })?;
    assert_eq!(granted(&relay, key())?, 0);
    assert_eq!(relay.log()?.matches(WARNING).count(), 1);
    Ok(())
}

#[test]
fn without_evictions_a_full_engine_refuses() -> Result<()> {
    let valkey = with_policy("noeviction")?;
    let relay = start(&valkey)?;
    let key = || wants("k", 9, daily(5));
    assert_eq!(granted(&relay, key())?, 5);
    bound(&valkey, "1")?;
    for other in ["l", "m"] {
        let other = ask(&relay, wants(other, 1, daily(5)))?;
        assert_eq!(other, Err(LeaseError::Refused));
    }
    let message = "the engine refused a script";
    assert_eq!(relay.logged(message)?.context("no warning")?["code"], "OOM");
    assert_eq!(relay.log()?.matches(message).count(), 1);
    bound(&valkey, "1gb")?;
    assert_eq!(granted(&relay, key())?, 0);
    assert_eq!(metric(&relay, "engine_evicts")?, 0);
    assert_eq!(relay.logged(WARNING)?, None);
    Ok(())
}

/// A full engine refuses only new keys. Known keys, changes and callers are written.
#[test]
fn a_full_engine_keeps_what_it_knows() -> Result<()> {
    let valkey = with_policy("noeviction")?;
    let relay = start(&valkey)?;
    assert_eq!(granted(&relay, wants("empty", 9, daily(5)))?, 5);
    assert_eq!(granted(&relay, wants("used", 3, daily(5)))?, 3);
    bound(&valkey, "1")?;
    let owes = LeaseKey {
        debt: 2,
        ..wants("empty", 1, daily(5))
    };
    let lease = ask(&relay, owes.clone())?.expect("a lease");
    assert_eq!((lease.granted, lease.charged, lease.left), (0, 2, vec![0]));
    let used = || granted(&relay, wants("used", 1, daily(5)));
    assert_eq!([used()?, used()?, used()?], [1, 1, 0]);
    let new = LeaseKey {
        key: "new".to_owned(),
        ..owes
    };
    assert_eq!(ask(&relay, new)?, Err(LeaseError::Refused));
    let other = LeaseRequest {
        instance: TWO.to_owned(),
        changes: vec![change("ban/r/mallory", json!(1))],
        ..with_keys(Vec::new())
    };
    let answer = call(&relay, &other)?;
    assert_eq!((answer.envoys, answer.rejected.len()), (2, 0));
    assert_eq!(call(&relay, &with_keys(Vec::new()))?.changes.len(), 1);
    bound(&valkey, "1gb")?;
    let lease = ask(&relay, wants("empty", 1, daily(5)))?.expect("a lease");
    let day_us = 86_400_000_000;
    assert!(
        (2 * day_us..=3 * day_us).contains(&lease.wait_us),
        "the debt is lost"
    );
    Ok(())
}

/// State of an engine after a flood of made-up keys.
#[derive(Debug, PartialEq, Eq)]
struct Flooded {
    /// Number of empty buckets that were full again.
    lost: u64,
    /// Number of changes left in the record.
    changes: usize,
    envoys: u64,
    /// Number of new keys that got an error.
    refused: u64,
}

/// Leases one unit for each of many made-up keys. A third of the keys fit into the engine.
fn flood(policy: &str, made_up: LeaseLimit) -> Result<Flooded> {
    const KEYS: u64 = 100;
    const MADE_UP: u64 = 18_000;
    const ROOM: u64 = 1_024 * 1_024;
    let valkey = with_policy(policy)?;
    let relay = start(&valkey)?;
    let name = |n: u64| format!("empty-{n}");
    for n in 0..KEYS {
        assert_eq!(granted(&relay, wants(&name(n), 9, hourly(5)))?, 5);
    }
    let mut made = with_keys(Vec::new());
    made.changes = (0..10)
        .map(|n| change(&format!("ban/r/{n}"), json!(1)))
        .collect();
    assert_eq!(call(&relay, &made)?.changes.len(), 10);
    let Reply::Text(info) = valkey.run(&["INFO", "memory"])? else {
        anyhow::bail!("no information");
    };
    let used = info
        .lines()
        .find_map(|line| line.strip_prefix("used_memory:"));
    let used: u64 = used.context("no memory")?.parse()?;
    bound(&valkey, &(used + ROOM).to_string())?;
    let mut refused = 0;
    for first in (0..MADE_UP).step_by(MAX_LEASE_KEYS) {
        let keys = (first..first + 512).map(|n| wants(&format!("made-up-{n}"), 1, made_up));
        let answer = call(&relay, &with_keys(keys.collect()))?;
        let failed = answer
            .keys
            .iter()
            .filter(|key| matches!(key, KeyAnswer::Failed(_)));
        refused += u64::try_from(failed.count())?;
    }
    let other = LeaseRequest {
        instance: TWO.to_owned(),
        ..with_keys(Vec::new())
    };
    let answer = call(&relay, &other)?;
    let mut lost = 0;
    for n in 0..KEYS {
        // An error does not grant units, either.
        let again = ask(&relay, wants(&name(n), 1, hourly(5)))?;
        lost += u64::from(again.is_ok_and(|lease| lease.granted > 0));
    }
    Ok(Flooded {
        lost,
        changes: answer.changes.len(),
        envoys: answer.envoys,
        refused,
    })
}

/// A limit that returns no unit during a test, but is faster than [`daily`].
const fn hourly(capacity: u64) -> LeaseLimit {
    LeaseLimit::Leak {
        capacity,
        amount: 1,
        period_ns: 3_600_000_000_000,
    }
}

/// Measures the table in `docs/reference/relay.md`, for the policies in the variable `LOUDOU_POLICIES`. With
/// `noeviction`, the engine loses nothing. With `volatile-ttl`, it keeps the changes.
#[test]
fn policies_under_a_flood_of_made_up_keys() -> Result<()> {
    let policies = std::env::var("LOUDOU_POLICIES");
    let policies = policies.unwrap_or_else(|_| "noeviction volatile-ttl".to_owned());
    for policy in policies.split_whitespace() {
        for (kind, limit) in [("the same rule", hourly(5)), ("a slower rule", daily(5))] {
            let flooded = flood(policy, limit)?;
            println!("{policy}, a flood of {kind}: {flooded:?}");
            if policy == "noeviction" {
                assert_eq!((flooded.lost, flooded.changes, flooded.envoys), (0, 10, 2));
            }
            if policy == "volatile-ttl" {
                assert_eq!(
                    (flooded.changes, flooded.envoys, flooded.refused),
                    (10, 2, 0)
                );
                assert!(kind != "the same rule" || flooded.lost == 0, "{flooded:?}");
            }
        }
    }
    Ok(())
}

/// If the user must not run `INFO` and `CONFIG`, leases work, but the relay cannot warn.
#[test]
fn without_the_right_to_ask_nothing_is_told() -> Result<()> {
    let valkey = with_policy("allkeys-lru")?;
    let mut admin = Resp::unix(&valkey.socket())?;
    admin.run(&[&USER[..], &["-info", "-config"]].concat())?;
    admin.run(&["ACL", "SETUSER", "default", "off"])?;
    let dir = TempDir::new("password")?;
    let password = dir.write("password", "wine")?.display().to_string();
    let engine = valkey.url();
    let user = [
        "--engine-user",
        "loudou",
        "--engine-password-file",
        &password,
    ];
    let relay =
        Relay::launch(&[&["--engine", &engine, "--timeout-ms", "10000"], &user[..]].concat())?;
    relay.await_engine()?;
    assert_eq!(granted(&relay, wants("k", 9, daily(5)))?, 5);
    assert_eq!(metric(&relay, "engine_evicts")?, 0);
    assert!(!relay.log()?.contains("warn"), "{}", relay.log()?);
    Ok(())
}
