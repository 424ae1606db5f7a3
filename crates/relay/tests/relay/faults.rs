//! An engine that is down, hung, slow or read-only, has lost its scripts, or refuses a key or a user.

use anyhow::{Context as _, Result};
use loudou_api::{KeyAnswer, LeaseError};
use loudou_tests::valkey::Resp;
use loudou_tests::{Relay, Request, TempDir, Valkey, eventually};

use crate::support::{SOON, ask, call, daily, granted, metric, send, start, wants, with_keys};

/// Waits until the relay leases again.
fn recovers(relay: &Relay) -> Result<()> {
    eventually(SOON, "the relay to recover", || {
        Ok(ask(relay, wants("probe", 0, daily(1)))?
            .is_ok()
            .then_some(()))
    })
}

#[test]
fn an_engine_that_is_gone_and_back() -> Result<()> {
    let mut valkey = Valkey::start()?;
    let relay = start(&valkey)?;
    assert_eq!(granted(&relay, wants("k", 3, daily(5)))?, 3);
    let before = call(&relay, &with_keys(Vec::new()))?;
    valkey.kill();
    // The first call may be the call that detects the failure.
    let error = ask(&relay, wants("k", 1, daily(5)))?;
    assert_eq!(error, Err(LeaseError::Unreachable));
    assert_eq!(
        ask(&relay, wants("k", 1, daily(5)))?,
        Err(LeaseError::Unreachable)
    );
    let answer = call(&relay, &with_keys(Vec::new()))?;
    assert_eq!(
        (answer.envoys, answer.epoch.as_str(), answer.generation),
        (0, "", 0)
    );
    assert_eq!(send(&relay, &Request::get("/healthz"))?.status, 503);
    assert_eq!(metric(&relay, "engine_up")?, 0);
    valkey.restart()?;
    recovers(&relay)?;
    relay.await_engine()?;
    // The engine is empty, so the epoch is new and all buckets are full.
    assert_eq!(granted(&relay, wants("k", 9, daily(5)))?, 5);
    let after = call(&relay, &with_keys(Vec::new()))?;
    assert_ne!(before.epoch, after.epoch);
    assert!(!before.epoch.is_empty() && !after.epoch.is_empty());
    assert!(relay.logged("lost the connection to the engine")?.is_some());
    Ok(())
}

#[test]
fn an_engine_that_hangs() -> Result<()> {
    let valkey = Valkey::start()?;
    let relay = Relay::start_with(&valkey, &["--timeout-ms", "100"])?;
    valkey.pause()?;
    assert_eq!(
        ask(&relay, wants("k", 1, daily(5)))?,
        Err(LeaseError::Timeout)
    );
    // After the relay has detected the hung engine, calls fail at once.
    eventually(SOON, "the relay to give the engine up", || {
        let error = ask(&relay, wants("k", 1, daily(5)))?;
        Ok((error == Err(LeaseError::Unreachable)).then_some(()))
    })?;
    assert_eq!(send(&relay, &Request::get("/healthz"))?.status, 503);
    valkey.resume()?;
    recovers(&relay)
}

#[test]
fn an_engine_that_is_slow() -> Result<()> {
    let valkey = Valkey::start()?;
    let relay = Relay::start_with(&valkey, &["--timeout-ms", "100"])?;
    recovers(&relay)?;
    // The engine answers pings, but runs no scripts.
    valkey.run(&["CLIENT", "PAUSE", "600000", "WRITE"])?;
    let answer = call(
        &relay,
        &with_keys(["k", "l"].map(|key| wants(key, 1, daily(5))).to_vec()),
    )?;
    assert_eq!(answer.keys, vec![KeyAnswer::Failed(LeaseError::Timeout); 2]);
    assert_eq!(answer.epoch, "");
    assert!(metric(&relay, "keys_total{outcome=\"timeout\"}")? >= 2);
    assert_eq!(send(&relay, &Request::get("/healthz"))?.status, 200);
    valkey.run(&["CLIENT", "UNPAUSE"])?;
    recovers(&relay)
}

#[test]
fn an_engine_that_forgot_the_scripts() -> Result<()> {
    let valkey = Valkey::start()?;
    let relay = start(&valkey)?;
    assert_eq!(granted(&relay, wants("k", 1, daily(5)))?, 1);
    let before = metric(&relay, "scripts_sent_total")?;
    valkey.run(&["SCRIPT", "FLUSH", "SYNC"])?;
    assert_eq!(granted(&relay, wants("k", 9, daily(5)))?, 4);
    assert!(metric(&relay, "scripts_sent_total")? > before);
    let before = metric(&relay, "scripts_sent_total")?;
    assert_eq!(granted(&relay, wants("k", 9, daily(5)))?, 0);
    assert_eq!(metric(&relay, "scripts_sent_total")?, before);
    Ok(())
}

/// An error of one key does not affect other keys of the call.
#[test]
fn an_engine_that_refuses_one_key() -> Result<()> {
    let valkey = Valkey::start()?;
    let relay = start(&valkey)?;
    valkey.run(&["LPUSH", "loudou:lease:test:r:odd", "1"])?;
    let keys = ["even", "odd", "last"].map(|key| wants(key, 1, daily(5)));
    let answer = call(&relay, &with_keys(keys.to_vec()))?;
    assert!(matches!(&answer.keys[0], KeyAnswer::Lease(lease) if lease.granted == 1));
    assert_eq!(answer.keys[1], KeyAnswer::Failed(LeaseError::Refused));
    assert!(matches!(&answer.keys[2], KeyAnswer::Lease(lease) if lease.granted == 1));
    assert_eq!(metric(&relay, "keys_total{outcome=\"refused\"}")?, 1);
    Ok(())
}

/// If the master becomes a replica, the relay connects again, because a new connection may reach the new master.
#[test]
fn an_engine_that_is_read_only() -> Result<()> {
    let valkey = Valkey::start()?;
    let relay = start(&valkey)?;
    let before = metric(&relay, "engine_connects_total")?;
    valkey.run(&["REPLICAOF", "127.0.0.1", "1"])?;
    assert!(ask(&relay, wants("k", 1, daily(5)))?.is_err());
    valkey.run(&["REPLICAOF", "NO", "ONE"])?;
    recovers(&relay)?;
    assert!(metric(&relay, "engine_connects_total")? > before);
    Ok(())
}

#[test]
fn an_engine_that_comes_later() -> Result<()> {
    let mut valkey = Valkey::start()?;
    valkey.kill();
    let relay = Relay::launch(&["--engine", &valkey.url(), "--timeout-ms", "10000"])?;
    assert_eq!(
        ask(&relay, wants("k", 1, daily(5)))?,
        Err(LeaseError::Unreachable)
    );
    let line = eventually(SOON, "the relay to try", || {
        relay.logged("cannot connect to the engine")
    })?;
    let error = line["error"].as_str().context("no error")?;
    assert!(error.contains("refused"), "{error}");
    assert_eq!(send(&relay, &Request::get("/healthz"))?.status, 503);
    valkey.restart()?;
    relay.await_engine()?;
    assert_eq!(granted(&relay, wants("k", 1, daily(5)))?, 1);
    Ok(())
}

/// The ACL in `docs/reference/relay.md` is sufficient. The password is read from a file.
#[test]
fn an_engine_with_users() -> Result<()> {
    let docs = include_str!("../../../../docs/reference/relay.md");
    let rights = docs
        .lines()
        .find_map(|line| line.strip_prefix("ACL SETUSER loudou "));
    let rights = rights
        .expect("the documents name the rights")
        .replace("PASSWORD", "wine");
    let valkey = Valkey::start()?;
    let mut admin = Resp::unix(&valkey.socket())?;
    let mut command = vec!["ACL", "SETUSER", "loudou"];
    command.extend(rights.split(' '));
    admin.run(&command)?;
    admin.run(&["ACL", "SETUSER", "default", "off"])?;
    let dir = TempDir::new("password")?;
    let file = |text: &str| dir.write(text, text).map(|path| path.display().to_string());
    let (right, wrong) = (file("wine")?, file("water")?);
    let engine = valkey.url();
    let options = |file: &str| {
        let options = [
            "--engine",
            &engine,
            "--engine-user",
            "loudou",
            "--engine-password-file",
            file,
        ];
        Relay::launch(&options)
    };
    let relay = options(&right)?;
    relay.await_engine()?;
    let key = wants("k", 1, daily(5));
    assert_eq!(granted(&relay, key.clone())?, 1);
    let change = loudou_api::Change {
        name: "edit/r".to_owned(),
        value: 1.into(),
        ..loudou_api::Change::default()
    };
    let mut request = with_keys(vec![key.clone()]);
    request.changes = vec![change];
    let answer = call(&relay, &request)?;
    assert_eq!((answer.changes.len(), answer.rejected), (1, Vec::new()));
    let relay = options(&wrong)?;
    eventually(SOON, "the relay to be refused", || {
        relay.logged("cannot connect to the engine")
    })?;
    assert_eq!(ask(&relay, key)?, Err(LeaseError::Unreachable));
    Ok(())
}
