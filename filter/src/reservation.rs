//! Reservations: tokens that a request took from a bucket, and that are returned or resolved later.

use std::cell::RefCell;
use std::rc::Rc;

use loudou_limiter::Nanos;
use loudou_rules::evaluate::{Answer, Outcome, RuleOutcome};
use loudou_store::Receipt;

/// Reservations of one request. Its stream has them, and while the request is held the queue has
/// them too, to plan it again.
#[derive(Clone, Debug)]
pub(crate) struct Reservations(Rc<RefCell<Vec<Reservation>>>);

impl Reservations {
    /// Wraps reservations. `None` if there are none.
    pub(crate) fn of(reservations: Vec<Reservation>) -> Option<Self> {
        (!reservations.is_empty()).then(|| Self(Rc::new(RefCell::new(reservations))))
    }

    /// Calls `f` with each reservation. The list is never borrowed already, because `f` has no
    /// other access to it.
    pub(crate) fn each(&self, f: impl FnMut(&mut Reservation)) {
        if let Ok(mut reservations) = self.0.try_borrow_mut() {
            reservations.iter_mut().for_each(f);
        }
    }

    /// Removes all reservations, after they were returned.
    pub(crate) fn clear(&self) {
        if let Ok(mut reservations) = self.0.try_borrow_mut() {
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
    /// True if some of the tokens are only taken until the request ends.
    pub(crate) until_end: bool,
}

/// Returns the tokens that the request may have to return. For a held request these are all tokens
/// that it took, because its client may leave. Most requests have none.
pub(crate) fn reservations(outcome: Outcome) -> Vec<Reservation> {
    let is_held = outcome.wait() > Nanos::ZERO;
    if !is_held && !outcome.rules.iter().any(is_until_end) {
        return Vec::new();
    }
    let reservation = |one: RuleOutcome| {
        let may_leave = is_held && one.is_enforced();
        let until_end = is_until_end(&one);
        let (waits, due) = match &one.answer {
            Answer::Decided(decision) => {
                let due = decision.at().saturating_add(decision.wait());
                (may_leave && decision.wait() > Nanos::ZERO, due)
            }
            _ => (false, Nanos::ZERO),
        };
        (may_leave || until_end).then_some(())?;
        Some(Reservation {
            key: one.key?,
            receipt: one.receipt?,
            waits,
            due,
            until_end,
        })
    };
    outcome.rules.into_iter().filter_map(reservation).collect()
}

fn is_until_end(one: &RuleOutcome) -> bool {
    one.receipt.is_some() && one.limits().holds_until_end()
}
