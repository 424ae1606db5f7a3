//! Numbers of a limit that a fleet can share, which leases and the engine need.

use crate::bounds::{BadNumbers, check_window};
use crate::leak::{check, div_ceil, div_rem};
use crate::time::Nanos;
use crate::time::Rate;
use crate::wide::{clamp, times};

/// Resolution of the engine's clock: a microsecond.
pub const ENGINE_CLOCK: Nanos = Nanos::new(1_000);
/// Maximum period that may be other than a multiple of [`ENGINE_CLOCK`]: an hour. Scripts in the
/// engine compute with 53 bits.
pub const MAX_ODD_PERIOD: Nanos = Nanos::from_secs(3_600);

/// Numbers of one limit of a fleet.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Shared {
    /// A level that falls steadily: `funnel`, and `token_bucket` with `refill: greedy`.
    Leak {
        /// Maximum number of cost units that are taken at once.
        capacity: u64,
        /// Rate at which units refill.
        rate: Rate,
    },
    /// Units that refill in lumps, at the multiples of a period on the engine's clock:
    /// `token_bucket` with `refill: interval`.
    Interval {
        /// Maximum number of cost units that are taken at once.
        capacity: u64,
        /// The lump and its period.
        rate: Rate,
    },
    /// A count per window, which begins at the multiples of its length on the engine's clock:
    /// `fixed_window` with `align: clock`.
    Window {
        /// Maximum number of cost units that are taken in a window.
        capacity: u64,
        /// Length of the window.
        window: Nanos,
    },
}

/// The reason why a limit cannot be shared by a fleet.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Unfit {
    /// The engine does not know the algorithm.
    Algorithm,
    /// A new bucket is not full, because `initial` is below `capacity`.
    Initial,
    /// The limit holds requests, because `max_wait` is above 0.
    MaxWait,
    /// Windows begin with a request, because `align` is `first`.
    Align,
    /// Windows belong to a calendar. The engine computes with windows of one length.
    Calendar,
    /// The engine cannot compute with the period or window: a lump or window is shorter than
    /// [`ENGINE_CLOCK`], or it is longer than [`MAX_ODD_PERIOD`] and not a multiple of
    /// [`ENGINE_CLOCK`].
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

    /// Returns the maximum number of cost units that are taken at once.
    pub const fn capacity(self) -> u64 {
        match self {
            Self::Leak { capacity, .. }
            | Self::Interval { capacity, .. }
            | Self::Window { capacity, .. } => capacity,
        }
    }

    /// Returns the units that refill in `span` on average, rounded down.
    pub fn units_in(self, span: Nanos) -> u64 {
        let (amount, period) = self.pace();
        clamp(div_rem(times(span.get(), amount), period.get().max(1)).0)
    }

    /// Returns the maximum time in which `units` refill, rounded up.
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

    /// Returns the maximum time in which `used` units refill, if the wall clock shows `wall`.
    pub(super) fn full_in(self, used: u64, wall: Nanos) -> Nanos {
        match self {
            Self::Window { window, .. } if used > 0 => {
                let past = wall.get().checked_rem(window.get()).unwrap_or(0);
                window.since(Nanos::new(past))
            }
            _ => self.time_for(used),
        }
    }

    /// Returns the number of units that refill, and the time in which they do.
    fn pace(self) -> (u64, Nanos) {
        match self {
            Self::Leak { rate, .. } | Self::Interval { rate, .. } => {
                (rate.amount().into(), rate.period())
            }
            Self::Window { capacity, window } => (capacity, window),
        }
    }
}
