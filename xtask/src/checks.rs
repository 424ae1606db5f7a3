//! `cargo xtask test` and `cargo xtask ci`: run steps in order of increasing cost, and print the
//! title of each step.

use std::process::Command;

use anyhow::{Context as _, Result};
use loudou_tests::clock::now;
use loudou_tests::paths::{target_dir, workspace_root};

use crate::bench;
use crate::command::{cargo, run};
use crate::docs;
use crate::filter;
use crate::fuzz;
use crate::prose;
use crate::setup::{self, WASM_TARGET};
use crate::soak;
use crate::tools::DENY;

/// Title and action of a step.
type Step = (&'static str, fn() -> Result<Outcome>);

/// Action of a step; unlike the function pointer in [`Step`], it may capture local variables.
type Action<'a> = &'a dyn Fn() -> Result<Outcome>;

/// Outcome of a step that did not fail.
#[derive(Clone, Debug, PartialEq, Eq)]
enum Outcome {
    Passed,
    /// The step could not run; contains the reason.
    Skipped(String),
}

/// Defines a step that either passes or fails.
macro_rules! step {
    ($title:literal, $action:expr) => {
        ($title, || $action.map(|_| Outcome::Passed))
    };
}

mod named;
mod native;

const SETUP: Step = step!("setup", setup::for_tests());
const UNIT: Step = step!("unit tests", unit());
const FILTER: Step = step!("the filter (wasm)", filter::build());
const INSTRUCTIONS: Step = step!("instructions of a request", bench::instructions::check());
const TRAP: Step = step!("the filter that can panic, for tests", filter::build_trap());
const WITHOUT_ADMIN: Step = step!(
    "the filter without the admin API",
    filter::build_without_admin()
);
const NATIVE: Step = step!("the native module", crate::native::build());
const TRAP_NATIVE: Step = step!(
    "the native module that can panic, for tests",
    crate::native::build_trap()
);
const LOUDOU: Step = step!("the loudou command", loudou());
const RELAY: Step = step!("the relay", relay());
const FUZZ: Step = step!("fuzzing, two seconds for each target", fuzz::short(2));
const SOAK: Step = step!("a soak of a minute", soak::run(1, None, Vec::new()));
const SOAK_NATIVE: Step = step!(
    "a soak of a minute with the native module",
    soak::run_native(1, None, Vec::new())
);
const LONG_FUZZ: Step = step!("fuzzing, a minute for each target", fuzz::short(60));
const LONG_SOAK: Step = step!("a soak of ten minutes", soak::run(10, None, Vec::new()));
const LONG_SOAK_NATIVE: Step = step!(
    "a soak of ten minutes with the native module",
    soak::run_native(10, None, Vec::new())
);
const BENCH: Step = step!("benchmarks, cut short", bench::check());
const END_TO_END: Step = step!("tests in a real Envoy", end_to_end());
const END_TO_END_NATIVE: Step = step!(
    "tests in a real Envoy with the native module",
    native::end_to_end()
);

const END_TO_END_OLDEST: Step = step!(
    "tests in the oldest Envoy that loads the native module",
    native::end_to_end_in_oldest()
);

/// Runs the checks that must pass before a commit. If `names` is not empty, runs only the tests
/// whose names contain one of them.
pub(crate) fn test(names: &[String]) -> Result<()> {
    if !names.is_empty() {
        return named::test(names);
    }
    steps(&[
        SETUP,
        UNIT,
        FILTER,
        INSTRUCTIONS,
        TRAP,
        WITHOUT_ADMIN,
        NATIVE,
        TRAP_NATIVE,
        LOUDOU,
        RELAY,
        END_TO_END,
        END_TO_END_NATIVE,
        ("headers in HTTP clients", clients),
        ("pages in a browser", pages),
    ])
}

/// Runs the checks that must pass before a merge. With `is_long`, runs the checks for a release,
/// which fuzz and soak for longer.
pub(crate) fn ci(is_long: bool) -> Result<()> {
    let (fuzz, soak, soak_native) = if is_long {
        (LONG_FUZZ, LONG_SOAK, LONG_SOAK_NATIVE)
    } else {
        (FUZZ, SOAK, SOAK_NATIVE)
    };
    let mut all: Vec<Step> = vec![
        step!("setup, with cargo-deny", setup::all()),
        step!("formatting", formatting()),
        step!("links in the documents", docs::check()),
        step!("phrases in comments and documents", prose::check()),
        ("manifests for Kubernetes", manifests),
        step!("licences and sources of dependencies", dependencies()),
        ("advisories on dependencies", advisories),
        step!("clippy (host)", clippy()),
        step!("clippy (wasm32)", clippy_wasm()),
        UNIT,
        step!("documentation", documentation()),
        fuzz,
        FILTER,
        INSTRUCTIONS,
        TRAP,
        WITHOUT_ADMIN,
        NATIVE,
        TRAP_NATIVE,
        LOUDOU,
        RELAY,
        END_TO_END,
        END_TO_END_NATIVE,
        ("headers in HTTP clients", clients),
        ("pages in a browser", pages),
        ("the image in a registry", registry),
        BENCH,
        soak,
        soak_native,
    ];
    if is_long {
        all.push(END_TO_END_OLDEST);
    }
    steps(&all)
}

/// Builds the `loudou` command in a debug build, and returns its path.
pub(crate) fn loudou() -> Result<std::path::PathBuf> {
    run(&mut cargo(&["build", "--package", "loudou"]))?;
    Ok(target_dir().join("debug/loudou"))
}

/// Builds the relay in a debug build, and returns its path.
pub(crate) fn relay() -> Result<std::path::PathBuf> {
    run(&mut cargo(&["build", "--package", "loudou-relay"]))?;
    Ok(target_dir().join("debug/loudou-relay"))
}

fn steps(steps: &[Step]) -> Result<()> {
    let steps: Vec<(&str, Action<'_>)> = steps
        .iter()
        .map(|(title, action)| {
            let action: Action<'_> = action;
            (*title, action)
        })
        .collect();
    steps_of(&steps)
}

fn steps_of(steps: &[(&str, Action<'_>)]) -> Result<()> {
    let count = steps.len();
    let mut skipped = Vec::new();
    for (n, (title, action)) in (1..).zip(steps) {
        println!("[{n}/{count}] {title}");
        let begin = now();
        let outcome = action().with_context(|| format!("[{n}/{count}] {title}"))?;
        if let Outcome::Skipped(reason) = outcome {
            println!("skipped: {reason}");
            skipped.push(format!("{title}: {reason}"));
        }
        println!("[{n}/{count}] took {} s", begin.elapsed().as_secs());
    }
    println!("{}", verdict(count, &skipped));
    Ok(())
}

/// Returns the summary, which is the last line of the output.
fn verdict(count: usize, skipped: &[String]) -> String {
    if skipped.is_empty() {
        return format!("all {count} steps passed");
    }
    let passed = count.saturating_sub(skipped.len());
    let reasons = skipped.join("; ");
    format!(
        "{passed} steps passed, {} skipped ({reasons})",
        skipped.len()
    )
}

fn formatting() -> Result<()> {
    run(&mut cargo(&["fmt", "--all", "--check"]))
}

fn clippy() -> Result<()> {
    run(&mut cargo(&[
        "clippy",
        "--workspace",
        "--all-targets",
        "--",
        "-D",
        "warnings",
    ]))
}

fn clippy_wasm() -> Result<()> {
    let package = [
        "clippy",
        "--package",
        "loudou-filter",
        "--target",
        WASM_TARGET,
    ];
    run(cargo(&package).args(["--", "-D", "warnings"]))?;
    let without_admin = ["--no-default-features", "--", "-D", "warnings"];
    run(cargo(&package).args(without_admin))?;
    let floor = ["clippy", "--package", "loudou-floor", "--examples"];
    run(cargo(&floor).args(["--target", WASM_TARGET, "--", "-D", "warnings"]))
}

fn unit() -> Result<()> {
    // `loudou-tests` is excluded because it needs the filter, which is built in a later step. The
    // tests of the relay build the relay themselves.
    let mut test = cargo(&["test", "--workspace", "--exclude", "loudou-tests"]);
    // Valkey is needed only by the tests of the relay.
    test.env("VALKEY_BIN", loudou_tests::valkey_bin()?);
    run(&mut test)
}

fn documentation() -> Result<()> {
    // Include private items, for contributors.
    let mut doc = cargo(&[
        "doc",
        "--workspace",
        "--no-deps",
        "--document-private-items",
    ]);
    // Links from public to private items are allowed, because private items are included.
    run(doc.env(
        "RUSTDOCFLAGS",
        "-D warnings -A rustdoc::private_intra_doc_links",
    ))
}

fn end_to_end() -> Result<()> {
    let mut test = cargo(&["test", "--package", "loudou-tests", "--no-fail-fast"]);
    set_programs(&mut test)?;
    run(&mut test)
}

/// Sets the environment variables that contain the paths of the programs under test and of their
/// helpers.
fn set_programs(test: &mut Command) -> Result<()> {
    test.env("ENVOY_BIN", loudou_tests::envoy_bin()?)
        .env("LOUDOU_WASM", loudou_tests::wasm::built_wasm())
        .env("LOUDOU_TRAP_WASM", loudou_tests::wasm::built_trap_wasm())
        .env("LOUDOU_DATA_WASM", loudou_tests::wasm::built_data_wasm())
        .env("LOUDOU_NATIVE", loudou_tests::wasm::built_native())
        .env(
            "LOUDOU_TRAP_NATIVE",
            loudou_tests::wasm::built_trap_native(),
        )
        .env("LOUDOU_BIN", target_dir().join("debug/loudou"))
        .env("VALKEY_BIN", loudou_tests::valkey_bin()?)
        .env("PROMETHEUS_BIN", loudou_tests::prometheus_bin()?)
        .env("LOUDOU_RELAY_BIN", target_dir().join("debug/loudou-relay"));
    Ok(())
}

/// Checks the licences and sources of dependencies, and looks for duplicates and wildcard versions.
/// This check needs no network.
fn dependencies() -> Result<()> {
    deny(&["check", "bans", "licenses", "sources"])
}

/// Checks for security advisories on dependencies. This check downloads the advisory database from
/// GitHub, and is skipped if the download fails.
fn advisories() -> Result<Outcome> {
    if let Err(error) = deny(&["fetch", "db"]) {
        let reason = format!("cannot fetch RustSec's database ({error:#})");
        return Ok(Outcome::Skipped(reason));
    }
    deny(&["check", "--disable-fetch", "advisories"])?;
    Ok(Outcome::Passed)
}

fn manifests() -> Result<Outcome> {
    let skipped = crate::manifests::check()?;
    Ok(skipped.map_or(Outcome::Passed, Outcome::Skipped))
}

/// Runs only the check of HTTP clients.
pub(crate) fn clients_alone() -> Result<()> {
    steps(&[("headers in HTTP clients", clients)])
}

fn clients() -> Result<Outcome> {
    let skipped = crate::clients::check()?;
    Ok(skipped.map_or(Outcome::Passed, Outcome::Skipped))
}

/// Runs only the check of pages.
pub(crate) fn pages_alone() -> Result<()> {
    steps(&[("pages in a browser", pages)])
}

fn pages() -> Result<Outcome> {
    let skipped = crate::pages::check(loudou)?;
    Ok(skipped.map_or(Outcome::Passed, Outcome::Skipped))
}

fn registry() -> Result<Outcome> {
    let skipped = crate::image::registry::check()?;
    Ok(skipped.map_or(Outcome::Passed, Outcome::Skipped))
}

fn deny(arguments: &[&str]) -> Result<()> {
    let mut deny = Command::new(DENY.program()?);
    deny.args(["--log-level", "error"]).args(arguments);
    run(deny.current_dir(workspace_root()))
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_check_that_did_not_run_is_in_the_last_line() {
        assert_eq!(verdict(3, &[]), "all 3 steps passed");
        let skipped = ["advisories: no database".to_owned()];
        assert_eq!(
            verdict(3, &skipped),
            "2 steps passed, 1 skipped (advisories: no database)"
        );
    }
}
