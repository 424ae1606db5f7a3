//! Panics on request, for the test of panics in a real terminal.

use std::env;

/// Panics when the environment asks thread `name` to.
pub(super) fn panic_if_asked(name: &str) {
    let asked = env::var("LOUDOU_TEST_PANIC").is_ok_and(|wanted| wanted == name);
    assert!(!asked, "asked to panic by LOUDOU_TEST_PANIC");
}
