//! Reservations: tokens that a request has taken from buckets and that may be returned or settled
//! later.

use std::cell::RefCell;
use std::mem;
use std::rc::Rc;

use loudou_limiter::Nanos;
use loudou_rules::evaluate::{Answer, Outcome, RuleOutcome};
use loudou_store::Receipt;

use crate::settle::UpstreamResponse;

/// A request's reservations, owned by its stream. While the request is held, the queue also holds a
/// reference to the reservations, so that the request's due time can be recomputed.
#[derive(Clone, Debug)]
pub(crate) struct Reservations(Rc<OfRequest>);

/// A request's reservations and the data needed to settle them.
#[derive(Debug)]
struct OfRequest {
    list: RefCell<Vec<Reservation>>,
    /// True if any reservation must be settled when the request ends.
    settles: bool,
    /// The response headers needed for settlement. Empty until the response arrives.
    response: RefCell<UpstreamResponse>,
}

impl Reservations {
    /// Wraps reservations. `None` if the list is empty.
    pub(crate) fn of(reservations: Vec<Reservation>) -> Option<Self> {
        if reservations.is_empty() {
            return None;
        }
        let settles = |reservation: &Reservation| reservation.at_end == AtEnd::Settle;
        Some(Self(Rc::new(OfRequest {
            settles: reservations.iter().any(settles),
            list: RefCell::new(reservations),
            response: RefCell::default(),
        })))
    }

    /// Returns true if any reservation must be settled when the request ends.
    pub(crate) fn settles(&self) -> bool {
        self.0.settles
    }

    /// Stores the response headers needed for settlement.
    pub(crate) fn respond(&self, response: UpstreamResponse) {
        if let Ok(mut own) = self.0.response.try_borrow_mut() {
            *own = response;
        }
    }

    /// Removes and returns the stored response headers.
    pub(crate) fn take_response(&self) -> UpstreamResponse {
        let own = self.0.response.try_borrow_mut();
        own.map(|mut own| mem::take(&mut *own)).unwrap_or_default()
    }

    /// Calls `f` with each reservation. The list cannot already be borrowed, because `f` cannot
    /// access it in any other way.
    pub(crate) fn each(&self, f: impl FnMut(&mut Reservation)) {
        if let Ok(mut reservations) = self.0.list.try_borrow_mut() {
            reservations.iter_mut().for_each(f);
        }
    }

    /// Removes all reservations. Called once their tokens have been returned.
    pub(crate) fn clear(&self) {
        if let Ok(mut reservations) = self.0.list.try_borrow_mut() {
            reservations.clear();
        }
    }
}

/// Tokens that a request has taken from a bucket and that may have to be returned when the request
/// ends, or if it never passes.
#[derive(Clone, Debug, PartialEq, Eq)]
pub(crate) struct Reservation {
    pub(crate) key: String,
    pub(crate) receipt: Receipt,
    /// True if the request must wait because of this bucket, in which case the bucket must be
    /// updated when the request passes.
    pub(crate) waits: bool,
    /// Time at which the bucket allows the request to pass, if the request must wait because of
    /// this bucket.
    pub(crate) due: Nanos,
    /// What happens to the reserved tokens when the request ends.
    pub(crate) at_end: AtEnd,
}

/// What happens to reserved tokens when the request ends.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) enum AtEnd {
    /// The tokens are not returned.
    Keep,
    /// Tokens that the request only holds until it ends are returned.
    Release,
    /// The reservation is settled: it is replaced by the request's actual cost.
    Settle,
}

/// Returns a request's reservations, which are the tokens that may have to be returned. If the
/// client of a held request disconnects, all tokens taken by enforced rules are returned. Most
/// requests have no reservations.
pub(crate) fn reservations(outcome: Outcome) -> Vec<Reservation> {
    let is_held = outcome.wait() > Nanos::ZERO;
    let keeps = |one: &RuleOutcome| at_end(one) == AtEnd::Keep;
    if !is_held && outcome.rules.iter().all(keeps) {
        return Vec::new();
    }
    let reservation = |one: RuleOutcome| {
        let may_leave = is_held && one.is_enforced();
        let at_end = at_end(&one);
        let (waits, due) = match &one.answer {
            Answer::Decided(decision) => {
                let due = decision.at().saturating_add(decision.wait());
                (may_leave && decision.wait() > Nanos::ZERO, due)
            }
            _ => (false, Nanos::ZERO),
        };
        (may_leave || at_end != AtEnd::Keep).then_some(())?;
        Some(Reservation {
            key: one.key?,
            receipt: one.receipt?,
            waits,
            due,
            at_end,
        })
    };
    outcome.rules.into_iter().filter_map(reservation).collect()
}

fn at_end(one: &RuleOutcome) -> AtEnd {
    if one.receipt.is_none() {
        AtEnd::Keep
    } else if one.active.rule().cost.settlement().is_some() {
        AtEnd::Settle
    } else if one.limits().holds_until_end() {
        AtEnd::Release
    } else {
        AtEnd::Keep
    }
}
