//! `cargo xtask bench replay`: the time and the memory that `loudou replay` takes.
//!
//! The logs are the same every time: a trace in order, the log of three Envoys one after the other in one file, and
//! the same Envoys' logs rotated, compressed in part, and with the prefix of `kubectl logs`. With `--beside`, another
//! build of `loudou` has turns of its own. The benchmark asserts nothing, because machines differ.

use std::fs::{self, File};
use std::io::{BufWriter, Read as _, Write as _};
use std::path::{Path, PathBuf};
use std::process::{Child, ChildStdout, Command, Stdio};
use std::sync::mpsc::{RecvTimeoutError, channel};
use std::thread;
use std::time::Duration;

use anyhow::{Context as _, Result};
use loudou_tests::clock::now;
use loudou_tests::logs::{Around, Random, Style, replica, traffic};
use loudou_tests::paths::target_dir;
use loudou_tests::temp::TempDir;
use serde_json::Value;

use super::{float, median, processor_time};
use crate::command::{cargo, run};

const USERS: u32 = 100_000;
const REPLICAS: usize = 3;
const PARTS: usize = 2;
/// The interval at which the child's memory is read; Linux keeps the peak.
const LOOK: Duration = Duration::from_millis(20);

/// The size of a measurement.
#[derive(Clone, Copy)]
struct Size {
    requests: usize,
    rounds: usize,
}

const FULL: Size = Size {
    requests: 5_000_000,
    rounds: 3,
};
const QUICK: Size = Size {
    requests: 500_000,
    rounds: 1,
};

/// A log, and the rules for it.
struct Log {
    name: &'static str,
    rules: PathBuf,
    files: Vec<PathBuf>,
    bytes: u64,
    /// More options.
    options: &'static [&'static str],
}

/// Runs the benchmark.
pub(super) fn run_all(quick: bool, beside: Option<PathBuf>) -> Result<()> {
    run(&mut cargo(&["build", "--release", "--package", "loudou"]))?;
    let folder = TempDir::new("bench")?;
    let size = if quick { QUICK } else { FULL };
    println!(
        "writing {} requests of {USERS} users, three times…",
        size.requests
    );
    let logs = write_logs(folder.path(), size.requests)?;
    let mut builds = vec![("now", target_dir().join("release/loudou"))];
    builds.extend(beside.map(|program| ("beside", program)));
    println!("| log | MB | build | s | s of processor | requests/s | MB at most | refused |");
    println!("| --- | ---: | --- | ---: | ---: | ---: | ---: | ---: |");
    for log in &logs {
        let mut turns: Vec<Vec<Used>> = builds.iter().map(|_| Vec::new()).collect();
        for _ in 0..size.rounds {
            for ((_, program), turns) in builds.iter().zip(&mut turns) {
                turns.extend(measured(&mut log.command(program))?);
            }
        }
        for ((build, _), turns) in builds.iter().zip(turns) {
            log.print(build, &turns, size);
        }
    }
    Ok(())
}

impl Log {
    fn new(folder: &Path, name: &'static str, key: &str, files: Vec<PathBuf>) -> Result<Self> {
        let rules = folder.join(format!("{}.json", key.len()));
        let text = format!(
            r#"{{"version": 1, "rules": [{{"name": "per-user", "key": [{key}], "limits":
               [{{"name": "burst", "algorithm": "funnel", "capacity": 15, "rate": "30/60s"}}]}}]}}"#
        );
        fs::write(&rules, text)?;
        let mut bytes = 0;
        for file in &files {
            bytes += fs::metadata(file)?.len();
        }
        Ok(Self {
            name,
            rules,
            files,
            bytes,
            options: &[],
        })
    }

    /// The same log, for the limits that it would have needed.
    fn suggesting(&self, name: &'static str) -> Self {
        Self {
            name,
            rules: self.rules.clone(),
            files: self.files.clone(),
            bytes: self.bytes,
            options: &["--suggest"],
        }
    }

    fn command(&self, program: &Path) -> Command {
        let mut command = Command::new(program);
        command.arg("replay").arg("--config").arg(&self.rules);
        for file in &self.files {
            command.arg("--trace").arg(file);
        }
        command.args(["--output", "json"]).args(self.options);
        command
    }

    fn print(&self, build: &str, turns: &[Used], size: Size) {
        let (name, mb) = (self.name, float(self.bytes / 1_000) / 1e3);
        let Some(last) = turns.last() else {
            println!("| {name} | {mb:.0} | {build} | cannot read it | | | | |");
            return;
        };
        let of = |value: fn(&Used) -> f64| median(turns.iter().map(value).collect());
        let seconds = of(|used| used.seconds);
        let requests = u64::try_from(size.requests).unwrap_or(u64::MAX);
        println!(
            "| {name} | {mb:.0} | {build} | {seconds:.2} | {:.2} | {:.0} | {:.1} | {} |",
            of(|used| used.processor),
            float(requests) / seconds,
            of(|used| float(used.kilobytes) / 1e3),
            last.refused
                .map_or_else(|| "?".to_owned(), |refused| refused.to_string()),
        );
    }
}

fn write_logs(folder: &Path, requests: usize) -> Result<Vec<Log>> {
    let trace = folder.join("trace.jsonl");
    write_trace(&trace, requests)?;
    let sent = traffic(1, requests, USERS, 1);
    let (all, mut rotated) = (folder.join("all.log"), Vec::new());
    let mut whole = BufWriter::with_capacity(1 << 20, File::create(&all)?);
    for index in 0..REPLICAS {
        let server = (index, REPLICAS);
        for (_, bytes) in replica(&sent, Style::Envoy, Around::Nothing, server, 1)? {
            whole.write_all(&bytes)?;
        }
        for (name, bytes) in replica(&sent, Style::Envoy, Around::Kubectl, server, PARTS)? {
            let path = folder.join(name);
            fs::write(&path, bytes)?;
            rotated.push(path);
        }
    }
    whole.flush()?;
    let source = r#""source""#;
    let in_order = Log::new(
        folder,
        "trace, in order",
        r#"{"header": "x-user-id"}"#,
        vec![trace],
    )?;
    Ok(vec![
        in_order.suggesting("trace, in order, --suggest"),
        in_order,
        Log::new(folder, "three Envoys in one file", source, vec![all])?,
        Log::new(folder, "rotated, compressed, prefixed", source, rotated)?,
    ])
}

/// Writes a trace of pseudo-random times and users.
fn write_trace(path: &Path, requests: usize) -> Result<()> {
    let mut out = BufWriter::with_capacity(1 << 20, File::create(path)?);
    let (mut random, mut at_ns) = (Random::new(1), 0_u64);
    for n in 0..requests {
        let user = random.below(USERS.into());
        at_ns += random.below(40_000);
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
    /// The requests that it refused.
    refused: Option<u64>,
}

/// Runs a command; `None` if it cannot read these files.
fn measured(command: &mut Command) -> Result<Option<Used>> {
    let clock = now();
    let mut child = command
        .stdout(Stdio::piped())
        .stderr(Stdio::null())
        .spawn()?;
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
    let output = reader.join().ok().context("the reader failed")??;
    let summary: Option<Value> = serde_json::from_slice(&output).ok();
    let refused = summary.and_then(|summary| summary.pointer("/requests/refused")?.as_u64());
    Ok(status.success().then_some(Used {
        seconds,
        processor,
        kilobytes,
        refused,
    }))
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
