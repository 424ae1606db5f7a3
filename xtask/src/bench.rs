//! `cargo xtask bench`: measures and prints the results. It makes no assertions about times,
//! because machines differ. The results of [`instructions`] are equal on all machines, so they have
//! budgets.

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
    /// Measure a decision beside governor's, with a page of the store, and with 1, 16 and 256 rules, natively
    Core,
    /// Measure latency, calls and processor time of rules that Envoys share, beside Envoy's own rate limit filter
    Fleet,
    /// Count the wasm instructions and the host calls of a request, also in the form of their budgets
    Instructions,
    /// Measure what a request costs Envoy's worker, beside Envoy's own filter and the least filters there can be
    Request,
    /// Measure the time that a byte of a value takes with regular expressions, natively
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

/// Checks that a benchmark with many parts still works. Its measurements are too short to be
/// useful.
pub(crate) fn check() -> Result<()> {
    core::check()?;
    accuracy::check()?;
    fleet::check()?;
    request::check()
}

/// Converts a count to a floating-point number through text, because there is no other lossless
/// conversion.
fn float(n: u64) -> f64 {
    u32::try_from(n).map_or(f64::MAX, f64::from)
}

/// Returns the median, or 0 without numbers.
fn median(mut numbers: Vec<f64>) -> f64 {
    numbers.sort_by(f64::total_cmp);
    let middle = numbers.len().div_euclid(2);
    numbers.get(middle).copied().unwrap_or(0.0)
}

/// Returns the 5th percentile, which excludes most of the time that other programs on the machine
/// take.
fn quiet(mut numbers: Vec<f64>) -> f64 {
    numbers.sort_by(f64::total_cmp);
    let place = numbers.len().div_euclid(20);
    numbers.get(place).copied().unwrap_or(0.0)
}

/// Returns the time in microseconds that `thousandths` of the samples do not exceed; `None` without
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
