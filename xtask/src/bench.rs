//! `cargo xtask bench`: measures, and prints what it found. Nothing is asserted: machines differ.

use std::fs;

use anyhow::Result;
use clap::ValueEnum;

use crate::command::{cargo, run};

mod replay;
mod waiting;

/// What is measured.
#[derive(Debug, Clone, Copy, ValueEnum)]
pub(crate) enum Bench {
    /// 5 million requests of 100 000 users through one rule, off line
    Replay,
    /// What 10 000 requests that wait cost others, in Loudou and in Envoy's own fault filter
    Waiting,
    /// What it costs a request that its key is counted for heavy hitters, natively
    Top,
}

/// The unit of `/proc/PID/stat`, on every Linux there is.
const TICKS_PER_SECOND: f64 = 100.0;

/// Measures.
pub(crate) fn bench(what: Bench) -> Result<()> {
    match what {
        Bench::Replay => replay::run_all(),
        Bench::Waiting => waiting::run_all(),
        Bench::Top => {
            let bench = ["bench", "--package", "loudou-store", "--bench", "top"];
            run(&mut cargo(&bench))
        }
    }
}

/// The processor time of a process so far, in seconds.
fn processor_time(process: u32) -> Option<f64> {
    let stat = fs::read_to_string(format!("/proc/{process}/stat")).ok()?;
    // The name in brackets may have anything in it.
    let (_, fields) = stat.rsplit_once(") ")?;
    let times = fields.split(' ').skip(11).take(2);
    let ticks: f64 = times.filter_map(|ticks| ticks.parse::<f64>().ok()).sum();
    Some(ticks / TICKS_PER_SECOND)
}

/// A count as a floating-point number, through a text: there is no other conversion.
fn float(n: u64) -> f64 {
    u32::try_from(n).map_or(f64::MAX, f64::from)
}
