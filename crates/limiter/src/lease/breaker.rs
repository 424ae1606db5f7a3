//! The circuit breaker between an Envoy and the engine. After some consecutive failures, no calls
//! are made and decisions are local, until a single call is answered.
//!
//! The breaker stays open for a time that doubles with each failed probe and has a random part, so
//! that many Envoys do not return at once. [`Policy::most`] limits that time, so that a fleet
//! recovers soon.

use crate::time::Nanos;

use super::jitter::between;

/// Numbers of a breaker.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Policy {
    /// Number of consecutive failures that open it, at least 1.
    pub failures: u32,
    /// Time for which it first stays open.
    pub first: Nanos,
    /// Maximum time for which it stays open before the next probe, and for which it waits for the
    /// answer to a probe. If only some calls fail, an Envoy decides alone for this time while the
    /// others have the whole rate.
    pub most: Nanos,
}

impl Default for Policy {
    fn default() -> Self {
        Self {
            failures: 3,
            first: Nanos::from_millis(100),
            most: Nanos::from_millis(250),
        }
    }
}

/// Returns a duration, doubled this many times.
pub(super) fn doubled(span: Nanos, times: u32) -> Nanos {
    let factor = 1_u64.checked_shl(times).unwrap_or(u64::MAX);
    Nanos::new(span.get().saturating_mul(factor))
}

/// The calls that a breaker permits.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum State {
    /// All calls.
    Closed,
    /// No call before `until`, and then one call.
    Open {
        /// Time of the next permitted call.
        until: Nanos,
    },
    /// No call, because the answer to a probe is outstanding.
    Probing {
        /// Time at which the probe counts as lost.
        until: Nanos,
    },
}

/// A circuit breaker, which is initially closed.
///
/// ```
/// use loudou_limiter::Nanos;
/// use loudou_limiter::lease::breaker::{Breaker, Policy};
///
/// let mut breaker = Breaker::new(Policy { failures: 1, ..Policy::default() });
/// let at = Nanos::from_millis;
/// breaker.failed(at(0), u64::MAX);
/// assert!(breaker.is_open() && !breaker.may_call(at(99)));
/// // One probe, and nothing else until it has its answer.
/// assert!(breaker.may_call(at(100)));
/// assert!(!breaker.may_call(at(101)));
/// breaker.succeeded();
/// assert!(!breaker.is_open() && breaker.may_call(at(102)));
/// ```
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Breaker {
    policy: Policy,
    state: State,
    /// Number of consecutive failures.
    failures: u32,
}

impl Breaker {
    /// Creates a closed breaker.
    pub const fn new(policy: Policy) -> Self {
        Self {
            policy,
            state: State::Closed,
            failures: 0,
        }
    }

    /// Returns true if a call may be made now. If the breaker is open, this call is the probe, so
    /// the caller must make it.
    pub fn may_call(&mut self, now: Nanos) -> bool {
        match self.state {
            State::Closed => true,
            State::Open { until } | State::Probing { until } => {
                let may = now >= until;
                if may {
                    let until = now.saturating_add(self.policy.most);
                    self.state = State::Probing { until };
                }
                may
            }
        }
    }

    /// Returns true if decisions are local. They stay local while a probe is in flight.
    pub const fn is_open(&self) -> bool {
        !matches!(self.state, State::Closed)
    }

    /// Returns the calls that it permits.
    pub const fn state(&self) -> State {
        self.state
    }

    /// Records a failed call. Returns true if that opened the breaker. `random` are 64 random bits.
    pub fn failed(&mut self, now: Nanos, random: u64) -> bool {
        self.failures = self.failures.saturating_add(1);
        let Some(beyond) = self.failures.checked_sub(self.policy.failures.max(1)) else {
            return false;
        };
        let was_closed = self.state == State::Closed;
        // Calls that were sent before the breaker opened may fail later. They are not probes.
        if matches!(self.state, State::Open { .. }) {
            self.failures = self.failures.saturating_sub(1);
            return false;
        }
        let longest = doubled(self.policy.first, beyond).min(self.policy.most);
        let until = now.saturating_add(between(longest, (2, 4), random));
        self.state = State::Open { until };
        was_closed
    }

    /// Records a successful call. Returns true if that closed the breaker.
    pub fn succeeded(&mut self) -> bool {
        let was_open = self.state != State::Closed;
        self.failures = 0;
        self.state = State::Closed;
        was_open
    }
}
