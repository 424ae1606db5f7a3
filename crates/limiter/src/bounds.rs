//! The bounds of all numbers of a limit, and the reasons for which numbers do not make one.

use crate::time::Nanos;

/// The largest capacity, cost and rate amount: with [`MAX_PERIOD`] every product stays in 128 bits.
pub const MAX_AMOUNT: u32 = 1_000_000_000;
/// Maximum period of a rate, and maximum window: 366 days.
pub const MAX_PERIOD: Nanos = Nanos::from_secs(366 * 86_400);
/// Maximum time a full bucket may take to empty: ten years.
pub const MAX_DRAIN: Nanos = Nanos::from_secs(3_660 * 86_400);
/// For how long it is remembered at least what was used beyond a capacity that shrank: 250 years.
pub const MAX_REMEMBERED: Nanos = Nanos::from_secs(91_500 * 86_400);
/// Maximum time a limit may let a request wait.
pub const MAX_WAIT: Nanos = Nanos::from_secs(3_600);

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
    /// The slots are fewer than [`crate::algorithm::sliding_window::MIN_SLOTS`] or more than
    /// [`crate::algorithm::sliding_window::MAX_SLOTS`].
    Slots,
    /// A slot's capacity is above the window's, or so low that the window's is out of reach.
    SlotCapacity,
    /// Maximum wait is above [`MAX_WAIT`].
    MaxWait,
    /// The warm-up is 0 or above [`crate::algorithm::smooth_warmup::MAX_WARMUP`].
    Warmup,
    /// The cold factor is not one of [`crate::algorithm::smooth_warmup::COLD_FACTORS`] or between them.
    ColdFactor,
    /// The lease is 0 or above [`crate::algorithm::concurrency::MAX_LEASE`].
    Lease,
    /// The burst is above [`crate::algorithm::smooth_bursty::MAX_BURST`], or its permits are more than
    /// [`MAX_AMOUNT`].
    Burst,
}

/// Checks the longest wait.
pub(crate) fn check_wait(max_wait: Nanos) -> Result<(), BadNumbers> {
    if max_wait > MAX_WAIT {
        return Err(BadNumbers::MaxWait);
    }
    Ok(())
}

/// Checks a capacity and a window.
pub(crate) fn check_window(capacity: u64, window: Nanos) -> Result<(), BadNumbers> {
    if capacity == 0 || capacity > u64::from(MAX_AMOUNT) {
        return Err(BadNumbers::Capacity);
    }
    if window == Nanos::ZERO || window > MAX_PERIOD {
        return Err(BadNumbers::Window);
    }
    Ok(())
}

/// One of `parts` equal parts of a capacity, rounded down but at least 1.
pub(crate) fn part(capacity: u64, parts: u32) -> u64 {
    capacity.checked_div(parts.into()).unwrap_or(0).max(1)
}
