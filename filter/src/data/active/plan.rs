//! Computes new due times for this worker's held requests after a rule change.

use std::collections::BTreeSet;

use loudou_limiter::{Clock, Nanos, Plan};

use super::Active;
use crate::host::Host;
use crate::waiting::{Held, Ticket, Waiting};

/// Time limit of one planning run. Up to 65 536 requests may be held, so planning pauses after this
/// time.
const MAX_TIME: Nanos = Nanos::from_millis(1);
/// Number of requests that are planned between two readings of the clock.
const STEP: usize = 16;

/// Progress of planning.
#[derive(Debug, Default)]
pub(in super::super) struct Planning {
    /// Generation of the rules that planning uses or last used.
    generation: u64,
    /// Queue position of the next request to plan. This request and all later ones must not pass
    /// yet.
    pub(in super::super) next: Option<Ticket>,
    /// Requests that must be decided again, in queue order.
    late: Vec<Ticket>,
    /// Requests among them whose tokens are already returned, ordered by their original due times.
    postponed: BTreeSet<Ticket>,
}

impl Planning {
    /// Returns true if some held requests are not planned yet.
    pub(in super::super) fn is_due(&self) -> bool {
        self.next.is_some() || !self.late.is_empty() || !self.postponed.is_empty()
    }
}

impl Active {
    /// Plans the held requests again, for a bounded time, if the rules have changed since they were
    /// planned.
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

    /// Returns the plan for a held request: the latest due time among the buckets that make it
    /// wait. Returns `None` for a request that waits for a lease, or to be decided again.
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

    /// Removes at most `most` requests that must be decided again, in queue order. Before the first
    /// is removed, all of them return their tokens, for a bounded time. They return them in reverse
    /// order, because only the last request in a bucket's queue leaves no gap in front of others.
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
