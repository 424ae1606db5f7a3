//! The trait that algorithms implement. An algorithm decides on requests based on a few 64-bit
//! words of state, and converts its used capacity to and from a form shared by all algorithms.

use core::any::Any;

use crate::convert::Carry;
use crate::decision::{BucketRequest, Decision};
use crate::leak::{Leak, Level};
use crate::time::Rate;
use crate::time::{Clock, Nanos};

/// Operations of an algorithm on its state.
///
/// `words` always has [`Meter::words`] elements, and `now` is never earlier than in the previous
/// call on the same state. Trailing zero words of a state are not stored, so put rarely used words
/// at the end.
pub(crate) trait Meter: Any {
    /// Maximum number of cost units that the algorithm admits at once. This is the `capacity` in
    /// every decision.
    fn capacity(&self) -> u64;
    /// Long-term rate; `None` if the passage of time alone does not make units available.
    fn rate(&self) -> Option<Rate>;
    /// Time that an exhausted bucket needs to recover its whole capacity, rounded up.
    fn drain_time(&self) -> Nanos;
    /// Maximum cost of a request that can be admitted.
    fn max_cost(&self) -> u64 {
        self.capacity()
    }
    /// Returns true if a request that sets no `max_wait` may be held.
    fn may_hold(&self) -> bool {
        self.longest_wait() > Nanos::ZERO
    }
    /// Maximum time for which a request that sets no `max_wait` is held.
    fn longest_wait(&self) -> Nanos {
        Nanos::ZERO
    }
    /// Returns true if the level falls steadily over time, so that it can be computed from the time
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
    /// Writes the initial state of a bucket that is first touched at `clock`, with no usage.
    fn start(&self, words: &mut [u64], clock: Clock) {
        match self.as_level() {
            Some(level) => level.write(words, 0, clock.now),
            None => words.fill(0),
        }
    }
    /// Decides whether to admit, hold or refuse a request, and takes its cost if it is admitted or
    /// held. A refused request or a request with a cost of 0 does not change the state.
    fn decide(&self, words: &mut [u64], request: &BucketRequest) -> Decision;
    /// Counts a refusal by this limit or by another limit of the bucket. Returns true if the state
    /// changed. A cost of 0 never changes the state.
    fn note_refusal(&self, _words: &mut [u64], _ask: &BucketRequest) -> bool {
        false
    }
    /// Returns true if the cost is given back when the request ends.
    fn gives_back(&self) -> bool {
        false
    }
    /// Gives back `cost`, which was taken at `taken_at`, unless it has already expired.
    fn release(&self, _words: &mut [u64], _cost: u64, _taken_at: Nanos, _now: Nanos) {}
    /// Gives back the cost of an abandoned request. Other requests must not end up better off than
    /// if the abandoned request had never been made. Returns true if the state changed. If no
    /// request has taken units since the abandoned request, the caller restores the whole bucket
    /// instead.
    fn give_back(&self, _words: &mut [u64], _refund: &Refund<'_>) -> bool {
        false
    }
    /// Takes `units` for a request that has passed and whose final cost exceeds its reservation by
    /// `units`. Units that are not available become a debt, which is repaid before the next request
    /// is admitted. An algorithm that cannot keep a debt takes only the available units.
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
    /// Returns true if evicting a full bucket loses no state.
    fn forgets_losslessly(&self) -> bool {
        true
    }

    /// Returns the used capacity at `now`, rounded up. If the bucket has a debt, the used capacity
    /// exceeds [`Meter::full`]. An algorithm that has neither a level nor a count overrides this
    /// function.
    fn used(&self, words: &[u64], now: Nanos) -> Used {
        match self.as_level() {
            Some(level) => level.used(words, now),
            None => Used::from(self.counted(words, now).unwrap_or(0)).saturating_mul(USED_ONE),
        }
    }
    /// Returns the used capacity of a bucket with no units left. The next request would be the
    /// first to wait.
    fn full(&self) -> Used {
        Used::from(self.capacity()).saturating_mul(USED_ONE)
    }
    /// Writes a state whose used capacity at `clock` is `used`, rounded up. `used` exceeds
    /// [`Meter::full`] if an edit reduced the capacity below the used amount. The state keeps the
    /// excess for at least [`MAX_REMEMBERED`](crate::bounds::MAX_REMEMBERED).
    fn resume(&self, words: &mut [u64], used: Used, clock: Clock);
    /// Takes over `old`, a state of the algorithm `from`, at `clock`. An algorithm implements this
    /// function if it can use more of the old state than the used capacity, such as the times at
    /// which units were taken, or the exact level of another steady leak. Returns false if
    /// [`Meter::resume`] would preserve just as much. `carry` is never `reset`.
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
    /// Returns the number of units that the state counts at `now`; `None` if the state has a finer
    /// resolution than whole units.
    fn counted(&self, _words: &[u64], _now: Nanos) -> Option<u64> {
        None
    }
    /// Sets the count that [`Meter::counted`] returns to `count`, and preserves its distribution
    /// over time.
    fn recount(&self, _words: &mut [u64], _count: u64, _now: Nanos) {}
    /// Returns the state as a level of [`leak`](crate::leak), if the limit has such a level.
    fn as_level(&self) -> Option<Level> {
        None
    }
    /// Returns the algorithm as a steady leak if its state is the level of a steady leak, so that
    /// another leak can take over the level.
    fn as_leak(&self) -> Option<Leak> {
        None
    }
    /// Maximum number of words beyond [`Meter::words`] that the state can need after an edit has
    /// reduced the capacity below the used amount.
    fn max_surplus(&self) -> usize {
        0
    }
}

/// Downcasts `meter` to the algorithm `M`.
pub(crate) fn same<M: Meter>(meter: &dyn Meter) -> Option<&M> {
    let meter: &dyn Any = meter;
    meter.downcast_ref()
}

/// Takes over the level in `old`, a state of `from`, as a level of `leak` in `words`. Returns false
/// if `from` is not a steady leak.
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

/// Used capacity with 32 fractional bits. Levels are passed from one algorithm to another in this
/// form when an edit changes the limits of a live bucket.
pub(crate) type Used = u128;
/// One cost unit.
pub(crate) const USED_ONE: Used = 1 << 32;

/// A cost that a request took from one limit and that is being given back.
#[derive(Clone, Copy, Debug)]
pub(crate) struct Refund<'a> {
    /// The request that took the cost.
    pub(crate) request: BucketRequest,
    /// The state as the request found it, before it took its cost.
    pub(crate) before: &'a [u64],
    /// Units that other requests have given back since then. `before` may include their costs.
    pub(crate) given: u64,
    /// Time at which the bucket was last changed.
    pub(crate) last: Nanos,
    /// True if no request is waiting in the bucket. If no request is waiting, usage above the
    /// capacity is only debt.
    pub(crate) nobody_waits: bool,
}
