//! Numbers of a lease's verdict, in the form in which the numbers of a bucket are reported.

use super::{Lease, LeaseVerdict, Shared, Terms};
use crate::decision::BucketRequest;
use crate::decision::Decision;
use crate::limit::{BucketDecision, Decisions};
use crate::time::Nanos;

/// Contribution of a limit to a refusal. The engine reports how long the refusal lasts, but not
/// which limit refused.
#[derive(Clone, Copy, PartialEq, Eq, PartialOrd, Ord)]
enum Blame {
    /// The limit has enough units.
    None,
    /// The limit has too few units, but they refill before the refusal ends.
    Short,
    /// The limit has too few units until the refusal ends.
    Explains,
}

impl Lease {
    /// Returns the decision to report for a verdict on `request`. For each limit, it adds the
    /// tokens here and the balance that the engine last reported. The time until a limit is full is
    /// an upper bound. If the lease does not decide the verdict itself, reports the numbers of an
    /// admitted request.
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
    /// Duration of the refusal; `None` if it is permanent.
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

    /// Marks the limits that refused.
    fn mark(&self, limits: &[Shared], decisions: &mut [Decision]) {
        let mut most = Blame::None;
        for (limit, decision) in limits.iter().zip(decisions.iter()) {
            most = most.max(self.blame(limit, decision.remaining));
        }
        for (limit, decision) in limits.iter().zip(decisions.iter_mut()) {
            let missing = self.cost.saturating_sub(decision.remaining);
            // A debt can last longer than any limit, and a denial can be older than the tokens
            // here.
            let retry_after = match self.blame(limit, decision.remaining) {
                blame if blame == most => self.retry_after,
                Blame::None => continue,
                _ => Some(limit.time_for(missing)),
            };
            *decision = decision.refused(retry_after);
        }
    }
}
