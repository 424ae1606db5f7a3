//! The engine: one central bucket behind a network, with every fault that it can have.

use std::collections::VecDeque;

use loudou_limiter::Nanos;
use loudou_limiter::lease::{Central, Demand, Grant, Terms};

/// Time for which earlier states are kept, for a replica that lacks the last writes.
const KEPT: u64 = 3_000_000_000;

/// How the engine responds.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) enum Health {
    Up,
    /// Calls fail at once.
    Refuses,
    /// Calls hang until they time out.
    Hangs,
    /// The relay responds that the node of the key does not answer.
    KeyLost,
    /// The engine is full: it reads, but refuses to write.
    Full,
}

/// Lead of the engine's clock over the simulation's clock: a wall-clock time, in the middle of a
/// window.
pub(crate) const AHEAD: u64 = 1_700_000_000_300_000_000;

#[derive(Debug)]
pub(crate) struct Engine {
    central: Central,
    pub(crate) health: Health,
    /// Lead of the engine's clock over the simulation's clock.
    ahead: u64,
    past: VecDeque<(u64, Central)>,
}

impl Engine {
    pub(crate) fn new() -> Self {
        Self {
            central: Central::default(),
            health: Health::Up,
            ahead: AHEAD,
            past: VecDeque::new(),
        }
    }

    pub(crate) fn clock(&self, now: u64) -> Nanos {
        Nanos::new(now + self.ahead)
    }

    /// Returns the engine's answer. `None` for an error of the key.
    pub(crate) fn grant(&mut self, terms: &Terms, demand: Demand, now: u64) -> Option<Grant> {
        if self.health == Health::KeyLost {
            return None;
        }
        while self.past.front().is_some_and(|(at, _)| at + KEPT < now) {
            self.past.pop_front();
        }
        self.past.push_back((now, self.central.clone()));
        // The script computes in microseconds.
        let clock = Nanos::new(self.clock(now).get() / 1_000 * 1_000);
        let before = self.central.clone();
        let grant = self.central.grant(terms, demand, clock);
        if self.health == Health::Full && (grant.granted > 0 || grant.charged > 0) {
            self.central = before;
            return None;
        }
        Some(Grant {
            wait: Nanos::new(grant.wait.get().next_multiple_of(1_000)),
            ends_in: Nanos::new(grant.ends_in.get() / 1_000 * 1_000),
            ..grant
        })
    }

    pub(crate) fn jump(&mut self, by: i64) {
        self.ahead = self.ahead.saturating_add_signed(by);
    }

    pub(crate) fn forget(&mut self) {
        self.central = Central::default();
    }

    /// Continues with the state from before the last `lost` nanoseconds.
    pub(crate) fn fail_over(&mut self, lost: Nanos, now: u64) {
        let until = now.saturating_sub(lost.get());
        // Each entry has the state from before the write at its time.
        let first_lost = self.past.iter().find(|(at, _)| *at >= until);
        if let Some((_, central)) = first_lost {
            self.central = central.clone();
        }
    }
}
