//! `cargo xtask test` and `cargo xtask ci`: the steps in order of cost, each announced.

use anyhow::{Context as _, Result};
use loudou_tests::paths::{find_on_path, target_dir};

use crate::circles;
use crate::command::{cargo, run};
use crate::docs;
use crate::filter;
use crate::setup::{self, WASM_TARGET};
use crate::soak;

/// A step's title and action.
type Step = (&'static str, fn() -> Result<()>);

const SETUP: Step = ("setup", || setup::run().map(drop));
const UNIT: Step = ("unit tests", unit);
const FILTER: Step = ("the filter (wasm)", || filter::build().map(drop));
const TRAP: Step = ("the filter that can panic, for tests", || {
    filter::build_trap().map(drop)
});
const LOUDOU: Step = ("the loudou command", || loudou().map(drop));
const SOAK: Step = ("a soak of two minutes", || soak::run(2, None, Vec::new()));
const END_TO_END: Step = ("tests in a real Envoy", end_to_end);

/// The checks that a commit must pass.
pub(crate) fn test() -> Result<()> {
    steps(&[SETUP, UNIT, FILTER, TRAP, LOUDOU, END_TO_END])
}

/// The checks that a merge must pass.
pub(crate) fn ci() -> Result<()> {
    steps(&[
        SETUP,
        ("formatting", formatting),
        ("import circles", circles::run),
        ("links in the documents", docs::check),
        ("clippy (host)", clippy),
        ("clippy (wasm32)", clippy_wasm),
        UNIT,
        ("documentation", documentation),
        FILTER,
        TRAP,
        LOUDOU,
        END_TO_END,
        SOAK,
        ("cargo-deny", deny),
    ])
}

/// Builds the `loudou` command for use on this machine and gives its path.
pub(crate) fn loudou() -> Result<std::path::PathBuf> {
    run(&mut cargo(&["build", "--package", "loudou"]))?;
    Ok(target_dir().join("debug/loudou"))
}

fn steps(steps: &[Step]) -> Result<()> {
    let count = steps.len();
    for (n, (title, action)) in (1..).zip(steps) {
        println!("[{n}/{count}] {title}");
        action().with_context(|| format!("[{n}/{count}] {title}"))?;
    }
    println!("all {count} steps passed");
    Ok(())
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
    run(cargo(&package).args(["--", "-D", "warnings"]))
}

fn unit() -> Result<()> {
    // All but `loudou-tests`, which needs the filter and comes later.
    let packages = [
        "loudou-limiter",
        "loudou-store",
        "loudou-rules",
        "loudou-api",
        "loudou-filter",
        "loudou-replay",
        "loudou",
        "xtask",
    ];
    let selected = packages.iter().flat_map(|package| ["--package", package]);
    run(cargo(&["test"]).args(selected))
}

fn documentation() -> Result<()> {
    // Private items too, for contributors.
    let mut doc = cargo(&[
        "doc",
        "--workspace",
        "--no-deps",
        "--document-private-items",
    ]);
    // With private items included, links to them resolve.
    run(doc.env(
        "RUSTDOCFLAGS",
        "-D warnings -A rustdoc::private_intra_doc_links",
    ))
}

fn end_to_end() -> Result<()> {
    let mut test = cargo(&["test", "--package", "loudou-tests", "--no-fail-fast"]);
    test.env("ENVOY_BIN", loudou_tests::envoy_bin()?)
        .env("LOUDOU_WASM", loudou_tests::wasm::built_wasm())
        .env("LOUDOU_TRAP_WASM", loudou_tests::wasm::built_trap_wasm())
        .env("LOUDOU_BIN", target_dir().join("debug/loudou"));
    run(&mut test)
}

fn deny() -> Result<()> {
    if find_on_path("cargo-deny").is_none() {
        println!("not checked: cargo-deny is not installed (`cargo install cargo-deny`)");
        return Ok(());
    }
    run(&mut cargo(&["deny", "check"]))
}
