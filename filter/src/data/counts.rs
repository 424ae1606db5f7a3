//! The counts of decisions: in Envoy's metrics by rule, and among the keys that come often.

use loudou_limiter::{Nanos, Verdict};
use loudou_rules::evaluate::{Answer, Outcome, RuleOutcome};
use loudou_rules::rule::Mode;
use loudou_store::top::{By, Tally};

use crate::host::{Host, HostStore};
use crate::metrics::{Counted, RuleMetrics};

/// Where decisions are counted.
#[derive(Debug)]
pub(super) struct Counts {
    of_rules: Vec<RuleMetrics>,
    tally: Tally,
}

impl Counts {
    /// The metrics are those of the rules, in their order.
    pub(super) const fn new(of_rules: Vec<RuleMetrics>, tally: Tally) -> Self {
        Self { of_rules, tally }
    }

    /// Counts the outcome of a request.
    pub(super) fn add(&mut self, host: &dyn Host, outcome: &Outcome, now: Nanos) {
        for said in &outcome.rules {
            let Some(metrics) = self.of_rules.get(said.rule) else {
                continue;
            };
            if matches!(said.answer, Answer::GaveUp(_)) {
                metrics.count(host, Counted::Error);
            }
            if said.price.is_some_and(|price| price.is_invalid) {
                metrics.count(host, Counted::InvalidCost);
            }
            let refused = said.refuses();
            let Some(counted) = counted(said, refused) else {
                continue;
            };
            metrics.count(host, counted);
            if let (Some(key), Some(id)) = (&said.key, said.id) {
                let by = if refused { By::Refused } else { By::Admitted };
                self.tally.count(by, id.rule_tag, id.fingerprint, key, now);
            }
        }
    }

    /// When there is something to flush.
    pub(super) const fn due(&self) -> Option<Nanos> {
        self.tally.due()
    }

    /// Shares with all workers which keys come often, if that is due.
    pub(super) fn flush(&mut self, host: &dyn Host, now: Nanos) {
        self.tally.flush(&mut HostStore(host), now);
    }
}

/// The counter of an answer; none if another rule overruled it, since this one neither admitted the request
/// nor refused it.
fn counted(said: &RuleOutcome, refused: bool) -> Option<Counted> {
    Some(match (&said.answer, refused, said.active.rule().mode) {
        (Answer::Skipped, _, _) => Counted::Skipped,
        _ if said.overruled => return None,
        (Answer::Decided(decision), false, Mode::Enforce)
            if decision.verdict() == Verdict::Hold =>
        {
            Counted::Held
        }
        (_, false, _) => Counted::Admitted,
        (_, true, Mode::Enforce) => Counted::Refused,
        (_, true, Mode::Shadow | Mode::Off) => Counted::ShadowRefused,
    })
}
