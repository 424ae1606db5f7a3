//! The counts of decisions: in Envoy's metrics by rule, and in the tally of frequent keys.

use loudou_limiter::{Nanos, Verdict};
use loudou_rules::evaluate::{Answer, Outcome, RuleOutcome};
use loudou_rules::rule::Mode;
use loudou_store::top::{By, Tally};

use crate::host::{Host, HostStore};
use crate::metrics::{Counted, RuleMetrics};

/// The counters of decisions.
#[derive(Debug)]
pub(super) struct Counts {
    of_rules: Vec<RuleMetrics>,
    tally: Tally,
}

impl Counts {
    /// Counters with the metrics of the rules, in the order of the rules.
    pub(super) const fn new(of_rules: Vec<RuleMetrics>, tally: Tally) -> Self {
        Self { of_rules, tally }
    }

    /// Counts the outcome of a request.
    pub(super) fn add(&mut self, host: &dyn Host, outcome: &Outcome, now: Nanos) {
        for one in &outcome.rules {
            let Some(metrics) = self.of_rules.get(one.rule) else {
                continue;
            };
            if matches!(one.answer, Answer::GaveUp(_)) {
                metrics.count(host, Counted::Error);
            }
            if one.price.is_some_and(|price| price.is_invalid) {
                metrics.count(host, Counted::InvalidCost);
            }
            let refused = one.refuses();
            let Some(counted) = counted(one, refused) else {
                continue;
            };
            metrics.count(host, counted);
            if let (Some(key), Some(id)) = (&one.key, one.id) {
                let by = if refused { By::Refused } else { By::Admitted };
                self.tally.count(by, id.rule_tag, id.fingerprint, key, now);
            }
        }
    }

    /// The time of the next flush.
    pub(super) const fn due(&self) -> Option<Nanos> {
        self.tally.due()
    }

    /// Shares the tally of frequent keys with all workers, if that is due.
    pub(super) fn flush(&mut self, host: &dyn Host, now: Nanos) {
        self.tally.flush(&mut HostStore(host), now);
    }
}

/// The counter of an outcome; none if another rule overruled it, since this rule neither admitted nor
/// refused the request.
fn counted(outcome: &RuleOutcome, refused: bool) -> Option<Counted> {
    Some(
        match (&outcome.answer, refused, outcome.active.rule().mode) {
            (Answer::Skipped, _, _) => Counted::Skipped,
            _ if outcome.overruled => return None,
            (Answer::Decided(decision), false, Mode::Enforce)
                if decision.verdict() == Verdict::Hold =>
            {
                Counted::Held
            }
            (_, false, _) => Counted::Admitted,
            (_, true, Mode::Enforce) => Counted::Refused,
            (_, true, Mode::Shadow | Mode::Off) => Counted::ShadowRefused,
        },
    )
}
