//! `cargo xtask`: what a contributor runs, in plain Rust, so that it works wherever Cargo does.
//!
//! `setup` installs Envoy, `build` builds the filter, `demo` shows both at work, `docs` builds the documents
//! as a site, `bench` measures, `soak` looks for requests too many. `test` must pass before a commit, `ci`
//! before a merge.

#![expect(
    clippy::print_stdout,
    clippy::print_stderr,
    reason = "a command line tool speaks"
)]

mod bench;
mod checks;
mod circles;
mod command;
mod demo;
mod docs;
mod filter;
mod pictures;
mod setup;
mod soak;

use std::process::ExitCode;

use clap::{Parser, Subcommand};

#[derive(Debug, Parser)]
#[command(
    name = "cargo xtask",
    bin_name = "cargo xtask",
    about = "Build, try and check Loudou"
)]
struct Arguments {
    #[command(subcommand)]
    task: Task,
}

#[derive(Debug, Clone, Subcommand)]
enum Task {
    /// Makes sure of the wasm target and of an Envoy; quick when they are there
    Setup,
    /// Builds the filter, checks its size and what it asks of its host
    Build {
        /// Builds the filter that panics on request instead, as a test of crashes wants it
        #[arg(long)]
        trap: bool,
    },
    /// Starts Envoy with the filter and a dozen users, and opens `loudou` on it
    Demo,
    /// Draws the pictures in docs/algorithms and docs/pictures again
    Pictures,
    /// Checks the links of all documents, and builds them as a site with mdBook
    Docs {
        /// Only check the links
        #[arg(long)]
        check: bool,
    },
    /// Measures
    Bench {
        /// What
        what: bench::Bench,
    },
    /// Changes everything about the limits of an Envoy under load, and counts what each key gets
    Soak {
        /// How long
        #[arg(long, default_value_t = 2)]
        minutes: u64,
        /// The seed of an earlier soak, to do the same again
        #[arg(long)]
        seed: Option<u64>,
        /// Actions that are left out, to see which of them a violation takes
        #[arg(long, value_delimiter = ',', value_parser = loudou_tests::soak::plan::WORDS)]
        without: Vec<String>,
    },
    /// Looks for files of a crate that use each other in a circle
    Circles,
    /// Runs every test, those in a real Envoy included
    Test,
    /// Runs the formatter's, the lints' and the circles' checks, the docs, `test`, a soak, and cargo-deny where installed
    Ci,
}

fn main() -> ExitCode {
    let done = match Arguments::parse().task {
        Task::Setup => setup::run().map(drop),
        Task::Build { trap: false } => filter::build().map(drop),
        Task::Build { trap: true } => filter::build_trap().map(drop),
        Task::Circles => circles::run(),
        Task::Demo => demo::run(),
        Task::Pictures => pictures::run_all(),
        Task::Docs { check } => docs::run(check),
        Task::Bench { what } => bench::bench(what),
        Task::Soak {
            minutes,
            seed,
            without,
        } => soak::run(minutes, seed, without),
        Task::Test => checks::test(),
        Task::Ci => checks::ci(),
    };
    match done {
        Ok(()) => ExitCode::SUCCESS,
        Err(error) => {
            eprintln!("error: {error:#}");
            ExitCode::FAILURE
        }
    }
}
