//! What the algorithms with a window have in common.

use super::{BadNumbers, MAX_AMOUNT, MAX_PERIOD, USED_ONE, Used};
use crate::carry::Carry;
use crate::rate::Rate;
use crate::time::Nanos;

/// Checks a capacity and a window.
pub(super) fn check(capacity: u64, window: Nanos) -> Result<(), BadNumbers> {
    if capacity == 0 || capacity > u64::from(MAX_AMOUNT) {
        return Err(BadNumbers::Capacity);
    }
    if window == Nanos::ZERO || window > MAX_PERIOD {
        return Err(BadNumbers::Window);
    }
    Ok(())
}

/// The capacity per window.
pub(super) fn rate(capacity: u64, window: Nanos) -> Option<Rate> {
    Rate::new(u32::try_from(capacity).ok()?, window)
}

/// So many cost units.
pub(super) fn used(units: u64) -> Used {
    Used::from(units).saturating_mul(USED_ONE)
}

/// The whole cost units of a level, rounded up.
pub(super) fn units(used: Used) -> u64 {
    clamp(used.div_ceil(USED_ONE))
}

/// What a count becomes when a capacity of `old` becomes one of `new`; never above it.
pub(super) fn carried(count: u64, carry: Carry, old: u64, new: u64) -> u64 {
    let target = match carry {
        Carry::Keep => count,
        Carry::Proportional => clamp(times(count, new).div_ceil(u128::from(old.max(1)))),
        Carry::Reset => 0,
    };
    target.min(new)
}

pub(super) fn times(a: u64, b: u64) -> u128 {
    u128::from(a).saturating_mul(u128::from(b))
}

pub(super) fn clamp(wide: u128) -> u64 {
    u64::try_from(wide).unwrap_or(u64::MAX)
}
