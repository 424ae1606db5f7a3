//! Replans a waiting request after an edit.

use super::{Bucket, Limit, Limits};
use crate::decision::Ask;
use crate::taken::Taken;
use crate::time::Nanos;

/// The plan for a request that waited when the numbers changed.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Plan {
    /// It passes at this instant.
    At(Nanos),
    /// It gives back what it took, and is decided again as a new one: the edit makes it wait longer, and longer than
    /// the new limits let a request wait; or they hold no request, and have no room for this one; or none of them
    /// continues its queue, and one gives out permits until requests end, of which it has none.
    Again,
}

impl Limits {
    /// Replans a waiting request that was to pass at `due` under the limits `old`. `taken` has been
    /// [`Taken::converted`] to these limits.
    ///
    /// What was taken before it has the same place in front of it as before, and leaves at the new pace. A
    /// smaller capacity refuses no request that waits already, and nor does an edit that lets it pass no later
    /// than before.
    pub fn plan(&self, old: &Self, taken: &Taken, due: Nanos) -> Plan {
        let mut places = 0..self.list.len();
        if !places.clone().any(|index| self.is_queue_of(old, index))
            && places.any(|index| self.wants_permits(old, index))
        {
            return Plan::Again;
        }
        let ask = taken.ask();
        let (mut latest, mut is_too_long, mut is_refused) = (Nanos::ZERO, false, false);
        let mut rest = taken.after_words();
        self.each(&mut taken.before().clone(), &mut |index, meter, words| {
            let (after, next) = rest.split_at_checked(meter.words()).unwrap_or_default();
            rest = next;
            // Any other limit admitted the request before it began to wait, or is new to it.
            if !self.held_by(old, index) || words == after {
                return;
            }
            let decision = meter.decide(words, ask);
            is_refused |= decision.is_refused();
            latest = latest.max(decision.wait);
            is_too_long |= decision.wait > ask.max_wait.unwrap_or_else(|| meter.longest_wait());
        });
        let at = ask.now.saturating_add(latest);
        if is_refused || is_too_long && at > due {
            return Plan::Again;
        }
        Plan::At(if latest.is_zero() { due.min(at) } else { at })
    }

    /// Returns true if the limit at this place continues one of `old` that may hold requests.
    fn held_by(&self, old: &Self, index: usize) -> bool {
        let before = self.before(old, index);
        before.is_some_and(|before| before.algorithm.may_hold())
    }

    /// Like [`Self::held_by`], for a limit that may hold requests itself.
    fn is_queue_of(&self, old: &Self, index: usize) -> bool {
        let own = self.list.get(index);
        own.is_some_and(|limit| limit.algorithm.may_hold()) && self.held_by(old, index)
    }

    /// Returns true if the limit at this place gives out permits until requests end, and those admitted by `old` have none.
    fn wants_permits(&self, old: &Self, index: usize) -> bool {
        let holds_until_end = |limit: &Limit| limit.algorithm.holds_until_end();
        let gives = self.list.get(index).is_some_and(holds_until_end);
        gives && !self.before(old, index).is_some_and(holds_until_end)
    }

    /// The limit of `old` that the one at this place continues.
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

    /// The instant until which requests wait in a bucket that an edit has just converted: until the next
    /// one would pass.
    pub(crate) fn line_of(&self, bucket: &Bucket) -> Nanos {
        let ask = Ask::new(1, bucket.last).in_place();
        let wait = self
            .decide_each(&mut bucket.clone(), &ask)
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
