//! Replays calls of other rate limiters, and compares each answer with Loudou's answer.
//!
//! The vectors are outputs of real limiters, which `vectors/README.md` lists. Each vector file has
//! a module here that converts its settings to Loudou's limits. If Loudou differs on purpose, a
//! case in `explained` lists the calls and the reason. Any other difference is a failure, and so is
//! a case that covers no call.
//!
//! This target has a custom `main`, so that a table of the comparisons is part of the output of
//! `cargo test`. It accepts names of tests, `--skip`, `--exact`, `--list` and `--ignored`. The
//! tests are the vector files.
#![cfg(test)]

use std::process::ExitCode;

mod arguments;
mod bucket4j;
mod explained;
mod go;
mod governor;
mod guava;
mod level;
mod nginx;
mod number;
mod ratio;
mod redis_cell;
mod replay;
mod report;
mod sentinel;
mod spring;

use replay::Suite;
use report::Report;

const SUITES: [Suite; 9] = [
    redis_cell::PURE,
    redis_cell::TTL,
    governor::SUITE,
    bucket4j::SUITE,
    go::SUITE,
    spring::SUITE,
    nginx::SUITE,
    sentinel::SUITE,
    guava::SUITE,
];

fn main() -> ExitCode {
    let arguments = arguments::Arguments::new(std::env::args().skip(1));
    let chosen: Vec<&Suite> = SUITES
        .iter()
        .filter(|suite| arguments.choose(suite.file))
        .collect();
    if arguments.list {
        for suite in chosen {
            println!("{}: test", suite.file);
        }
        return ExitCode::SUCCESS;
    }
    let mut report = Report::default();
    for suite in &chosen {
        suite.run(&mut report);
    }
    if chosen.len() == SUITES.len() {
        report.look_for_stale_cases();
    }
    if !chosen.is_empty() {
        print!("{report}");
    }
    if report.passed() {
        ExitCode::SUCCESS
    } else {
        ExitCode::FAILURE
    }
}
