//! Number conversions, in one place because they round, and counts as text.

/// `n` as a 64-bit count.
pub fn count(n: usize) -> u64 {
    u64::try_from(n).unwrap_or(u64::MAX)
}

/// `x` as a whole number: rounded down, negative and not-a-number to 0, bounded above.
#[expect(
    clippy::as_conversions,
    clippy::cast_possible_truncation,
    clippy::cast_sign_loss,
    reason = "a cast from floating point saturates, as wanted"
)]
pub const fn whole(x: f64) -> u64 {
    x as u64
}

/// A number of things: `1 key`, `2 keys`.
pub fn counted(n: u64, noun: &str) -> String {
    let plural = if n == 1 { "" } else { "s" };
    format!("{n} {noun}{plural}")
}

/// `n` as a floating-point number; exact up to 2^53, and close enough for drawing beyond.
#[expect(
    clippy::as_conversions,
    clippy::cast_precision_loss,
    reason = "the standard library has no other conversion; pictures need no more than 53 bits"
)]
pub const fn float(n: u64) -> f64 {
    n as f64
}
