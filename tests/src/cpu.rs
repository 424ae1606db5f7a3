//! The processor time of processes and of Envoy's worker threads, to the nanosecond.

use std::fs;
use std::time::Duration;

use anyhow::{Context as _, Result, ensure};

/// The beginning of the names of Envoy's worker threads.
const WORKER: &str = "wrk:worker_";

/// The time that all workers of this Envoy have run on a processor. What a worker does at this moment is
/// counted when it waits for something again.
pub fn worker_time(envoy: u32) -> Result<Duration> {
    threads_time(envoy, WORKER)
}

/// The same of all threads of a process that have not ended.
pub fn process_time(process: u32) -> Result<Duration> {
    threads_time(process, "")
}

/// The time of the threads whose names begin with this.
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
