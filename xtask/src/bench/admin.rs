//! `cargo xtask bench admin`: what calls of the admin API cost a worker, and the requests beside them.
//!
//! For each call it prints the worker's processor time, and the latency of a user's requests while two callers
//! make the call, next to the same without callers. Rounds with and without callers alternate, so that both see
//! the same machine. Worker time includes Envoy's part of the call.

use std::path::{Path, PathBuf};
use std::time::Duration;

use anyhow::{Context as _, Result, ensure};
use loudou_tests::clock::now;
use loudou_tests::cpu::worker_time;
use loudou_tests::flood::flood;
use loudou_tests::{Config, Envoy, Operator, Request};
use serde_json::{Map, Value, json};

use crate::{filter, setup};

mod beside;
mod calls;

use beside::{Beside, Data};
use calls::{CALLS, Call, Kind};

/// What a call may take of a worker.
const READ_BUDGET: Duration = Duration::from_millis(1);
const EDIT_BUDGET: Duration = Duration::from_millis(2);
/// A latency beside a call that is so much above the one without is marked.
const MOST_RATIO: f64 = 1.5;

/// The size of a measurement.
#[derive(Debug, Clone, Copy)]
struct Size {
    batches: usize,
    calls_per_batch: u32,
    /// A call's batches end after this time, whatever their number.
    longest: Duration,
    rounds: usize,
    requests_per_round: usize,
    /// The buckets of the large store.
    many: u64,
}

const FULL: Size = Size {
    batches: 30,
    calls_per_batch: 10,
    longest: Duration::from_secs(4),
    rounds: 8,
    requests_per_round: 1_500,
    many: 1_000_000,
};

const QUICK: Size = Size {
    batches: 6,
    calls_per_batch: 5,
    longest: Duration::from_secs(1),
    rounds: 2,
    requests_per_round: 600,
    many: 100_000,
};

/// A configuration to measure.
#[derive(Debug, Clone, Copy)]
struct Setting {
    rules: usize,
    overrides: usize,
    buckets: u64,
}

/// Runs the benchmark, with this build of the filter or with the current one.
pub(super) fn run_all(quick: bool, wasm: Option<PathBuf>) -> Result<()> {
    setup::run()?;
    let wasm = wasm.map_or_else(filter::build, Ok)?;
    let size = if quick { QUICK } else { FULL };
    let setting = |rules, overrides, buckets| Setting {
        rules,
        overrides,
        buckets,
    };
    print_head();
    for setting in [
        setting(1, 0, 1_000),
        setting(16, 1_024, 1_000),
        setting(256, 64, 1_000),
        setting(1, 0, size.many),
    ] {
        measure(setting, size, &wasm).with_context(|| format!("{setting:?}"))?;
    }
    Ok(())
}

fn measure(setting: Setting, size: Size, wasm: &Path) -> Result<()> {
    let envoy = Envoy::start(&configuration(setting).wasm(wasm.to_owned()))?;
    flood(envoy.data_address(), setting.buckets, filler)?;
    let mut ops = Operator::editor(&envoy);
    let status = ops.get("/v1/status")?;
    let used = status.pointer("/store/used").and_then(Value::as_u64);
    let used = used.context("no number of buckets")?;
    let name = format!("{} × {}, {used} buckets", setting.rules, setting.overrides);
    for call in CALLS {
        let call = &call.with_rules(u64::try_from(setting.rules)?);
        if (call.only_large && setting.buckets < 100_000) || !call.exists(&mut ops)? {
            continue;
        }
        let cost = cost(&envoy, call, size).with_context(|| call.name)?;
        let beside = Beside::measure(&envoy, call, size).with_context(|| call.name)?;
        print_row(&name, call, &cost, &beside);
    }
    let first = first_requests(&envoy, size)?;
    print_line(
        &name,
        "first request of a worker after an edit",
        &first,
        Some(EDIT_BUDGET),
        None,
    );
    envoy.stop()
}

/// Rules for a path each, with overrides of keys that no request has. The first one limits the data.
fn configuration(setting: Setting) -> Config {
    let key = |n: usize| (format!("tenant-{n:05}"), json!({ "scale": 2 }));
    let overrides: Map<String, Value> = (0..setting.overrides).map(key).collect();
    let rule = |n: usize| {
        json!({
            "name": format!("rule-{n}"),
            "match": { "path": { "prefix": format!("/{n}/") } },
            "key": [{ "header": "x-user-id" }],
            "limits": [{
                "name": "day", "algorithm": "funnel", "capacity": 1_000_000, "rate": "1000000/d",
            }],
            "overrides": overrides,
        })
    };
    let rules: Vec<Value> = (0..setting.rules).map(rule).collect();
    // Keys fall on pages at random: without some room, full pages would evict.
    let room = setting.buckets * 13 / 10;
    Config::new(Value::Array(rules)).buckets(room.max(65_536))
}

/// The request that creates the n-th bucket.
fn filler(n: u64) -> Request {
    Request::get("/0/").header("x-user-id", format!("user-{n:07}"))
}

/// The worker time of each call, by batch.
#[derive(Debug, Default)]
struct Cost {
    batches: Vec<Duration>,
    /// For a search: the number of calls from its beginning to its end.
    calls: Option<u32>,
}

impl Cost {
    /// The worker time that `thousandths` of the batches do not exceed.
    fn percentile(&self, thousandths: usize) -> Duration {
        let mut all = self.batches.clone();
        all.sort();
        let place = (all.len() * thousandths / 1_000).min(all.len().saturating_sub(1));
        all.get(place).copied().unwrap_or_default()
    }
}

fn cost(envoy: &Envoy, call: &Call, size: Size) -> Result<Cost> {
    let mut caller = call.caller(envoy);
    // The first calls set things up.
    caller.call()?;
    let mut cost = Cost::default();
    let begun = now();
    while cost.batches.len() < size.batches && begun.elapsed() < size.longest {
        let before = worker_time(envoy.pid())?;
        for _ in 0..size.calls_per_batch {
            caller.call()?;
        }
        let spent = worker_time(envoy.pid())?.saturating_sub(before);
        cost.batches.push(spent / size.calls_per_batch);
    }
    if matches!(call.kind, Kind::Search(_)) {
        cost.calls = Some(caller.whole_search()?);
    }
    Ok(cost)
}

/// The worker time of the first request after an edit, over that of other requests, by worker.
fn first_requests(envoy: &Envoy, size: Size) -> Result<Cost> {
    let mut data = Data::open(envoy)?;
    let edit = calls::edit();
    let mut caller = edit.caller(envoy);
    let mut cost = Cost::default();
    let begun = now();
    while cost.batches.len() < size.batches && begun.elapsed() < size.longest {
        caller.call()?;
        // On every worker.
        let [first, usual] = [data.round(envoy)?, data.round(envoy)?];
        cost.batches.push(first.saturating_sub(usual) / 2);
    }
    ensure!(!cost.batches.is_empty(), "no edit was made");
    Ok(cost)
}

fn print_head() {
    println!(
        "| rules × overrides | call | worker µs | p95 | data p50 µs, alone → beside | data p99 µs, alone → beside \
         | |\n| --- | --- | ---: | ---: | ---: | ---: | --- |"
    );
}

fn print_row(setting: &str, call: &Call, cost: &Cost, beside: &Beside) {
    let budget = match call.kind {
        Kind::Edit => EDIT_BUDGET,
        Kind::Read | Kind::Search(_) => READ_BUDGET,
    };
    let name = match cost.calls {
        None => call.name.to_owned(),
        Some(calls) => format!("{}, {calls} calls to its end", call.name),
    };
    print_line(setting, &name, cost, Some(budget), Some(beside));
}

fn print_line(
    setting: &str,
    name: &str,
    cost: &Cost,
    budget: Option<Duration>,
    beside: Option<&Beside>,
) {
    let (median, high) = (cost.percentile(500), cost.percentile(950));
    let is_over = budget.is_some_and(|budget| median > budget);
    let is_slow = beside.is_some_and(|beside| beside.ratios().iter().any(|r| *r > MOST_RATIO));
    let marks = [(is_over, "above its budget"), (is_slow, "slows the data")];
    let marks: Vec<&str> = marks
        .iter()
        .filter(|(is, _)| *is)
        .map(|(_, m)| *m)
        .collect();
    let cells = beside.map_or_else(|| "| | ".to_owned(), Beside::cells);
    println!(
        "| {setting} | {name} | {} | {} {cells}| {} |",
        median.as_micros(),
        high.as_micros(),
        marks.join(", "),
    );
}
