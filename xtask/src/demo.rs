//! `cargo xtask demo`: builds and runs everything, in one command.
//!
//! It builds the filter and `loudou`, starts Envoy with an upstream and a dozen users, and opens
//! the terminal app. Without a terminal it prints one table. It stops every process that it started.

use std::io::IsTerminal as _;
use std::path::Path;
use std::process::Command;
use std::time::Duration;

use anyhow::{Context as _, Result, ensure};
use loudou_tests::config::sha256_hex;
use loudou_tests::process::Group;
use loudou_tests::{Config, Envoy, Guarded, Upstream, eventually};
use serde_json::{Value, json};

use self::traffic::{Traffic, USERS};
use crate::checks::loudou as build_loudou;
use crate::{filter, setup};

mod traffic;

const RULES: &str = include_str!("demo/rules.json");
const TOKEN: &str = "demo";
/// By this many refusals every user but the late ones has sent a request.
const FIRST_REFUSALS: Duration = Duration::from_mins(1);
const ENOUGH_REFUSALS: u64 = 50;

/// Runs the demo until the user leaves the terminal app, or until the table is printed.
pub(crate) fn run() -> Result<()> {
    println!("Loudou demo: building (the first time takes a few minutes)…");
    setup::run()?;
    let wasm = filter::build()?;
    let loudou = build_loudou()?;

    println!("starting Envoy…");
    let upstream = Upstream::start()?;
    let envoy = Envoy::start(&configuration()?.upstream(upstream.address()).wasm(wasm))?;
    let traffic = Traffic::start(envoy.data_address());
    println!(
        "{} users send requests to http://{}",
        USERS.len(),
        envoy.data_address()
    );
    println!(
        "admin API: LOUDOU_URL={} LOUDOU_TOKEN={TOKEN}",
        envoy.admin_url()
    );

    let shown = if std::io::stdout().is_terminal() {
        show(&loudou, &envoy)
    } else {
        print(&loudou, &envoy)
    };
    drop(traffic);
    // An Envoy that died explains the failure of `loudou`, so its error comes first.
    envoy.stop()?;
    shown
}

fn configuration() -> Result<Config> {
    let rules: Value = serde_json::from_str(RULES).context("xtask/src/demo/rules.json")?;
    let token = json!({ "name": "demo", "sha256": sha256_hex(TOKEN), "may": "edit" });
    Ok(Config::new(rules).tokens(json!([token])))
}

/// Runs the live screen until the user leaves it.
fn show(loudou: &Path, envoy: &Envoy) -> Result<()> {
    let mut app = Guarded::spawn("loudou", &mut command(loudou, envoy), Group::Foreground)?;
    let status = app.wait()?;
    ensure!(status.success(), "loudou failed: {status}");
    Ok(())
}

/// Prints one table once it has rows, and how to see more.
fn print(loudou: &Path, envoy: &Envoy) -> Result<()> {
    eventually(FIRST_REFUSALS, "the first refusals", || {
        Ok((envoy.verdicts("refused")? >= ENOUGH_REFUSALS).then_some(()))
    })?;
    let mut buckets = command(loudou, envoy);
    let mut app = Guarded::spawn("loudou", buckets.arg("buckets"), Group::Own)?;
    let status = app.wait()?;
    ensure!(status.success(), "loudou failed: {status}");
    println!(
        "In a terminal, `cargo xtask demo` opens the live screen, where limits can be edited."
    );
    println!("To use your own Envoy, see envoy/quickstart/README.md.");
    Ok(())
}

fn command(loudou: &Path, envoy: &Envoy) -> Command {
    let mut command = Command::new(loudou);
    command
        .env("LOUDOU_URL", envoy.admin_url())
        .env("LOUDOU_TOKEN", TOKEN);
    command
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn the_rules_are_valid() -> Result<()> {
        configuration()?;
        let rules: Value = serde_json::from_str(RULES)?;
        let parsed = loudou_rules::config::parse(&json!({ "version": 1, "rules": rules }));
        assert!(parsed.problems.is_empty(), "{:#?}", parsed.problems);
        Ok(())
    }
}
