//! `cargo xtask bench request`: measures the cost of a request for the Envoy worker that serves it.
//!
//! One Envoy with one worker has a listener for each row. The listeners have different filters.
//! Bursts of all rows run in random order, round by round, over kept connections. The processor
//! time of the worker's thread during a burst, divided by its requests, is one sample. The table
//! shows a row's median and its 5th percentile, the median difference to the empty filter in equal
//! rounds, and the median ratio to Envoy's own filter. With `--compare`, another build of the filter
//! has separate rows.

use std::path::PathBuf;
use std::time::Duration;

use anyhow::{Context as _, Result, ensure};
use loudou_tests::clock::{eventually, pause_for};
use loudou_tests::cpu::worker_time;
use loudou_tests::flood::{Connections, flood};
use loudou_tests::paths::target_dir;
use loudou_tests::soak::random::Random;
use loudou_tests::{Envoy, Request};
use serde_json::{Value, json};

use super::float;
use super::parts::{NOWHERE, any_port, cluster, no_admin};
use crate::command::{cargo, run};
use crate::setup::WASM_TARGET;
use crate::{filter, native, setup};

mod beside;
mod report;
pub(super) mod rows;

use rows::{EMPTY, Limits, Modules, PLAIN, Row};

/// Number of connections of a row.
const CONNECTIONS: usize = 16;
/// Time in which a worker has handled the last answer of a burst.
const SETTLE: Duration = Duration::from_millis(1);
/// Time in which an Envoy with all rows starts, on a busy machine.
const START: Duration = Duration::from_mins(1);

/// Budget of a start: the processor time that the filter adds until a listener opens, as a multiple
/// of the time that an empty filter adds. Envoy compiles the module in that time. On two cores of
/// an Intel Xeon the budget is 1.2 s more than the time of an empty filter.
const START_BUDGET: f64 = 11.0;

/// Size of a measurement.
#[derive(Debug, Clone, Copy)]
struct Size {
    rounds: usize,
    /// Number of requests in a burst.
    burst: u64,
    /// Numbers of users that have separate rows.
    users: &'static [u64],
    /// Number of Envoy starts to compare, and the seconds of requests at a fixed rate.
    starts: usize,
    seconds: u64,
}

const FULL: Size = Size {
    rounds: 105,
    burst: 480,
    users: &[100_000, 1_000_000],
    starts: 7,
    seconds: 10,
};

const QUICK: Size = Size {
    rounds: 35,
    users: &[100_000],
    starts: 3,
    seconds: 3,
    ..FULL
};

const LEAST: Size = Size {
    rounds: 1,
    burst: 32,
    users: &[],
    starts: 3,
    seconds: 1,
};

/// Runs the benchmark with this build of the filter or with the current one, and optionally with
/// another build for comparison.
pub(super) fn run_all(quick: bool, wasm: Option<PathBuf>, other: Option<PathBuf>) -> Result<()> {
    setup::run()?;
    let loudou = wasm.map_or_else(filter::build, Ok)?;
    let native = native::build()?;
    let size = if quick { QUICK } else { FULL };
    measure(size, &modules(loudou, other, native)?).map(drop)
}

/// Measures almost nothing, and checks that each row was measured and answered as expected.
pub(super) fn check() -> Result<()> {
    let wasm = loudou_tests::wasm_path()?;
    let native = loudou_tests::native_path()?;
    let found = measure(LEAST, &modules(wasm.clone(), Some(wasm), native)?)?;
    let rows = found.get("rows").and_then(Value::as_array);
    for row in rows.context("no rows")? {
        let spent = row.get("us").and_then(Value::as_f64);
        ensure!(spent.is_some_and(|us| us > 0.0), "{row}");
    }
    let starts = found.get("start").and_then(Value::as_array);
    let starts = starts.context("no starts")?;
    let cpu_ms = |name: &str| {
        let start = starts.iter().find(|start| start["requests"] == name);
        let cpu_ms = start.and_then(|start| start.get("start_cpu_ms")?.as_f64());
        cpu_ms.with_context(|| format!("no start with {name}"))
    };
    let (empty, loudou) = (cpu_ms(EMPTY)?, cpu_ms(PLAIN)?);
    let times = loudou / empty;
    println!(
        "the filter adds {times:.1} times the processor time of {EMPTY} to a start; at most {START_BUDGET}"
    );
    ensure!(
        times <= START_BUDGET,
        "the filter adds {loudou:.0} ms of processor time to a start, and {EMPTY} adds {empty:.0} ms: the budget is \
         {START_BUDGET} times as much"
    );
    Ok(())
}

fn modules(loudou: PathBuf, other: Option<PathBuf>, native: PathBuf) -> Result<Modules> {
    run(&mut cargo(&[
        "build",
        "--package",
        "loudou-floor",
        "--examples",
        "--target",
        WASM_TARGET,
        "--profile",
        "wasm",
    ]))?;
    Ok(Modules {
        loudou,
        other,
        native,
        floor: target_dir().join(WASM_TARGET).join("wasm/examples"),
    })
}

fn measure(size: Size, modules: &Modules) -> Result<Value> {
    let rows = rows::all(size.users, modules.other.is_some());
    let envoy = start(&rows, modules)?;
    let mut measured = Vec::new();
    for (number, row) in rows.into_iter().enumerate() {
        measured.push(Measured::open(&envoy, row, number)?);
    }
    let memory = beside::fill(&envoy, &measured)?;
    let mut order: Vec<usize> = (0..measured.len()).collect();
    let mut random = Random::new(1, 0);
    // The first round warms up, and is not measured.
    for round in 0..=size.rounds {
        random.shuffle(&mut order);
        for &place in &order {
            let row = measured.get_mut(place).context("a row")?;
            let spent = row.burst(&envoy, size.burst);
            let spent = spent.with_context(|| row.row.name.clone())?;
            if round > 0 {
                row.spent_us.push(spent);
            }
        }
        if round % 10 == 0 {
            eprintln!("round {round} of {}", size.rounds);
        }
    }
    let at_a_rate = beside::at_a_rate(&measured, size.seconds)?;
    envoy.stop()?;
    let starts = beside::starts(size.starts, modules)?;
    let found = json!({
        "rows": report::rows(&measured),
        "buckets": memory,
        "latency": at_a_rate,
        "start": starts,
    });
    println!("\n{found}");
    Ok(found)
}

/// Starts an Envoy with a listener for each row. The first listener is `data`.
fn start(rows: &[Row], modules: &Modules) -> Result<Envoy> {
    let listeners = rows.iter().enumerate();
    let mut listeners: Vec<Value> = listeners
        .map(|(number, row)| row.listener(&id(number), modules))
        .collect();
    listeners.push(no_admin());
    let bootstrap = json!({
        "admin": { "address": any_port() },
        "static_resources": {
            "listeners": listeners,
            "clusters": [cluster(NOWHERE, &json!([]))],
        },
    });
    Envoy::start_one_worker(&bootstrap.to_string(), &modules.loudou)
}

/// Name of a row's listener, sandbox and shared data.
fn id(number: usize) -> String {
    match number {
        0 => "data".to_owned(),
        _ => format!("row-{number}"),
    }
}

/// A row and its bursts.
#[derive(Debug)]
struct Measured {
    row: Row,
    connections: Connections,
    address: std::net::SocketAddr,
    /// Number of the next request.
    next: u64,
    /// Worker time per request in microseconds, by round.
    spent_us: Vec<f64>,
}

impl Measured {
    /// Waits until the row's listener limits its requests.
    fn open(envoy: &Envoy, row: Row, number: usize) -> Result<Self> {
        let id = id(number);
        let address = eventually(START, "a listener", || envoy.listener(&id))?;
        if matches!(row.limits, Limits::Loudou { .. }) {
            let metrics = format!(r"^wasmcustom\.{id}\.");
            eventually(START, "the rules to be active", || {
                Ok((!envoy.stats(&metrics)?.is_empty()).then_some(()))
            })?;
        }
        Ok(Self {
            row,
            connections: Connections::open(address, CONNECTIONS)?.awake()?,
            address,
            next: 0,
            spent_us: Vec::new(),
        })
    }

    /// Sends a request for each user.
    fn fill(&self) -> Result<()> {
        let users = self.row.users;
        flood(self.address, users, |n| request(n % users))
    }

    /// Sends a burst, and returns the microseconds of each request.
    fn burst(&mut self, envoy: &Envoy, requests: u64) -> Result<f64> {
        let (begin, users) = (self.next, self.row.users);
        self.next += requests;
        let all = begin..self.next;
        let before = worker_time(envoy.pid())?;
        let counts = self.connections.send(all.map(|n| request(n % users)))?;
        pause_for(SETTLE);
        let spent = worker_time(envoy.pid())?.saturating_sub(before);
        ensure!(counts.of(self.row.status) == requests, "{counts:?}");
        Ok(spent.as_secs_f64() * 1e6 / float(requests))
    }
}

/// Returns a request of the n-th user.
fn request(user: u64) -> Request {
    Request::get("/path7").header("x-user-id", format!("user-{user:07}"))
}
