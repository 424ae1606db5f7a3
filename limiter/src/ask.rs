//! What a request asks of a bucket.

use crate::bounds::MAX_WAIT;
use crate::time::{Clock, Nanos};

/// A cost at an instant.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Ask {
    /// What it takes, in cost units; 0 looks without taking.
    pub cost: u64,
    /// The instant on the process's monotonic clock.
    pub now: Nanos,
    /// The same instant on the wall clock, since the Unix epoch: only where windows are aligned to it.
    pub wall: Nanos,
    /// How long this request is ready to wait, instead of what the limits say; at most [`MAX_WAIT`].
    pub max_wait: Option<Nanos>,
}

impl Ask {
    /// `cost` at `now`, with a wall clock that started together with the monotonic one.
    pub const fn new(cost: u64, now: Nanos) -> Self {
        Self {
            cost,
            now,
            wall: now,
            max_wait: None,
        }
    }

    /// Its instant on both clocks.
    pub const fn clock(&self) -> Clock {
        Clock {
            now: self.now,
            wall: self.wall,
        }
    }

    /// The same when the wall clock shows `wall`.
    #[must_use]
    pub const fn at_wall(self, wall: Nanos) -> Self {
        Self { wall, ..self }
    }

    /// The same with its own bound on waiting.
    #[must_use]
    pub const fn waiting(self, max_wait: Option<Nanos>) -> Self {
        Self { max_wait, ..self }
    }

    /// The same at `earliest`, on both clocks, if it is earlier than that.
    pub(crate) fn not_before(self, earliest: Nanos) -> Self {
        let behind = earliest.since(self.now);
        Self {
            now: self.now.max(earliest),
            wall: self.wall.saturating_add(behind),
            ..self
        }
    }

    /// The longest wait it accepts from a limit whose own bound is `limit`.
    pub(crate) fn longest_wait(&self, limit: Nanos) -> Nanos {
        self.max_wait.unwrap_or(limit).min(MAX_WAIT)
    }
}
