//! `cargo xtask bench screen`: what a running screen costs the Envoy that it watches.
//!
//! An Envoy with two workers has 16, 10 000 and 100 000 buckets, a tenth of which refuse. In turns nobody watches,
//! and `loudou` runs in a terminal; with `--beside`, another build of it has turns of its own. In each turn users send
//! requests at a steady rate, and then nobody sends any: the processor time of Envoy and of the screen is measured in
//! both parts, the latency in the first. Shown are the medians of the turns, as percent of a core.

use std::path::{Path, PathBuf};
use std::time::Duration;

use anyhow::{Context as _, Result};
use loudou_tests::flood::flood;
use loudou_tests::{Config, Envoy, Operator, Request, loudou_bin};
use serde_json::{Value, json};

use crate::command::{cargo, run};
use crate::{filter, setup};

mod report;
mod turn;

use report::Found;
use turn::{Turn, turn};

/// Every user has this, so that any user on the screen shows that the data have arrived.
const USER: &str = "caller-";
/// One user in so many has a limit that is already used up.
const REFUSED: u64 = 10;
/// The maximum number of live buckets.
const STORE: u64 = 131_072;

/// The size of a measurement.
#[derive(Debug, Clone, Copy)]
struct Size {
    rounds: usize,
    /// Of each part of a turn.
    part: Duration,
    /// From the first data on the screen to the first part, so that the start of the screen is not measured.
    settle: Duration,
    buckets: &'static [u64],
}

const FULL: Size = Size {
    rounds: 5,
    part: Duration::from_secs(4),
    settle: Duration::from_secs(2),
    buckets: &[16, 10_000, 100_000],
};

const QUICK: Size = Size {
    rounds: 2,
    part: Duration::from_secs(2),
    ..FULL
};

const LEAST: Size = Size {
    rounds: 1,
    part: Duration::from_millis(300),
    settle: Duration::ZERO,
    buckets: &[16],
};

/// Runs the benchmark with this build of the filter, or the current one, and another `loudou` beside the current one.
pub(super) fn run_all(quick: bool, wasm: Option<PathBuf>, beside: Option<PathBuf>) -> Result<()> {
    setup::run()?;
    let wasm = wasm.map_or_else(filter::build, Ok)?;
    run(&mut cargo(&["build", "--release", "--package", "loudou"]))?;
    let loudou = loudou_tests::paths::target_dir().join("release/loudou");
    let programs: Vec<PathBuf> = [Some(loudou), beside].into_iter().flatten().collect();
    let size = if quick { QUICK } else { FULL };
    measure(size, &wasm, &programs).map(drop)
}

/// Measures next to nothing, and checks that each number was measured.
pub(super) fn check() -> Result<()> {
    let found = measure(LEAST, &loudou_tests::wasm_path()?, &[loudou_bin()?])?;
    found.iter().try_for_each(Found::check)
}

/// Prints a table; returns its rows.
fn measure(size: Size, wasm: &Path, programs: &[PathBuf]) -> Result<Vec<Found>> {
    report::print_head();
    let mut rows = Vec::new();
    for &buckets in size.buckets {
        let found = with_buckets(buckets, size, wasm, programs);
        let found = found.with_context(|| format!("{buckets} buckets"))?;
        found.iter().for_each(Found::print);
        rows.extend(found);
    }
    Ok(rows)
}

fn with_buckets(buckets: u64, size: Size, wasm: &Path, programs: &[PathBuf]) -> Result<Vec<Found>> {
    let envoy = Envoy::start(&configuration().wasm(wasm.to_owned()))?;
    fill(&envoy, buckets)?;
    let used = Operator::viewer(&envoy).get("/v1/status")?;
    let used = used.pointer("/store/used").and_then(Value::as_u64);
    let used = used.context("no number of buckets")?;
    let none = std::iter::once(None);
    let turns = none.chain(programs.iter().map(|program| Some(program.as_path())));
    let mut all: Vec<(Option<&Path>, Found)> = turns
        .enumerate()
        .map(|(place, program)| (program, Found::new(used, place)))
        .collect();
    // The first requests set things up, so they are not measured.
    turn(&envoy, buckets, LEAST, None)?;
    for _ in 0..size.rounds {
        for (program, found) in &mut all {
            let turn: Turn = turn(&envoy, buckets, size, *program)?;
            found.add(turn);
        }
        // Each comes first and last as often.
        all.reverse();
    }
    all.sort_by_key(|(_, found)| found.place());
    envoy.stop()?;
    Ok(all.into_iter().map(|(_, found)| found).collect())
}

/// A limit that is never reached, and one that admits a request an hour.
fn configuration() -> Config {
    let rule = |name: &str, header: &str, capacity: u32, rate: &str| {
        json!({
            "name": name,
            "key": [{ "header": header }],
            "limits": [{ "name": "all", "algorithm": "funnel", "capacity": capacity, "rate": rate }],
        })
    };
    let rules = json!([
        rule("per-user", "x-user-id", 1_000_000, "1000000/h"),
        rule("per-trial", "x-trial-id", 1, "1/h"),
    ]);
    Config::new(rules).buckets(STORE)
}

/// Creates the buckets, and has those that are used up refuse a request.
fn fill(envoy: &Envoy, buckets: u64) -> Result<()> {
    flood(envoy.data_address(), buckets, request)?;
    let refused = buckets.div_ceil(REFUSED);
    flood(envoy.data_address(), refused, |n| request(n * REFUSED))
}

/// A request of the n-th user.
fn request(n: u64) -> Request {
    let header = if n.is_multiple_of(REFUSED) {
        "x-trial-id"
    } else {
        "x-user-id"
    };
    Request::get("/").header(header, format!("{USER}{n:06}"))
}
