//! `cargo xtask bench request`: measures the processor time that a request costs the Envoy worker
//! that serves it.
//!
//! One Envoy with one worker has a listener for each row of the result table. Each listener has a
//! different filter. In each round, every row sends a burst over connections that stay open; the
//! order of the rows is random. One sample is the processor time of the worker's thread during a
//! burst, divided by the number of requests in the burst. The table shows each row's median and 5th
//! percentile, its median difference from the empty filter, and its median ratio to Envoy's own
//! filter; differences and ratios compare samples of the same round. With `--compare`, another
//! build of the filter gets its own rows.

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

/// Number of connections per row.
const CONNECTIONS: usize = 16;
/// Pause after a burst, during which the worker finishes the last response.
const SETTLE: Duration = Duration::from_millis(1);
/// Timeout for the start of an Envoy with all rows, even on a busy machine.
const START: Duration = Duration::from_mins(1);

/// Upper bound of the processor time that the filter may add to a start of Envoy, as a multiple of
/// the time that an empty filter adds. Envoy compiles the module during this time. On two cores of
/// an Intel Xeon, the bound is 1.2 s more than the time of an empty filter.
const START_BUDGET: f64 = 11.0;

/// Size of a measurement.
#[derive(Debug, Clone, Copy)]
struct Size {
    rounds: usize,
    /// Number of requests per burst.
    burst: u64,
    /// Numbers of users for which Loudou gets extra rows.
    users: &'static [u64],
    /// Number of Envoy starts per filter, and duration of the load at a fixed rate, in seconds.
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

/// Runs the benchmark with the given build of the filter, or with a build of the current sources,
/// and optionally compares it with another build.
pub(super) fn run_all(quick: bool, wasm: Option<PathBuf>, other: Option<PathBuf>) -> Result<()> {
    setup::run()?;
    let loudou = wasm.map_or_else(filter::build, Ok)?;
    let native = native::build()?;
    let size = if quick { QUICK } else { FULL };
    measure(size, &modules(loudou, other, native)?).map(drop)
}

/// Runs a minimal measurement, checks that each row was measured and got the expected responses,
/// and compares the start time with its budget.
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
    // The first round only warms up; its samples are discarded.
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

/// Starts an Envoy with one listener per row. The listener of the first row is named `data`.
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

/// Returns the name of a row's listener, which also names its VM and its shared data.
fn id(number: usize) -> String {
    match number {
        0 => "data".to_owned(),
        _ => format!("row-{number}"),
    }
}

/// A row and its measurements.
#[derive(Debug)]
struct Measured {
    row: Row,
    connections: Connections,
    address: std::net::SocketAddr,
    /// Number of the next request.
    next: u64,
    /// Worker time per request in microseconds, one number per round.
    spent_us: Vec<f64>,
}

impl Measured {
    /// Connects to the row's listener, and waits until its rules are active.
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

    /// Sends one request for each user.
    fn fill(&self) -> Result<()> {
        let users = self.row.users;
        flood(self.address, users, |n| request(n % users))
    }

    /// Sends a burst, and returns the worker time per request in microseconds.
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

/// Returns a request from this user.
fn request(user: u64) -> Request {
    Request::get("/path7").header("x-user-id", format!("user-{user:07}"))
}
