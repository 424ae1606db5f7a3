//! Replans a waiting request after an edit.

use super::{Bucket, Limit, Limits};
use crate::decision::BucketRequest;
use crate::taken::Taken;
use crate::time::Nanos;

/// New plan for a request that was waiting when an edit changed the limits.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Plan {
    /// The request passes at this time.
    At(Nanos),
    /// The request gives back its units and is evaluated again as if it were new. There are three
    /// cases. First, the request would have to wait longer than before the edit, and longer than
    /// the new limits allow. Second, the new limits do not hold requests, and the cost of this
    /// request does not fit. Third, no new limit continues its queue, and a new limit counts
    /// requests in flight but has not counted this request yet.
    Again,
}

impl Limits {
    /// Replans a waiting request that would have passed at `due` under the limits `old`. `taken`
    /// must already have been converted to these limits by [`Taken::converted`].
    ///
    /// Units that were taken before the request stay ahead of it and drain at the new rate. A
    /// smaller capacity does not affect a request that is already waiting, and neither does a
    /// shorter maximum wait if the request passes no later than before.
    pub fn plan(&self, old: &Self, taken: &Taken, due: Nanos) -> Plan {
        let mut places = 0..self.list.len();
        if !places.clone().any(|index| self.is_queue_of(old, index))
            && places.any(|index| self.wants_permits(old, index))
        {
            return Plan::Again;
        }
        let request = taken.request();
        let (mut latest, mut is_too_long, mut is_refused) = (Nanos::ZERO, false, false);
        let mut rest = taken.after_words().get(self.numbers.len()..).unwrap_or(&[]);
        self.each(&mut taken.before().clone(), &mut |index, meter, words| {
            let (after, next) = rest.split_at_checked(meter.words()).unwrap_or_default();
            rest = next;
            // All other limits are skipped. They are new, or already admitted the request before it
            // began to wait.
            if !self.held_by(old, index) || words == after {
                return;
            }
            let decision = meter.decide(words, request);
            is_refused |= decision.is_refused();
            latest = latest.max(decision.wait);
            is_too_long |= decision.wait > request.max_wait.unwrap_or_else(|| meter.longest_wait());
        });
        let at = request.now.saturating_add(latest);
        if is_refused || is_too_long && at > due {
            return Plan::Again;
        }
        Plan::At(if latest.is_zero() { due.min(at) } else { at })
    }

    /// Returns true if the limit at `index` continues a limit of `old` that may hold requests.
    fn held_by(&self, old: &Self, index: usize) -> bool {
        let before = self.before(old, index);
        before.is_some_and(|before| before.algorithm.may_hold())
    }

    /// Like [`Self::held_by`], but also requires that the limit itself may hold requests.
    fn is_queue_of(&self, old: &Self, index: usize) -> bool {
        let own = self.list.get(index);
        own.is_some_and(|limit| limit.algorithm.may_hold()) && self.held_by(old, index)
    }

    /// Returns true if the limit at `index` counts requests in flight, but requests that were
    /// admitted under `old` have no permit for it.
    fn wants_permits(&self, old: &Self, index: usize) -> bool {
        let holds_until_end = |limit: &Limit| limit.algorithm.holds_until_end();
        let gives = self.list.get(index).is_some_and(holds_until_end);
        gives && !self.before(old, index).is_some_and(holds_until_end)
    }

    /// Returns the limit of `old` that the limit at `index` continues.
    fn before<'a>(&self, old: &'a Self, index: usize) -> Option<&'a Limit> {
        let name = self.list.get(index).map(Limit::name);
        let same = old.list.iter().find(|old| Some(old.name()) == name);
        let renamed = || {
            let there = old.list.get(index)?;
            let is_gone = self.list.iter().all(|limit| limit.name() != there.name());
            is_gone.then_some(there)
        };
        same.or_else(renamed)
    }

    /// Returns the time at which a bucket's queue ends after an edit has converted the bucket. This
    /// is the time at which the next request would pass.
    pub(crate) fn queue_end_of(&self, bucket: &Bucket) -> Nanos {
        let request = BucketRequest::new(1, bucket.last).queued();
        let wait = self
            .decide_each(&mut bucket.clone(), &request)
            .decisions
            .iter()
            .map(|decision| decision.wait)
            .max()
            .unwrap_or_default();
        match wait {
            Nanos::ZERO => wait,
            _ => bucket.last.saturating_add(wait),
        }
    }
}
