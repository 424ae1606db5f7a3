//! `cargo xtask fuzz`: runs the targets of `fuzz/`, each in a process of its own, which may end or hang.

use std::fs;
use std::path::{Path, PathBuf};
use std::process::{Command, ExitStatus};
use std::sync::mpsc::{RecvTimeoutError, channel};
use std::time::Duration;

use anyhow::{Context as _, Result, bail, ensure};
use loudou_tests::paths::{target_dir, workspace_root};
use loudou_tests::process::{Group, Guarded};

use crate::command::{cargo, run as run_command};

/// The CPU time after which one input counts as endless.
const ENDLESS: Duration = Duration::from_secs(20);
const LOOK: Duration = Duration::from_millis(100);

/// The options of `cargo xtask fuzz`.
#[derive(Clone, Debug, clap::Args)]
pub(crate) struct Arguments {
    /// The time for each target, in seconds
    #[arg(long, default_value_t = 10)]
    seconds: u64,
    /// The seed of the inputs; the same seed makes the same inputs
    #[arg(long, default_value_t = 1)]
    seed: u64,
    /// Only these targets
    #[arg(long, value_delimiter = ',')]
    target: Vec<String>,
    /// Run only this input, of one target
    #[arg(long, requires = "target")]
    input: Option<PathBuf>,
}

/// Every target for `seconds`.
pub(crate) fn short(seconds: u64) -> Result<()> {
    run(&Arguments {
        seconds,
        seed: 1,
        target: Vec::new(),
        input: None,
    })
}

/// Runs the targets one after the other, and reports all that failed.
pub(crate) fn run(arguments: &Arguments) -> Result<()> {
    let program = build()?;
    let mut targets = arguments.target.clone();
    if targets.is_empty() {
        targets = names(&program)?;
    }
    let mut failed = Vec::new();
    for target in &targets {
        let done = match &arguments.input {
            Some(input) => repeat(&program, target, input),
            None => fuzz(&program, target, arguments),
        };
        if let Err(error) = done {
            println!("{error:#}");
            failed.push(target.as_str());
        }
    }
    ensure!(failed.is_empty(), "failed: {}", failed.join(", "));
    Ok(())
}

/// Builds the fuzzer so that it sees which code an input reaches.
fn build() -> Result<PathBuf> {
    let folder = target_dir().join("fuzz");
    let mut build = cargo(&[
        "build",
        "--package",
        "loudou-fuzz",
        "--features",
        "coverage",
    ]);
    build
        .args(["--profile", "fuzz", "--target-dir"])
        .arg(&folder);
    build.env("RUSTFLAGS", "-Cinstrument-coverage");
    // Build scripts count, too.
    run_command(build.env("LLVM_PROFILE_FILE", "/dev/null"))?;
    Ok(folder.join("fuzz/loudou-fuzz"))
}

fn command(program: &Path, target: &str) -> Command {
    let mut command = Command::new(program);
    command.args(["--target", target]);
    // The counters are read inside the process; no report is wanted at its end.
    command.env("LLVM_PROFILE_FILE", "/dev/null");
    command
}

fn names(program: &Path) -> Result<Vec<String>> {
    let mut list = Command::new(program);
    let output = list.env("LLVM_PROFILE_FILE", "/dev/null").output()?;
    let text = String::from_utf8_lossy(&output.stdout);
    let names = text.lines().filter_map(|line| line.split('\t').next());
    Ok(names.map(str::to_owned).collect())
}

fn repeat(program: &Path, target: &str, input: &Path) -> Result<()> {
    let current = target_dir().join("fuzz").join(format!("{target}.current"));
    drop(fs::remove_file(&current));
    let mut repeat = command(program, target);
    let (status, endless) = watch(repeat.arg("--input").arg(input), &current)?;
    ensure!(!endless, "{target}: takes more than {ENDLESS:?}");
    ensure!(status.success(), "{target}: {status}");
    println!("{target}: nothing is wrong with {}", input.display());
    Ok(())
}

fn fuzz(program: &Path, target: &str, arguments: &Arguments) -> Result<()> {
    let folder = target_dir().join("fuzz");
    let current = folder.join(format!("{target}.current"));
    let failing = folder.join(format!("{target}.failing"));
    for old in [&current, &failing] {
        drop(fs::remove_file(old));
    }
    let mut child = command(program, target);
    child.args(["--seconds", &arguments.seconds.to_string()]);
    child.args(["--seed", &arguments.seed.to_string()]);
    child
        .arg("--current")
        .arg(&current)
        .arg("--failing")
        .arg(&failing);
    let (status, endless) = watch(&mut child, &current)?;
    if status.success() && !endless {
        return Ok(());
    }
    if !failing.is_file() {
        // The process ended in the middle of an input.
        fs::write(&failing, last_input(&current)?)?;
    }
    let wrong = if endless {
        format!("an input takes more than {ENDLESS:?}")
    } else {
        status.to_string()
    };
    let size = fs::metadata(&failing)?.len();
    let shown = failing.display();
    bail!(
        "{target}: {wrong}\n  the input is {shown} ({size} bytes)\n  repeat it: \
         cargo xtask fuzz --target {target} --input {shown}\n  \
         keep it as a test: cp {shown} {}/fuzz/corpus/{target}/NAME",
        workspace_root().display()
    )
}

/// Waits for the end of a target. True if it was ended because of an endless input.
fn watch(child: &mut Command, current: &Path) -> Result<(ExitStatus, bool)> {
    let mut child = Guarded::spawn("the fuzzer", child, Group::Own)?;
    let spent = format!("/proc/{}/schedstat", child.pid());
    // Nothing is ever sent: this is a pause.
    let (_pause, pause) = channel::<()>();
    let (mut number, mut since) = (None, Duration::ZERO);
    loop {
        if let Some(status) = child.ended()? {
            return Ok((status, false));
        }
        // Without this file, as on other systems, endless inputs are not found.
        let spent = fs::read_to_string(&spent).unwrap_or_default();
        let spent = spent.split(' ').next().and_then(|ns| ns.parse().ok());
        let spent = Duration::from_nanos(spent.unwrap_or_default());
        let running = number_of(current);
        if running != number {
            (number, since) = (running, spent);
        }
        if spent.saturating_sub(since) > ENDLESS {
            drop(child);
            return Ok((ExitStatus::default(), true));
        }
        if pause.recv_timeout(LOOK) == Err(RecvTimeoutError::Disconnected) {
            bail!("the pause has ended");
        }
    }
}

/// The number of the current input.
fn number_of(current: &Path) -> Option<[u8; 8]> {
    let bytes = fs::read(current).ok()?;
    bytes.first_chunk().copied()
}

fn last_input(current: &Path) -> Result<Vec<u8>> {
    let bytes = fs::read(current).context("the fuzzer ended before its first input")?;
    let (_, rest) = bytes.split_first_chunk::<8>().context("no number")?;
    let (length, rest) = rest.split_first_chunk::<8>().context("no length")?;
    let length = usize::try_from(u64::from_le_bytes(*length))?;
    Ok(rest.get(..length).unwrap_or(rest).to_vec())
}
