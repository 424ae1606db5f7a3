//! A fleet under load while parts of it fail, and the bounds that must hold.
//!
//! Without an engine, each Envoy limits alone with its share of the limits. The filter counts every
//! request that is decided without the engine, including refusals, in `fleet.local`. All other
//! admitted requests must stay within the bound of leases.

use std::time::{Duration, Instant};

use anyhow::{Context as _, Result, ensure};
use loudou_tests::{Bound, Config, Envoy, Exchange, Operator, Pace, Pass, Proxy, Relay, Request};
use loudou_tests::{Traffic, eventually, now};
use serde_json::{Value, json};

pub(crate) const CAPACITY: u64 = 20;
const PER_SECOND: u64 = 100;
const LEASE: Duration = Duration::from_millis(200);
/// Timeout, much longer than any wait in these tests.
const PATIENCE: Duration = Duration::from_mins(1);
/// Options of a relay that answers before the timeout of the Envoys.
pub(crate) const RELAY: [&str; 2] = ["--timeout-ms", "40"];
/// Number of requests to wait for when an effect should show under load.
const SOME: usize = 300;

/// A fleet under load.
pub(crate) struct Trial {
    pub(crate) config: Config,
    pub(crate) envoys: Vec<Envoy>,
    pub(crate) relay: Relay,
    /// Proxy between the Envoys and the relay.
    pub(crate) proxy: Proxy,
    pub(crate) traffic: Traffic,
    /// Number of keys. The requests use the keys in turn.
    keys: u64,
    /// Number of Envoys among which an outage divides the limits.
    known: u64,
    /// Periods without any answer of the engine.
    outages: Vec<(Instant, Instant)>,
    /// Periods without a fault, each with the number of requests that were decided without the
    /// engine nevertheless.
    calm: Vec<(Instant, Instant, u64)>,
    /// Start of the current period without a fault, and the value of `fleet.local` at that time.
    calm_since: (Instant, u64),
}

impl Trial {
    /// Starts the Envoys and sends 200 requests per second to each, with `keys` keys in turn.
    pub(crate) fn start(envoys: u32, relay: Relay, keys: u64) -> Result<Self> {
        let rules = json!([{
            "name": "per-user", "scope": "fleet", "key": [{ "header": "x-user-id" }],
            "limits": [{ "algorithm": "funnel", "capacity": CAPACITY, "rate": format!("{PER_SECOND}/s") }],
        }]);
        let lease = format!("{}ms", LEASE.as_millis());
        let settings = json!({ "credit": 0, "timeout": "50ms", "lease": lease });
        let proxy = Proxy::start(relay.address())?;
        let config = Config::new(rules).fleet(&settings, proxy.address());
        let started = (0..envoys).map(|_| Envoy::start(&config));
        let started = started.collect::<Result<Vec<_>>>()?;
        let pace = Pace {
            clients: 8,
            interval: Duration::from_millis(40),
            requests: None,
        };
        let request = move |n: u64| {
            let user = format!("user-{}", n.checked_rem(keys).unwrap_or(0));
            Request::get("/").header("x-user-id", user)
        };
        let traffic = Traffic::start(started.iter().map(Envoy::data_address), pace, request);
        let mut trial = Self {
            config,
            envoys: started,
            relay,
            proxy,
            traffic,
            keys,
            known: envoys.into(),
            outages: Vec::new(),
            calm: Vec::new(),
            calm_since: (now(), 0),
        };
        trial.await_calm()?;
        trial.go_on()?;
        Ok(trial)
    }

    /// Waits for [`SOME`] more responses.
    pub(crate) fn go_on(&self) -> Result<()> {
        let enough = self.traffic.answered() + SOME;
        eventually(PATIENCE, "answers under load", || {
            Ok((self.traffic.answered() >= enough).then_some(()))
        })
    }

    /// Returns a fleet field in the status of each Envoy. Waits until the field exists, which is
    /// after the first call of a worker.
    fn status(&self, field: &str) -> Result<Vec<u64>> {
        let pointer = format!("/fleet/{field}");
        let status = |envoy| {
            eventually(PATIENCE, "the fleet in the status", || {
                let status = Operator::viewer(envoy).get("/v1/status")?;
                Ok(status.pointer(&pointer).and_then(Value::as_u64))
            })
        };
        self.envoys.iter().map(status).collect()
    }

    fn sum(&self, field: &str) -> Result<u64> {
        Ok(self.status(field)?.iter().sum())
    }

    /// Ends the current period without a fault. A fault may begin after this call.
    pub(crate) fn before_fault(&mut self) -> Result<()> {
        let (since, local) = self.calm_since;
        // The order matters. The counter is read after the end of the period, so it includes every
        // decision of the period.
        let until = now();
        let local = self.sum("local")?.saturating_sub(local);
        self.calm.push((since, until, local));
        Ok(())
    }

    /// Records an outage since `since`. Waits until each Envoy has noticed the outage and has
    /// decided requests without the engine.
    pub(crate) fn during_outage(&mut self, since: Instant) -> Result<()> {
        eventually(PATIENCE, "each Envoy to notice", || {
            let is_down = self.status("workers_down")?.iter().all(|down| *down > 0);
            Ok(is_down.then_some(()))
        })?;
        println!("noticed by all after {:?}", since.elapsed());
        let before = self.status("local")?;
        self.go_on()?;
        let after = self.status("local")?;
        let is_local = before
            .iter()
            .zip(&after)
            .all(|(before, after)| before < after);
        ensure!(is_local, "not decided by on_outage: {before:?}, {after:?}");
        for (envoy, failed) in self.envoys.iter().zip(self.status("failed")?) {
            let status = Operator::viewer(envoy).get("/v1/status")?;
            let warnings = status.get("warnings").context("no warnings")?.to_string();
            ensure!(warnings.contains("fleet's relay"), "{warnings}");
            ensure!(failed >= 3, "{failed} failed calls");
        }
        // The outage is recorded from the time at which all leased tokens had expired.
        self.outages.push((since + LEASE, now()));
        Ok(())
    }

    /// Waits until all Envoys lease again, and until they decide nothing without the engine for
    /// [`SOME`] / 2 responses. Returns the time before these responses.
    pub(crate) fn await_calm(&mut self) -> Result<Duration> {
        let begin = now();
        let granted = self.status("granted")?;
        let envoys = u64::try_from(self.envoys.len())?;
        eventually(PATIENCE, "the fleet to lease again", || {
            let is_up = self.status("workers_down")?.iter().all(|down| *down == 0);
            let are_known = self.status("envoys")?.iter().all(|known| *known >= envoys);
            let now_granted = self.status("granted")?;
            let do_lease = granted.iter().zip(&now_granted).all(|(old, new)| old < new);
            Ok((is_up && are_known && do_lease).then_some(()))
        })?;
        // If an engine serves only some of the keys, the breakers stay closed. So the counter must
        // stop growing.
        let mut since = (begin.elapsed(), self.sum("local")?, self.traffic.answered());
        let took = eventually(PATIENCE, "all keys to be leased", || {
            let local = self.sum("local")?;
            let answered = self.traffic.answered();
            if local != since.1 {
                since = (begin.elapsed(), local, answered);
            }
            Ok((answered >= since.2 + SOME / 2).then_some(since.0))
        })?;
        // The order matters. The counter is read before the start of the period, so it includes no
        // decision of the period.
        let local = self.sum("local")?;
        self.calm_since = (now(), local);
        Ok(took)
    }

    /// Like [`Self::await_calm`], but also prints the time of the recovery and waits for more
    /// responses.
    pub(crate) fn recover(&mut self, fault: &str) -> Result<()> {
        let took = self.await_calm()?;
        println!("{fault}: the fleet leases again after {took:?}");
        self.go_on()
    }

    /// Waits until the events of each Envoy contain pairs of the outage and its end.
    pub(crate) fn check_events(&self) -> Result<()> {
        for envoy in &self.envoys {
            eventually(PATIENCE, "the events", || {
                let events = Operator::viewer(envoy).events(0)?;
                let kinds = events
                    .iter()
                    .filter_map(|event| event.get("kind")?.as_str());
                let kinds: Vec<_> = kinds.filter(|kind| kind.starts_with("fleet_")).collect();
                let pairs = kinds
                    .chunks(2)
                    .all(|pair| *pair == ["fleet_down", "fleet_up"]);
                Ok((pairs && !kinds.is_empty()).then_some(()))
            })?;
        }
        Ok(())
    }

    /// Ends the load and checks all bounds. `lost` is how often the engine has lost its data.
    /// `broken` is true if client connections may have been closed.
    pub(crate) fn finish(mut self, lost: u64, broken: bool) -> Result<()> {
        self.before_fault()?;
        let log = self.traffic.stop()?;
        ensure_answered(&log, broken)?;
        for key in 0..self.keys {
            let passes: Vec<Pass> = log
                .iter()
                .filter(|one| one.number % self.keys == key && one.status == Some(200))
                .map(|one| Pass {
                    sent: one.sent,
                    seen: one.got,
                })
                .collect();
            let within = |from: Instant, until: Instant| {
                let mut passes = passes.clone();
                passes.retain(|pass| from <= pass.sent && pass.seen <= until);
                passes
            };
            let leased = |more: u64| Bound {
                at_once: CAPACITY + more,
                per_second: PER_SECOND,
                longer: LEASE,
            };
            for &(since, until, local) in &self.calm {
                let closest = leased(local).check(&within(since, until))?;
                report(&format!("leased, and {local} without the engine"), closest);
            }
            let alone = Bound {
                at_once: CAPACITY.div_ceil(self.known) * self.known,
                per_second: PER_SECOND,
                longer: Duration::ZERO,
            };
            for &(since, until) in &self.outages {
                report("in an outage", alone.check(&within(since, until))?);
            }
            let all = Bound {
                at_once: CAPACITY * (1 + lost) + alone.at_once,
                per_second: PER_SECOND * 2,
                longer: LEASE,
            };
            report("in all", all.check(&passes)?);
        }
        self.envoys.into_iter().try_for_each(Envoy::stop)
    }
}

fn report(what: &str, closest: Option<loudou_tests::bound::Closest>) {
    if let Some(closest) = closest {
        println!("{what}: {closest}");
    }
}

fn ensure_answered(log: &[Exchange], broken: bool) -> Result<()> {
    let wrong = log.iter().filter(|one| match one.status {
        Some(status) => status != 200 && status != 429,
        None => !broken,
    });
    let wrong: Vec<_> = wrong.take(5).collect();
    ensure!(wrong.is_empty(), "neither passed nor refused: {wrong:?}");
    Ok(())
}
