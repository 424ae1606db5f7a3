//! The bound on the requests that all Envoys pass together, measured at the upstream, and the share
//! of the limit that is used.

use std::time::{Duration, Instant};

use anyhow::{Context as _, Result, ensure};
use loudou_limiter::algorithm::Funnel;
use loudou_limiter::{Limit, Limits, Nanos, Rate, Verdict};
use loudou_tests::{Bound, Config, Envoy, Exchange, Pace, Pass, Relay, Request, Traffic};
use loudou_tests::{Upstream, Valkey};
use serde_json::json;

const ENVOYS: u64 = 4;
const CAPACITY: u64 = 20;
const PER_SECOND: u64 = 100;
const LEASE: Duration = Duration::from_millis(200);

/// Responses to all requests, and the time at which each passed request arrived at the upstream.
struct Run {
    log: Vec<Exchange>,
    passes: Vec<Pass>,
}

/// Four Envoys of a fleet with their upstream, relay and Valkey.
struct Rig {
    upstream: Upstream,
    envoys: Vec<Envoy>,
    _relay: Relay,
    _valkey: Valkey,
}

impl Rig {
    /// Starts everything. The timeout is long, so that a busy machine does not cause an outage.
    fn start() -> Result<Self> {
        let upstream = Upstream::start_with_log()?;
        let valkey = Valkey::start()?;
        let relay = Relay::start_with(&valkey, &["--timeout-ms", "900"])?;
        let rules = json!([{
            "name": "per-user", "scope": "fleet", "key": [{ "header": "x-user-id" }],
            "limits": [
                { "algorithm": "funnel", "capacity": CAPACITY, "rate": format!("{PER_SECOND}/s") },
            ],
        }]);
        let lease = format!("{}ms", LEASE.as_millis());
        let settings = json!({ "credit": 0, "timeout": "1s", "lease": lease });
        let config = Config::new(rules).fleet(&settings, relay.address());
        let config = config.upstream(upstream.address());
        let envoys = (0..ENVOYS).map(|_| Envoy::start(&config));
        Ok(Self {
            envoys: envoys.collect::<Result<_>>()?,
            upstream,
            _relay: relay,
            _valkey: valkey,
        })
    }

    /// Sends traffic of one user over all Envoys.
    fn run(&self, user: &'static str, pace: Pace) -> Result<Run> {
        let path = move |n| format!("/{user}/{n}");
        let request = move |n| Request::get(&path(n)).header("x-user-id", user);
        let envoys = self.envoys.iter().map(Envoy::data_address);
        let log = Traffic::start(envoys, pace, request).finish()?;
        let mut arrivals = self.upstream.arrivals();
        arrivals.retain(|at, _| at.starts_with(&format!("/{user}/")));
        let mut passes = Vec::new();
        for one in &log {
            let arrival = arrivals.get(&path(one.number));
            match (one.status, arrival) {
                (Some(200), Some(&seen)) => passes.push(Pass {
                    sent: one.sent,
                    seen,
                }),
                (Some(429), None) => {}
                _ => anyhow::bail!("{one:?}, at the upstream: {arrival:?}"),
            }
        }
        ensure!(passes.len() == arrivals.len(), "unknown requests arrived");
        Ok(Run { log, passes })
    }

    /// Stops all Envoys. Fails if a request was decided without the relay.
    fn stop(self) -> Result<()> {
        for envoy in self.envoys {
            for nothing in ["fleet.local", "fleet.failed", "store.cas_give_ups"] {
                let count = envoy.counter(&format!("wasmcustom.loudou.{nothing}"))?;
                ensure!(count == 0, "{nothing}: {count}");
            }
            envoy.stop()?;
        }
        Ok(())
    }
}

/// Returns how many requests one central bucket would admit if they arrived at these instants.
fn central(mut arrivals: Vec<Instant>) -> Result<usize> {
    arrivals.sort();
    let begin = *arrivals.first().context("no requests")?;
    let rate = Rate::parse(&format!("{PER_SECOND}/s")).context("a rate")?;
    let funnel = Funnel::new(CAPACITY, rate).ok().context("a funnel")?;
    let limits = Limits::new(vec![Limit::new("burst", funnel)]).context("limits")?;
    let mut bucket = limits.start(Nanos::ZERO);
    let passes = arrivals.into_iter().filter(|at| {
        let now = u64::try_from(at.duration_since(begin).as_nanos()).unwrap_or(u64::MAX);
        limits.decide(&mut bucket, 1, Nanos::new(now)).verdict() == Verdict::Admit
    });
    Ok(passes.count())
}

#[test]
fn the_bound_holds_and_little_of_the_limit_is_lost() -> Result<()> {
    let rig = Rig::start()?;
    no_window_exceeds_the_bound(&rig)?;
    below_the_limit_nobody_is_refused(&rig)?;
    rig.stop()
}

fn no_window_exceeds_the_bound(rig: &Rig) -> Result<()> {
    let clients = 7;
    let pace = Pace {
        clients,
        interval: Duration::from_millis(40),
        requests: Some(250),
    };
    let run = rig.run("nina", pace)?;
    let bound = Bound {
        at_once: CAPACITY,
        per_second: PER_SECOND,
        longer: LEASE,
    };
    let closest = bound.check(&run.passes)?.context("nothing passed")?;
    // If the machine delays all requests, they reach the limiter together afterwards. So the
    // comparison uses the times of the responses.
    let ends = run.log.iter().map(|one| one.got).collect();
    let (passed, could) = (run.passes.len(), central(ends)?);
    let sent = central(run.log.iter().map(|one| one.sent).collect())?;
    println!(
        "{} requests, {passed} passed; one central bucket: {could}, by the times of sending: {sent}; \
         the closest to the bound: {closest}",
        run.log.len()
    );
    ensure!(passed * 100 >= could * 97, "{passed} of {could} passed");
    Ok(())
}

fn below_the_limit_nobody_is_refused(rig: &Rig) -> Result<()> {
    // Each client waits for the response and then for the rest of the interval, so all clients
    // together send at most 80/s.
    let pace = Pace {
        clients: 1,
        interval: Duration::from_millis(50),
        requests: Some(100),
    };
    let run = rig.run("bob", pace)?;
    let refused = run.log.iter().filter(|one| one.status != Some(200));
    let refused = refused.count();
    ensure!(refused == 0, "{refused} of {} were refused", run.log.len());
    Ok(())
}
