//! Panics on request, for the test of panics in a real terminal.

use std::env;

/// Panics if the environment names the thread `name`.
pub(super) fn panic_if_asked(name: &str) {
    let requested = env::var("LOUDOU_TEST_PANIC").is_ok_and(|wanted| wanted == name);
    assert!(!requested, "panic requested by LOUDOU_TEST_PANIC");
}
