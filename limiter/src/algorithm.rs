//! The algorithms, behind one small interface.
//!
//! An algorithm is its numbers (a struct that can only be built valid) and a [`Meter`]
//! implementation over a few 64-bit words of state. To add one: a file below this module, a line in
//! the list of [`Algorithm`], and its fields in `config::limits`.

use serde::Serialize;

use crate::ask::Ask;
use crate::carry::Carry;
use crate::decision::Decision;
use crate::rate::Rate;
use crate::time::{Clock, Nanos};

pub mod concurrency;
pub mod fixed_window;
pub mod funnel;
mod grid;
mod leak;
pub mod leaky_queue;
pub mod sliding_counter;
pub mod sliding_log;
pub mod sliding_window;
pub mod smooth_bursty;
pub mod smooth_warmup;
pub mod token_bucket;
pub(crate) mod wide;
mod window;

pub use concurrency::Concurrency;
pub use fixed_window::{Align, FixedWindow};
pub use funnel::Funnel;
pub use grid::Grid;
pub use leaky_queue::LeakyQueue;
pub use sliding_counter::SlidingCounter;
pub use sliding_log::SlidingLog;
pub use sliding_window::SlidingWindow;
pub use smooth_bursty::SmoothBursty;
pub use smooth_warmup::SmoothWarmup;
pub use token_bucket::{Refill, TokenBucket};

/// The largest capacity, cost and rate amount: with [`MAX_PERIOD`] every product stays in 128 bits.
pub const MAX_AMOUNT: u32 = 1_000_000_000;
/// The longest period of a rate, and the longest window: 366 days.
pub const MAX_PERIOD: Nanos = Nanos::from_secs(366 * 86_400);
/// The longest time a full bucket may take to empty: ten years.
pub const MAX_DRAIN: Nanos = Nanos::from_secs(3_660 * 86_400);
/// For how long it is remembered at least what was used beyond a capacity that shrank: 250 years.
pub const MAX_REMEMBERED: Nanos = Nanos::from_secs(91_500 * 86_400);
/// The longest time a limit may let a request wait.
pub const MAX_WAIT: Nanos = Nanos::from_secs(3_600);

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

/// The operations of an algorithm on its state. `words` always has [`Meter::words`] elements, and
/// `now` is never earlier than the instant of the previous call on the same state. Words that are all
/// zero at the end of a state are not stored, so what is rare belongs there.
pub(crate) trait Meter {
    /// The most that it admits at once, in cost units: `capacity` of every decision.
    fn capacity(&self) -> u64;
    /// The rate in the long run; `None` where time alone gives nothing back.
    fn rate(&self) -> Option<Rate>;
    /// The time in which a used-up bucket is full again, rounded up.
    fn drain_time(&self) -> Nanos;
    /// The largest cost that is ever admitted.
    fn max_cost(&self) -> u64 {
        self.capacity()
    }
    /// Whether a request without a `max_wait` of its own may be held.
    fn may_hold(&self) -> bool {
        self.longest_wait() > Nanos::ZERO
    }
    /// The longest time for which such a request is held.
    fn longest_wait(&self) -> Nanos {
        Nanos::ZERO
    }
    /// Whether the level falls steadily with time, so that it follows from the time until the bucket is
    /// full.
    fn drains(&self) -> bool {
        false
    }
    /// Whether it reads [`Ask::wall`].
    fn reads_wall(&self) -> bool {
        false
    }

    /// The number of words of state that it keeps.
    fn words(&self) -> usize;
    /// Writes the state of a bucket first touched at `clock`.
    fn start(&self, words: &mut [u64], clock: Clock);
    /// Decides, and takes the cost when admitted or held. A refusal and a cost of 0 change nothing.
    fn decide(&self, words: &mut [u64], ask: &Ask) -> Decision;
    /// Notes that a request was refused, by this limit or by another one of the bucket; whether that
    /// changed the state, which a cost of 0 never does.
    fn note_refusal(&self, _words: &mut [u64], _ask: &Ask) -> bool {
        false
    }
    /// Whether what is taken is given back when the request ends.
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
    /// Whether forgetting a full bucket loses nothing.
    fn forgets_losslessly(&self) -> bool {
        true
    }

    /// The used capacity at `now`, rounded up; above [`Meter::full`] when there is debt.
    fn used(&self, words: &[u64], now: Nanos) -> Used;
    /// The used capacity of a wholly used bucket: where the next one would be the first to wait.
    fn full(&self) -> Used {
        Used::from(self.capacity()).saturating_mul(USED_ONE)
    }
    /// Writes a state that has `used` taken at `clock`, rounded up. It is above [`Meter::full`] where the
    /// capacity shrank below what was used; that is remembered for at least [`MAX_REMEMBERED`].
    fn resume(&self, words: &mut [u64], used: Used, clock: Clock);
    /// Continues at `clock` from `old`, a state of `from`, where more is known than the used capacity:
    /// the times at which it was taken. False when [`Meter::resume`] does as well. `carry` is not
    /// `reset`.
    fn adopt(
        &self,
        _words: &mut [u64],
        _from: &Algorithm,
        _old: &[u64],
        _carry: Carry,
        _clock: Clock,
    ) -> bool {
        false
    }
    /// The most words beyond [`Meter::words`] that a state needs whose capacity shrank below what was
    /// used, where one word cannot hold all of it.
    fn most_surplus(&self) -> usize {
        0
    }
}

/// Declares [`Algorithm`] from a list of the algorithms.
macro_rules! algorithms {
    ($($(#[$doc:meta])* $name:literal: $variant:ident,)*) => {
        /// One algorithm with its numbers.
        #[derive(Clone, Debug, PartialEq, Eq, Serialize)]
        #[serde(tag = "algorithm")]
        pub enum Algorithm {
            $($(#[$doc])* #[serde(rename = $name)] $variant($variant),)*
        }

        impl Algorithm {
            /// The names of all algorithms, as they stand in rule files.
            pub const NAMES: &'static [&'static str] = &[$($name),*];

            /// Its name in rule files.
            pub const fn name(&self) -> &'static str {
                match self {
                    $(Self::$variant(_) => $name,)*
                }
            }

            // Once in the filter, not wherever a limit is used.
            #[inline(never)]
            pub(crate) const fn meter(&self) -> &dyn Meter {
                match self {
                    $(Self::$variant(meter) => meter,)*
                }
            }
        }

        $(impl From<$variant> for Algorithm {
            fn from(meter: $variant) -> Self {
                Self::$variant(meter)
            }
        })*
    };
}

algorithms! {
    /// A leaky bucket as a meter (GCRA).
    "funnel": Funnel,
    /// Tokens that refill continuously or in lumps.
    "token_bucket": TokenBucket,
    /// A count per window.
    "fixed_window": FixedWindow,
    /// A count per window that moves on slot by slot.
    "sliding_window": SlidingWindow,
    /// The end of every request that still counts.
    "sliding_log": SlidingLog,
    /// Two counts per window, weighted by overlap.
    "sliding_counter": SlidingCounter,
    /// A leaky bucket as a queue.
    "leaky_queue": LeakyQueue,
    /// Pay later, with stored permits.
    "smooth_bursty": SmoothBursty,
    /// Pay later, and slowly while cold.
    "smooth_warmup": SmoothWarmup,
    /// Requests in flight.
    "concurrency": Concurrency,
}

impl Algorithm {
    /// The most that a bucket admits at once, in cost units.
    pub fn capacity(&self) -> u64 {
        self.meter().capacity()
    }

    /// The largest cost that is ever admitted, in cost units.
    pub fn max_cost(&self) -> u64 {
        self.meter().max_cost()
    }

    /// The rate in the long run; `None` where time alone gives nothing back.
    pub fn rate(&self) -> Option<Rate> {
        self.meter().rate()
    }

    /// The time in which the rate gives the capacity once, rounded up: the window of a quota.
    pub fn quota_time(&self) -> Option<Nanos> {
        Some(leak::drain_time(self.capacity(), self.rate()?))
    }

    /// The time in which a used-up bucket is full again, rounded up.
    pub fn drain_time(&self) -> Nanos {
        self.meter().drain_time()
    }

    /// Whether it may hold a request instead of deciding at once.
    pub fn may_hold(&self) -> bool {
        self.meter().may_hold()
    }

    /// Whether its level falls steadily with time: then it is the time until the bucket is full, as a
    /// share of [`Algorithm::drain_time`].
    pub fn drains(&self) -> bool {
        self.meter().drains()
    }

    /// Whether it has to be notified of the end of each request that passed.
    pub fn holds_until_end(&self) -> bool {
        self.meter().gives_back()
    }

    /// Whether it needs to know the wall clock.
    pub fn reads_wall(&self) -> bool {
        self.meter().reads_wall()
    }

    /// The most state it keeps per bucket, in bytes.
    pub fn state_bytes(&self) -> usize {
        self.meter().words().saturating_mul(size_of::<u64>())
    }
}

/// The reason why numbers do not make a limit.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum BadNumbers {
    /// The capacity is 0 or above [`MAX_AMOUNT`].
    Capacity,
    /// The rate's amount is above [`MAX_AMOUNT`] or its period above [`MAX_PERIOD`].
    Rate,
    /// A full bucket would take longer than [`MAX_DRAIN`] to empty.
    Drain,
    /// The initial amount is above the capacity.
    Initial,
    /// Refills that are continuous lie on no clock.
    Align,
    /// The window is 0 or above [`MAX_PERIOD`].
    Window,
    /// The slots are fewer than [`sliding_window::MIN_SLOTS`] or more than
    /// [`sliding_window::MAX_SLOTS`].
    Slots,
    /// A slot's capacity is above that of the window, or so low that the window's is out of reach.
    SlotCapacity,
    /// The longest wait is above [`MAX_WAIT`].
    MaxWait,
    /// The warm-up is 0 or above [`smooth_warmup::MAX_WARMUP`].
    Warmup,
    /// The cold factor is not one of [`smooth_warmup::COLD_FACTORS`] or between them.
    ColdFactor,
    /// The lease is 0 or above [`concurrency::MAX_LEASE`].
    Lease,
    /// The burst is above [`smooth_bursty::MAX_BURST`], or its permits are more than [`MAX_AMOUNT`].
    Burst,
}

/// Checks what all algorithms with a capacity and a rate have in common.
fn check(capacity: u64, rate: Rate) -> Result<(), BadNumbers> {
    if capacity == 0 || capacity > u64::from(MAX_AMOUNT) {
        return Err(BadNumbers::Capacity);
    }
    if rate.amount() > MAX_AMOUNT || rate.period() > MAX_PERIOD {
        return Err(BadNumbers::Rate);
    }
    if leak::drain_time(capacity, rate) > MAX_DRAIN {
        return Err(BadNumbers::Drain);
    }
    Ok(())
}

/// Checks the longest wait.
fn check_wait(max_wait: Nanos) -> Result<(), BadNumbers> {
    if max_wait > MAX_WAIT {
        return Err(BadNumbers::MaxWait);
    }
    Ok(())
}

#[cfg(test)]
mod tests {
    use super::*;

    /// Two at once and one per second, in every way.
    fn all() -> [Algorithm; 3] {
        let rate = Rate::new(1, Nanos::from_secs(1)).expect("a rate");
        let bucket = |refill| TokenBucket::new(2, rate, refill, 2).expect("valid");
        [
            Funnel::new(2, rate).expect("valid").into(),
            bucket(Refill::Greedy).into(),
            bucket(Refill::Interval).into(),
        ]
    }

    fn state(meter: &dyn Meter) -> [u64; 2] {
        let mut words = [0; 2];
        meter.start(&mut words, Clock::at(Nanos::ZERO));
        words
    }

    /// Nothing is given away by a conversion, and what is used beyond the capacity is remembered.
    #[test]
    fn levels_are_written_rounded_up() {
        for algorithm in all() {
            let meter = algorithm.meter();
            let mut words = state(meter);
            let at = |seconds| Clock::at(Nanos::from_secs(seconds));
            meter.resume(&mut words, 1, at(0));
            assert!(meter.used(&words, Nanos::ZERO) >= 1);
            for used in [2, 5] {
                meter.resume(&mut words, used * USED_ONE, at(0));
                assert_eq!(meter.used(&words, Nanos::ZERO), used * USED_ONE);
                assert_eq!(meter.used(&words, at(1).now), (used - 1) * USED_ONE);
            }
        }
    }

    /// Several limits decide on one copy of a bucket; but a meter alone keeps the contract, too.
    #[test]
    fn a_meter_writes_only_what_it_admits() {
        for algorithm in all() {
            let meter = algorithm.meter();
            let mut words = state(meter);
            let decide = |words: &mut [u64], cost, now| meter.decide(words, &Ask::new(cost, now));
            assert!(!decide(&mut words, 2, Nanos::ZERO).is_refused());
            let before = words;
            let later = Nanos::from_millis(1_500);
            assert!(decide(&mut words, 2, later).is_refused());
            assert!(decide(&mut words, 3, later).is_refused());
            assert!(!decide(&mut words, 0, later).is_refused());
            assert_eq!(words, before);
        }
    }
}
