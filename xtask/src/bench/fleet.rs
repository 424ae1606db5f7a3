//! `cargo xtask bench fleet`: measures the cost of a limit that many Envoys share.
//!
//! - `latency`: compares requests under a fleet rule with requests under a rule local to the Envoy.
//!   One Envoy receives bursts of both kinds in random order.
//! - `saving`: measures requests per second, calls and processor time with one Envoy and with four.
//!   The results are compared with Envoy's own rate limit filter, which calls a service once per
//!   request.
//!
//! The limits are so high that no request is refused. All processes run on one machine, so only
//! differences and ratios can be compared between machines.

use std::fs;
use std::path::PathBuf;

use anyhow::{Context as _, Result, ensure};
use loudou_tests::paths::target_dir;
use serde_json::{Value, json};

use super::{float, median, percentile};
use crate::command::{cargo, run};
use crate::{filter, setup};

mod latency;
pub(super) mod rig;
mod saving;

use rig::Programs;
use saving::Keys;

/// Size of a measurement.
#[derive(Debug, Clone, Copy)]
struct Size {
    /// Numbers of Envoys to compare in `saving`.
    envoys: &'static [usize],
    /// Key sets of the floods in `saving`, and numbers of keys in `latency`.
    flood_keys: &'static [Keys],
    keys: &'static [u64],
    /// Number of floods of each kind, and numbers of warm-up and measured requests per flood.
    floods: usize,
    flood_before: u64,
    flood: u64,
    /// Number of pairs of bursts in `latency`.
    pairs: usize,
}

const FULL: Size = Size {
    envoys: &[1, 4],
    flood_keys: &[
        Keys::even(10),
        Keys::even(1_000),
        Keys::skewed(1_000),
        Keys::even(100_000),
        Keys::skewed(100_000),
    ],
    keys: &[1_000, 100_000],
    floods: 3,
    flood_before: 6_000,
    flood: 12_000,
    pairs: 100,
};

const QUICK: Size = Size {
    flood_keys: &[Keys::even(10), Keys::even(1_000), Keys::skewed(1_000)],
    keys: &[1_000],
    floods: 1,
    flood_before: 6_000,
    flood: 6_000,
    pairs: 25,
    ..FULL
};

/// Minimal size, for a check that the benchmark still works.
const LEAST: Size = Size {
    envoys: &[1],
    flood_keys: &[Keys::even(10)],
    keys: &[10],
    floods: 1,
    flood_before: 200,
    flood: 200,
    pairs: 1,
};

/// Runs the benchmark with the given build of the filter, or with a build of the current sources.
pub(super) fn run_all(quick: bool, wasm: Option<PathBuf>) -> Result<()> {
    setup::run()?;
    let wasm = wasm.map_or_else(filter::build, Ok)?;
    let size = if quick { QUICK } else { FULL };
    measure(size, &programs(wasm, true)?).map(drop)
}

/// Runs a minimal measurement with development builds, and checks that each kind of limit behaved
/// as expected.
pub(super) fn check() -> Result<()> {
    let found = measure(LEAST, &programs(loudou_tests::wasm_path()?, false)?)?;
    let rows = found.get("saving").and_then(Value::as_array);
    for row in rows.context("no floods")? {
        let number = |name: &str| row.get(name).and_then(Value::as_f64);
        let calls = number("calls_per_1000").context("no calls")?;
        let is_right = match row.get("limits").and_then(Value::as_str) {
            Some("service") => calls >= 1_000.0 && number("errors_per_1000") == Some(0.0),
            Some("fleet") => calls > 0.0 && number("decided_alone_per_1000") == Some(0.0),
            Some(_) => calls < 1_000.0,
            None => false,
        };
        ensure!(is_right, "{row}");
    }
    Ok(())
}

pub(super) fn programs(wasm: PathBuf, is_release: bool) -> Result<Programs> {
    let package = ["build", "--package", "loudou-relay", "--bins"];
    let mut build = cargo(&package);
    build.args(["--example", "rls"]);
    if is_release {
        build.arg("--release");
    }
    run(&mut build)?;
    let directory = target_dir().join(if is_release { "release" } else { "debug" });
    Ok(Programs {
        wasm,
        relay: directory.join("loudou-relay"),
        service: directory.join("examples/rls"),
    })
}

/// Runs both measurements and prints their results. Also returns the results as JSON.
fn measure(size: Size, programs: &Programs) -> Result<Value> {
    let before = load_average()?;
    println!("load average before: {before}\n");
    let latency = latency::measure(size, programs)?;
    let saving = saving::measure(size, programs)?;
    let after = load_average()?;
    println!("\nload average after: {after}\n");
    let load = json!({ "before": before, "after": after });
    let found = json!({ "load_average": load, "latency": latency, "saving": saving });
    println!("{found}");
    Ok(found)
}

fn load_average() -> Result<String> {
    let text = fs::read_to_string("/proc/loadavg").context("no load average")?;
    let load: Vec<&str> = text.split(' ').take(3).collect();
    Ok(load.join(" "))
}

/// Returns the key value of the n-th user.
fn user(n: u64) -> String {
    format!("user-{n:06}")
}

/// Converts a count to a number per thousand requests.
fn of_thousand(count: u64, requests: u64) -> f64 {
    float(count) * 1_000.0 / float(requests)
}

/// Returns a rule for the path `/NAME` with a limit so high that no request reaches it. The rate
/// limit service has an equal rule.
fn rule(name: &str, scope: &str) -> Value {
    json!({
        "name": name, "scope": scope, "key": [{ "header": "x-user-id" }],
        "match": { "path": { "prefix": format!("/{name}") } },
        "limits": [{ "algorithm": "token_bucket", "capacity": 1_000_000, "rate": "1000000/s" }],
    })
}
