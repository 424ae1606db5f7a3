//! `cargo xtask soak`: sends load to a real Envoy while rules, bans and other state of its limits change. For each key,
//! a model computes the minimum and maximum number of requests that the limits may admit.

use std::collections::hash_map::RandomState;
use std::hash::{BuildHasher as _, Hasher as _};
use std::path::PathBuf;
use std::time::Duration;

use anyhow::{Context as _, Result, ensure};
use loudou_tests::paths::workspace_root;
use loudou_tests::soak::{self, Options};

use crate::setup;
use crate::{filter, native};

/// Builds the filter that panics on request, and runs the soak with this filter.
pub(crate) fn run(minutes: u64, seed: Option<u64>, without: Vec<String>) -> Result<()> {
    soak(minutes, seed, without, filter::build_trap()?)
}

/// Runs the soak with the native module, without crashes and rollbacks. The native module has no Wasm sandbox that
/// could crash, or that Envoy could reuse after a rollback.
pub(crate) fn run_native(minutes: u64, seed: Option<u64>, mut without: Vec<String>) -> Result<()> {
    without.extend(["crash", "rollback"].map(ToOwned::to_owned));
    soak(minutes, seed, without, native::build()?)
}

fn soak(minutes: u64, seed: Option<u64>, without: Vec<String>, wasm: PathBuf) -> Result<()> {
    setup::run()?;
    // Keep the seed short, so that it is easy to type.
    let seed = seed.unwrap_or_else(|| RandomState::new().build_hasher().finish() >> 40);
    let less = without.iter().map(|word| format!("-without-{word}"));
    let name = format!("seed-{seed}{}.txt", less.collect::<String>());
    let options = Options {
        lasts: Duration::from_secs(minutes.saturating_mul(60)),
        seed,
        without,
        wasm,
        violations: workspace_root().join("target/soak").join(name),
    };
    let file = options.violations.display();
    let violations = soak::run(&options, &mut |line| println!("{line}"))
        .with_context(|| format!("seed {seed}; violations so far, if any, are in {file}"))?;
    ensure!(
        violations == 0,
        "seed {seed}: {violations} violations, all of them in {file}"
    );
    Ok(())
}
