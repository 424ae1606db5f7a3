//! Models redis-cell's `CL.THROTTLE`, as implemented by `RateLimiter::rate_limit` in
//! `src/cell/mod.rs` and by `Rate::per_period`.

use super::{Ask, Said};

/// The arguments of a `CL.THROTTLE` command.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Throttle {
    /// Emission interval: the time that one request takes up, in nanoseconds.
    interval: i64,
    /// Maximum time by which requests may be early, in nanoseconds.
    tolerance: i64,
}

impl Throttle {
    /// Returns the limiter for `max_burst`, `count` and `period`, which is in seconds.
    pub fn new(max_burst: u64, count: u64, period: u64) -> Self {
        let period = signed(period).saturating_mul(1_000_000_000);
        let interval = period.checked_div(signed(count)).unwrap_or(i64::MAX);
        let limit = signed(max_burst).saturating_add(1);
        Self {
            interval,
            tolerance: interval.saturating_mul(limit),
        }
    }

    /// Decides whether a request passes, and returns the answer and the next theoretical arrival
    /// time. `arrival` is the current theoretical arrival time, or `None` for a new key.
    pub fn ask(&self, arrival: Option<i64>, ask: &Ask) -> (Said, i64) {
        let now = signed(ask.now.get());
        let arrival = arrival.unwrap_or(now);
        let increment = self.interval.saturating_mul(signed(ask.cost));
        let next = now.max(arrival).saturating_add(increment);
        let allowed_at = next.saturating_sub(self.tolerance);
        if now < allowed_at {
            return (Said::Refuse, arrival);
        }
        (Said::Pass, next)
    }
}

fn signed(number: u64) -> i64 {
    i64::try_from(number).unwrap_or(i64::MAX)
}
