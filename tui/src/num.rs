//! Conversions between counts and cells, in one place because they round.

use std::num::{IntErrorKind, ParseIntError};
use std::str::FromStr;

use loudou_limiter::Nanos;
pub(crate) use loudou_replay::num::{count, float, whole};

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

/// The share of `part_ns` in `whole_ns`, from 0 to 1; 0 if `whole_ns` is 0.
pub(crate) fn fraction(part_ns: u64, whole_ns: u64) -> f64 {
    if whole_ns == 0 {
        return 0.0;
    }
    (float(part_ns) / float(whole_ns)).clamp(0.0, 1.0)
}

/// The rest of a time, rounded up to seconds: it is shown, and is part of a command line to be typed again.
pub(crate) const fn whole_seconds(ns: u64) -> Nanos {
    Nanos::from_secs(Nanos::new(ns).secs_ceil())
}

/// A whole number as it was typed, or what is wrong with it.
pub(crate) fn typed<N: FromStr<Err = ParseIntError>>(text: &str) -> Result<N, String> {
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
