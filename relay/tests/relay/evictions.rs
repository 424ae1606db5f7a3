//! An engine whose memory is full: it evicts leases, or refuses to write.

use anyhow::{Context as _, Result};
use loudou_api::LeaseError;
use loudou_tests::valkey::Resp;
use loudou_tests::{Relay, TempDir, Valkey, eventually};

use crate::support::{SOON, USER, ask, daily, granted, metric, start, wants};

const WARNING: &str = "the engine may evict leases";

fn with_policy(policy: &str) -> Result<Valkey> {
    Valkey::start_with(&["--maxmemory", "1gb", "--maxmemory-policy", policy])
}

/// Sets the bound, after which the server evicts until it is kept, or until nothing is left.
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
    // It is told once, not with each connection.
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

/// A user without the right to ask loses nothing but the warning.
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
