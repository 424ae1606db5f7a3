//! Partial failures, in which Envoys alternate between leasing and limiting alone. In any window of
//! length `w`, all Envoys together admit at most `2 · B + r · (w + L)` for a key, regardless of the
//! kind and number of failures.

use std::collections::BTreeMap;
use std::net::SocketAddr;
use std::time::{Duration, Instant};

use anyhow::{Context as _, Result, ensure};
use loudou_tests::{
    Bound, Config, Envoy, Exchange, Mode, Operator, Pace, Pass, Proxy, Relay, Request,
};
use loudou_tests::{Traffic, Valkey, ValkeyCluster, eventually, now};
use serde_json::{Value, json};

const ENVOYS: u64 = 4;
const CAPACITY: u64 = 20;
const PER_SECOND: u64 = 100;
const LEASE: Duration = Duration::from_millis(200);
/// Timeout, much longer than any wait in these tests.
const PATIENCE: Duration = Duration::from_mins(1);
/// About 700 requests per second in total.
const PACE: Pace = Pace {
    clients: 7,
    interval: Duration::from_millis(40),
    requests: Some(150),
};

fn config(rate: &str, relays: &[SocketAddr]) -> Result<Config> {
    let rules = json!([{
        "name": "per-user", "scope": "fleet", "key": [{ "header": "x-user-id" }],
        "limits": [{ "algorithm": "funnel", "capacity": CAPACITY, "rate": rate }],
    }]);
    let settings = json!({ "timeout": "30ms", "lease": format!("{}ms", LEASE.as_millis()) });
    let first = relays.first().context("no relay")?;
    let endpoint = |relay: &SocketAddr| {
        let address = json!({ "address": relay.ip().to_string(), "port_value": relay.port() });
        json!({ "endpoint": { "address": { "socket_address": address } } })
    };
    let endpoints: Vec<Value> = relays.iter().map(endpoint).collect();
    let all =
        json!({ "cluster_name": "loudou-relay", "endpoints": [{ "lb_endpoints": endpoints }] });
    let config = Config::new(rules).fleet(&settings, *first);
    Ok(config.cluster_field("load_assignment", all))
}

/// Starts the Envoys and waits until each knows the whole fleet.
fn start(config: &Config) -> Result<Vec<Envoy>> {
    let envoys = (0..ENVOYS).map(|_| Envoy::start(config));
    let envoys = envoys.collect::<Result<Vec<_>>>()?;
    for envoy in &envoys {
        eventually(PATIENCE, "the fleet to be known", || {
            let status = Operator::viewer(envoy).get("/v1/status")?;
            let known = status.pointer("/fleet/envoys").and_then(Value::as_u64);
            Ok((known == Some(ENVOYS)).then_some(()))
        })?;
    }
    Ok(envoys)
}

fn user(n: u64) -> String {
    format!("user-{n}")
}

/// Sends requests to all Envoys, with `keys` keys in turn.
fn traffic(envoys: &[Envoy], pace: Pace, keys: u64) -> Traffic {
    let request = move |n: u64| {
        let key = user(n.checked_rem(keys).unwrap_or(0));
        Request::get("/").header("x-user-id", key)
    };
    Traffic::start(envoys.iter().map(Envoy::data_address), pace, request)
}

/// Returns the admitted requests of one of `keys` keys.
fn passes(log: &[Exchange], key: u64, keys: u64) -> Vec<Pass> {
    let of_key = log.iter().filter(|one| one.number % keys == key);
    let passed = of_key.filter(|one| one.status == Some(200));
    let pass = |one: &Exchange| Pass {
        sent: one.sent,
        seen: one.got,
    };
    passed.map(pass).collect()
}

fn bound(at_once: u64) -> Bound {
    Bound {
        at_once,
        per_second: PER_SECOND,
        longer: LEASE,
    }
}

/// Prints how far a key exceeds the bound that applies without faults, and checks the bound that
/// applies with faults.
fn check(what: &str, passes: &[Pass]) -> Result<()> {
    let (Some(first), Some(last)) = (passes.first(), passes.last()) else {
        anyhow::bail!("{what}: nothing passed");
    };
    let ms = last.seen.duration_since(first.sent).as_millis().max(1);
    let per_second = u128::try_from(passes.len())? * 1_000 / ms;
    let window = bound(CAPACITY).closest(passes).context("no window")?;
    let excess = window.passes.saturating_sub(window.most);
    println!("{what}: {per_second}/s, excess {excess} over B + r · (w + L) ({window})");
    bound(CAPACITY * 2)
        .check(passes)
        .with_context(|| what.to_owned())?;
    Ok(())
}

fn stop(log: &[Exchange], envoys: Vec<Envoy>) -> Result<()> {
    let wrong = log
        .iter()
        .find(|one| !matches!(one.status, Some(200 | 429)));
    ensure!(wrong.is_none(), "neither passed nor refused: {wrong:?}");
    envoys.into_iter().try_for_each(Envoy::stop)
}

#[test]
fn a_part_of_the_calls_is_reset() -> Result<()> {
    let valkey = Valkey::start()?;
    let relay = Relay::start_with(&valkey, &[])?;
    let proxy = Proxy::start(relay.address())?;
    let envoys = start(&config("100/s", &[proxy.address()])?)?;
    let mut all = Vec::new();
    for (what, nth) in [("10 % of calls reset", 10), ("20 % of calls reset", 5)] {
        proxy.set(Mode::CloseSome(nth));
        let log = traffic(&envoys, PACE, 1).finish()?;
        check(what, &passes(&log, 0, 1))?;
        all.extend(log);
    }
    stop(&all, envoys)
}

#[test]
fn one_of_two_relays_hangs() -> Result<()> {
    let valkey = Valkey::start()?;
    let relays = [
        Relay::start_with(&valkey, &[])?,
        Relay::start_with(&valkey, &[])?,
    ];
    let envoys = start(&config(
        "100/s",
        &[relays[0].address(), relays[1].address()],
    )?)?;
    relays[1].pause()?;
    let log = traffic(&envoys, PACE, 1).finish()?;
    relays[1].resume()?;
    check("one of two relays hangs", &passes(&log, 0, 1))?;
    stop(&log, envoys)
}

/// With too few connections to the relay, some workers have a connection and others have none.
#[test]
fn the_relay_has_too_few_connections() -> Result<()> {
    let valkey = Valkey::start()?;
    let relay = Relay::start_with(&valkey, &[])?;
    let few = Relay::start_with(&valkey, &["--max-connections", "4"])?;
    let proxy = Proxy::start(relay.address())?;
    let envoys = start(&config("100/s", &[proxy.address()])?)?;
    proxy.lead_to(few.address());
    let log = traffic(&envoys, PACE, 1).finish()?;
    check("too few connections", &passes(&log, 0, 1))?;
    stop(&log, envoys)
}

/// A period in which the node hung or ran.
struct Phase {
    hangs: bool,
    since: Instant,
    until: Instant,
}

/// Returns the 99th percentile of the response time of these keys, with or without a hanging node.
fn p99(log: &[Exchange], phases: &[Phase], hangs: bool, keys: &[u64], of: u64) -> Option<Duration> {
    let within = |one: &Exchange| {
        phases
            .iter()
            .any(|phase| phase.hangs == hangs && phase.since <= one.sent && one.got <= phase.until)
    };
    let live = log
        .iter()
        .filter(|one| keys.contains(&(one.number % of)) && within(one));
    let mut times: Vec<_> = live.map(|one| one.got.duration_since(one.sent)).collect();
    times.sort_unstable();
    times.get(times.len() * 99 / 100).copied()
}

/// While a cluster node hangs, keys on other nodes must be leased and answered as fast as before.
#[test]
fn a_node_of_a_cluster_hangs() -> Result<()> {
    const KEYS: u64 = 5;
    let mut cluster = ValkeyCluster::start()?;
    for node in 0..3 {
        cluster.run(
            node,
            &["CONFIG", "SET", "cluster-require-full-coverage", "no"],
        )?;
    }
    for replica in 3..6 {
        cluster.kill(replica)?;
    }
    let mut of_node: BTreeMap<usize, Vec<u64>> = BTreeMap::new();
    for key in 0..KEYS {
        let name = format!("loudou:lease:loudou:per-user:{}", user(key));
        of_node
            .entry(cluster.primary_of(&name)?)
            .or_default()
            .push(key);
    }
    // Select a node without the fleet record, because the record contains the number of Envoys.
    let record = cluster.primary_of("loudou:fleet:{loudou}:record")?;
    let lost = of_node.keys().find(|node| **node != record).copied();
    let lost = lost.context("all keys are on one node")?;
    let live: Vec<u64> = (0..KEYS)
        .filter(|key| !of_node[&lost].contains(key))
        .collect();
    let relay = Relay::start_on_cluster(&cluster, &[])?;
    let envoys = start(&config("100/s", &[relay.address()])?)?;
    let pace = Pace {
        requests: None,
        ..PACE
    };
    let traffic = traffic(&envoys, pace, KEYS);
    let more = || {
        let enough = traffic.answered() + 1_000;
        eventually(PATIENCE, "answers under load", || {
            Ok((traffic.answered() >= enough).then_some(()))
        })
    };
    more()?;
    let mut phases = Vec::new();
    for round in 0..6 {
        let hangs = round % 2 == 1;
        if hangs {
            cluster.pause(lost)?;
        }
        let since = now();
        more()?;
        phases.push(Phase {
            hangs,
            since,
            until: now(),
        });
        if hangs {
            cluster.resume(lost)?;
        }
    }
    let log = traffic.stop()?;
    let (calm, hang) = (
        p99(&log, &phases, false, &live, KEYS),
        p99(&log, &phases, true, &live, KEYS),
    );
    println!("keys of live nodes, p99: {calm:?} calm, {hang:?} while a node hangs");
    for key in 0..KEYS {
        let name = if live.contains(&key) { "live" } else { "lost" };
        check(
            &format!("a node hangs, key of a {name} node"),
            &passes(&log, key, KEYS),
        )?;
    }
    let (calm, hang) = calm.zip(hang).context("no requests")?;
    ensure!(
        hang <= calm * 3 + Duration::from_millis(2),
        "{calm:?}, then {hang:?}"
    );
    stop(&log, envoys)
}
