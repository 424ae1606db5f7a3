//! Runs one target; `cargo xtask fuzz` runs all of them, and catches those that end the process.

#![expect(clippy::print_stdout, reason = "a command line tool prints")]

use std::fs;
use std::path::PathBuf;
use std::process::ExitCode;

use anyhow::{Context as _, Result};
use clap::Parser;
use loudou_fuzz::driver::{self, Settings};
use loudou_fuzz::targets::{self, Target};
use loudou_fuzz::trial;

/// Run one target of the fuzzer
#[derive(Debug, Parser)]
struct Arguments {
    /// The target; without one, their names are printed
    #[arg(long)]
    target: Option<String>,
    /// The time in seconds
    #[arg(long, default_value_t = 10)]
    seconds: u64,
    /// The seed of the mutations
    #[arg(long, default_value_t = 1)]
    seed: u64,
    /// Where the current input is written
    #[arg(long)]
    current: Option<PathBuf>,
    /// Where a failing input is written
    #[arg(long)]
    failing: Option<PathBuf>,
    /// Run only this input
    #[arg(long)]
    input: Option<PathBuf>,
}

fn main() -> Result<ExitCode> {
    let arguments = Arguments::parse();
    let Some(name) = &arguments.target else {
        for target in targets::ALL {
            println!("{}\t{}", target.name, target.about);
        }
        return Ok(ExitCode::SUCCESS);
    };
    let target = targets::find(name).with_context(|| format!("no target `{name}`"))?;
    trial::install_panic_hook();
    let wrong = match &arguments.input {
        Some(path) => {
            let input = fs::read(path).with_context(|| path.display().to_string())?;
            trial::run(target, &input).err()
        }
        None => fuzz(target, &arguments)?,
    };
    Ok(match wrong {
        None => ExitCode::SUCCESS,
        Some(wrong) => {
            println!("{name}: {wrong}");
            ExitCode::FAILURE
        }
    })
}

fn fuzz(target: &Target, arguments: &Arguments) -> Result<Option<String>> {
    let settings = Settings {
        seconds: arguments.seconds,
        seed: arguments.seed,
        current: arguments.current.clone(),
    };
    let report = driver::run(target, &settings)?;
    let (inputs, kept, reached) = (report.inputs, report.kept, report.reached);
    println!(
        "{}: {inputs} inputs, {kept} kept, {reached} places reached",
        target.name
    );
    let Some((input, wrong)) = report.failure else {
        return Ok(None);
    };
    if let Some(path) = &arguments.failing {
        fs::write(path, input).with_context(|| path.display().to_string())?;
    }
    Ok(Some(wrong))
}
