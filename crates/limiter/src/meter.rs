//! The interface of an algorithm: decisions over a few 64-bit words of state, and the used capacity
//! in a form that all algorithms share.

use core::any::Any;

use crate::convert::Carry;
use crate::decision::{BucketRequest, Decision};
use crate::leak::{Leak, Level};
use crate::time::Rate;
use crate::time::{Clock, Nanos};

/// Operations of an algorithm on its state.
///
/// `words` always has [`Meter::words`] elements, and `now` is never earlier than in the previous
/// call on the same state. Zero words at the end of a state are not stored, so put rarely used
/// words there.
pub(crate) trait Meter: Any {
    /// Maximum number of cost units that it admits at once, which is the `capacity` of every
    /// decision.
    fn capacity(&self) -> u64;
    /// The long-term rate; `None` if time alone frees no capacity.
    fn rate(&self) -> Option<Rate>;
    /// Time in which a fully used bucket becomes full again, rounded up.
    fn drain_time(&self) -> Nanos;
    /// Largest cost that is ever admitted.
    fn max_cost(&self) -> u64 {
        self.capacity()
    }
    /// Returns true if a request that sets no `max_wait` may be held.
    fn may_hold(&self) -> bool {
        self.longest_wait() > Nanos::ZERO
    }
    /// Maximum time for which such a request is held.
    fn longest_wait(&self) -> Nanos {
        Nanos::ZERO
    }
    /// Returns true if the level falls steadily with time, so that it can be computed from the time
    /// until the bucket is full.
    fn drains(&self) -> bool {
        self.as_level().is_some()
    }
    /// Returns true if the limit reads [`BucketRequest::wall`].
    fn reads_wall(&self) -> bool {
        false
    }

    /// Number of state words.
    fn words(&self) -> usize;
    /// Writes the state of a bucket that is first touched at `clock`, with nothing used or counted.
    fn start(&self, words: &mut [u64], clock: Clock) {
        match self.as_level() {
            Some(level) => level.write(words, 0, clock.now),
            None => words.fill(0),
        }
    }
    /// Decides, and takes the cost if the request is admitted or held. A refusal and a cost of 0
    /// change nothing.
    fn decide(&self, words: &mut [u64], request: &BucketRequest) -> Decision;
    /// Counts a refusal by this limit or by another limit of the bucket. Returns true if the state
    /// changed. The state never changes for a cost of 0.
    fn note_refusal(&self, _words: &mut [u64], _ask: &BucketRequest) -> bool {
        false
    }
    /// Returns true if the cost is given back when the request ends.
    fn gives_back(&self) -> bool {
        false
    }
    /// Takes back `cost`, which was taken at `taken_at`, if it is still taken.
    fn release(&self, _words: &mut [u64], _cost: u64, _taken_at: Nanos, _now: Nanos) {}
    /// Gives back the cost of an abandoned request. No other request may gain more than if this
    /// request had never been made. Returns true if the state has changed. If no request took units
    /// after the abandoned one, the caller restores the whole bucket instead.
    fn give_back(&self, _words: &mut [u64], _refund: &Refund<'_>) -> bool {
        false
    }
    /// Takes `units` for a request that has passed and cost more than its reservation. Units that
    /// are not available become a debt, which is repaid before the next request is admitted. An
    /// algorithm that cannot count a debt takes only the available units.
    fn overdraw(&self, words: &mut [u64], units: u64, clock: Clock) {
        if let Some(level) = self.as_level() {
            return level.overdraw(words, units, clock.now);
        }
        if self.gives_back() {
            return;
        }
        let request = |cost| BucketRequest::new(cost, clock.now).at_wall(clock.wall);
        let available = self.decide(words, &request(0)).remaining;
        self.decide(words, &request(units.min(available)));
    }
    /// Returns true if evicting a full bucket loses nothing.
    fn forgets_losslessly(&self) -> bool {
        true
    }

    /// Returns the used capacity at `now`, rounded up. With debt, it exceeds [`Meter::full`]. An
    /// algorithm that has neither a level nor a count overrides this function.
    fn used(&self, words: &[u64], now: Nanos) -> Used {
        match self.as_level() {
            Some(level) => level.used(words, now),
            None => Used::from(self.counted(words, now).unwrap_or(0)).saturating_mul(USED_ONE),
        }
    }
    /// Returns the used capacity of a fully used bucket. The next request would be the first that
    /// waits.
    fn full(&self) -> Used {
        Used::from(self.capacity()).saturating_mul(USED_ONE)
    }
    /// Writes a state in which `used` is taken at `clock`, rounded up. `used` exceeds
    /// [`Meter::full`] if the capacity shrank below the used amount. The state keeps the excess for
    /// at least [`MAX_REMEMBERED`](crate::bounds::MAX_REMEMBERED).
    fn resume(&self, words: &mut [u64], used: Used, clock: Clock);
    /// Continues at `clock` from `old`, a state of `from`, if that state contains more than the used
    /// capacity: when units were taken, or the exact level of another steady leak. Returns false if
    /// [`Meter::resume`] is as good. `carry` is not `reset`.
    fn adopt(
        &self,
        words: &mut [u64],
        from: &dyn Meter,
        old: &[u64],
        carry: Carry,
        clock: Clock,
    ) -> bool {
        self.as_leak().is_some_and(|leak| {
            continue_leak((leak, self.full()), words, (from, old), (carry, clock))
        })
    }
    /// Returns the units that the state counts at `now`; `None` if the state is finer than whole
    /// units.
    fn counted(&self, _words: &[u64], _now: Nanos) -> Option<u64> {
        None
    }
    /// Replaces the count of [`Meter::counted`] by `count`, and keeps the distribution over time.
    fn recount(&self, _words: &mut [u64], _count: u64, _now: Nanos) {}
    /// Returns the state as a level of [`leak`](crate::leak), if the limit has such a level.
    fn as_level(&self) -> Option<Level> {
        None
    }
    /// Returns the meter as a steady leak, if its state is the level of one, so that another leak
    /// can continue from it.
    fn as_leak(&self) -> Option<Leak> {
        None
    }
    /// Maximum number of words beyond [`Meter::words`] that a state needs after the capacity shrank
    /// below the used amount, if one word cannot hold the excess.
    fn max_surplus(&self) -> usize {
        0
    }
}

/// Returns `meter` as the algorithm `M`, if it is one.
pub(crate) fn same<M: Meter>(meter: &dyn Meter) -> Option<&M> {
    let meter: &dyn Any = meter;
    meter.downcast_ref()
}

/// Continues in `words` as `leak` from `old`, a state of `from`, if `from` is a steady leak.
pub(crate) fn continue_leak(
    (leak, full): (Leak, Used),
    words: &mut [u64],
    (from, old): (&dyn Meter, &[u64]),
    (carry, clock): (Carry, Clock),
) -> bool {
    let Some(before) = from.as_leak() else {
        return false;
    };
    leak.adopt(words, (before, from.full(), old), full, (carry, clock.now));
    true
}

/// Used capacity with 32 fractional bits. In this form, one algorithm passes its level to another
/// when the numbers of a live bucket change.
pub(crate) type Used = u128;
/// One cost unit.
pub(crate) const USED_ONE: Used = 1 << 32;

/// The cost that a request took from one limit.
#[derive(Clone, Copy, Debug)]
pub(crate) struct Refund<'a> {
    /// The request that took the cost.
    pub(crate) request: BucketRequest,
    /// The state that the request found.
    pub(crate) before: &'a [u64],
    /// Units that other requests have given back since. The request may have found their costs.
    pub(crate) given: u64,
    /// Time of the last change of the bucket.
    pub(crate) last: Nanos,
    /// True if no request waits in the bucket. A use above the capacity is then only a debt.
    pub(crate) nobody_waits: bool,
}
