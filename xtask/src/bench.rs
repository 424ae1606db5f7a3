//! `cargo xtask bench`: runs benchmarks and prints their results. Times are only printed and never asserted, because
//! machines differ. The instruction counts of [`instructions`] are the same on all machines, so checks compare them
//! with budgets.

use std::path::PathBuf;
use std::time::Duration;

use anyhow::Result;
use clap::ValueEnum;

use crate::command::{cargo, run};

mod accuracy;
mod core;
mod fleet;
pub(crate) mod instructions;
mod parts;
mod request;

/// A benchmark.
#[derive(Debug, Clone, Copy, ValueEnum)]
pub(crate) enum Bench {
    /// Count what NGINX, Envoy's own limiters and Loudou admit of equal traffic
    Accuracy,
    /// Measure a decision natively: compared with governor's, with a page of the store, and with 1, 16 and 256 rules
    Core,
    /// Measure latency, calls and processor time of rules that Envoys share, compared with Envoy's own rate limit
    /// filter
    Fleet,
    /// Count the wasm instructions and host calls of a request, and print them in the format of the budget file, too
    Instructions,
    /// Measure the worker time of a request, compared with Envoy's own filter and with minimal filters
    Request,
    /// Measure the matching time of regular expressions natively, per byte of a value
    Regex,
}

/// Runs a benchmark.
pub(crate) fn bench(
    what: Bench,
    quick: bool,
    wasm: Option<PathBuf>,
    compare: Option<PathBuf>,
) -> Result<()> {
    match what {
        Bench::Accuracy => accuracy::run_all(quick),
        Bench::Core => core::run_all(quick),
        Bench::Fleet => fleet::run_all(quick, wasm),
        Bench::Instructions => instructions::run_all(wasm),
        Bench::Request => request::run_all(quick, wasm, compare),
        Bench::Regex => {
            let bench = ["bench", "--package", "loudou-rules", "--bench", "regex"];
            run(&mut cargo(&bench))
        }
    }
}

/// Checks that the benchmarks `core`, `fleet` and `request` still work. Their runs are too short for useful
/// measurements.
pub(crate) fn check() -> Result<()> {
    core::check()?;
    accuracy::check()?;
    fleet::check()?;
    request::check()
}

/// Converts a count to a floating-point number; counts above `u32::MAX` become `f64::MAX`.
fn float(n: u64) -> f64 {
    u32::try_from(n).map_or(f64::MAX, f64::from)
}

/// Returns the median, or 0 if there are no numbers.
fn median(mut numbers: Vec<f64>) -> f64 {
    numbers.sort_by(f64::total_cmp);
    let middle = numbers.len().div_euclid(2);
    numbers.get(middle).copied().unwrap_or(0.0)
}

/// Returns the 5th percentile: the fastest samples are the ones that other programs on the machine disturb least.
fn quiet(mut numbers: Vec<f64>) -> f64 {
    numbers.sort_by(f64::total_cmp);
    let place = numbers.len().div_euclid(20);
    numbers.get(place).copied().unwrap_or(0.0)
}

/// Returns the time in microseconds below which this many thousandths of the samples lie, or `None` if there are no
/// samples.
fn percentile(times: &mut [Duration], thousandths: usize) -> Option<f64> {
    times.sort_unstable();
    let place = times.len().saturating_mul(thousandths).div_euclid(1_000);
    times.get(place).map(|time| time.as_secs_f64() * 1e6)
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn medians_and_percentiles() {
        assert!((median(vec![3.0, 1.0, 2.0]) - 2.0).abs() < 1e-9);
        assert!(median(Vec::new()).abs() < 1e-9);
        assert!((quiet((0..40).map(f64::from).collect()) - 2.0).abs() < 1e-9);
        let mut times: Vec<Duration> = (0..1_000).rev().map(Duration::from_micros).collect();
        let at = |times: &mut [Duration], part| percentile(times, part).unwrap_or(-1.0).round();
        assert!((at(&mut times, 500) - 500.0).abs() < 1e-9);
        assert!((at(&mut times, 990) - 990.0).abs() < 1e-9);
        assert!(percentile(&mut [], 500).is_none());
    }
}
