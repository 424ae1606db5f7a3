//! Planning the held requests of this worker anew after a change of the rules.

use std::collections::BTreeSet;

use loudou_limiter::{Clock, Nanos, Plan};

use super::Active;
use crate::host::Host;
use crate::waiting::{Held, Ticket, Waiting};

/// The time after which planning pauses: 65 536 requests may be held.
const MOST_TIME: Nanos = Nanos::from_millis(1);
/// The requests that are planned at least, before the time is read.
const STEP: usize = 16;

/// The progress of planning.
#[derive(Debug, Default)]
pub(in super::super) struct Planning {
    /// The generation of the rules by which the held requests were planned, or are being planned.
    generation: u64,
    /// The place of the next one that is not planned yet. None of those from there on may pass.
    pub(in super::super) next: Option<Ticket>,
    /// Those that are to be decided again, in their order.
    late: Vec<Ticket>,
    /// Those of them that have given back what they took, in the order of the instants that they first had.
    put_off: BTreeSet<Ticket>,
}

impl Planning {
    /// Whether there is more to do.
    pub(in super::super) fn is_due(&self) -> bool {
        self.next.is_some() || !self.late.is_empty() || !self.put_off.is_empty()
    }
}

impl Active {
    /// Plans held requests anew, for a bounded time, if the rules have changed since they were planned.
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
                if host.now().since(now) >= MOST_TIME {
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

    /// The plan for a held request: the latest of the instants of all buckets that make it wait. `None` for
    /// a request that waits for a lease, or to be decided again.
    fn plan_of(&self, place: Ticket, held: &Held, clock: Clock) -> Option<Plan> {
        let loans = held.loans.as_ref().filter(|_| !held.is_undecided)?;
        let (mut latest, mut is_put_off) = (None, false);
        loans.each(|loan| {
            if loan.waits
                && let Some(active) = self.lender_of(&loan.receipt)
            {
                match active.plan(&loan.key, (&mut loan.receipt, loan.due), clock) {
                    Some(Plan::At(due)) => loan.due = due,
                    Some(Plan::Again) => is_put_off = true,
                    None => {}
                }
            }
            if loan.waits {
                latest = latest.max(Some(loan.due));
            }
        });
        let latest = latest?;
        if is_put_off || latest > place.due && latest > held.latest {
            loans.each(|loan| loan.due = Nanos::MAX);
            return Some(Plan::Again);
        }
        Some(Plan::At(latest))
    }

    /// Takes at most `most` of those that are to be decided again out of the queue, in their order. Before the first
    /// of them all give back what they took, for a bounded time: the last one first, because only that one leaves no
    /// gap in front of others.
    pub(in super::super) fn put_off_late(
        &self,
        host: &dyn Host,
        (waiting, planning): (&Waiting, &mut Planning),
        most: usize,
        now: Nanos,
    ) -> Vec<Held> {
        let mut put_off = Vec::new();
        if planning.next.is_some() {
            return put_off;
        }
        let begun = host.now();
        let mut given: usize = 0;
        while let Some(ticket) = planning.late.pop() {
            if let Some(loans) = waiting.loans(ticket) {
                self.put_off(host, &loans, now);
                loans.clear();
            }
            planning.put_off.insert(ticket);
            given = given.saturating_add(1);
            if given.is_multiple_of(STEP) && host.now().since(begun) >= MOST_TIME {
                return put_off;
            }
        }
        while put_off.len() < most
            && let Some(ticket) = planning.put_off.pop_first()
        {
            put_off.extend(waiting.take(ticket));
        }
        put_off
    }
}
