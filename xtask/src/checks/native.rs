//! Runs the end-to-end tests with the native module in place of the Wasm filter: in the Envoy that all tests use, and
//! in the oldest Envoy that can load the module.
//!
//! Tests of the sandbox, and tests of programs that only use the admin API, run only with the Wasm filter.

use std::fs;
use std::path::Path;

use anyhow::{Context as _, Result, ensure};
use loudou_tests::wasm::built_native;

use super::set_programs;
use crate::command::{cargo, run};
use crate::{native, setup};

/// Test subjects whose results depend on the host interface.
const SUBJECTS: &[&str] = &[
    "algorithms::",
    "answers::",
    "auth::",
    "bans::",
    "bodies::",
    "bounded::",
    "buckets::",
    "carrying::",
    "concurrent_edits::",
    "configuration::",
    "cost::",
    "costs::",
    "edits::",
    "embedded::",
    "exact::",
    "expiry::",
    "explain::",
    "fields::",
    "fleet::changes::",
    "fleet::faults::",
    "fleet::outage::",
    "fleet::starts::",
    "generations::",
    "grpc::",
    "harness::",
    "holding::",
    "hostile::",
    "hostile_admin::",
    "in_flight::",
    "keys::",
    "matching::",
    "numbers::",
    "overrides::",
    "penalty::",
    "refusing::",
    "repeated::",
    "replanning::",
    "responding::",
    "retry::",
    "rollback::",
    "settling::",
    "several::",
    "smoke::",
    "top::",
    "trials::",
    "waiting::",
    "when::",
];

/// Tests of these subjects that are skipped, because the native module cannot pass them.
const LEFT_OUT: &[&str] = &[
    // The native module does not support the cost source `token_usage`.
    "tokens_are_counted_in_every_shape",
    "models_have_weights",
    "the_word_for_tokens_needs_two_filters",
    // Envoy creates a native configuration again, so the module sees a rollback as a change, which ends the edits.
    "a_rollback_of_an_unused_configuration_keeps_the_edits",
];

/// Runs the end-to-end tests with the native module, in the Envoy that all other tests use.
pub(super) fn end_to_end() -> Result<()> {
    end_to_end_in(&loudou_tests::envoy_bin()?)
}

/// Runs the end-to-end tests with the native module, in the oldest Envoy that can load it.
pub(super) fn end_to_end_in_oldest() -> Result<()> {
    end_to_end_in(&setup::oldest_native_envoy()?)
}

fn end_to_end_in(envoy: &Path) -> Result<()> {
    let program = fs::read(envoy).with_context(|| envoy.display().to_string())?;
    let missing = native::missing(&program)?;
    ensure!(
        missing.is_empty(),
        "{} lacks functions that the module may call: {}",
        envoy.display(),
        missing.join(", ")
    );
    let mut test = cargo(&[
        "test",
        "--package",
        "loudou-tests",
        "--test",
        "envoy",
        "--no-fail-fast",
    ]);
    set_programs(&mut test)?;
    test.env("ENVOY_BIN", envoy)
        .env("LOUDOU_WASM", built_native())
        .arg("--")
        .args(SUBJECTS);
    for name in LEFT_OUT {
        test.args(["--skip", name]);
    }
    run(&mut test)
}
