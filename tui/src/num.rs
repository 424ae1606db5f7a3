//! Conversions between counts and what is drawn, in one place because they round.

/// `n` as a floating-point number; exact up to 2^53, and close enough for a picture beyond.
#[expect(
    clippy::as_conversions,
    clippy::cast_precision_loss,
    reason = "the standard library has no other conversion; pictures need no more than 53 bits"
)]
pub(crate) const fn float(n: u64) -> f64 {
    n as f64
}

/// `x` as a whole number: rounded down, negative and not-a-number to 0, bounded above.
#[expect(
    clippy::as_conversions,
    clippy::cast_possible_truncation,
    clippy::cast_sign_loss,
    reason = "a cast from floating point saturates, which is what is wanted"
)]
pub(crate) const fn whole(x: f64) -> u64 {
    x as u64
}

/// A share of `total` cells.
pub(crate) fn share(fraction: f64, total: u16) -> u16 {
    let cells = fraction.clamp(0.0, 1.0) * f64::from(total);
    u16::try_from(whole(cells.round()))
        .unwrap_or(total)
        .min(total)
}

/// `n` as a number of cells, saturating.
pub(crate) fn cells(n: usize) -> u16 {
    u16::try_from(n).unwrap_or(u16::MAX)
}

/// `n` as a 64-bit count.
pub(crate) fn count(n: usize) -> u64 {
    u64::try_from(n).unwrap_or(u64::MAX)
}

/// How much of `whole_ns` is `part_ns`, from 0 to 1; 0 of nothing.
pub(crate) fn fraction(part_ns: u64, whole_ns: u64) -> f64 {
    if whole_ns == 0 {
        return 0.0;
    }
    (float(part_ns) / float(whole_ns)).clamp(0.0, 1.0)
}
