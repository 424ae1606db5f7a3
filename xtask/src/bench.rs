//! `cargo xtask bench`: measures and prints the results. It asserts nothing about times, because
//! machines differ; [`instructions`] are the same on all, and have budgets.

use std::fs;
use std::path::PathBuf;
use std::time::Duration;

use anyhow::Result;
use clap::ValueEnum;

use crate::command::{cargo, run};

mod admin;
mod core;
mod fleet;
pub(crate) mod instructions;
mod parts;
mod replay;
mod request;
mod screen;
mod waiting;

/// A benchmark.
#[derive(Debug, Clone, Copy, ValueEnum)]
pub(crate) enum Bench {
    /// Measure what calls of the admin API cost a worker, and the requests beside them
    Admin,
    /// Measure a decision beside governor's, with a page of the store, and with 1, 16 and 256 rules, natively
    Core,
    /// Measure latency, calls and processor time of rules that Envoys share, beside Envoy's own rate limit filter
    Fleet,
    /// Count the wasm instructions and the host calls of a request, also in the form of their budgets
    Instructions,
    /// Replay 5 million requests of 100 000 users through one rule, in order and out of order
    Replay,
    /// Measure what a request costs Envoy's worker, beside Envoy's own filter and the least filters there can be
    Request,
    /// Measure what a running screen costs Envoy and the requests, with up to 100 000 buckets
    Screen,
    /// Measure what 10 000 held requests cost other requests, in Loudou and in Envoy's own fault filter
    Waiting,
    /// Measure what counting a request's key for the top keys costs, natively
    Top,
    /// Measure the time that a byte of a value takes with regular expressions, natively
    Regex,
}

/// The unit of `/proc/PID/stat` on every Linux.
const TICKS_PER_SECOND: f64 = 100.0;

/// Runs a benchmark.
pub(crate) fn bench(
    what: Bench,
    quick: bool,
    wasm: Option<PathBuf>,
    beside: Option<PathBuf>,
) -> Result<()> {
    match what {
        Bench::Admin => admin::run_all(quick, wasm),
        Bench::Core => core::run_all(quick),
        Bench::Fleet => fleet::run_all(quick, wasm),
        Bench::Instructions => instructions::run_all(wasm),
        Bench::Replay => replay::run_all(quick, beside),
        Bench::Request => request::run_all(quick, wasm, beside),
        Bench::Screen => screen::run_all(quick, wasm, beside),
        Bench::Waiting => waiting::run_all(),
        Bench::Top => {
            let bench = ["bench", "--package", "loudou-store", "--bench", "top"];
            run(&mut cargo(&bench))
        }
        Bench::Regex => {
            let bench = ["bench", "--package", "loudou-rules", "--bench", "regex"];
            run(&mut cargo(&bench))
        }
    }
}

/// Checks that a benchmark of many parts still works, without measuring anything of use.
pub(crate) fn check() -> Result<()> {
    core::check()?;
    fleet::check()?;
    request::check()?;
    screen::check()
}

/// The processor time of a process so far, in seconds.
fn processor_time(process: u32) -> Option<f64> {
    let stat = fs::read_to_string(format!("/proc/{process}/stat")).ok()?;
    // The name in parentheses may contain any character.
    let (_, fields) = stat.rsplit_once(") ")?;
    let times = fields.split(' ').skip(11).take(2);
    let ticks: f64 = times.filter_map(|ticks| ticks.parse::<f64>().ok()).sum();
    Some(ticks / TICKS_PER_SECOND)
}

/// A count as a floating-point number, by way of text: there is no other lossless conversion.
fn float(n: u64) -> f64 {
    u32::try_from(n).map_or(f64::MAX, f64::from)
}

/// The median; 0 of nothing.
fn median(mut numbers: Vec<f64>) -> f64 {
    numbers.sort_by(f64::total_cmp);
    let middle = numbers.len().div_euclid(2);
    numbers.get(middle).copied().unwrap_or(0.0)
}

/// The number that a twentieth of these does not exceed: what remains when others use the machine.
fn quiet(mut numbers: Vec<f64>) -> f64 {
    numbers.sort_by(f64::total_cmp);
    let place = numbers.len().div_euclid(20);
    numbers.get(place).copied().unwrap_or(0.0)
}

/// The time in microseconds that `thousandths` of these do not exceed; none of nothing.
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
