//! Rate limiting algorithms behind one small trait, `Meter`.
//!
//! Each algorithm is a struct of parameters, which can only be built with valid values. The struct
//! implements `Meter`, which keeps a bucket's state in a few 64-bit words. To add an algorithm, add
//! a submodule here, an entry in the `algorithms!` list below, and the algorithm's rule-file fields
//! in `loudou_rules::config::limits`.

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

/// Declares [`Algorithm`] and its variant names from a single list.
macro_rules! algorithms {
    ($($(#[$doc:meta])* $name:literal: $variant:ident,)*) => {
        /// An algorithm and its parameters.
        #[derive(Clone, Debug, PartialEq, Eq, Serialize)]
        #[serde(tag = "algorithm")]
        pub enum Algorithm {
            $($(#[$doc])* #[serde(rename = $name)] $variant($variant),)*
        }

        impl Algorithm {
            /// Names of all algorithms, as written in rule files.
            pub const NAMES: &'static [&'static str] = &[$($name),*];

            /// Returns the algorithm's name, as written in rule files.
            pub const fn name(&self) -> &'static str {
                match self {
                    $(Self::$variant(_) => $name,)*
                }
            }

            // Not inlined. If this function were inlined, the filter would contain a copy of this
            // match at every call site.
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
    /// A bucket of tokens, refilled either continuously or in lumps.
    "token_bucket": TokenBucket,
    /// A counter that is reset when its window ends.
    "fixed_window": FixedWindow,
    /// A counter over a window that advances slot by slot.
    "sliding_window": SlidingWindow,
    /// A log of the expiry times of all requests that still count.
    "sliding_log": SlidingLog,
    /// Two counters: one for the current window and one for the previous window. The previous
    /// window's counter is weighted by that window's overlap with a window that ends now.
    "sliding_counter": SlidingCounter,
    /// A leaky bucket as a queue.
    "leaky_queue": LeakyQueue,
    /// A limiter that stores permits. A request that costs more than the stored permits still
    /// passes, and the next request waits until that cost has been paid off.
    "smooth_bursty": SmoothBursty,
    /// Like `smooth_bursty`, but an idle limiter becomes cold and then admits requests more slowly
    /// until it is warm again.
    "smooth_warmup": SmoothWarmup,
    /// A limit on requests in flight.
    "concurrency": Concurrency,
}

/// How an algorithm settles the difference between a request's reserved cost and its final cost.
#[derive(Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord)]
pub enum Settling {
    /// The difference is never settled, because the algorithm holds requests, takes units only for
    /// the duration of a request, or lets requests pay later.
    Never,
    /// Unused units are given back, but a higher final cost is not charged. The algorithm discards
    /// its count when the window ends, so it could not keep a debt.
    WithinReservation,
    /// Unused units are given back, and a shortfall becomes a debt.
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

    /// Returns the long-term rate. Returns `None` if units become available only when requests end.
    pub fn rate(&self) -> Option<Rate> {
        self.meter().rate()
    }

    /// Returns the time needed to replenish the whole capacity at the long-term rate, rounded up.
    /// For a fixed window, returns the length of the window that contains the wall clock time
    /// `wall`. Response headers report this time as the quota window.
    pub fn quota_time(&self, wall: Nanos) -> Option<Nanos> {
        if let Self::FixedWindow(window) = self {
            return Some(window.window_at(wall));
        }
        Some(drain_time(self.capacity(), self.rate()?))
    }

    /// Returns the time that an exhausted bucket needs to recover its whole capacity, rounded up.
    pub fn drain_time(&self) -> Nanos {
        self.meter().drain_time()
    }

    /// Returns true if the algorithm may hold a request instead of admitting or refusing it
    /// immediately.
    pub fn may_hold(&self) -> bool {
        self.meter().may_hold()
    }

    /// Returns true if the level falls steadily over time. If so, the level equals the time until
    /// the whole capacity is available, divided by [`Algorithm::drain_time`].
    pub fn drains(&self) -> bool {
        self.meter().drains()
    }

    /// Returns true if the algorithm must be notified when an admitted request ends.
    pub fn holds_until_end(&self) -> bool {
        self.meter().gives_back()
    }

    /// Returns how the algorithm settles the final cost of a request.
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

    /// Returns the parameters shared by the Envoys in a fleet, or the reason why a fleet cannot
    /// share this algorithm.
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

    /// Divides the limit into `envoys` equal shares and returns one share, for Envoys that decide
    /// independently. Returns `None` if a fleet cannot share the algorithm.
    pub(crate) fn divided(&self, envoys: u32) -> Option<Self> {
        self.shared().ok()?;
        match self {
            Self::Funnel(funnel) => Some(funnel.divided(envoys).into()),
            Self::TokenBucket(tokens) => Some(tokens.divided(envoys).into()),
            Self::FixedWindow(window) => Some(window.divided(envoys).into()),
            _ => None,
        }
    }

    /// Returns a copy of this algorithm with a different capacity, a different rate amount, or both. A new capacity
    /// also resets the parameters whose defaults depend on the capacity.
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
            // The warm-up depends on the rate, so a new rate is ignored here.
            Self::SmoothWarmup(warmup) => (*warmup).into(),
            Self::Concurrency(limit) => limit.with(capacity)?.into(),
        })
    }

    /// Returns the size of a bucket's state for this algorithm, in bytes.
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

    /// Returns a funnel and both kinds of token bucket, each with a capacity of two and a rate of
    /// one per second.
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

    /// Converting a level never frees units, and preserves usage in excess of the capacity.
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

    /// A bucket's limits operate on a copy of its state, so one limit's writes are discarded if
    /// another limit refuses the request. Even so, a meter must honour its contract when it is used
    /// on its own.
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
