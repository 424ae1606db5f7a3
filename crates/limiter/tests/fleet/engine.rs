//! The engine: one central bucket behind a network, with all its possible faults.

use std::collections::VecDeque;

use loudou_limiter::Nanos;
use loudou_limiter::lease::{Central, Demand, Grant, Terms};

/// How long states are kept, for a replica that lacks the last writes.
const KEPT: u64 = 3_000_000_000;

/// How the engine answers.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) enum Health {
    Up,
    /// Calls fail at once.
    Refuses,
    /// Calls hang until they time out.
    Hangs,
    /// The relay answers that the node of the key does not respond.
    KeyLost,
    /// The engine is full: it reads, and refuses to write.
    Full,
}

/// A wall clock, in the middle of a window.
pub(crate) const AHEAD: u64 = 1_700_000_000_300_000_000;

#[derive(Debug)]
pub(crate) struct Engine {
    central: Central,
    pub(crate) health: Health,
    /// How far its clock is ahead of the simulation's.
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

    /// Returns its answer; `None` for an error of the key.
    pub(crate) fn grant(&mut self, terms: &Terms, demand: Demand, now: u64) -> Option<Grant> {
        if self.health == Health::KeyLost {
            return None;
        }
        while self.past.front().is_some_and(|(at, _)| at + KEPT < now) {
            self.past.pop_front();
        }
        self.past.push_back((now, self.central.clone()));
        // The script computes and answers in microseconds.
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

    /// Continues with the state before `lost`.
    pub(crate) fn fail_over(&mut self, lost: Nanos, now: u64) {
        let until = now.saturating_sub(lost.get());
        // Each state is kept as it was before the write at that time.
        let first_lost = self.past.iter().find(|(at, _)| *at >= until);
        if let Some((_, central)) = first_lost {
            self.central = central.clone();
        }
    }
}
