//! Circuit breaker between an Envoy and the engine. After a number of consecutive failures, the
//! Envoy makes no calls and decides locally until the engine answers a single call, the probe.
//!
//! The time for which the breaker stays open doubles after each failed probe. This time is
//! randomised so that many Envoys do not call the engine again at the same moment, and capped at
//! [`Policy::most`] so that a fleet recovers quickly.

use crate::time::Nanos;

use super::jitter::between;

/// Parameters of a breaker.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Policy {
    /// Number of consecutive failures that open the breaker, at least 1.
    pub failures: u32,
    /// Upper bound on the time for which the breaker stays open before the first probe.
    pub first: Nanos,
    /// Maximum time for which the breaker stays open before a probe, and timeout of a probe. If
    /// calls fail for a single Envoy, that Envoy decides locally for this time, while the other
    /// Envoys can still use the whole rate.
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

/// Returns `span` multiplied by 2^`times`.
pub(super) fn doubled(span: Nanos, times: u32) -> Nanos {
    let factor = 1_u64.checked_shl(times).unwrap_or(u64::MAX);
    Nanos::new(span.get().saturating_mul(factor))
}

/// State of a breaker, which determines which calls it permits.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum State {
    /// All calls are permitted.
    Closed,
    /// No call is permitted before `until`. After that, a single call is permitted as a probe.
    Open {
        /// Earliest time at which the probe is permitted.
        until: Nanos,
    },
    /// No call is permitted, because a probe is in flight.
    Probing {
        /// Time at which an unanswered probe counts as lost.
        until: Nanos,
    },
}

/// A circuit breaker. The breaker is initially closed.
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

    /// Returns true if the caller may make a call now. If the breaker is open, that call is the
    /// probe, so the caller must make it.
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

    /// Returns true if decisions are made locally. Decisions are still made locally while a probe
    /// is in flight.
    pub const fn is_open(&self) -> bool {
        !matches!(self.state, State::Closed)
    }

    /// Returns the state of the breaker.
    pub const fn state(&self) -> State {
        self.state
    }

    /// Records a failed call. Returns true if this failure opened the breaker. `random` consists of
    /// 64 random bits.
    pub fn failed(&mut self, now: Nanos, random: u64) -> bool {
        self.failures = self.failures.saturating_add(1);
        let Some(beyond) = self.failures.checked_sub(self.policy.failures.max(1)) else {
            return false;
        };
        let was_closed = self.state == State::Closed;
        // This call was sent before the breaker opened. The call is not a probe, so its failure
        // does not prolong the open state.
        if matches!(self.state, State::Open { .. }) {
            self.failures = self.failures.saturating_sub(1);
            return false;
        }
        let longest = doubled(self.policy.first, beyond).min(self.policy.most);
        let until = now.saturating_add(between(longest, (2, 4), random));
        self.state = State::Open { until };
        was_closed
    }

    /// Records a successful call. Returns true if this call closed the breaker.
    pub fn succeeded(&mut self) -> bool {
        let was_open = self.state != State::Closed;
        self.failures = 0;
        self.state = State::Closed;
        was_open
    }
}
