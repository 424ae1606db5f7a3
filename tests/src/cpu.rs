//! Measures the processor time of processes and of Envoy's worker threads, in nanoseconds.

use std::fs;
use std::time::Duration;

use anyhow::{Context as _, Result, ensure};

/// Common prefix of the names of Envoy's worker threads.
const WORKER: &str = "wrk:worker_";

/// Returns the processor time of all workers of this Envoy. The system counts a worker's current
/// work only when the worker waits again.
pub fn worker_time(envoy: u32) -> Result<Duration> {
    threads_time(envoy, WORKER)
}

/// Like [`worker_time`], but for all living threads of a process.
pub fn process_time(process: u32) -> Result<Duration> {
    threads_time(process, "")
}

/// Returns the processor time of the threads whose names begin with this prefix.
fn threads_time(process: u32, begin: &str) -> Result<Duration> {
    let tasks = format!("/proc/{process}/task");
    let mut threads = 0;
    let mut ns = 0_u64;
    for task in fs::read_dir(&tasks).with_context(|| tasks.clone())? {
        let task = task?.path();
        let name = fs::read_to_string(task.join("comm")).unwrap_or_default();
        if !name.starts_with(begin) {
            continue;
        }
        let stat = fs::read_to_string(task.join("schedstat"))?;
        let ran = stat
            .split(' ')
            .next()
            .and_then(|ran| ran.parse::<u64>().ok());
        ns += ran.with_context(|| format!("no time: {stat:?}"))?;
        threads += 1_u32;
    }
    ensure!(
        threads > 0,
        "process {process} has no threads named {begin}*"
    );
    Ok(Duration::from_nanos(ns))
}
