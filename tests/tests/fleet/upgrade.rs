//! Another build of the filter replaces the module in the running Envoys of a fleet, under load.
//! The limit applies across both builds, and no leased unit is lost.

use std::sync::atomic::{AtomicBool, AtomicU64, Ordering};
use std::thread;
use std::time::Duration;

use anyhow::{Context as _, Result, anyhow, bail, ensure};
use loudou_tests::{
    Config, Envoy, Http, Operator, RELEASED_GIT, Relay, Request, TempDir, Update, Valkey,
    eventually, released_wasm, wasm_path,
};
use serde_json::{Value, json};

/// Timeout within which every worker has applied an update.
const SOON: Duration = Duration::from_mins(1);
/// Units that each key may use in total.
const CAPACITY: u64 = 300;
/// Number of keys under load.
const BUSY: usize = 4;

/// Returns true if a request of this user passes.
fn passes(http: &mut Http, user: &str) -> Result<bool> {
    match http
        .send(&Request::get("/").header("x-user-id", user))?
        .status
    {
        200 => Ok(true),
        429 => Ok(false),
        other => bail!("{other} for {user}"),
    }
}

/// Sends requests to an Envoy until `stop` is set. The first clients keep their connections, so the
/// earlier build continues to serve them.
fn load(
    envoy: &Envoy,
    client: usize,
    stop: &AtomicBool,
    admitted: &[AtomicU64; BUSY],
) -> Result<()> {
    let key = client % BUSY;
    let admitted = admitted.get(key).context("a counter")?;
    let (mut http, mut sent) = (envoy.data(), 0_u32);
    while !stop.load(Ordering::Relaxed) {
        admitted.fetch_add(
            passes(&mut http, &format!("busy-{key}"))?.into(),
            Ordering::Relaxed,
        );
        // New keys make sure that leases are always in progress.
        passes(&mut http, &format!("new-{client}-{sent}"))?;
        sent += 1;
        if client >= BUSY && sent.is_multiple_of(7) {
            http = envoy.data();
        }
    }
    Ok(())
}

fn build(envoy: &Envoy) -> Result<Value> {
    let status = Operator::viewer(envoy).get("/v1/status")?;
    Ok(status.get("git").context("no commit")?.clone())
}

/// Pushes another module to each Envoy in turn, and waits until it answers.
fn swap(envoys: &[Envoy], config: &Config) -> Result<()> {
    for envoy in envoys {
        let before = build(envoy)?;
        ensure!(envoy.push(config)? == Update::Accepted);
        eventually(SOON, "the other build to answer", || {
            Ok((build(envoy)? != before).then_some(()))
        })?;
    }
    Ok(())
}

#[test]
fn another_build_keeps_leases_and_limits() -> Result<()> {
    let dir = TempDir::new("fleet-upgrade")?;
    let valkey = Valkey::start()?;
    let relay = Relay::start_with(&valkey, &["--timeout-ms", "900"])?;
    let rules = json!([{
        "name": "per-user", "scope": "fleet", "key": [{ "header": "x-user-id" }],
        "limits": [{ "algorithm": "funnel", "capacity": CAPACITY, "rate": "1/d" }],
    }]);
    let settings = json!({ "credit": 0, "timeout": "1s", "lease": "10s" });
    let config = Config::new(rules)
        .fleet(&settings, relay.address())
        .drain_s(3_600);
    let (old, new) = (released_wasm(&dir)?, wasm_path()?);
    let start = || Envoy::start(&config.clone().wasm(&old));
    let envoys = [start()?, start()?];
    let (stop, admitted) = (AtomicBool::new(false), [const { AtomicU64::new(0) }; BUSY]);
    thread::scope(|scope| -> Result<()> {
        let clients = envoys
            .iter()
            .flat_map(|envoy| (0..2 * BUSY).map(move |client| (envoy, client)));
        let (stop, admitted) = (&stop, &admitted);
        let clients =
            clients.map(|(envoy, client)| scope.spawn(move || load(envoy, client, stop, admitted)));
        let clients: Vec<_> = clients.collect();
        let work = || {
            for (step, module) in [("new", &new), ("old again", &old), ("new again", &new)] {
                // Units that a key used before the swap stay used, on draining connections too.
                let mut kept: Vec<Http> = envoys.iter().map(Envoy::data).collect();
                let mut used = 0;
                for _ in 0..20 {
                    for http in &mut kept {
                        used += u64::from(passes(http, step)?);
                    }
                }
                ensure!(used == 40, "{used} of 40 before {step}");
                swap(&envoys, &config.clone().wasm(module))?;
                kept.extend(envoys.iter().map(Envoy::data));
                for turn in 0..CAPACITY {
                    let turn = usize::try_from(turn)? % kept.len();
                    used += u64::from(passes(&mut kept[turn], step)?);
                }
                ensure!(used == CAPACITY, "{used} of {CAPACITY} {step}");
            }
            Ok(())
        };
        let outcome = work();
        stop.store(true, Ordering::Relaxed);
        for client in clients {
            client
                .join()
                .map_err(|_panic| anyhow!("a client panicked"))??;
        }
        outcome
    })?;
    // In total, exactly the capacity of each key was admitted, whichever build decided. So no unit
    // was given twice, and none was lost.
    for (key, admitted) in admitted.iter().enumerate() {
        let mut all = admitted.load(Ordering::Relaxed);
        for envoy in &envoys {
            let mut http = envoy.data();
            while passes(&mut http, &format!("busy-{key}"))? {
                all += 1;
            }
        }
        ensure!(all == CAPACITY, "{all} of {CAPACITY} for busy-{key}");
    }
    for envoy in envoys {
        let log = envoy.log()?;
        let builds = |git: &str| log.matches(&format!("({git}): data role")).count();
        ensure!(
            builds(RELEASED_GIT) > 0 && log.matches(": data role").count() > builds(RELEASED_GIT)
        );
        let count = |what: &str| envoy.counter(&format!("wasmcustom.loudou.{what}"));
        println!(
            "{} calls failed of {}",
            count("fleet.failed")?,
            count("fleet.calls")?
        );
        ensure!(count("fleet.local")? == 0, "decided without the engine");
        envoy.stop()?;
    }
    Ok(())
}
