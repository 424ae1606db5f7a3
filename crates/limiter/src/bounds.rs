//! Bounds on all limit parameters, and the reasons why parameters can be invalid.

use crate::time::Nanos;

/// Maximum capacity, cost and rate amount. Together with [`MAX_PERIOD`], this ensures that every
/// product fits in 128 bits.
pub const MAX_AMOUNT: u32 = 1_000_000_000;
/// Maximum period of a rate and maximum window length: 366 days.
pub const MAX_PERIOD: Nanos = Nanos::from_secs(366 * 86_400);
/// Maximum time that a limit may take to replenish its whole capacity: ten years.
pub const MAX_DRAIN: Nanos = Nanos::from_secs(3_660 * 86_400);
/// Minimum time for which usage beyond a reduced capacity is kept: 250 years.
pub const MAX_REMEMBERED: Nanos = Nanos::from_secs(91_500 * 86_400);
/// Maximum time for which a limit may hold a request.
pub const MAX_WAIT: Nanos = Nanos::from_secs(3_600);

/// Reason why parameters do not form a valid limit.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum BadNumbers {
    /// The capacity is 0 or above [`MAX_AMOUNT`].
    Capacity,
    /// The rate's amount is above [`MAX_AMOUNT`], or its period is above [`MAX_PERIOD`].
    Rate,
    /// Replenishing the whole capacity would take longer than [`MAX_DRAIN`].
    Drain,
    /// The initial amount is above the capacity.
    Initial,
    /// The limit refills continuously, so its refills cannot be aligned to a clock.
    Align,
    /// The window is 0 or above [`MAX_PERIOD`].
    Window,
    /// There are fewer slots than [`crate::algorithm::sliding_window::MIN_SLOTS`] or more than
    /// [`crate::algorithm::sliding_window::MAX_SLOTS`].
    Slots,
    /// The slot capacity is above the window's capacity, or so low that the window's whole capacity
    /// could never be used.
    SlotCapacity,
    /// The maximum wait is above [`MAX_WAIT`].
    MaxWait,
    /// The warm-up is 0 or above [`crate::algorithm::smooth_warmup::MAX_WARMUP`].
    Warmup,
    /// The cold factor is outside [`crate::algorithm::smooth_warmup::COLD_FACTORS`].
    ColdFactor,
    /// The lease is 0 or above [`crate::algorithm::concurrency::MAX_LEASE`].
    Lease,
    /// The burst is above [`crate::algorithm::smooth_bursty::MAX_BURST`], or amounts to more than
    /// [`MAX_AMOUNT`] permits.
    Burst,
}

/// Checks that a maximum wait is within its bounds.
pub(crate) fn check_wait(max_wait: Nanos) -> Result<(), BadNumbers> {
    if max_wait > MAX_WAIT {
        return Err(BadNumbers::MaxWait);
    }
    Ok(())
}

/// Checks that a capacity and a window length are within their bounds.
pub(crate) fn check_window(capacity: u64, window: Nanos) -> Result<(), BadNumbers> {
    if capacity == 0 || capacity > u64::from(MAX_AMOUNT) {
        return Err(BadNumbers::Capacity);
    }
    if window == Nanos::ZERO || window > MAX_PERIOD {
        return Err(BadNumbers::Window);
    }
    Ok(())
}

/// Divides a capacity into `parts` equal parts and returns one part, rounded down, but at least 1.
pub(crate) fn part(capacity: u64, parts: u32) -> u64 {
    capacity.checked_div(parts.into()).unwrap_or(0).max(1)
}
