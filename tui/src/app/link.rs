//! State of the connection, and the time of the next poll.
//!
//! Polls never overlap. After a failure, the next poll waits 0.5 s. Each further failure doubles
//! the wait, up to 8 s. Up to a quarter of the wait is subtracted at random, so that many viewers
//! do not reconnect at the same time. A success resets the wait.

use loudou_limiter::{Nanos, mix};

const INITIAL_WAIT: u64 = 500_000_000;
const MAX_WAIT: u64 = 8_000_000_000;

/// State of the connection.
#[derive(Clone, Debug, Default)]
pub(crate) struct Link {
    /// Start time of the poll in flight.
    pub(crate) in_flight: Option<Nanos>,
    /// Time at which the next poll is due.
    pub(crate) due: Nanos,
    /// True if the last poll succeeded, or `None` before the first poll ends.
    pub(crate) up: Option<bool>,
    failures: u32,
    /// Text of the last error.
    pub(crate) error: Option<String>,
}

impl Link {
    /// Returns true if a poll is due, and records it as started.
    pub(crate) fn start(&mut self, now: Nanos) -> bool {
        let starts = self.in_flight.is_none() && now >= self.due;
        if starts {
            self.in_flight = Some(now);
        }
        starts
    }

    /// Makes the next poll due at once.
    pub(crate) fn hurry(&mut self, now: Nanos) {
        self.due = self.due.min(now);
    }

    /// Records a successful poll.
    pub(crate) fn succeeded(&mut self, now: Nanos, interval: Nanos) {
        let started = self.in_flight.take().unwrap_or(now);
        self.due = started.saturating_add(interval).max(now);
        (self.up, self.failures, self.error) = (Some(true), 0, None);
    }

    /// Records a failed poll.
    pub(crate) fn failed(&mut self, now: Nanos, error: String) {
        self.in_flight = None;
        let doublings = self.failures.min(8);
        let wait = INITIAL_WAIT.saturating_mul(1 << doublings).min(MAX_WAIT);
        let off = mix(now.get()).checked_rem(wait / 4).unwrap_or(0);
        self.due = now.saturating_add(Nanos::new(wait.saturating_sub(off)));
        self.failures = self.failures.saturating_add(1);
        (self.up, self.error) = (Some(false), Some(error));
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn polls_never_overlap_and_keep_the_interval() {
        let mut link = Link::default();
        let at = Nanos::from_millis;
        assert!(link.start(at(0)));
        assert!(!link.start(at(5000)));
        link.succeeded(at(300), at(1000));
        assert!(!link.start(at(999)));
        assert!(link.start(at(1000)));
        link.succeeded(at(4000), at(1000));
        assert!(link.start(at(4000)));
    }

    #[test]
    fn waits_grow_to_a_bound_and_start_over() {
        let mut link = Link::default();
        let mut now = Nanos::from_secs(100);
        for bound in [500, 1000, 2000, 4000, 8000, 8000, 8000] {
            link.failed(now, "down".to_owned());
            let wait = link.due.since(now).as_millis();
            assert!(wait <= bound && wait >= bound * 3 / 4, "{wait} of {bound}");
            now = link.due;
        }
        link.succeeded(now, Nanos::from_secs(1));
        link.failed(now, "down".to_owned());
        assert!(link.due.since(now).as_millis() <= 500);
    }
}
