//! Randomised durations, which prevent many Envoys from acting at the same time.

use crate::leak::div_ceil;
use crate::time::Nanos;
use crate::wide::{clamp, product};

/// Returns a duration between `from` and `to` quarters of `span`, chosen by the random number
/// `random`.
pub(super) fn between(span: Nanos, (from, to): (u64, u64), random: u64) -> Nanos {
    let quarters = |n: u64| clamp(div_ceil(product(span.get().into(), n.into()), 4));
    let width = quarters(to).saturating_sub(quarters(from));
    let part = product(width.into(), random.into()) >> 64;
    Nanos::new(quarters(from).saturating_add(clamp(part)))
}
