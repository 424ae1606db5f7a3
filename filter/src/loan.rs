//! Units that a request took from a bucket, and that are given back, or resolved, later.

use loudou_limiter::Nanos;
use loudou_rules::evaluate::{Answer, Outcome, RuleOutcome};
use loudou_store::Receipt;

/// Units that a request took from a bucket, and that may have to be given back: when the request ends, or
/// if it never passes.
#[derive(Clone, Debug, PartialEq, Eq)]
pub(crate) struct Loan {
    pub(crate) key: String,
    pub(crate) receipt: Receipt,
    /// Whether the bucket made the request wait: it counts on being notified when the request passes.
    pub(crate) waits: bool,
    /// Whether some of the units are only taken until the request ends.
    pub(crate) until_end: bool,
}

/// The units that the request may have to give back. For a held request these are all that it took, since
/// its client may leave. Most requests have none.
pub(crate) fn loans(outcome: Outcome) -> Vec<Loan> {
    let is_held = outcome.wait() > Nanos::ZERO;
    if !is_held && !outcome.rules.iter().any(is_until_end) {
        return Vec::new();
    }
    let loan = |one: RuleOutcome| {
        let may_leave = is_held && one.is_enforced();
        let until_end = is_until_end(&one);
        let waits = match &one.answer {
            Answer::Decided(decision) => may_leave && decision.wait() > Nanos::ZERO,
            _ => false,
        };
        (may_leave || until_end).then_some(())?;
        Some(Loan {
            key: one.key?,
            receipt: one.receipt?,
            waits,
            until_end,
        })
    };
    outcome.rules.into_iter().filter_map(loan).collect()
}

fn is_until_end(one: &RuleOutcome) -> bool {
    one.receipt.is_some() && one.limits().holds_until_end()
}
