//! Counts decoded parts and compiled rules, for tests that check upper bounds on this work.

use std::cell::Cell;

/// Counts since the last call to [`take`].
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub(crate) struct Work {
    /// Number of decoded parts.
    pub(crate) parts: usize,
    /// Total size of the decoded parts, in bytes.
    pub(crate) bytes: usize,
    /// Number of compiled rules.
    pub(crate) activated: usize,
}

thread_local! {
    static WORK: Cell<Work> = const { Cell::new(Work { parts: 0, bytes: 0, activated: 0 }) };
}

fn add(more: impl FnOnce(&mut Work)) {
    WORK.with(|work| {
        let mut all = work.get();
        more(&mut all);
        work.set(all);
    });
}

pub(super) fn read(bytes: usize) {
    add(|work| {
        work.parts += usize::from(bytes > 0);
        work.bytes += bytes;
    });
}

pub(super) fn activated() {
    add(|work| work.activated += 1);
}

/// Returns and resets the counts.
pub(crate) fn take() -> Work {
    WORK.take()
}
