//! Faults of the engine and the relay under load. The bounds must hold, no request may fail, and
//! the fleet must recover without help.

use std::time::Duration;

use anyhow::{Result, ensure};
use loudou_tests::valkey::Reply;
use loudou_tests::{Envoy, Mode, Relay, Valkey, ValkeyCluster, ValkeySentinels, now};

use super::trial::{RELAY, Trial};

const ENVOYS: u32 = 2;

fn trial(valkey: &Valkey) -> Result<Trial> {
    Trial::start(ENVOYS, Relay::start_with(valkey, &RELAY)?, 1)
}

#[test]
fn the_engine_is_killed_and_starts_empty() -> Result<()> {
    let mut valkey = Valkey::start()?;
    let mut trial = trial(&valkey)?;
    trial.before_fault()?;
    valkey.kill();
    trial.during_outage(now())?;
    valkey.restart()?;
    trial.recover("engine killed")?;
    trial.check_events()?;
    trial.finish(1, false)
}

#[test]
fn the_engine_is_paused() -> Result<()> {
    let valkey = Valkey::start()?;
    let mut trial = trial(&valkey)?;
    trial.before_fault()?;
    valkey.pause()?;
    trial.during_outage(now())?;
    // Meanwhile, the breakers stay open for longer each time.
    for _ in 0..5 {
        trial.go_on()?;
    }
    trial.during_outage(now())?;
    valkey.resume()?;
    trial.recover("engine paused")?;
    trial.check_events()?;
    trial.finish(0, false)
}

#[test]
fn the_relay_is_killed() -> Result<()> {
    let valkey = Valkey::start()?;
    let mut trial = trial(&valkey)?;
    trial.before_fault()?;
    trial.relay.kill();
    trial.during_outage(now())?;
    trial.relay.restart()?;
    trial.recover("relay killed")?;
    trial.check_events()?;
    trial.finish(0, false)
}

#[test]
fn answers_of_the_relay_are_late_garbage_or_cut() -> Result<()> {
    const NONSENSE: &[u8] =
        b"HTTP/1.1 200 OK\r\nx-loudou-relay: 1\r\ncontent-length: 22\r\n\r\n{\"envoys\":9,\"keys\":[{}";
    let valkey = Valkey::start()?;
    let mut trial = trial(&valkey)?;
    for (fault, mode) in [
        ("garbage", Mode::Instead(b"\x15\x03\x01\0\x02\x02\x50")),
        ("nonsense", Mode::Instead(NONSENSE)),
        ("half an answer", Mode::Half),
        ("no answer", Mode::Close),
        ("100 ms late", Mode::Delay(Duration::from_millis(100))),
    ] {
        trial.before_fault()?;
        trial.proxy.set(mode);
        trial.during_outage(now())?;
        trial.proxy.set(Mode::Pass);
        trial.recover(fault)?;
    }
    trial.check_events()?;
    trial.finish(0, false)
}

#[test]
fn an_envoy_is_restarted() -> Result<()> {
    let valkey = Valkey::start()?;
    let mut trial = trial(&valkey)?;
    trial.before_fault()?;
    let envoy = trial.envoys.remove(0);
    trial.envoys.insert(0, envoy.restart(&trial.config)?);
    trial.recover("Envoy restarted")?;
    trial.finish(0, true)
}

#[test]
fn the_fleet_grows() -> Result<()> {
    let valkey = Valkey::start()?;
    let mut trial = trial(&valkey)?;
    for _ in 0..2 {
        let envoy = Envoy::start(&trial.config)?;
        trial.traffic.add(envoy.data_address());
        trial.envoys.push(envoy);
    }
    trial.recover("two Envoys more")?;
    trial.finish(0, false)
}

#[test]
fn a_replica_takes_over() -> Result<()> {
    let mut cluster = ValkeyCluster::start()?;
    let relay = Relay::start_on_cluster(&cluster, &RELAY)?;
    let mut trial = Trial::start(ENVOYS, relay, 3)?;
    let key = "loudou:lease:loudou:per-user:user-0";
    let primary = cluster.primary_of(key)?;
    let found = cluster.run(primary, &["EXISTS", key])?;
    ensure!(
        found == Reply::Number(1),
        "the relay names its keys otherwise: {found:?}"
    );
    trial.before_fault()?;
    cluster.kill(primary)?;
    let killed = now();
    cluster.await_primary(primary + 3)?;
    println!("the replica has taken over after {:?}", killed.elapsed());
    trial.recover("primary killed")?;
    trial.finish(1, false)
}

#[test]
fn sentinels_name_another_primary() -> Result<()> {
    let mut sentinels = ValkeySentinels::start()?;
    let relay = Relay::start_on_sentinels(&sentinels, &RELAY)?;
    let mut trial = Trial::start(ENVOYS, relay, 1)?;
    trial.before_fault()?;
    sentinels.kill(0)?;
    let killed = now();
    sentinels.await_primary(2, 1)?;
    println!("the replica has taken over after {:?}", killed.elapsed());
    trial.recover("primary killed")?;
    trial.finish(1, false)
}
