//! `cargo xtask demo`: builds everything and runs it, in one command.
//!
//! It builds the filter and `loudou`, starts Envoy with an upstream and a dozen users, and opens
//! the terminal app. Without a terminal it prints one table. With `--fleet` it starts three Envoys,
//! which share each user's bucket through a relay and a Valkey. With `--native` Envoy runs the native
//! module. It stops every process that it started.

use std::io::IsTerminal as _;
use std::path::Path;
use std::process::Command;

use anyhow::{Context as _, Result, ensure};
use loudou_tests::config::sha256_hex;
use loudou_tests::process::Group;
use loudou_tests::{Config, Envoy, Guarded, Relay, Upstream, Valkey};
use serde_json::{Value, json};

use crate::checks::{loudou as build_loudou, relay as build_relay};
use crate::{filter, native, setup};

const RULES: &str = include_str!("../../tui/src/cli/demo/rules.json");
const TOKEN: &str = "demo";
/// Number of Envoys with `--fleet`.
const FLEET: usize = 3;
/// Timeout of a request to the relay, and of the relay's request to Valkey. Both are longer than
/// the defaults, because the demo and its users share one machine.
const FLEET_TIMEOUT: &str = "100ms";
const RELAY_TIMEOUT_MS: &str = "80";

/// Runs the demo until the user leaves the terminal app, or until the table is printed.
pub(crate) fn run(is_fleet: bool, is_native: bool) -> Result<()> {
    println!("Loudou demo: building (the first time takes a few minutes)…");
    setup::run()?;
    let module = if is_native {
        native::build()?
    } else {
        filter::build()?
    };
    let loudou = build_loudou()?;
    let shared = is_fleet.then(Shared::start).transpose()?;

    println!("starting Envoy…");
    let upstream = Upstream::start()?;
    let config = configuration(shared.as_ref())?;
    let config = config.upstream(upstream.address()).wasm(module);
    let count = if is_fleet { FLEET } else { 1 };
    let envoys: Result<Vec<Envoy>> = (0..count).map(|_| Envoy::start(&config)).collect();
    let envoys = envoys?;
    let first = envoys.first().context("no Envoy")?;
    print_addresses(&envoys, shared.as_ref());
    let shown = show(&loudou, first, &envoys);
    // If Envoy has died, that explains the failure of `loudou`, so Envoy's error comes first.
    envoys.into_iter().try_for_each(Envoy::stop)?;
    shown
}

/// Programs that hold the shared state of a fleet.
#[derive(Debug)]
struct Shared {
    relay: Relay,
    /// Kept so that it lives as long as the fleet.
    _valkey: Valkey,
}

impl Shared {
    fn start() -> Result<Self> {
        build_relay()?;
        println!("starting Valkey and a relay…");
        let valkey = Valkey::start()?;
        Ok(Self {
            relay: Relay::start_with(&valkey, &["--timeout-ms", RELAY_TIMEOUT_MS])?,
            _valkey: valkey,
        })
    }
}

fn print_addresses(envoys: &[Envoy], shared: Option<&Shared>) {
    let data: Vec<String> = envoys
        .iter()
        .map(|envoy| format!("http://{}", envoy.data_address()))
        .collect();
    println!(
        "a dozen users send requests to {}{}",
        data.join(", "),
        if envoys.len() > 1 { ", in turn" } else { "" },
    );
    for envoy in envoys {
        println!(
            "admin API: LOUDOU_URL={} LOUDOU_TOKEN={TOKEN}",
            envoy.admin_url()
        );
    }
    if let Some(shared) = shared {
        println!("relay: http://{}/metrics", shared.relay.address());
        println!(
            "The screen is that of the first Envoy. For another one, set its LOUDOU_URL and LOUDOU_TOKEN in another \
             terminal, and run `cargo run -p loudou`."
        );
    }
}

fn configuration(shared: Option<&Shared>) -> Result<Config> {
    let token = json!({ "name": "demo", "sha256": sha256_hex(TOKEN), "may": "edit" });
    let config = Config::new(rules(shared.is_some())?).tokens(json!([token]));
    Ok(match shared {
        None => config,
        Some(shared) => config.fleet(&json!({ "timeout": FLEET_TIMEOUT }), shared.relay.address()),
    })
}

/// Returns the rules for one Envoy or for a fleet.
fn rules(is_fleet: bool) -> Result<Value> {
    let mut rules: Value = serde_json::from_str(RULES).context("the rules of the demo")?;
    for rule in rules.as_array_mut().into_iter().flatten() {
        if let Some(rule) = rule.as_object_mut().filter(|_| is_fleet) {
            rule.insert("scope".to_owned(), json!("fleet"));
        }
    }
    Ok(rules)
}

/// Sends the users' requests and runs the live screen until the user leaves it. Without a terminal, prints a table.
fn show(loudou: &Path, envoy: &Envoy, envoys: &[Envoy]) -> Result<()> {
    let mut command = Command::new(loudou);
    command
        .arg("demo")
        .env("LOUDOU_URL", envoy.admin_url())
        .env("LOUDOU_TOKEN", TOKEN);
    for envoy in envoys {
        command.arg("--to").arg(envoy.data_address().to_string());
    }
    let is_terminal = std::io::stdout().is_terminal();
    let group = if is_terminal {
        Group::Foreground
    } else {
        Group::Own
    };
    let status = Guarded::spawn("loudou", &mut command, group)?.wait()?;
    ensure!(status.success(), "loudou failed: {status}");
    if !is_terminal {
        println!(
            "In a terminal, `cargo xtask demo` opens the live screen, where limits can be edited."
        );
        println!("To use your own Envoy, see docs/start/first-limit.md.");
    }
    Ok(())
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn the_rules_are_valid() -> Result<()> {
        for is_fleet in [false, true] {
            let rules = rules(is_fleet)?;
            let fleet = is_fleet.then(|| json!({ "cluster": "relay", "timeout": FLEET_TIMEOUT }));
            let mut file = json!({ "version": 1, "rules": rules });
            if let Some((fleet, fields)) = fleet.zip(file.as_object_mut()) {
                fields.insert("fleet".to_owned(), fleet);
            }
            let parsed = loudou_rules::config::parse(&file);
            assert!(parsed.problems.is_empty(), "{:#?}", parsed.problems);
        }
        Ok(())
    }
}
