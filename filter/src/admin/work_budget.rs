//! Limits the share of a worker's time that bucket searches may take.
//!
//! Clients follow the cursors of a long list back to back. Without a bound, a few clients would
//! keep all workers busy, and every request would wait behind a search. So after working for t, a
//! search pauses for 10 t. Each response reports how long its client should wait before the next
//! call. A client that calls earlier is refused while the worker's searches are too far ahead of
//! their pauses. Each worker throttles its clients independently.

use loudou_limiter::Nanos;

/// Pause between searches, as a multiple of the time worked.
const REST: u64 = 10;
/// Assumed cost of Envoy's part of a call.
const CALL: Nanos = Nanos::new(100_000);
/// Unpaid work at which clients are first asked to wait. A short list stays below it.
const FREE: Nanos = Nanos::from_millis(10);
/// Unpaid work above which calls are refused.
const MAX_DEBT: Nanos = Nanos::from_millis(40);
/// Maximum charge for one response. The clock also counts time in which the worker did not run.
const MAX_CHARGE: Nanos = Nanos::from_millis(2);

/// Work of one worker that is not paid for yet.
#[derive(Debug, Default)]
pub(super) struct WorkBudget {
    /// Time at which all work is paid for.
    paid_at: Nanos,
}

impl WorkBudget {
    /// Charges work from `begun` to `now`.
    pub(super) fn charge(&mut self, begun: Nanos, now: Nanos) {
        let work = now.since(begun).saturating_add(CALL).min(MAX_CHARGE);
        let pays = Nanos::new(work.get().saturating_mul(REST));
        self.paid_at = self.paid_at.max(now).saturating_add(pays);
    }

    /// Returns the time that a client should wait at `now` before its next call.
    pub(super) fn wait(&self, now: Nanos) -> Nanos {
        self.until(FREE, now)
    }

    /// Returns the time to wait if a call must be refused.
    pub(super) fn refuses(&self, now: Nanos) -> Option<Nanos> {
        (self.until(MAX_DEBT, now) > Nanos::ZERO).then(|| self.wait(now))
    }

    /// Returns the time until no more than `work` is unpaid.
    fn until(&self, work: Nanos, now: Nanos) -> Nanos {
        let ahead = Nanos::new(work.get().saturating_mul(REST));
        self.paid_at.since(now.saturating_add(ahead))
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    /// A millisecond of work, including Envoy's part.
    const SLICE: Nanos = Nanos::new(900_000);

    /// A client that waits as requested is never refused, and takes no more than its share.
    #[test]
    fn patient_clients_share_a_tenth() {
        for clients in [1_u64, 2, 8] {
            let mut work_budget = WorkBudget::default();
            let mut free_at = vec![Nanos::ZERO; usize::try_from(clients).expect("few")];
            let mut calls = 0_u64;
            let mut now = Nanos::ZERO;
            while now < Nanos::from_secs(60) {
                let next = free_at.iter_mut().min().expect("a client");
                now = now.max(*next);
                assert_eq!(work_budget.refuses(now), None, "{clients} clients");
                let begun = now;
                now = now.saturating_add(SLICE);
                work_budget.charge(begun, now);
                *next = now.saturating_add(work_budget.wait(now));
                calls += 1;
            }
            let most = 60_000 / REST + 2 * FREE.as_millis() + clients;
            assert!(calls <= most, "{clients} clients: {calls} calls");
            assert!(calls * 10 > most * 9, "{clients} clients: {calls} calls");
        }
    }

    #[test]
    fn impatient_clients_are_refused_and_take_no_more() {
        let mut work_budget = WorkBudget::default();
        let (mut now, mut calls) = (Nanos::ZERO, 0_u64);
        while now < Nanos::from_secs(60) {
            if work_budget.refuses(now).is_some() {
                now = now.saturating_add(Nanos::new(100_000));
            } else {
                let begun = now;
                now = now.saturating_add(SLICE);
                work_budget.charge(begun, now);
                calls += 1;
            }
        }
        assert!(calls <= 60_000 / REST + 2 * MAX_DEBT.as_millis());
        let wait = work_budget
            .refuses(now)
            .unwrap_or_else(|| work_budget.wait(now));
        assert_eq!(work_budget.wait(now.saturating_add(wait)), Nanos::ZERO);
    }

    /// A worker that did not run for a minute has not worked for a minute.
    #[test]
    fn a_pause_of_the_machine_costs_little() {
        let mut work_budget = WorkBudget::default();
        work_budget.charge(Nanos::ZERO, Nanos::from_secs(60));
        assert_eq!(work_budget.wait(Nanos::from_secs(60)), Nanos::ZERO);
    }
}
