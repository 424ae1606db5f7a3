//! Converts a lease's verdict to a [`BucketDecision`], so that it is reported like a local bucket's
//! decision.

use super::{Lease, LeaseVerdict, Shared, Terms};
use crate::decision::BucketRequest;
use crate::decision::Decision;
use crate::limit::{BucketDecision, Decisions};
use crate::time::Nanos;

/// Likelihood that a limit caused a refusal. The engine reports how long the refusal lasts, but not
/// which limit caused it.
#[derive(Clone, Copy, PartialEq, Eq, PartialOrd, Ord)]
enum Blame {
    /// The limit has enough units.
    None,
    /// The limit has too few units, but enough units refill before the refusal ends.
    Short,
    /// The limit has too few units, possibly until the refusal ends.
    Explains,
}

impl Lease {
    /// Returns the decision to report for a verdict on `request`. For each limit, the remaining
    /// units are the tokens of this lease plus the balance that the engine last reported. The
    /// reported time until a limit is full is an upper bound. If the verdict is neither an
    /// admission nor a refusal, the decision is the same as for an admission.
    pub fn decision(
        &self,
        terms: &Terms,
        verdict: LeaseVerdict,
        request: &BucketRequest,
    ) -> BucketDecision {
        let limits = terms.limits();
        let decide = |(place, limit): (usize, &Shared)| {
            let known = self.tokens(request.now).saturating_add(self.left.at(place));
            let remaining = known.min(limit.capacity());
            let used = limit.capacity().saturating_sub(remaining);
            let full_in = limit.full_in(used, request.wall);
            Decision::admit(limit.capacity(), remaining, full_in)
        };
        let mut decisions: Decisions = limits.iter().enumerate().map(decide).collect();
        if let LeaseVerdict::Refuse { retry_after } = verdict {
            let refusal = Refusal {
                retry_after,
                cost: request.cost.max(1),
                lease: terms.settings().lease,
            };
            refusal.mark(limits, &mut decisions);
        }
        BucketDecision::new(request.now, decisions)
    }
}

struct Refusal {
    /// Duration of the refusal; `None` if the cost will never be admitted.
    retry_after: Option<Nanos>,
    cost: u64,
    lease: Nanos,
}

impl Refusal {
    fn blame(&self, limit: &Shared, remaining: u64) -> Blame {
        let can_last = limit.time_for(self.cost).saturating_add(self.lease);
        match self.retry_after {
            None if self.cost > limit.capacity() => Blame::Explains,
            _ if remaining >= self.cost => Blame::None,
            Some(wait) if wait <= can_last => Blame::Explains,
            _ => Blame::Short,
        }
    }

    /// Turns the decisions of all limits that may have caused the refusal into refusals.
    fn mark(&self, limits: &[Shared], decisions: &mut [Decision]) {
        let mut most = Blame::None;
        for (limit, decision) in limits.iter().zip(decisions.iter()) {
            most = most.max(self.blame(limit, decision.remaining));
        }
        for (limit, decision) in limits.iter().zip(decisions.iter_mut()) {
            let missing = self.cost.saturating_sub(decision.remaining);
            // Sometimes no limit explains the refusal: a debt can outlast every limit, and a denial
            // can be older than the tokens of this lease. In that case, the limits with the highest
            // `Blame` report the refusal's duration.
            let retry_after = match self.blame(limit, decision.remaining) {
                blame if blame == most => self.retry_after,
                Blame::None => continue,
                _ => Some(limit.time_for(missing)),
            };
            *decision = decision.refused(retry_after);
        }
    }
}
