//! Rates that are doubles, as the ratios that rule files have.

use loudou_limiter::bounds::{MAX_AMOUNT, MAX_PERIOD};

/// Returns `per_second` as an amount per whole nanoseconds. It is the simplest ratio that gives the
/// same double, or else the nearest ratio that can be written.
pub(crate) fn rate(per_second: f64) -> String {
    let (mut numerator, mut denominator) = exact(per_second);
    denominator *= 1_000_000_000;
    // Convergents of the continued fraction. Each is the best ratio with numbers of its size.
    let (mut before, mut last) = ((0_u128, 1_u128), (1_u128, 0_u128));
    while denominator > 0 {
        let (whole, rest) = (numerator / denominator, numerator % denominator);
        let next = (whole * last.0 + before.0, whole * last.1 + before.1);
        if next.0 > MAX_AMOUNT.into() || next.1 > MAX_PERIOD.get().into() {
            break;
        }
        (before, last) = (last, next);
        (numerator, denominator) = (denominator, rest);
        if last.0 > 0 && is_same(last, per_second) {
            break;
        }
    }
    format!("{}/{}ns", last.0, last.1)
}

/// Returns true if an amount per nanoseconds equals `per_second` within the precision of a double.
fn is_same((amount, period): (u128, u128), per_second: f64) -> bool {
    let double = |number: u128| number.to_string().parse::<f64>().expect("a number");
    let ratio = double(amount) / (double(period) / 1e9);
    (ratio / per_second - 1.0).abs() < 2.0 * f64::EPSILON
}

/// A positive double as an exact ratio.
fn exact(number: f64) -> (u128, u128) {
    let bits = number.to_bits();
    let exponent = (bits >> 52) & 0x7ff;
    let mantissa = u128::from((bits & ((1 << 52) - 1)) | (1 << 52));
    assert!(
        (1000..1100).contains(&exponent),
        "{number} is no usual rate"
    );
    if exponent >= 1075 {
        (mantissa << (exponent - 1075), 1)
    } else {
        (mantissa, 1 << (1075 - exponent))
    }
}
