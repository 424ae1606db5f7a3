//! Replans a waiting request after an edit.

use super::{Bucket, Limit, Limits};
use crate::decision::BucketRequest;
use crate::taken::Taken;
use crate::time::Nanos;

/// New plan for a request that waited when the numbers changed.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Plan {
    /// The request passes at this time.
    At(Nanos),
    /// The request gives back its units and is decided again like a new request. There are three
    /// cases. First, the edit makes it wait longer than before, and longer than the new limits
    /// allow. Second, the new limits hold no requests and have no room for this one. Third, no new
    /// limit continues its queue, and a new limit counts requests in flight but has not counted
    /// this request yet.
    Again,
}

impl Limits {
    /// Replans a waiting request that was to pass at `due` under the limits `old`.
    /// [`Taken::converted`] has already converted `taken` to these limits.
    ///
    /// The units taken before it stay ahead of it, and leave at the new rate. A smaller capacity
    /// refuses no request that already waits. An edit that lets the request pass no later than
    /// before does not refuse it either.
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
            // Every other limit is new, or admitted the request before it began to wait.
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

    /// Like [`Self::held_by`], but the limit must also hold requests itself.
    fn is_queue_of(&self, old: &Self, index: usize) -> bool {
        let own = self.list.get(index);
        own.is_some_and(|limit| limit.algorithm.may_hold()) && self.held_by(old, index)
    }

    /// Returns true if the limit at `index` gives out permits until requests end, and requests that
    /// `old` admitted have none.
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

    /// Returns the time until which requests wait in a bucket that an edit has just converted,
    /// which is the time at which the next request would pass.
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
