//! The share of a worker's time that searches of buckets may take.
//!
//! A client follows the cursors of a long list back to back, so that without a bound a few clients would keep
//! all workers busy, and every request would wait for the rest of an answer to one of them. Work is paid for
//! with the time after it: each answer reports for how long its client should wait before the next call, and
//! calls of clients that do not wait are refused once too much is unpaid. Each worker has a pace of its own.

use loudou_limiter::Nanos;

/// The time between searches is this many times the time of their work.
const REST: u64 = 10;
/// Envoy's part of a call.
const CALL: Nanos = Nanos::new(100_000);
/// The work that may be unpaid before clients are asked to wait. Short lists end before that.
const FREE: Nanos = Nanos::from_millis(10);
/// The unpaid work above which calls are refused.
const MOST: Nanos = Nanos::from_millis(40);
/// The most that one answer is charged: the clock also counts the time for which the worker did not run.
const LONGEST: Nanos = Nanos::from_millis(2);

/// The work of one worker that is not paid for yet.
#[derive(Debug, Default)]
pub(super) struct Pace {
    /// When all of it will be.
    paid_at: Nanos,
}

impl Pace {
    /// Notes work from `begun` to `now`.
    pub(super) fn charge(&mut self, begun: Nanos, now: Nanos) {
        let work = now.since(begun).saturating_add(CALL).min(LONGEST);
        let pays = Nanos::new(work.get().saturating_mul(REST));
        self.paid_at = self.paid_at.max(now).saturating_add(pays);
    }

    /// How long a client should wait at `now` before its next call.
    pub(super) fn wait(&self, now: Nanos) -> Nanos {
        self.until(FREE, now)
    }

    /// The same if a call has to be refused.
    pub(super) fn refuses(&self, now: Nanos) -> Option<Nanos> {
        (self.until(MOST, now) > Nanos::ZERO).then(|| self.wait(now))
    }

    /// The time until no more than `work` is unpaid.
    fn until(&self, work: Nanos, now: Nanos) -> Nanos {
        let ahead = Nanos::new(work.get().saturating_mul(REST));
        self.paid_at.since(now.saturating_add(ahead))
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    /// A millisecond of work, with Envoy's part.
    const SLICE: Nanos = Nanos::new(900_000);

    /// A client that waits as it is told is never refused, and takes no more than its share.
    #[test]
    fn patient_clients_share_a_tenth() {
        for clients in [1_u64, 2, 8] {
            let mut pace = Pace::default();
            let mut free_at = vec![Nanos::ZERO; usize::try_from(clients).expect("few")];
            let mut calls = 0_u64;
            let mut now = Nanos::ZERO;
            while now < Nanos::from_secs(60) {
                let next = free_at.iter_mut().min().expect("a client");
                now = now.max(*next);
                assert_eq!(pace.refuses(now), None, "{clients} clients");
                let begun = now;
                now = now.saturating_add(SLICE);
                pace.charge(begun, now);
                *next = now.saturating_add(pace.wait(now));
                calls += 1;
            }
            let most = 60_000 / REST + 2 * FREE.as_millis() + clients;
            assert!(calls <= most, "{clients} clients: {calls} calls");
            assert!(calls * 10 > most * 9, "{clients} clients: {calls} calls");
        }
    }

    #[test]
    fn impatient_clients_are_refused_and_take_no_more() {
        let mut pace = Pace::default();
        let (mut now, mut calls) = (Nanos::ZERO, 0_u64);
        while now < Nanos::from_secs(60) {
            if pace.refuses(now).is_some() {
                now = now.saturating_add(Nanos::new(100_000));
            } else {
                let begun = now;
                now = now.saturating_add(SLICE);
                pace.charge(begun, now);
                calls += 1;
            }
        }
        assert!(calls <= 60_000 / REST + 2 * MOST.as_millis());
        let wait = pace.refuses(now).unwrap_or_else(|| pace.wait(now));
        assert_eq!(pace.wait(now.saturating_add(wait)), Nanos::ZERO);
    }

    /// A worker that did not run for a minute has not worked for a minute.
    #[test]
    fn a_pause_of_the_machine_costs_little() {
        let mut pace = Pace::default();
        pace.charge(Nanos::ZERO, Nanos::from_secs(60));
        assert_eq!(pace.wait(Nanos::from_secs(60)), Nanos::ZERO);
    }
}
