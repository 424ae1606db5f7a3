//! Conversions of numbers, in one place because they round: counts, shares, cells of the screen, and typed numbers.

use std::num::{IntErrorKind, ParseIntError};
use std::str::FromStr;

use loudou_limiter::Nanos;

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

/// `n` as a floating-point number; exact up to 2^53, and close enough for drawing beyond.
#[expect(
    clippy::as_conversions,
    clippy::cast_precision_loss,
    reason = "the standard library has no other conversion; pictures need no more than 53 bits"
)]
pub const fn float(n: u64) -> f64 {
    n as f64
}

/// A share of `total` cells.
pub fn share(fraction: f64, total: u16) -> u16 {
    let cells = fraction.clamp(0.0, 1.0) * f64::from(total);
    u16::try_from(whole(cells.round()))
        .unwrap_or(total)
        .min(total)
}

/// `n` as a number of cells, saturating.
pub fn cells(n: usize) -> u16 {
    u16::try_from(n).unwrap_or(u16::MAX)
}

/// The share of `part_ns` in `whole_ns`, from 0 to 1; 0 if `whole_ns` is 0.
pub fn fraction(part_ns: u64, whole_ns: u64) -> f64 {
    if whole_ns == 0 {
        return 0.0;
    }
    (float(part_ns) / float(whole_ns)).clamp(0.0, 1.0)
}

/// The rest of a time, rounded up to seconds: it is shown, and is part of a command line to be typed again.
pub const fn whole_seconds(ns: u64) -> Nanos {
    Nanos::from_secs(Nanos::new(ns).secs_ceil())
}

/// A whole number as it was typed, or what is wrong with it.
pub fn typed<N: FromStr<Err = ParseIntError>>(text: &str) -> Result<N, String> {
    text.parse().map_err(|error: ParseIntError| {
        let is_negative = text
            .strip_prefix('-')
            .is_some_and(|rest| rest.parse::<N>().is_ok());
        match error.kind() {
            IntErrorKind::PosOverflow => "too large",
            _ if is_negative => "a number cannot be negative here",
            _ => "not a whole number, such as 50",
        }
        .to_owned()
    })
}
