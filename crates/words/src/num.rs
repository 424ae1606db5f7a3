//! Conversions between counts, fractions, terminal cells and user input. All conversions that round or saturate live in
//! this module.

use std::num::{IntErrorKind, ParseIntError};
use std::str::FromStr;

use loudou_limiter::Nanos;

/// Converts a length to a 64-bit count, saturating.
pub fn count(n: usize) -> u64 {
    u64::try_from(n).unwrap_or(u64::MAX)
}

/// Converts a number to an integer, rounded down. Negative numbers and NaN become 0, and numbers that are too large are
/// clamped to the maximum.
#[expect(
    clippy::as_conversions,
    clippy::cast_possible_truncation,
    clippy::cast_sign_loss,
    reason = "a cast from floating point saturates, as wanted"
)]
pub const fn whole(x: f64) -> u64 {
    x as u64
}

/// Converts an integer to a floating-point number. The result is exact up to 2^53. Beyond that, it is precise enough
/// for drawing.
#[expect(
    clippy::as_conversions,
    clippy::cast_precision_loss,
    reason = "the standard library has no other conversion; pictures need no more than 53 bits"
)]
pub const fn float(n: u64) -> f64 {
    n as f64
}

/// Returns `fraction` of `total` cells, rounded to whole cells.
pub fn share(fraction: f64, total: u16) -> u16 {
    let cells = fraction.clamp(0.0, 1.0) * f64::from(total);
    u16::try_from(whole(cells.round()))
        .unwrap_or(total)
        .min(total)
}

/// Converts to a number of cells, saturating.
pub fn cells(n: usize) -> u16 {
    u16::try_from(n).unwrap_or(u16::MAX)
}

/// Returns `part_ns / whole_ns`, clamped to between 0 and 1. Returns 0 if `whole_ns` is 0.
pub fn fraction(part_ns: u64, whole_ns: u64) -> f64 {
    if whole_ns == 0 {
        return 0.0;
    }
    (float(part_ns) / float(whole_ns)).clamp(0.0, 1.0)
}

/// Rounds a remaining time up to whole seconds, for use as an option in a command line that users may type.
pub const fn whole_seconds(ns: u64) -> Nanos {
    Nanos::from_secs(Nanos::new(ns).secs_ceil())
}

/// Parses a whole number typed by a user. Returns a description of the problem if the text is invalid.
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
