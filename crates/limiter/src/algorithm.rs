//! The algorithms, behind one small interface.
//!
//! An algorithm is its numbers (a struct that can only be built valid) and an implementation of
//! `Meter` over a few 64-bit words of state. To add one: a file below this module, a line in
//! the list of [`Algorithm`], and its fields in `loudou_rules::config::limits`.

use serde::Serialize;

use crate::leak::drain_time;
use crate::lease::{Shared, Unfit};
use crate::meter::Meter;
use crate::time::Nanos;
use crate::time::Rate;

pub mod concurrency;
pub mod fixed_window;
pub mod funnel;
mod grid;
pub mod leaky_queue;
pub mod sliding_counter;
pub mod sliding_log;
pub mod sliding_window;
pub mod smooth_bursty;
pub mod smooth_warmup;
pub mod token_bucket;
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
    /// Maximum amount that a bucket admits at once, in cost units.
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
        Some(drain_time(self.capacity(), self.rate()?))
    }

    /// The time in which a used-up bucket is full again, rounded up.
    pub fn drain_time(&self) -> Nanos {
        self.meter().drain_time()
    }

    /// Returns true if it may hold a request instead of deciding at once.
    pub fn may_hold(&self) -> bool {
        self.meter().may_hold()
    }

    /// Returns true if its level falls steadily with time: then it is the time until the bucket is full, as a
    /// share of [`Algorithm::drain_time`].
    pub fn drains(&self) -> bool {
        self.meter().drains()
    }

    /// Returns true if it has to be notified of the end of each request that passed.
    pub fn holds_until_end(&self) -> bool {
        self.meter().gives_back()
    }

    /// Returns true if it needs to know the wall clock.
    pub fn reads_wall(&self) -> bool {
        self.meter().reads_wall()
    }

    /// Its numbers as a fleet shares them.
    pub fn shared(&self) -> Result<Shared, Unfit> {
        let shared = match self {
            Self::Funnel(funnel) => funnel.shared(),
            Self::TokenBucket(tokens) => tokens.shared(),
            Self::FixedWindow(window) => window.shared(),
            _ => Err(Unfit::Algorithm),
        }?;
        if shared.fits_clock() {
            Ok(shared)
        } else {
            Err(Unfit::Clock)
        }
    }

    /// The same for one of `envoys` Envoys that each decide alone; `None` where a fleet cannot share it.
    pub(crate) fn divided(&self, envoys: u32) -> Option<Self> {
        self.shared().ok()?;
        match self {
            Self::Funnel(funnel) => Some(funnel.divided(envoys).into()),
            Self::TokenBucket(tokens) => Some(tokens.divided(envoys).into()),
            Self::FixedWindow(window) => Some(window.divided(envoys).into()),
            _ => None,
        }
    }

    /// Maximum size of its state per bucket, in bytes.
    pub fn state_bytes(&self) -> usize {
        self.meter().words().saturating_mul(size_of::<u64>())
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::decision::Ask;
    use crate::meter::USED_ONE;
    use crate::time::Clock;

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
