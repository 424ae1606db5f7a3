//! Measures costs other than the processor time of a request: memory, start time, and latency at a
//! fixed rate.

use std::fs;
use std::thread;
use std::time::Duration;

use anyhow::{Context as _, Result, anyhow, ensure};
use loudou_tests::clock::{now, pause_for};
use loudou_tests::cpu::process_time;
use loudou_tests::{Envoy, Http};
use serde_json::{Value, json};

use super::rows::{EMPTY, Limits, Modules, PER_USER, PLAIN, Row};
use super::{Measured, request, start};
use crate::bench::{median, percentile};

/// Request rate in requests per second, and the number of connections, which send in turn.
const RATE: u64 = 2_000;
const CLIENTS: u64 = 8;

/// Sends one request per user to each row, and prints the memory per bucket for rows with many
/// users.
pub(super) fn fill(envoy: &Envoy, measured: &[Measured]) -> Result<Value> {
    let mut found = Vec::new();
    for row in measured {
        let before = resident_bytes(envoy.pid())?;
        row.fill().with_context(|| row.row.name.clone())?;
        let grown = resident_bytes(envoy.pid())?.saturating_sub(before);
        if row.row.users >= 100_000 {
            let bytes = grown.div_euclid(row.row.users);
            println!(
                "{}: the process grew by {bytes} bytes for each user",
                row.row.name
            );
            found.push(json!({ "requests": row.row.name, "resident_bytes": bytes }));
        }
    }
    Ok(Value::Array(found))
}

/// Returns the resident memory of a process in bytes.
fn resident_bytes(process: u32) -> Result<u64> {
    let status = fs::read_to_string(format!("/proc/{process}/status"))?;
    let mut lines = status.lines();
    let kib = lines.find_map(|line| line.strip_prefix("VmRSS:"));
    let kib = kib.and_then(|kib| kib.trim().strip_suffix(" kB")?.parse::<u64>().ok());
    Ok(kib.context("no resident memory")? << 10)
}

/// Prints the latency at a fixed rate, measured from the time at which each request was due.
pub(super) fn at_a_rate(measured: &[Measured], seconds: u64) -> Result<Value> {
    println!(
        "\n| latency at {RATE} requests/s, µs | p50 | p99 | p99.9 |\n| --- | ---: | ---: | ---: |"
    );
    let mut found = Vec::new();
    for row in measured {
        let is_shown = [EMPTY, PER_USER, PLAIN].contains(&row.row.name.as_str());
        if !is_shown && !matches!(row.row.limits, Limits::Nothing) {
            continue;
        }
        let mut times = send_at_a_rate(row, seconds)?;
        let [p50, p99, p999] =
            [500, 990, 999].map(|part| percentile(&mut times, part).unwrap_or_default());
        println!("| {} | {p50:.0} | {p99:.0} | {p999:.0} |", row.row.name);
        found.push(json!({ "requests": row.row.name, "p50": p50, "p99": p99, "p999": p999 }));
    }
    Ok(Value::Array(found))
}

fn send_at_a_rate(row: &Measured, seconds: u64) -> Result<Vec<Duration>> {
    let begin = now() + Duration::from_millis(50);
    let one = |client: u64| {
        let mut http = Http::new(row.address);
        http.connect()?;
        let mut times = Vec::new();
        for turn in 0..seconds * RATE / CLIENTS {
            let n = turn * CLIENTS + client;
            let due = begin + Duration::from_nanos(n * 1_000_000_000 / RATE);
            pause_for(due.saturating_duration_since(now()));
            let answer = http.send(&request(n % row.row.users))?;
            times.push(due.elapsed());
            ensure!(answer.status == row.row.status, "{answer:?}");
        }
        Ok(times)
    };
    let parts: Result<Vec<Vec<Duration>>> = thread::scope(|scope| {
        let one = &one;
        let threads: Vec<_> = (0..CLIENTS)
            .map(|client| scope.spawn(move || one(client)))
            .collect();
        let ended = threads.into_iter().map(thread::ScopedJoinHandle::join);
        ended
            .map(|end| end.unwrap_or_else(|_| Err(anyhow!("a client panicked"))))
            .collect()
    });
    Ok(parts?.concat())
}

/// Prints how much start time and processor time each filter adds to a start of Envoy. Starts with
/// and without filters alternate.
pub(super) fn starts(count: usize, modules: &Modules) -> Result<Value> {
    let rows = super::rows::all(&[], modules.other.is_some());
    let none = Row::clone(rows.first().context("a row without a filter")?);
    let of = |row: &&Row| row.name == EMPTY || row.name.ends_with("one rule, admitted");
    let shown: Vec<&Row> = rows.iter().filter(of).collect();
    let mut longer = vec![(Vec::new(), Vec::new()); shown.len()];
    let mut base_cpu_ms = Vec::new();
    for _ in 0..count {
        let base = Start::of(std::slice::from_ref(&none), modules)?;
        base_cpu_ms.push(base.cpu_ms);
        for (row, (ms, cpu_ms)) in shown.iter().zip(&mut longer) {
            let start = Start::of(&[none.clone(), Row::clone(row)], modules)?;
            ms.push(start.ms - base.ms);
            cpu_ms.push(start.cpu_ms);
        }
    }
    let base_cpu_ms = least(base_cpu_ms);
    println!(
        "\n| filter | ms longer until Envoy serves | ms more of processor time |\n| --- | ---: | ---: |"
    );
    let found = shown.iter().zip(longer).map(|(row, (ms, cpu_ms))| {
        let (ms, cpu_ms) = (median(ms), least(cpu_ms) - base_cpu_ms);
        println!("| {} | {ms:.0} | {cpu_ms:.0} |", row.name);
        json!({ "requests": row.name, "start_ms": ms, "start_cpu_ms": cpu_ms })
    });
    Ok(found.collect())
}

/// Costs of a start of Envoy, until all listeners are ready.
struct Start {
    ms: f64,
    /// Processor time of all threads of the Envoy.
    cpu_ms: f64,
}

impl Start {
    fn of(rows: &[Row], modules: &Modules) -> Result<Self> {
        let begun = now();
        let envoy = start(rows, modules)?;
        let ms = begun.elapsed().as_secs_f64() * 1e3;
        let cpu_ms = process_time(envoy.pid())?.as_secs_f64() * 1e3;
        envoy.stop()?;
        Ok(Self { ms, cpu_ms })
    }
}

/// Returns the minimum. Other programs on the machine can only increase the processor time of a
/// start, so the minimum of several starts is the best estimate. The minimum of differences between
/// two starts, however, would be too small.
fn least(numbers: Vec<f64>) -> f64 {
    numbers.into_iter().min_by(f64::total_cmp).unwrap_or(0.0)
}
