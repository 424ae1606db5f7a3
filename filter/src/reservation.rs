//! Reservations: tokens that a request took from a bucket, and that are returned or resolved later.

use std::cell::RefCell;
use std::mem;
use std::rc::Rc;

use loudou_limiter::Nanos;
use loudou_rules::evaluate::{Answer, Outcome, RuleOutcome};
use loudou_store::Receipt;

use crate::settle::UpstreamResponse;

/// Reservations of one request. Its stream owns them. While the request is held, the queue shares
/// them, to plan the request again.
#[derive(Clone, Debug)]
pub(crate) struct Reservations(Rc<OfRequest>);

/// Reservations with the data to settle them.
#[derive(Debug)]
struct OfRequest {
    list: RefCell<Vec<Reservation>>,
    /// True if some of them are settled when the request ends.
    settles: bool,
    /// The response headers that costs depend on, once the response has come.
    response: RefCell<UpstreamResponse>,
}

impl Reservations {
    /// Wraps reservations. `None` if there are none.
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

    /// Returns true if some of them are settled when the request ends.
    pub(crate) fn settles(&self) -> bool {
        self.0.settles
    }

    /// Stores the response headers that the cost of the request may depend on.
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

    /// Calls `f` with each reservation. The list is never borrowed already, because `f` has no
    /// other access to it.
    pub(crate) fn each(&self, f: impl FnMut(&mut Reservation)) {
        if let Ok(mut reservations) = self.0.list.try_borrow_mut() {
            reservations.iter_mut().for_each(f);
        }
    }

    /// Removes all reservations, after they were returned.
    pub(crate) fn clear(&self) {
        if let Ok(mut reservations) = self.0.list.try_borrow_mut() {
            reservations.clear();
        }
    }
}

/// Tokens that a request took from a bucket, and that may have to be returned: when the request
/// ends, or if it never passes.
#[derive(Clone, Debug, PartialEq, Eq)]
pub(crate) struct Reservation {
    pub(crate) key: String,
    pub(crate) receipt: Receipt,
    /// True if the bucket made the request wait. The bucket must then be notified when the request
    /// passes.
    pub(crate) waits: bool,
    /// Time at which this bucket lets the request pass, if it made the request wait.
    pub(crate) due: Nanos,
    /// What happens to the tokens when the request ends.
    pub(crate) at_end: AtEnd,
}

/// What happens to reserved tokens when the request ends.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) enum AtEnd {
    /// The tokens stay taken.
    Keep,
    /// Tokens that are taken only until the request ends are returned.
    Release,
    /// The final cost of the request replaces the reservation.
    Settle,
}

/// Returns the tokens that the request may have to return. For a held request these are all tokens
/// that it took, because its client may leave. Most requests have none.
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
