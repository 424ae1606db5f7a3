//! The breaker between an Envoy and the engine: after some failures in a row no calls are made, and
//! verdicts are local, until a single call gets an answer again.
//!
//! It is open for a time that doubles with each failed probe, with a random part, so that many Envoys do
//! not come back at once. [`Policy::most`] bounds that time, so that a fleet recovers soon.

use crate::time::Nanos;

use super::jitter::between;

/// The numbers of a breaker.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Policy {
    /// The failures in a row that open it; at least 1.
    pub failures: u32,
    /// The time for which it is open at first.
    pub first: Nanos,
    /// Maximum time for which it is open before the next probe, and for which a probe is awaited. Where only
    /// some calls fail, an Envoy decides alone for that long while the others have the whole rate.
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

/// A span, doubled this many times.
pub(super) fn doubled(span: Nanos, times: u32) -> Nanos {
    let factor = 1_u64.checked_shl(times).unwrap_or(u64::MAX);
    Nanos::new(span.get().saturating_mul(factor))
}

/// The calls that a breaker lets through.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum State {
    /// Every call.
    Closed,
    /// None before that instant, and one after it.
    Open {
        /// When the next call may be made.
        until: Nanos,
    },
    /// None: the answer to one call is awaited.
    Probing {
        /// When that call counts as lost.
        until: Nanos,
    },
}

/// A breaker. One that is fresh is closed.
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
    /// The failures in a row.
    failures: u32,
}

impl Breaker {
    /// A closed breaker.
    pub const fn new(policy: Policy) -> Self {
        Self {
            policy,
            state: State::Closed,
            failures: 0,
        }
    }

    /// Returns true if a call may be made now. Of an open breaker, the first one that may is the probe: only ask
    /// if the call is made then.
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

    /// Returns true if verdicts are local. They stay so while a probe is under way.
    pub const fn is_open(&self) -> bool {
        !matches!(self.state, State::Closed)
    }

    /// The calls that it lets through.
    pub const fn state(&self) -> State {
        self.state
    }

    /// Notes a call without a good answer; whether that opened the breaker. `random` are any 64 bits.
    pub fn failed(&mut self, now: Nanos, random: u64) -> bool {
        self.failures = self.failures.saturating_add(1);
        let Some(beyond) = self.failures.checked_sub(self.policy.failures.max(1)) else {
            return false;
        };
        let was_closed = self.state == State::Closed;
        // Calls that were made before it opened fail, too: they are no further probes.
        if matches!(self.state, State::Open { .. }) {
            self.failures = self.failures.saturating_sub(1);
            return false;
        }
        let longest = doubled(self.policy.first, beyond).min(self.policy.most);
        let until = now.saturating_add(between(longest, (2, 4), random));
        self.state = State::Open { until };
        was_closed
    }

    /// Notes a good answer; whether that closed the breaker.
    pub fn succeeded(&mut self) -> bool {
        let was_open = self.state != State::Closed;
        self.failures = 0;
        self.state = State::Closed;
        was_open
    }
}
