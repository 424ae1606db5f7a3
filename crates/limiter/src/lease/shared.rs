//! Parameters of a limit that a fleet shares, as used by leases and the engine.

use crate::bounds::{BadNumbers, check_window};
use crate::leak::{check, div_ceil, div_rem};
use crate::time::Nanos;
use crate::time::Rate;
use crate::wide::{clamp, times};

/// Resolution of the engine's clock: a microsecond.
pub const ENGINE_CLOCK: Nanos = Nanos::new(1_000);
/// Maximum period that need not be a multiple of [`ENGINE_CLOCK`]: one hour. Scripts in the engine
/// have only 53 bits of precision, so longer periods must be whole microseconds.
pub const MAX_ODD_PERIOD: Nanos = Nanos::from_secs(3_600);

/// Parameters of one limit that a fleet shares.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Shared {
    /// A level that falls steadily: `funnel`, and `token_bucket` with `refill: greedy`.
    Leak {
        /// Maximum number of cost units that can be taken at once.
        capacity: u64,
        /// Rate at which units refill.
        rate: Rate,
    },
    /// Units that refill in lumps at multiples of a period on the engine's clock: `token_bucket`
    /// with `refill: interval`.
    Interval {
        /// Maximum number of cost units that can be taken at once.
        capacity: u64,
        /// Size of the lumps, and their period.
        rate: Rate,
    },
    /// A count per window. Windows begin at multiples of their length on the engine's clock:
    /// `fixed_window` with `align: clock`.
    Window {
        /// Maximum number of cost units that can be taken in a window.
        capacity: u64,
        /// Length of the window.
        window: Nanos,
    },
}

/// Reason why a fleet cannot share a limit.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Unfit {
    /// The engine does not support the algorithm.
    Algorithm,
    /// A new bucket is not full, because `initial` is below `capacity`.
    Initial,
    /// The limit holds requests, because `max_wait` is above 0.
    MaxWait,
    /// Windows begin with the first request, because `align` is `first`.
    Align,
    /// The limit has calendar windows, but the engine supports only windows of a fixed length.
    Calendar,
    /// The engine cannot represent the period or window exactly. Either the period of a lump or a
    /// window is shorter than [`ENGINE_CLOCK`], or a period or window is longer than
    /// [`MAX_ODD_PERIOD`] and not a multiple of [`ENGINE_CLOCK`].
    Clock,
}

impl Shared {
    /// Checks the parameters in the same way as the algorithms' constructors.
    pub fn check(self) -> Result<(), BadNumbers> {
        match self {
            Self::Leak { capacity, rate } | Self::Interval { capacity, rate } => {
                check(capacity, rate)
            }
            Self::Window { capacity, window } => check_window(capacity, window),
        }
    }

    /// Returns true if the engine can represent the period or window exactly.
    pub const fn fits_clock(self) -> bool {
        let (period, is_lump) = match self {
            Self::Leak { rate, .. } => (rate.period(), false),
            Self::Interval { rate, .. } => (rate.period(), true),
            Self::Window { window, .. } => (window, true),
        };
        let clock = ENGINE_CLOCK.get();
        let is_odd = period.get() > MAX_ODD_PERIOD.get() && !period.get().is_multiple_of(clock);
        !(is_odd || is_lump && period.get() < clock)
    }

    /// Returns the maximum number of cost units that can be taken at once.
    pub const fn capacity(self) -> u64 {
        match self {
            Self::Leak { capacity, .. }
            | Self::Interval { capacity, .. }
            | Self::Window { capacity, .. } => capacity,
        }
    }

    /// Returns the average number of units that refill in `span`, rounded down.
    pub fn units_in(self, span: Nanos) -> u64 {
        let (amount, period) = self.pace();
        clamp(div_rem(times(span.get(), amount), period.get().max(1)).0)
    }

    /// Returns the maximum time that `units` take to refill, rounded up.
    pub fn time_for(self, units: u64) -> Nanos {
        let (amount, period) = self.pace();
        let time = match self {
            Self::Leak { .. } => div_ceil(times(units, period.get()), amount.max(1)),
            Self::Interval { .. } | Self::Window { .. } => {
                times(units.div_ceil(amount.max(1)), period.get())
            }
        };
        Nanos::new(clamp(time))
    }

    /// Returns the maximum time that `used` units take to refill, given the wall clock time `wall`.
    pub(super) fn full_in(self, used: u64, wall: Nanos) -> Nanos {
        match self {
            Self::Window { window, .. } if used > 0 => {
                let past = wall.get().checked_rem(window.get()).unwrap_or(0);
                window.since(Nanos::new(past))
            }
            _ => self.time_for(used),
        }
    }

    /// Returns the number of units that refill per period, and the period.
    fn pace(self) -> (u64, Nanos) {
        match self {
            Self::Leak { rate, .. } | Self::Interval { rate, .. } => {
                (rate.amount().into(), rate.period())
            }
            Self::Window { capacity, window } => (capacity, window),
        }
    }
}
