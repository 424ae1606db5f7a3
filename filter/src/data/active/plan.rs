//! Recomputes the due times of the requests held on this worker after a rule change.

use std::collections::BTreeSet;

use loudou_limiter::{Clock, Nanos, Plan};

use super::Active;
use crate::host::Host;
use crate::waiting::{Held, Ticket, Waiting};

/// Time limit for a single planning run. Up to 65 536 requests may be held, so a run that hits the
/// limit is resumed later.
const MAX_TIME: Nanos = Nanos::from_millis(1);
/// Number of requests planned between two clock readings.
const STEP: usize = 16;

/// Planning progress for the held requests.
#[derive(Debug, Default)]
pub(in super::super) struct Planning {
    /// Rule generation for which the held requests are currently being planned, or were last
    /// planned.
    generation: u64,
    /// Queue position from which planning resumes. Requests from this position on must not pass
    /// yet. `None` if all requests have been planned.
    pub(in super::super) next: Option<Ticket>,
    /// Requests that must be decided again and have not returned their tokens yet, in queue order.
    late: Vec<Ticket>,
    /// Requests that must be decided again and have returned their tokens, ordered by their
    /// original due times.
    postponed: BTreeSet<Ticket>,
}

impl Planning {
    /// Returns true if any held requests have yet to be planned or decided again.
    pub(in super::super) fn is_due(&self) -> bool {
        self.next.is_some() || !self.late.is_empty() || !self.postponed.is_empty()
    }
}

impl Active {
    /// Replans the held requests, for a bounded amount of time, if the rules have changed since
    /// they were last planned.
    pub(in super::super) fn plan(
        &self,
        host: &dyn Host,
        waiting: &Waiting,
        planning: &mut Planning,
        now: Nanos,
    ) {
        if planning.generation != self.generation {
            planning.generation = self.generation;
            planning.next = Some(Ticket::default());
        }
        if planning.next.is_none() {
            return;
        }
        let clock = self.clock(host, now);
        let mut planned: usize = 0;
        while let Some(from) = planning.next {
            if planned == STEP {
                planned = 0;
                if host.now().since(now) >= MAX_TIME {
                    return;
                }
            }
            planned = planned.saturating_add(1);
            let Some((place, held)) = waiting.next_from(from) else {
                planning.next = None;
                return;
            };
            planning.next = Some(Ticket {
                due: place.due,
                stream: place.stream.saturating_add(1),
            });
            match self.plan_of(place, &held, clock) {
                Some(Plan::At(due)) if due != place.due => waiting.plan(held.ticket, due),
                Some(Plan::At(_)) | None => {}
                Some(Plan::Again) => {
                    waiting.plan(held.ticket, Nanos::MAX);
                    planning.late.push(held.ticket);
                }
            }
        }
    }

    /// Returns the new plan for a held request: either its due time, or that it must be decided
    /// again. The due time is the latest one computed by any of the buckets the request is waiting
    /// for. Returns `None` for a request that is waiting for a lease, or is already waiting to be
    /// decided again.
    fn plan_of(&self, place: Ticket, held: &Held, clock: Clock) -> Option<Plan> {
        let reservations = held.reservations.as_ref().filter(|_| !held.is_undecided)?;
        let (mut latest, mut is_postponed) = (None, false);
        reservations.each(|reservation| {
            if reservation.waits
                && let Some(active) = self.rule_of_receipt(&reservation.receipt)
            {
                match active.plan(
                    &reservation.key,
                    (&mut reservation.receipt, reservation.due),
                    clock,
                ) {
                    Some(Plan::At(due)) => reservation.due = due,
                    Some(Plan::Again) => is_postponed = true,
                    None => {}
                }
            }
            if reservation.waits {
                latest = latest.max(Some(reservation.due));
            }
        });
        let latest = latest?;
        if is_postponed || latest > place.due && latest > held.latest {
            reservations.each(|reservation| reservation.due = Nanos::MAX);
            return Some(Plan::Again);
        }
        Some(Plan::At(latest))
    }

    /// Removes up to `most` requests that must be decided again, in queue order. First returns the
    /// tokens of all such requests, spending a bounded amount of time per call. Tokens are returned
    /// in reverse queue order, because only the last request in a bucket's queue can leave without
    /// opening a gap in front of other requests.
    pub(in super::super) fn postpone_late(
        &self,
        host: &dyn Host,
        (waiting, planning): (&Waiting, &mut Planning),
        most: usize,
        now: Nanos,
    ) -> Vec<Held> {
        let mut postponed = Vec::new();
        if planning.next.is_some() {
            return postponed;
        }
        let begun = host.now();
        let mut given: usize = 0;
        while let Some(ticket) = planning.late.pop() {
            if let Some(reservations) = waiting.reservations(ticket) {
                self.postpone(host, &reservations, now);
                reservations.clear();
            }
            planning.postponed.insert(ticket);
            given = given.saturating_add(1);
            if given.is_multiple_of(STEP) && host.now().since(begun) >= MAX_TIME {
                return postponed;
            }
        }
        while postponed.len() < most
            && let Some(ticket) = planning.postponed.pop_first()
        {
            postponed.extend(waiting.take(ticket));
        }
        postponed
    }
}
