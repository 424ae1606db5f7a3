//! Compares latency and processor time of requests under a fleet rule with requests under an equal
//! rule local to the Envoy.
//!
//! Bursts under the two rules alternate in random order. The bursts are short enough that leases
//! last from one burst to the next. If only a few keys send requests, these keys hold tokens
//! locally. If all keys take turns, most keys hold no tokens, so a request waits for a call of the
//! relay or is admitted on credit. After each burst under the fleet rule, Envoy's counters show how
//! many of its requests waited.

use std::sync::atomic::{AtomicU64, Ordering};
use std::thread;
use std::time::Duration;

use anyhow::{Context as _, Result, anyhow, ensure};
use loudou_tests::clock::{now, pause_for};
use loudou_tests::cpu::worker_time;
use loudou_tests::flood::flood;
use loudou_tests::soak::random::Random;
use loudou_tests::{Envoy, Http, Request};
use serde_json::{Value, json};

use super::rig::{Central, Programs, TIMEOUT, limited, start_all};
use super::{Size, float, median, of_thousand, percentile, rule, user};

/// Number of connections over which a burst is sent. The number is large enough that each worker
/// gets a connection.
const CONNECTIONS: usize = 4;
/// Number of requests in a burst.
const BURST: u64 = 200;
/// Number of keys that send requests in busy traffic.
const BUSY: u64 = 16;
/// Pause after a burst, during which the relay's responses arrive. The time to process these
/// responses therefore counts towards this burst and not towards the next one.
const SETTLE: Duration = Duration::from_millis(3);

/// Fleet settings to compare.
#[derive(Debug, Clone, Copy)]
struct Setting {
    name: &'static str,
    lease_ms: u64,
    credit: u64,
}

const SETTINGS: [Setting; 3] = [
    Setting {
        name: "credit 0, lease 200 ms",
        lease_ms: 200,
        credit: 0,
    },
    Setting {
        name: "credit 0, lease 1 s",
        lease_ms: 1_000,
        credit: 0,
    },
    Setting {
        name: "credit 1, lease 200 ms",
        lease_ms: 200,
        credit: 1,
    },
];

/// Distribution of requests over the keys.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
enum Traffic {
    /// Only [`BUSY`] of the keys send requests.
    Busy,
    /// All keys send requests in turn.
    Even,
}

/// Measurements of all bursts under one rule.
#[derive(Debug, Default)]
struct Bursts {
    latencies: Vec<Duration>,
    /// Latencies of bursts in which no request waited.
    without_waits: Vec<Duration>,
    /// Worker time per request in microseconds, one number per burst.
    processor: Vec<f64>,
    waited: u64,
    calls: u64,
}

/// Measured numbers.
#[derive(Debug)]
struct Row {
    setting: Setting,
    keys: u64,
    traffic: Traffic,
    alone: Bursts,
    fleet: Bursts,
}

/// Runs the measurement and prints its results.
pub(super) fn measure(size: Size, programs: &Programs) -> Result<Value> {
    let central = Central::start(programs)?;
    let most = size.keys.iter().max().copied().unwrap_or(0);
    let envoys = start_all(&SETTINGS, |setting| {
        let rules = json!([rule("alone", "envoy"), rule("fleet", "fleet")]);
        let settings = json!({
            "timeout": TIMEOUT, "lease": format!("{}ms", setting.lease_ms), "credit": setting.credit,
        });
        Envoy::start(&limited((rules, &settings), most * 2, &central, programs))
    })?;
    print_head();
    let mut rows = Vec::new();
    for &keys in size.keys {
        for (&setting, envoy) in SETTINGS.iter().zip(&envoys) {
            for path in [ALONE, FLEET] {
                let request = |n| Request::get(path).header("x-user-id", user(n));
                flood(envoy.data_address(), keys, request)?;
            }
            for traffic in [Traffic::Busy, Traffic::Even] {
                let row = compare(envoy, (setting, keys, traffic), size.pairs);
                let mut row = row.with_context(|| setting.name)?;
                rows.push(print_row(&mut row));
            }
        }
    }
    envoys.into_iter().try_for_each(Envoy::stop)?;
    Ok(Value::Array(rows))
}

const ALONE: &str = "/alone";
const FLEET: &str = "/fleet";

/// Connections to an Envoy, and the state of the bursts that they send.
struct Clients<'a> {
    envoy: &'a Envoy,
    connections: Vec<Http>,
    keys: u64,
    traffic: Traffic,
    /// Numbers of the next request under the local rule and of the next request under the fleet
    /// rule.
    next: [AtomicU64; 2],
    /// Envoy's counters of held requests and of relay calls, as last read.
    counted: [u64; 2],
}

fn compare(
    envoy: &Envoy,
    (setting, keys, traffic): (Setting, u64, Traffic),
    pairs: usize,
) -> Result<Row> {
    let mut connections: Vec<Http> = (0..CONNECTIONS).map(|_| envoy.data()).collect();
    connections.iter_mut().try_for_each(Http::connect)?;
    let mut clients = Clients {
        envoy,
        connections,
        keys,
        traffic,
        next: [AtomicU64::new(0), AtomicU64::new(0)],
        counted: [0; 2],
    };
    let mut row = Row {
        setting,
        keys,
        traffic,
        alone: Bursts::default(),
        fleet: Bursts::default(),
    };
    // Warm up: the size of leases depends on the demand in the last two lease periods.
    let (begun, warm) = (now(), Duration::from_millis(setting.lease_ms) * 7 / 2);
    while begun.elapsed() < warm {
        clients.pair(
            false,
            &mut Row {
                alone: Bursts::default(),
                fleet: Bursts::default(),
                ..row
            },
        )?;
    }
    let mut random = Random::new(keys, setting.lease_ms);
    for _ in 0..pairs {
        clients.pair(random.percent(50), &mut row)?;
    }
    Ok(row)
}

impl Clients<'_> {
    /// Sends a burst under each rule.
    fn pair(&mut self, is_fleet_first: bool, row: &mut Row) -> Result<()> {
        for is_fleet in [is_fleet_first, !is_fleet_first] {
            let bursts = if is_fleet {
                &mut row.fleet
            } else {
                &mut row.alone
            };
            self.burst(is_fleet, bursts)?;
        }
        Ok(())
    }

    fn burst(&mut self, is_fleet: bool, bursts: &mut Bursts) -> Result<()> {
        let spent = worker_time(self.envoy.pid())?;
        let latencies = self.send(is_fleet)?;
        pause_for(SETTLE);
        let spent = worker_time(self.envoy.pid())?.saturating_sub(spent);
        let spent_us = spent.as_secs_f64() * 1e6;
        bursts.processor.push(spent_us / float(BURST));
        let [waited, calls] = if is_fleet { self.count()? } else { [0; 2] };
        bursts.waited += waited;
        bursts.calls += calls;
        if waited == 0 {
            bursts.without_waits.extend(&latencies);
        }
        bursts.latencies.extend(latencies);
        Ok(())
    }

    /// Returns the numbers of requests that waited and of relay calls since the last call of this
    /// function.
    fn count(&mut self) -> Result<[u64; 2]> {
        let names = ["held", "calls"].map(|name| format!("wasmcustom.loudou.fleet.{name}"));
        let pattern = r"^wasmcustom\.loudou\.fleet\.(held|calls)$";
        let stats = self.envoy.stats(pattern)?;
        let counts = names.map(|name| stats.get(&name).copied().unwrap_or(0));
        let before = std::mem::replace(&mut self.counted, counts);
        let ([held, calls], [held_before, calls_before]) = (counts, before);
        Ok([
            held.saturating_sub(held_before),
            calls.saturating_sub(calls_before),
        ])
    }

    /// Sends a burst, and returns the latency of each request.
    fn send(&mut self, is_fleet: bool) -> Result<Vec<Duration>> {
        let [alone, fleet] = &self.next;
        let (path, next) = if is_fleet {
            (FLEET, fleet)
        } else {
            (ALONE, alone)
        };
        let (keys, traffic) = (self.keys, self.traffic);
        let end = next.load(Ordering::Relaxed) + BURST;
        let one = |http: &mut Http| {
            let mut latencies = Vec::new();
            loop {
                let n = next.fetch_add(1, Ordering::Relaxed);
                if n >= end {
                    return Ok(latencies);
                }
                let request = Request::get(path).header("x-user-id", user(key(n, keys, traffic)));
                let begun = now();
                let answer = http.send(&request)?;
                latencies.push(begun.elapsed());
                ensure!(answer.status == 200, "{answer:?}");
            }
        };
        let latencies = thread::scope(|scope| {
            let connections = self.connections.iter_mut();
            let threads: Vec<_> = connections
                .map(|http| scope.spawn(move || one(http)))
                .collect();
            let ended = threads.into_iter().map(thread::ScopedJoinHandle::join);
            let parts: Result<Vec<Vec<Duration>>> = ended
                .map(|end| end.unwrap_or_else(|_| Err(anyhow!("a client panicked"))))
                .collect();
            parts
        })?;
        next.store(end, Ordering::Relaxed);
        Ok(latencies.concat())
    }
}

/// Returns the number of the key that the n-th request has.
const fn key(n: u64, keys: u64, traffic: Traffic) -> u64 {
    match traffic {
        // The busy keys are spread evenly over all keys.
        Traffic::Busy => (n % BUSY) * keys / BUSY,
        Traffic::Even => n % keys,
    }
}

fn print_head() {
    println!(
        "| fleet | keys | requests of | waited per 1000 | calls per 1000 | p50 µs, alone → fleet \
         | p99 µs, alone → fleet | p50, p99 of bursts without waits | worker µs, alone → fleet | ratio |\n\
         | --- | ---: | --- | ---: | ---: | ---: | ---: | ---: | ---: | ---: |"
    );
}

/// Prints a row of the table, and returns the row as JSON.
fn print_row(row: &mut Row) -> Value {
    let requests = u64::try_from(row.fleet.latencies.len()).unwrap_or(u64::MAX);
    let traffic = match row.traffic {
        Traffic::Busy => format!("{BUSY} busy keys"),
        Traffic::Even => "each in turn".to_owned(),
    };
    let both = |times: &mut Vec<Duration>| [500, 990].map(|part| percentile(times, part));
    let alone = both(&mut row.alone.latencies).map(Option::unwrap_or_default);
    let fleet = both(&mut row.fleet.latencies).map(Option::unwrap_or_default);
    let without = both(&mut row.fleet.without_waits);
    let [[p50, p99], [fleet_p50, fleet_p99]] = [alone, fleet];
    let cell = |time: Option<f64>| time.map_or_else(|| "–".to_owned(), |us| format!("{us:.0}"));
    let [cpu, fleet_cpu] = [&row.alone, &row.fleet].map(|of| median(of.processor.clone()));
    let waited = of_thousand(row.fleet.waited, requests);
    let calls = of_thousand(row.fleet.calls, requests);
    println!(
        "| {} | {} | {traffic} | {waited:.1} | {calls:.1} | {p50:.0} → {fleet_p50:.0} ({:.2}×) \
         | {p99:.0} → {fleet_p99:.0} ({:.2}×) | {} | {cpu:.1} → {fleet_cpu:.1} | {:.2} |",
        row.setting.name,
        row.keys,
        fleet_p50 / p50,
        fleet_p99 / p99,
        without.map(cell).join(", "),
        fleet_cpu / cpu,
    );
    json!({
        "fleet": row.setting.name, "keys": row.keys, "traffic": traffic, "requests": requests,
        "waited": row.fleet.waited, "calls": row.fleet.calls,
        "alone_us": { "p50": p50, "p99": p99, "worker": cpu },
        "fleet_us": { "p50": fleet_p50, "p99": fleet_p99, "worker": fleet_cpu },
        "without_waits_us": without,
        "without_waits": row.fleet.without_waits.len(),
    })
}
