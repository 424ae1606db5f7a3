//! Replays calls of other rate limiters, and compares every answer with Loudou's.
//!
//! The vectors are outputs of real limiters; `vectors/README.md` lists them. Each file has a module
//! here that knows how its settings are written as our limits. Where we differ on purpose, a case in
//! `explained` says which calls and why; any other difference fails, and so does a case that covers
//! nothing.
//!
//! This target has its own `main`, so that the table of what was compared is part of the output of
//! `cargo test`. Of the usual arguments it understands names to run, `--skip`, `--exact`, `--list` and
//! `--ignored`; the tests are the vector files.
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
