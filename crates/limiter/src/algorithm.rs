//! The algorithms, behind one small interface.
//!
//! An algorithm consists of its numbers, in a struct that can only be built with valid values, and
//! of an implementation of `Meter` over a few 64-bit words of state. To add an algorithm, add a
//! file below this module, an entry in the list of [`Algorithm`], and its fields in
//! `loudou_rules::config::limits`.

use serde::Serialize;

use crate::bounds::BadNumbers;
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

/// Declares [`Algorithm`] and its names from one list.
macro_rules! algorithms {
    ($($(#[$doc:meta])* $name:literal: $variant:ident,)*) => {
        /// An algorithm with its numbers.
        #[derive(Clone, Debug, PartialEq, Eq, Serialize)]
        #[serde(tag = "algorithm")]
        pub enum Algorithm {
            $($(#[$doc])* #[serde(rename = $name)] $variant($variant),)*
        }

        impl Algorithm {
            /// Names of all algorithms, as in rule files.
            pub const NAMES: &'static [&'static str] = &[$($name),*];

            /// Returns the algorithm's name in rule files.
            pub const fn name(&self) -> &'static str {
                match self {
                    $(Self::$variant(_) => $name,)*
                }
            }

            // Not inlined. Otherwise the filter would contain a copy of this match for every use of
            // a limit.
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
    /// A count per window that moves slot by slot.
    "sliding_window": SlidingWindow,
    /// The expiry time of each request that still counts.
    "sliding_log": SlidingLog,
    /// Two counts per window, weighted by overlap.
    "sliding_counter": SlidingCounter,
    /// A leaky bucket as a queue.
    "leaky_queue": LeakyQueue,
    /// Stored permits. A request that exceeds them passes, and the next request waits for its cost.
    "smooth_bursty": SmoothBursty,
    /// Like `smooth_bursty`, but slower while idle time has made the limiter cold.
    "smooth_warmup": SmoothWarmup,
    /// Requests in flight.
    "concurrency": Concurrency,
}

/// How an algorithm replaces a request's reserved cost with its final cost.
#[derive(Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord)]
pub enum Settling {
    /// Never, because requests wait for units, or because units are taken only until requests end.
    Never,
    /// Unused units are given back, but there is no debt. The algorithm resets its count at the end
    /// of a window, so it would forget a debt.
    WithinReservation,
    /// Unused units are given back, and missing units become a debt.
    WithDebt,
}

impl Algorithm {
    /// Returns the maximum number of cost units that a bucket admits at once.
    pub fn capacity(&self) -> u64 {
        self.meter().capacity()
    }

    /// Returns the maximum cost of a request that can be admitted.
    pub fn max_cost(&self) -> u64 {
        self.meter().max_cost()
    }

    /// Returns the long-term rate. `None` if capacity becomes free only when requests end.
    pub fn rate(&self) -> Option<Rate> {
        self.meter().rate()
    }

    /// Returns the time in which the rate frees the whole capacity, rounded up. For a calendar
    /// window, this is the length of the window that contains the wall clock time `wall`. Response
    /// headers report this time as the window of a quota.
    pub fn quota_time(&self, wall: Nanos) -> Option<Nanos> {
        if let Self::FixedWindow(window) = self {
            return Some(window.window_at(wall));
        }
        Some(drain_time(self.capacity(), self.rate()?))
    }

    /// Returns the time in which a fully used bucket becomes full again, rounded up.
    pub fn drain_time(&self) -> Nanos {
        self.meter().drain_time()
    }

    /// Returns true if the algorithm may hold a request instead of deciding at once.
    pub fn may_hold(&self) -> bool {
        self.meter().may_hold()
    }

    /// Returns true if the level falls steadily with time. The level is then the time until the
    /// bucket is full, divided by [`Algorithm::drain_time`].
    pub fn drains(&self) -> bool {
        self.meter().drains()
    }

    /// Returns true if the algorithm must be notified of the end of each request that passed.
    pub fn holds_until_end(&self) -> bool {
        self.meter().gives_back()
    }

    /// Returns how the algorithm settles the cost of a request that has ended.
    pub fn settling(&self) -> Settling {
        match self {
            _ if self.may_hold() => Settling::Never,
            Self::Funnel(_) | Self::TokenBucket(_) => Settling::WithDebt,
            Self::FixedWindow(_)
            | Self::SlidingWindow(_)
            | Self::SlidingLog(_)
            | Self::SlidingCounter(_) => Settling::WithinReservation,
            _ => Settling::Never,
        }
    }

    /// Returns true if the algorithm reads the wall clock.
    pub fn reads_wall(&self) -> bool {
        self.meter().reads_wall()
    }

    /// Returns the numbers in the form in which the Envoys of a fleet share them.
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

    /// Returns one of `envoys` equal parts, for Envoys that decide independently. `None` if a fleet
    /// cannot share the algorithm.
    pub(crate) fn divided(&self, envoys: u32) -> Option<Self> {
        self.shared().ok()?;
        match self {
            Self::Funnel(funnel) => Some(funnel.divided(envoys).into()),
            Self::TokenBucket(tokens) => Some(tokens.divided(envoys).into()),
            Self::FixedWindow(window) => Some(window.divided(envoys).into()),
            _ => None,
        }
    }

    /// Returns a copy of this algorithm with the given capacity, the given amount of its rate, or both. A capacity also
    /// replaces the numbers that follow from it by default.
    pub(crate) fn with(
        &self,
        capacity: Option<u64>,
        amount: Option<u32>,
    ) -> Result<Self, BadNumbers> {
        let rate = match (self.rate(), amount) {
            (Some(rate), Some(amount)) => {
                Some(Rate::new(amount, rate.period()).ok_or(BadNumbers::Rate)?)
            }
            _ => None,
        };
        Ok(match self {
            Self::Funnel(funnel) => funnel.with(capacity, rate)?.into(),
            Self::TokenBucket(tokens) => tokens.with(capacity, rate)?.into(),
            Self::FixedWindow(window) => window.with(capacity)?.into(),
            Self::SlidingWindow(window) => window.with(capacity)?.into(),
            Self::SlidingLog(log) => log.with(capacity)?.into(),
            Self::SlidingCounter(counter) => counter.with(capacity)?.into(),
            Self::LeakyQueue(queue) => queue.with(capacity, rate)?.into(),
            Self::SmoothBursty(bursty) => bursty.with(rate)?.into(),
            // Its warm-up depends on its rate, so it keeps its numbers.
            Self::SmoothWarmup(warmup) => (*warmup).into(),
            Self::Concurrency(limit) => limit.with(capacity)?.into(),
        })
    }

    /// Returns the maximum size of the state of a bucket, in bytes.
    pub fn state_bytes(&self) -> usize {
        self.meter().words().saturating_mul(size_of::<u64>())
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::decision::BucketRequest;
    use crate::meter::USED_ONE;
    use crate::time::Clock;

    /// Returns each of these algorithms with a capacity of two and a rate of one per second.
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

    /// A conversion never frees capacity, and it keeps use beyond the capacity.
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

    /// The limits of a bucket decide on a copy of its state, so a refusal of another limit discards
    /// the writes. But a meter must also keep its contract when it is used alone.
    #[test]
    fn a_meter_writes_only_what_it_admits() {
        for algorithm in all() {
            let meter = algorithm.meter();
            let mut words = state(meter);
            let decide =
                |words: &mut [u64], cost, now| meter.decide(words, &BucketRequest::new(cost, now));
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
