//! `cargo xtask soak`: load on a real Envoy while everything about its limits changes, and a model that
//! computes the maximum and minimum number of requests for each key.

use std::collections::hash_map::RandomState;
use std::hash::{BuildHasher as _, Hasher as _};
use std::time::Duration;

use anyhow::{Result, ensure};
use loudou_tests::soak::{self, Options};

use crate::filter;
use crate::setup;

/// Builds the filter that panics on request, and soaks it.
pub(crate) fn run(minutes: u64, seed: Option<u64>, without: Vec<String>) -> Result<()> {
    setup::run()?;
    let options = Options {
        lasts: Duration::from_secs(minutes.saturating_mul(60)),
        // Short enough to type.
        seed: seed.unwrap_or_else(|| RandomState::new().build_hasher().finish() >> 40),
        without,
        wasm: filter::build_trap()?,
    };
    let violations = soak::run(&options, &mut |line| println!("{line}"))?;
    ensure!(violations == 0, "{violations} violations");
    Ok(())
}
