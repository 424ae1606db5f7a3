//! Counts the work on records in tests: what was read, and what was made ready to decide.

use std::cell::Cell;

/// The work so far.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub(crate) struct Work {
    /// Parts that were read from their text.
    pub(crate) parts: usize,
    /// The bytes of these texts.
    pub(crate) bytes: usize,
    /// Rules that were made ready to decide.
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

/// The work since the last call.
pub(crate) fn take() -> Work {
    WORK.take()
}
