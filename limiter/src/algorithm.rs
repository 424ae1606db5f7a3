//! The algorithms, behind one small interface.
//!
//! An algorithm is its numbers (a struct that can only be built valid) and a [`Meter`]
//! implementation over a few 64-bit words of state. To add one: a file below this module, a variant
//! of [`Algorithm`] with its arm in [`Algorithm::meter`], and its fields in `config`.

use serde::Serialize;

use crate::decision::Decision;
use crate::rate::Rate;
use crate::time::Nanos;

pub mod funnel;
mod leak;
pub mod token_bucket;

pub use funnel::Funnel;
pub use token_bucket::{Refill, TokenBucket};

/// The largest capacity, cost and rate amount: with [`MAX_PERIOD`] every product stays in 128 bits.
pub const MAX_AMOUNT: u32 = 1_000_000_000;
/// The longest period of a rate: 366 days.
pub const MAX_PERIOD: Nanos = Nanos::from_secs(366 * 86_400);
/// The longest time a full bucket may take to empty: ten years.
pub const MAX_DRAIN: Nanos = Nanos::from_secs(3_660 * 86_400);
/// The most state words any algorithm needs.
pub const MAX_WORDS: usize = 2;

/// A quantity of used capacity with 32 fractional bits: how one algorithm hands its level to
/// another when the numbers of a live bucket change.
pub(crate) type Used = u128;
/// One cost unit as [`Used`].
pub(crate) const USED_ONE: Used = 1 << 32;

/// What every algorithm can do with its state. `words` always has [`Meter::words`] elements, and
/// `now` is never earlier than the instant of the previous call on the same state.
pub(crate) trait Meter {
    /// How many words of state it keeps.
    fn words(&self) -> usize;
    /// Writes the state of a bucket first touched at `now`.
    fn start(&self, words: &mut [u64], now: Nanos);
    /// Decides on `cost`, and takes it when admitted. A refusal and a cost of 0 change nothing.
    fn decide(&self, words: &mut [u64], cost: u64, now: Nanos) -> Decision;
    /// Whether forgetting a bucket that is as good as new loses nothing.
    fn forgets_losslessly(&self) -> bool;
    /// The used capacity at `now`, rounded up.
    fn used(&self, words: &[u64], now: Nanos) -> Used;
    /// Writes the state of a bucket with `used` taken at `now`, at most full.
    fn set_used(&self, words: &mut [u64], used: Used, now: Nanos);
    /// Writes the fullest state that is as good as new again by `now + reset_after`.
    fn set_reset(&self, words: &mut [u64], reset_after: Nanos, now: Nanos);
}

/// One algorithm with its numbers.
#[derive(Clone, Debug, PartialEq, Eq, Serialize)]
#[serde(tag = "algorithm", rename_all = "snake_case")]
pub enum Algorithm {
    /// A leaky bucket as a meter (GCRA).
    Funnel(Funnel),
    /// Tokens that refill continuously or in lumps.
    TokenBucket(TokenBucket),
}

impl Algorithm {
    /// The names of all algorithms, as they stand in rule files.
    pub const NAMES: [&'static str; 2] = ["funnel", "token_bucket"];

    /// Its name in rule files.
    pub const fn name(&self) -> &'static str {
        match self {
            Self::Funnel(_) => "funnel",
            Self::TokenBucket(_) => "token_bucket",
        }
    }

    /// The most that a bucket holds, in cost units.
    pub const fn capacity(&self) -> u64 {
        match self {
            Self::Funnel(funnel) => funnel.capacity(),
            Self::TokenBucket(bucket) => bucket.capacity(),
        }
    }

    /// The rate at which capacity comes back.
    pub const fn rate(&self) -> Rate {
        match self {
            Self::Funnel(funnel) => funnel.rate(),
            Self::TokenBucket(bucket) => bucket.rate(),
        }
    }

    /// The time in which a wholly used bucket is as good as new, rounded up.
    pub fn drain_time(&self) -> Nanos {
        leak::drain_time(self.capacity(), self.rate())
    }

    pub(crate) const fn meter(&self) -> &dyn Meter {
        match self {
            Self::Funnel(funnel) => funnel,
            Self::TokenBucket(bucket) => bucket,
        }
    }
}

/// Why numbers do not make a limit.
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

#[cfg(test)]
mod tests {
    use super::*;

    /// Two at once and one per second, in every way.
    fn all() -> [Algorithm; 3] {
        let rate = Rate::new(1, Nanos::from_secs(1)).expect("a rate");
        let bucket = |refill| TokenBucket::new(2, rate, refill, 2).expect("valid");
        [
            Algorithm::Funnel(Funnel::new(2, rate).expect("valid")),
            Algorithm::TokenBucket(bucket(Refill::Greedy)),
            Algorithm::TokenBucket(bucket(Refill::Interval)),
        ]
    }

    /// Nothing is given away by a conversion, and nothing is owed beyond the capacity.
    #[test]
    fn levels_are_written_rounded_up_and_at_most_full() {
        let one_second = Nanos::from_secs(1);
        for algorithm in all() {
            let meter = algorithm.meter();
            let mut words = [0; 2];
            meter.set_used(&mut words, 1, Nanos::ZERO);
            assert!(meter.used(&words, Nanos::ZERO) >= 1);
            meter.set_used(&mut words, Used::MAX, Nanos::ZERO);
            assert_eq!(meter.used(&words, one_second), USED_ONE);
            meter.set_reset(&mut words, Nanos::MAX, Nanos::ZERO);
            assert_eq!(meter.used(&words, one_second), USED_ONE);
        }
    }

    /// Several limits decide on one copy of a bucket; but a meter alone keeps the contract, too.
    #[test]
    fn a_meter_writes_only_what_it_admits() {
        for algorithm in all() {
            let meter = algorithm.meter();
            let mut words = [0; 2];
            meter.start(&mut words, Nanos::ZERO);
            assert!(!meter.decide(&mut words, 2, Nanos::ZERO).is_refused());
            let before = words;
            let later = Nanos::from_millis(1_500);
            assert!(meter.decide(&mut words, 2, later).is_refused());
            assert!(meter.decide(&mut words, 3, later).is_refused());
            assert!(!meter.decide(&mut words, 0, later).is_refused());
            assert_eq!(words, before);
        }
    }
}
