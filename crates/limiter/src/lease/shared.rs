//! The numbers of a limit that a fleet can share: what leases need to know, and the engine is told.

use crate::bounds::{BadNumbers, check_window};
use crate::leak::{check, div_ceil, div_rem};
use crate::time::Nanos;
use crate::time::Rate;
use crate::wide::{clamp, times};

/// The engine's clock has whole microseconds.
pub const ENGINE_CLOCK: Nanos = Nanos::new(1_000);
/// Maximum period that need not be a multiple of [`ENGINE_CLOCK`]: an hour. Scripts of the engine compute
/// with 53 bits.
pub const MAX_ODD_PERIOD: Nanos = Nanos::from_secs(3_600);

/// The numbers of one limit of a fleet.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Shared {
    /// A level that falls steadily: `funnel`, and `token_bucket` with `refill: greedy`.
    Leak {
        /// Maximum amount that is taken at once, in cost units.
        capacity: u64,
        /// The pace at which units come back.
        rate: Rate,
    },
    /// Units that come back in lumps, at the multiples of a period on the engine's clock: `token_bucket`
    /// with `refill: interval`.
    Interval {
        /// Maximum amount that is taken at once, in cost units.
        capacity: u64,
        /// The lump and its period.
        rate: Rate,
    },
    /// A count per window, which begins at the multiples of its length on the engine's clock:
    /// `fixed_window` with `align: clock`.
    Window {
        /// Maximum amount that is taken in a window, in cost units.
        capacity: u64,
        /// The length of the window.
        window: Nanos,
    },
}

/// The reason why a limit cannot be shared by a fleet.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Unfit {
    /// The algorithm is not one of those that the engine knows.
    Algorithm,
    /// A new bucket is not full: `initial` is below `capacity`.
    Initial,
    /// Requests wait for their turn: `max_wait` is above 0.
    MaxWait,
    /// Windows begin with a request: `align` is `first`.
    Align,
    /// A period or window that the engine cannot compute with: a lump or window below [`ENGINE_CLOCK`], or
    /// one above [`MAX_ODD_PERIOD`] that is no multiple of it.
    Clock,
}

impl Shared {
    /// Checks the numbers as the algorithms do.
    pub fn check(self) -> Result<(), BadNumbers> {
        match self {
            Self::Leak { capacity, rate } | Self::Interval { capacity, rate } => {
                check(capacity, rate)
            }
            Self::Window { capacity, window } => check_window(capacity, window),
        }
    }

    /// Returns true if the engine can compute with the period or window.
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

    /// Maximum amount that is taken at once, in cost units.
    pub const fn capacity(self) -> u64 {
        match self {
            Self::Leak { capacity, .. }
            | Self::Interval { capacity, .. }
            | Self::Window { capacity, .. } => capacity,
        }
    }

    /// The units that come back in `span` in the mean, rounded down.
    pub fn units_in(self, span: Nanos) -> u64 {
        let (amount, period) = self.pace();
        clamp(div_rem(times(span.get(), amount), period.get().max(1)).0)
    }

    /// Maximum time in which `units` come back, rounded up.
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

    /// Maximum time in which `used` units come back, where the wall clock shows `wall`.
    pub(super) fn full_in(self, used: u64, wall: Nanos) -> Nanos {
        match self {
            Self::Window { window, .. } if used > 0 => {
                let past = wall.get().checked_rem(window.get()).unwrap_or(0);
                window.since(Nanos::new(past))
            }
            _ => self.time_for(used),
        }
    }

    /// The units that come back, and in which time.
    fn pace(self) -> (u64, Nanos) {
        match self {
            Self::Leak { rate, .. } | Self::Interval { rate, .. } => {
                (rate.amount().into(), rate.period())
            }
            Self::Window { capacity, window } => (capacity, window),
        }
    }
}
