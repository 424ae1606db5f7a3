//! An engine behind sentinels: a replica takes over, with or without the last writes.

use anyhow::{Context as _, Result, ensure};
use loudou_api::{Change, KeyAnswer, LeaseAnswer, LeaseKey, LeaseRequest};
use loudou_tests::{Relay, TempDir, ValkeySentinels, eventually, now};

use crate::support::{SOON, USER, call, daily, fails, granted, metric, wants, with_keys, works};

fn start(sentinels: &ValkeySentinels) -> Result<Relay> {
    Relay::start_on_sentinels(sentinels, &["--timeout-ms", "5000"])
}

/// Calls with one key, optionally a change, and a known epoch and generation. Returns `None` if the engine does not
/// answer.
fn exchange(
    relay: &Relay,
    change: Option<&str>,
    known: (&str, u64),
    key: LeaseKey,
) -> Result<Option<LeaseAnswer>> {
    let mut request = LeaseRequest {
        epoch: known.0.to_owned(),
        generation: known.1,
        ..with_keys(vec![key])
    };
    request.changes.extend(change.map(|name| Change {
        name: name.to_owned(),
        value: 1.into(),
        ..Change::default()
    }));
    let answer = call(relay, &request)?;
    let is_whole = !answer.epoch.is_empty() && matches!(answer.keys[..], [KeyAnswer::Lease(_)]);
    Ok(is_whole.then_some(answer))
}

fn grant(answer: &LeaseAnswer) -> u64 {
    match answer.keys.first() {
        Some(KeyAnswer::Lease(lease)) => lease.granted,
        _ => 0,
    }
}

#[test]
fn a_replica_takes_over_with_all_writes() -> Result<()> {
    let mut sentinels = ValkeySentinels::start()?;
    let relay = start(&sentinels)?;
    assert_eq!(granted(&relay, wants("k", 3, daily(5)))?, 3);
    let before = exchange(&relay, Some("edit/r"), ("", 0), wants("l", 1, daily(5)))?;
    let before = before.context("no engine")?;
    sentinels.await_replica()?;
    let connects = metric(&relay, "engine_connects_total")?;
    let killed = now();
    sentinels.kill(0)?;
    sentinels.await_primary(2, 1)?;
    let failed_over = now();
    let known = (before.epoch.as_str(), before.generation);
    let after = eventually(SOON, "the relay to find the new primary", || {
        exchange(&relay, None, known, wants("k", 5, daily(5)))
    })?;
    let (took, recovered) = (failed_over - killed, failed_over.elapsed());
    println!("failed over after {took:?}, and the relay recovered {recovered:?} later");
    // The relay tries ten times a second, and the sentinels need a second to detect the failure.
    ensure!(
        recovered < took,
        "{recovered:?} after a fail-over of {took:?}"
    );
    assert_eq!(grant(&after), 2);
    assert_eq!((after.epoch.as_str(), after.generation), known);
    assert_eq!(after.changes, Vec::new());
    assert!(metric(&relay, "engine_connects_total")? > connects);
    assert!(relay.logged("lost the connection to the engine")?.is_some());
    Ok(())
}

#[test]
fn a_replica_takes_over_without_the_last_writes() -> Result<()> {
    let mut sentinels = ValkeySentinels::start()?;
    let relay = start(&sentinels)?;
    let key = || wants("k", 2, daily(5));
    let first = exchange(&relay, Some("edit/first"), ("", 0), key())?.context("no engine")?;
    sentinels.await_replica()?;
    sentinels.cut_replica()?;
    let known = (first.epoch.as_str(), first.generation);
    let lost = exchange(&relay, Some("edit/lost"), known, key())?.context("no engine")?;
    assert_eq!((grant(&first), grant(&lost)), (2, 2));
    assert_eq!(lost.epoch, first.epoch);
    assert!(lost.generation > first.generation);
    sentinels.kill(0)?;
    sentinels.await_primary(2, 1)?;
    let known = (lost.epoch.as_str(), lost.generation);
    let after = eventually(SOON, "the relay to find the new primary", || {
        exchange(&relay, None, known, wants("k", 5, daily(5)))
    })?;
    // The replica did not receive the last two units, so they are granted a second time.
    assert_eq!(grant(&after), 3);
    assert_eq!(granted(&relay, wants("k", 5, daily(5)))?, 0);
    // Generations would repeat, so the epoch is new and the caller gets all changes again.
    assert_ne!(after.epoch, lost.epoch);
    let names: Vec<_> = after.changes.iter().map(|change| &change.name).collect();
    assert_eq!(names, ["edit/first"]);
    Ok(())
}

/// The primary and the first sentinel are on one host, and its connections hang.
#[test]
fn a_host_with_the_primary_and_a_sentinel_is_lost() -> Result<()> {
    let sentinels = ValkeySentinels::start()?;
    let relay = start(&sentinels)?;
    assert_eq!(granted(&relay, wants("k", 3, daily(5)))?, 3);
    sentinels.await_replica()?;
    sentinels.pause(0)?;
    sentinels.pause_sentinel(0)?;
    sentinels.await_primary(2, 1)?;
    let left = |relay: &Relay| {
        eventually(SOON, "the relay to find the new primary", || {
            Ok(granted(relay, wants("k", 0, daily(5))).ok())
        })?;
        granted(relay, wants("k", 1, daily(5)))
    };
    assert_eq!(left(&relay)?, 1);
    let later = start(&sentinels)?;
    assert_eq!(left(&later)?, 1);
    // The old primary acts as a primary until a sentinel demotes it.
    sentinels.resume(0)?;
    assert_eq!(left(&relay)?, 0);
    Ok(())
}

/// The URLs contain the sentinels' password. A file contains the primary's password.
#[test]
fn sentinels_and_the_primary_ask_for_passwords() -> Result<()> {
    let sentinels = ValkeySentinels::start()?;
    sentinels.run_sentinel(0, &["ACL", "SETUSER", "default", "resetpass", ">beer"])?;
    sentinels.run(0, &USER)?;
    sentinels.run(0, &["ACL", "SETUSER", "default", "off"])?;
    let dir = TempDir::new("password")?;
    let wine = dir.write("password", "wine")?.display().to_string();
    let user = ["--engine-user", "loudou", "--engine-password-file", &wine];
    let options = [&["--sentinel-master", ValkeySentinels::NAME], &user[..]].concat();
    let url = sentinels.urls().into_iter().next().context("no sentinel")?;
    works(&url.replace("redis://", "redis://:beer@"), &options)?;
    let advice = "the engine rejected the user or the password; check --engine-user and --engine-password-file, \
                  or for a sentinel, its URL";
    fails(&url, &options, advice)
}

#[test]
fn servers_of_another_kind() -> Result<()> {
    let sentinels = ValkeySentinels::start()?;
    let server = sentinels.node_url(0)?;
    let named = |name| ["--sentinel-master", name];
    fails(
        &server,
        &["--cluster"],
        "the engine is not a cluster; remove --cluster",
    )?;
    let advice =
        "a server in --engine is not a sentinel; with --sentinel-master, list only sentinels";
    fails(&server, &named(ValkeySentinels::NAME), advice)?;
    let advice = "no sentinel reports a reachable master of this name; check --sentinel-master";
    fails(&sentinels.urls().join(","), &named("other"), advice)
}
