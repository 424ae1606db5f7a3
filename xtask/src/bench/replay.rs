//! `cargo xtask bench replay`: the speed of `loudou replay`, and its memory.
//!
//! The trace is the same every time. The benchmark asserts nothing, because machines differ.

use std::fs::{self, File};
use std::io::{BufWriter, Read as _, Write as _};
use std::path::Path;
use std::process::{Child, ChildStdout, Command, Stdio};
use std::sync::mpsc::{RecvTimeoutError, channel};
use std::thread;
use std::time::Duration;

use anyhow::{Context as _, Result, ensure};
use loudou_tests::clock::now;
use loudou_tests::paths::target_dir;
use loudou_tests::temp::TempDir;
use serde_json::Value;

use super::{float, processor_time};
use crate::command::{cargo, run};

const REQUESTS: u64 = 5_000_000;
const USERS: u64 = 100_000;
/// The interval at which the child's memory is read; Linux keeps the peak.
const LOOK: Duration = Duration::from_millis(20);
const RULES: &str = r#"{"version": 1, "rules": [{"name": "per-user", "key": [{"header": "x-user-id"}],
  "limits": [{"name": "burst", "algorithm": "funnel", "capacity": 15, "rate": "30/60s"}]}]}
"#;

/// Runs the benchmark.
pub(super) fn run_all() -> Result<()> {
    run(&mut cargo(&["build", "--release", "--package", "loudou"]))?;
    let folder = TempDir::new("bench")?;
    let (rules, trace) = (
        folder.path().join("rules.json"),
        folder.path().join("trace.jsonl"),
    );
    fs::write(&rules, RULES)?;
    println!("writing {REQUESTS} requests of {USERS} users…");
    write_trace(&trace)?;
    let bytes = fs::metadata(&trace)?.len();
    for form in ["json", "jsonl"] {
        let mut command = Command::new(target_dir().join("release/loudou"));
        command.arg("replay").arg("--config").arg(&rules);
        command.arg("--trace").arg(&trace).args(["--output", form]);
        let used = measured(&mut command)?;
        let summary: Option<Value> = serde_json::from_slice(&used.output).ok();
        let counts = summary.and_then(|summary| summary.get("requests").cloned());
        println!(
            "{form}: {:.2} s, {:.2} s of processor, {:.0} requests/s, {:.0} MB/s, {} kB at most{}",
            used.seconds,
            used.processor,
            float(REQUESTS) / used.seconds,
            float(bytes) / used.seconds / 1e6,
            used.kilobytes,
            counts
                .map(|counts| format!(", {counts}"))
                .unwrap_or_default(),
        );
    }
    Ok(())
}

/// Writes a trace of pseudo-random times and users, without a random number generator.
fn write_trace(path: &Path) -> Result<()> {
    let mut out = BufWriter::with_capacity(1 << 20, File::create(path)?);
    let (mut random, mut at_ns) = (1_u64, 0_u64);
    for n in 0..REQUESTS {
        // Knuth's generator; its high bits are the good ones.
        random = random
            .wrapping_mul(6_364_136_223_846_793_005)
            .wrapping_add(1_442_695_040_888_963_407);
        let user = (random >> 33) % USERS;
        at_ns += (random >> 20) % 40_000;
        let (high, low) = (user >> 8 & 255, user & 255);
        writeln!(
            out,
            "{{\"at_ns\":{at_ns},\"method\":\"GET\",\"path\":\"/api/items/{}\",\
             \"host\":\"api.example.com\",\"headers\":{{\"x-user-id\":\"user-{user}\",\
             \"user-agent\":\"curl/8.5.0\"}},\"source\":\"10.{}.{high}.{low}\"}}",
            n % 97,
            user >> 16,
        )?;
    }
    out.flush().context("cannot write the trace")
}

/// The resources that a child used.
struct Used {
    seconds: f64,
    processor: f64,
    kilobytes: u64,
    /// The beginning of what it printed.
    output: Vec<u8>,
}

fn measured(command: &mut Command) -> Result<Used> {
    let clock = now();
    let mut child = command.stdout(Stdio::piped()).spawn()?;
    let output = child.stdout.take().context("no output")?;
    let (done, ended) = channel::<()>();
    let reader = thread::spawn(move || {
        let output = read_out(output);
        // Dropping the sender ends the receiver's wait.
        drop(done);
        output
    });
    let (mut kilobytes, mut processor) = (0, 0.0);
    while ended.recv_timeout(LOOK) == Err(RecvTimeoutError::Timeout) {
        kilobytes = peak(&child).unwrap_or(kilobytes);
        processor = processor_time(child.id()).unwrap_or(processor);
    }
    let status = child.wait()?;
    let seconds = clock.elapsed().as_secs_f64();
    ensure!(status.success(), "loudou replay failed: {status}");
    let output = reader.join().ok().context("the reader failed")??;
    Ok(Used {
        seconds,
        processor,
        kilobytes,
        output,
    })
}

/// Reads to the end and keeps as much as a summary needs.
fn read_out(mut output: ChildStdout) -> Result<Vec<u8>> {
    let (mut kept, mut chunk) = (Vec::new(), vec![0; 1 << 16]);
    loop {
        let read = output.read(&mut chunk)?;
        if read == 0 {
            return Ok(kept);
        }
        if kept.len() < 1 << 20 {
            kept.extend_from_slice(chunk.get(..read).unwrap_or_default());
        }
    }
}

/// The peak memory of a child, in kB.
fn peak(child: &Child) -> Option<u64> {
    let status = fs::read_to_string(format!("/proc/{}/status", child.id())).ok()?;
    let line = status
        .lines()
        .find_map(|line| line.strip_prefix("VmHWM:"))?;
    line.split_whitespace().next()?.parse().ok()
}
