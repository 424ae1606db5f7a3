//! Limits the proportion of a worker's time spent on bucket searches.
//!
//! Clients that list many buckets request one page after another. Without a limit, a few clients
//! could keep all workers busy, and ordinary requests would be stuck behind searches. After
//! searching for time t, a worker should therefore pause searching for 10 t. Each response tells
//! its client how long to wait before the next call. If clients do not wait, the worker accumulates
//! unpaid work, that is, work not yet followed by the corresponding pause. Above [`MAX_DEBT`], the
//! worker refuses further searches. Each worker throttles its clients independently.

use loudou_limiter::Nanos;

/// Length of the pause after a search, as a multiple of the search time.
const REST: u64 = 10;
/// Estimated time spent on a call by Envoy itself.
const CALL: Nanos = Nanos::new(100_000);
/// Amount of unpaid work above which responses tell clients to wait. Listing a few pages takes less
/// work than this.
const FREE: Nanos = Nanos::from_millis(10);
/// Amount of unpaid work above which searches are refused.
const MAX_DEBT: Nanos = Nanos::from_millis(40);
/// Maximum charge for one response. The cap is needed because the measured time includes periods
/// when the worker was not scheduled.
const MAX_CHARGE: Nanos = Nanos::from_millis(2);

/// Search work for which a worker has not paused yet.
#[derive(Debug, Default)]
pub(super) struct WorkBudget {
    /// Time at which the pauses for all work so far will be over.
    paid_at: Nanos,
}

impl WorkBudget {
    /// Charges the time between `begun` and `now` as work.
    pub(super) fn charge(&mut self, begun: Nanos, now: Nanos) {
        let work = now.since(begun).saturating_add(CALL).min(MAX_CHARGE);
        let pays = Nanos::new(work.get().saturating_mul(REST));
        self.paid_at = self.paid_at.max(now).saturating_add(pays);
    }

    /// Returns how long a client should wait before its next call.
    pub(super) fn wait(&self, now: Nanos) -> Nanos {
        self.until(FREE, now)
    }

    /// Returns the time to wait if the call must be refused because there is too much unpaid work.
    pub(super) fn refuses(&self, now: Nanos) -> Option<Nanos> {
        (self.until(MAX_DEBT, now) > Nanos::ZERO).then(|| self.wait(now))
    }

    /// Returns the time until unpaid work has dropped to `work`.
    fn until(&self, work: Nanos, now: Nanos) -> Nanos {
        let ahead = Nanos::new(work.get().saturating_mul(REST));
        self.paid_at.since(now.saturating_add(ahead))
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    /// Duration of one search. Together with [`CALL`], a search is charged as one millisecond of
    /// work.
    const SLICE: Nanos = Nanos::new(900_000);

    /// Clients that wait as long as they are told are never refused. Together, such clients use no
    /// more than the allowed proportion of the worker's time.
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

    /// If a worker is not scheduled for a minute, that minute is not charged as work.
    #[test]
    fn a_pause_of_the_machine_costs_little() {
        let mut work_budget = WorkBudget::default();
        work_budget.charge(Nanos::ZERO, Nanos::from_secs(60));
        assert_eq!(work_budget.wait(Nanos::from_secs(60)), Nanos::ZERO);
    }
}
