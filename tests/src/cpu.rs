//! The processor time of Envoy's worker threads, to the nanosecond.

use std::fs;
use std::time::Duration;

use anyhow::{Context as _, Result, ensure};

/// The beginning of the names of Envoy's worker threads.
const WORKER: &str = "wrk:worker_";

/// The time that all workers of this Envoy have run on a processor. What a worker does at this moment is
/// counted when it waits for something again.
pub fn worker_time(envoy: u32) -> Result<Duration> {
    let tasks = format!("/proc/{envoy}/task");
    let mut workers = 0;
    let mut ns = 0_u64;
    for task in fs::read_dir(&tasks).with_context(|| tasks.clone())? {
        let task = task?.path();
        let name = fs::read_to_string(task.join("comm")).unwrap_or_default();
        if !name.starts_with(WORKER) {
            continue;
        }
        let stat = fs::read_to_string(task.join("schedstat"))?;
        let ran = stat
            .split(' ')
            .next()
            .and_then(|ran| ran.parse::<u64>().ok());
        ns += ran.with_context(|| format!("no time: {stat:?}"))?;
        workers += 1_u32;
    }
    ensure!(workers > 0, "process {envoy} has no worker threads");
    Ok(Duration::from_nanos(ns))
}
