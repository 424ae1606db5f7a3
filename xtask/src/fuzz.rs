//! `cargo xtask fuzz`: runs libFuzzer on the targets in `tests/fuzz`. Each target runs in its own
//! process, because it may crash or hang.

use std::fs::{self, File};
use std::path::{Path, PathBuf};
use std::process::Command;

use anyhow::{Context as _, Result, bail, ensure};
use loudou_tests::paths::{target_dir, workspace_root};

use crate::command::{cargo, run as run_command};

/// Compiler flags that report to libFuzzer which code an input reaches; they also work with stable
/// Rust.
const COVERAGE: &str = "-Cpasses=sancov-module -Cllvm-args=-sanitizer-coverage-level=4 \
    -Cllvm-args=-sanitizer-coverage-inline-8bit-counters -Cllvm-args=-sanitizer-coverage-pc-table \
    -Cllvm-args=-sanitizer-coverage-trace-compares --cfg fuzzing";
/// Timeout for a single input, in seconds. An input that takes longer is reported as a hang.
const ENDLESS_S: u32 = 60;

/// The options of `cargo xtask fuzz`.
#[derive(Clone, Debug, clap::Args)]
pub(crate) struct Arguments {
    /// Time per target, in seconds
    #[arg(long, default_value_t = 10)]
    seconds: u64,
    /// Seed for the generated inputs
    #[arg(long, default_value_t = 1)]
    seed: u32,
    /// Fuzz only these targets
    #[arg(long, value_delimiter = ',')]
    target: Vec<String>,
    /// Run only this input, with a single target
    #[arg(long, requires = "target")]
    input: Option<PathBuf>,
}

/// Fuzzes every target for this many seconds, with a fixed seed.
pub(crate) fn short(seconds: u64) -> Result<()> {
    run(&Arguments {
        seconds,
        seed: 1,
        target: Vec::new(),
        input: None,
    })
}

/// Fuzzes the chosen targets one after another; reports all failed targets at the end.
pub(crate) fn run(arguments: &Arguments) -> Result<()> {
    let folder = target_dir().join("fuzz");
    let program = build(&folder)?;
    let targets = prepared(&program, &folder.join("targets"))?;
    for name in &arguments.target {
        ensure!(
            targets.contains(name),
            "no target `{name}`; there are {}",
            targets.join(", ")
        );
    }
    let is_chosen = |name: &&String| arguments.target.is_empty() || arguments.target.contains(name);
    let mut failed = Vec::new();
    for target in targets.iter().filter(is_chosen) {
        if let Err(error) = fuzz(&program, &folder.join("targets"), target, arguments) {
            println!("{error:#}");
            failed.push(target.as_str());
        }
    }
    ensure!(failed.is_empty(), "failed: {}", failed.join(", "));
    Ok(())
}

/// Builds the fuzzer with coverage instrumentation.
fn build(folder: &Path) -> Result<PathBuf> {
    let package = ["build", "--package", "loudou-fuzz"];
    // With an explicit target, Cargo does not apply these flags to build scripts, which are not
    // linked with libFuzzer.
    let host = host()?;
    let mut build = cargo(&package);
    build
        .args(["--features", "libfuzzer", "--profile", "fuzz"])
        .args(["--target", &host, "--target-dir"])
        .arg(folder);
    run_command(build.env("RUSTFLAGS", COVERAGE))?;
    Ok(folder.join(host).join("fuzz/loudou-fuzz"))
}

/// Returns the target triple of this machine.
fn host() -> Result<String> {
    let output = Command::new("rustc")
        .args(["--print", "host-tuple"])
        .output();
    let output = output.context("cannot run rustc")?;
    ensure!(output.status.success(), "rustc does not say its host");
    Ok(String::from_utf8_lossy(&output.stdout).trim().to_owned())
}

/// Creates a folder for each target below `folder`, with the target's seeds and dictionary, and
/// returns the names of the targets.
fn prepared(program: &Path, folder: &Path) -> Result<Vec<String>> {
    if folder.exists() {
        fs::remove_dir_all(folder).with_context(|| folder.display().to_string())?;
    }
    fs::create_dir_all(folder)?;
    let mut write = Command::new(program);
    // Capture the output: libFuzzer warns about missing sanitizer functions, which are not used.
    let output = write.env("LOUDOU_FUZZ_DIR", folder).output();
    let output = output.context("cannot run the fuzzer")?;
    let errors = String::from_utf8_lossy(&output.stderr);
    ensure!(output.status.success(), "the targets: {errors}");
    let mut names = Vec::new();
    for entry in fs::read_dir(folder)? {
        names.push(entry?.file_name().to_string_lossy().into_owned());
    }
    names.sort();
    Ok(names)
}

fn fuzz(program: &Path, folder: &Path, target: &str, arguments: &Arguments) -> Result<()> {
    let folder = folder.join(target);
    let log = folder.join("log");
    let failing = folder.join("failing");
    let mut fuzz = Command::new(program);
    fuzz.env("LOUDOU_FUZZ_TARGET", target)
        .arg(format!("-timeout={ENDLESS_S}"))
        // Disable libFuzzer's memory limit, because the fuzzer's counting allocator limits memory.
        .arg("-rss_limit_mb=0")
        .arg(format!("-exact_artifact_path={}", failing.display()));
    if let Some(input) = &arguments.input {
        fuzz.arg(input);
    } else {
        let longest = fs::read_to_string(folder.join("longest"))?;
        let found = folder.join("found");
        fs::create_dir_all(&found)?;
        let words = folder.join("words");
        if words.is_file() {
            fuzz.arg(format!("-dict={}", words.display()));
        }
        fuzz.arg(format!("-max_total_time={}", arguments.seconds))
            .arg(format!("-seed={}", arguments.seed))
            .arg(format!("-max_len={longest}"))
            .arg("-print_final_stats=1")
            .arg(found)
            .arg(folder.join("seeds"));
    }
    fuzz.stderr(File::create(&log)?);
    let status = fuzz.status().context("cannot run the fuzzer")?;
    let text = String::from_utf8_lossy(&fs::read(&log)?).into_owned();
    if status.success() {
        println!("{target}: {}", summary(&text));
        return Ok(());
    }
    let from = text.find("panicked at").unwrap_or_default();
    let wrong: Vec<&str> = text.get(from..).unwrap_or(&text).lines().take(6).collect();
    let shown = match &arguments.input {
        Some(input) => input.display(),
        None => failing.display(),
    };
    bail!(
        "{target}: {status}\n{}\n  all that it printed is in {}\n  repeat it: cargo xtask fuzz --target {target} \
         --input {shown}\n  keep it as a test: cp {shown} {}/tests/fuzz/corpus/{target}/NAME",
        wrong.join("\n"),
        log.display(),
        workspace_root().display()
    )
}

/// Returns a summary of libFuzzer's output: the number of inputs and the code coverage.
fn summary(log: &str) -> String {
    let number = |label: &str| {
        let (_, rest) = log.rsplit_once(label)?;
        rest.split_whitespace().next()
    };
    match (number("stat::number_of_executed_units:"), number(" cov: ")) {
        (Some(inputs), Some(reached)) => format!("{inputs} inputs, {reached} places reached"),
        _ => "nothing is wrong".to_owned(),
    }
}
