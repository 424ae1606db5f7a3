//! Counts the work on records in tests: parts read, and rules activated.

use std::cell::Cell;

/// Number of steps so far.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub(crate) struct Work {
    /// Number of parts read from their text.
    pub(crate) parts: usize,
    /// Total size of these texts, in bytes.
    pub(crate) bytes: usize,
    /// Number of rules brought into the form that decides requests.
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

/// Returns the counts since the last call of this function.
pub(crate) fn take() -> Work {
    WORK.take()
}
