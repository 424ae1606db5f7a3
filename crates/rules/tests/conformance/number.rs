//! Reading the numbers of the vectors.

use std::time::Duration;

use serde_json::Value;

pub(crate) const SECOND: u64 = 1_000_000_000;

/// Returns a whole number, which must be present.
pub(crate) fn whole(value: &Value, key: &str) -> u64 {
    value[key]
        .as_u64()
        .unwrap_or_else(|| panic!("no whole {key} in {value}"))
}

/// A whole number or nothing.
pub(crate) fn whole_or_none(value: &Value, key: &str) -> Option<i128> {
    value[key].as_i64().map(i128::from)
}

/// Returns a number with a fraction, which must be present.
pub(crate) fn real(value: &Value, key: &str) -> f64 {
    value[key]
        .as_f64()
        .unwrap_or_else(|| panic!("no number {key} in {value}"))
}

pub(crate) fn text<'a>(value: &'a Value, key: &str) -> &'a str {
    value[key]
        .as_str()
        .unwrap_or_else(|| panic!("no text {key} in {value}"))
}

pub(crate) fn truth(value: &Value, key: &str) -> bool {
    value[key]
        .as_bool()
        .unwrap_or_else(|| panic!("no truth value {key} in {value}"))
}

/// Converts an instant in seconds to nanoseconds. It uses the exact value of the double, which the
/// other limiter saw, and not the decimal fraction that was written.
pub(crate) fn double_seconds(value: &Value, key: &str) -> u64 {
    let nanos = Duration::from_secs_f64(real(value, key)).as_nanos();
    u64::try_from(nanos).expect("an instant of ours")
}

/// A span in seconds as nanoseconds.
pub(crate) fn nanos(seconds: f64) -> i128 {
    let nanos = Duration::from_secs_f64(seconds).as_nanos();
    i128::try_from(nanos).expect("a span of ours")
}
