//! The end-to-end tests with the native module in place of the Wasm filter, in the newest and in the
//! oldest Envoy that can load it.
//!
//! Tests that are about a sandbox, and tests of programs that only read the admin API, run with the Wasm filter only.

use std::fs;
use std::path::Path;

use anyhow::{Context as _, Result, ensure};
use loudou_tests::wasm::built_native;

use super::set_programs;
use crate::command::{cargo, run};
use crate::{native, setup};

/// Subjects whose tests depend on the host.
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

/// Tests of these subjects that the native module cannot pass.
const LEFT_OUT: &[&str] = &[
    // The module does not read the record of a model's tokens.
    "tokens_are_counted_in_every_shape",
    "models_have_weights",
    "the_word_for_tokens_needs_two_filters",
    // Envoy creates the configuration again, so it is a change that ends the edits, and no rollback.
    "a_rollback_of_an_unused_configuration_keeps_the_edits",
];

/// Runs the tests in the Envoy of all tests.
pub(super) fn end_to_end() -> Result<()> {
    end_to_end_in(&loudou_tests::envoy_bin()?)
}

/// Runs the tests in the oldest Envoy that can load the module.
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
