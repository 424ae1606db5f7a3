//! Prints the table of request costs.

use serde_json::{Value, json};

use super::Measured;
use super::rows::{EMPTY, PER_USER};
use crate::bench::{median, quiet};

/// Prints the table, and returns its numbers as JSON.
pub(super) fn rows(measured: &[Measured]) -> Value {
    println!(
        "\n| requests through | µs, median | quiet | over the empty filter | × local_ratelimit per user |\n\
         | --- | ---: | ---: | ---: | ---: |"
    );
    let spent = |name: &str| {
        let row = measured.iter().find(|row| row.row.name == name);
        row.map_or(&[][..], |row| &row.spent_us)
    };
    let (empty, native) = (spent(EMPTY), spent(PER_USER));
    measured
        .iter()
        .map(|row| {
            let own = &row.spent_us;
            let over = paired(own, empty, |own, empty| own - empty);
            let times = paired(own, native, |own, native| own / native);
            let (us, quiet_us) = (median(own.clone()), quiet(own.clone()));
            println!(
                "| {} | {us:.1} | {quiet_us:.1} | {over:+.1} | {times:.2} |",
                row.row.name
            );
            json!({
                "requests": row.row.name, "us": us, "quiet_us": quiet_us,
                "over_empty_us": over, "times_native_per_user": times, "rounds_us": own,
            })
        })
        .collect()
}

/// Returns the median of `compare` over pairs of samples, each from the same round of two rows.
fn paired(own: &[f64], other: &[f64], compare: impl Fn(f64, f64) -> f64) -> f64 {
    let pairs = own.iter().zip(other);
    median(pairs.map(|(own, other)| compare(*own, *other)).collect())
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn pairs_are_of_the_same_round() {
        let over = paired(&[5.0, 90.0, 7.0], &[4.0, 88.0, 4.0], |own, other| {
            own - other
        });
        assert!((over - 2.0).abs() < 1e-9);
    }
}
