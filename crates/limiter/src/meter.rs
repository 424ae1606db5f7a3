//! The interface of an algorithm: numbers that decide over a few 64-bit words of state, and the used capacity in a form
//! that all algorithms share.

use core::any::Any;

use crate::convert::Carry;
use crate::decision::{Ask, Decision};
use crate::leak::{Leak, Level};
use crate::time::Rate;
use crate::time::{Clock, Nanos};

/// The operations of an algorithm on its state. `words` always has [`Meter::words`] elements, and
/// `now` is never earlier than the instant of the previous call on the same state. Words that are all
/// zero at the end of a state are not stored, so what is rare belongs there.
pub(crate) trait Meter: Any {
    /// Maximum amount that it admits at once, in cost units: `capacity` of every decision.
    fn capacity(&self) -> u64;
    /// The rate in the long run; `None` where time alone gives nothing back.
    fn rate(&self) -> Option<Rate>;
    /// The time in which a used-up bucket is full again, rounded up.
    fn drain_time(&self) -> Nanos;
    /// The largest cost that is ever admitted.
    fn max_cost(&self) -> u64 {
        self.capacity()
    }
    /// Returns true if a request without a `max_wait` of its own may be held.
    fn may_hold(&self) -> bool {
        self.longest_wait() > Nanos::ZERO
    }
    /// Maximum time for which such a request is held.
    fn longest_wait(&self) -> Nanos {
        Nanos::ZERO
    }
    /// Returns true if the level falls steadily with time, so that it follows from the time until the bucket is
    /// full.
    fn drains(&self) -> bool {
        self.as_level().is_some()
    }
    /// Returns true if it reads [`Ask::wall`].
    fn reads_wall(&self) -> bool {
        false
    }

    /// The number of words of state that it keeps.
    fn words(&self) -> usize;
    /// Writes the state of a bucket first touched at `clock`: nothing is used or counted.
    fn start(&self, words: &mut [u64], clock: Clock) {
        match self.as_level() {
            Some(level) => level.write(words, 0, clock.now),
            None => words.fill(0),
        }
    }
    /// Decides, and takes the cost when admitted or held. A refusal and a cost of 0 change nothing.
    fn decide(&self, words: &mut [u64], ask: &Ask) -> Decision;
    /// Notes that a request was refused, by this limit or by another one of the bucket; whether that
    /// changed the state, which a cost of 0 never does.
    fn note_refusal(&self, _words: &mut [u64], _ask: &Ask) -> bool {
        false
    }
    /// Returns true if what is taken is given back when the request ends.
    fn gives_back(&self) -> bool {
        false
    }
    /// Takes back `cost` that was taken at `taken_at`, as far as it is still taken.
    fn release(&self, _words: &mut [u64], _cost: u64, _taken_at: Nanos, _now: Nanos) {}
    /// Gives back the cost of a request that was abandoned, as far as no other request is better off for
    /// it than if that one had never been made; whether that changed the state. It is not the last one
    /// that took: for that one, the whole bucket is restored.
    fn give_back(&self, _words: &mut [u64], _back: &Back<'_>) -> bool {
        false
    }
    /// Returns true if forgetting a full bucket loses nothing.
    fn forgets_losslessly(&self) -> bool {
        true
    }

    /// The used capacity at `now`, rounded up; above [`Meter::full`] when there is debt. An algorithm
    /// that has neither a level nor a count overrides this.
    fn used(&self, words: &[u64], now: Nanos) -> Used {
        match self.as_level() {
            Some(level) => level.used(words, now),
            None => Used::from(self.counted(words, now).unwrap_or(0)).saturating_mul(USED_ONE),
        }
    }
    /// The used capacity of a wholly used bucket: where the next one would be the first to wait.
    fn full(&self) -> Used {
        Used::from(self.capacity()).saturating_mul(USED_ONE)
    }
    /// Writes a state that has `used` taken at `clock`, rounded up. It is above [`Meter::full`] where the
    /// capacity shrank below what was used; that is remembered for at least
    /// [`MAX_REMEMBERED`](crate::bounds::MAX_REMEMBERED).
    fn resume(&self, words: &mut [u64], used: Used, clock: Clock);
    /// Continues at `clock` from `old`, a state of `from`, where more is known than the used capacity: the times at which
    /// it was taken, or the exact level of another steady leak. False when [`Meter::resume`] does as well. `carry` is not
    /// `reset`.
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
    /// The units that its state counts in whole numbers at `now`; `None` where the state is finer than that.
    fn counted(&self, _words: &[u64], _now: Nanos) -> Option<u64> {
        None
    }
    /// Replaces what [`Meter::counted`] counts by `count`, spread over the times at which it was taken as before.
    fn recount(&self, _words: &mut [u64], _count: u64, _now: Nanos) {}
    /// Its state as a level that [`leak`](crate::leak) writes, if it is one.
    fn as_level(&self) -> Option<Level> {
        None
    }
    /// Itself as a steady leak whose state is one, for another one to continue from.
    fn as_leak(&self) -> Option<Leak> {
        None
    }
    /// Maximum number of words beyond [`Meter::words`] that a state needs whose capacity shrank below what was
    /// used, where one word cannot hold all of it.
    fn most_surplus(&self) -> usize {
        0
    }
}

/// `meter` as one of the algorithm `M`, if it is.
pub(crate) fn same<M: Meter>(meter: &dyn Meter) -> Option<&M> {
    let meter: &dyn Any = meter;
    meter.downcast_ref()
}

/// Continues in `words` as `leak` from `old`, a state of `from`, if that is a steady leak, too.
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

/// A quantity of used capacity with 32 fractional bits: how one algorithm hands its level to
/// another when the numbers of a live bucket change.
pub(crate) type Used = u128;
/// One cost unit as [`Used`].
pub(crate) const USED_ONE: Used = 1 << 32;

/// The cost that a request took from one limit.
#[derive(Clone, Copy, Debug)]
pub(crate) struct Back<'a> {
    /// The request that took it.
    pub(crate) ask: Ask,
    /// The state that it found.
    pub(crate) before: &'a [u64],
    /// The units given back since by other requests, whose costs it may have found.
    pub(crate) given: u64,
    /// When the bucket was last touched. Since then only time has passed.
    pub(crate) last: Nanos,
}
