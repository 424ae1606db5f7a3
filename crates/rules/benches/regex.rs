//! Measures the time that a byte of a value takes: `cargo xtask bench regex`. Nothing is asserted.
//!
//! Each value is the worst known value for its pattern. The estimate determines the maximum size of
//! a value. It is made for Envoy's sandbox, where the code takes two to three times as long as
//! natively.
#![expect(clippy::print_stdout, reason = "a measurement speaks")]

use std::hint::black_box;
use std::time::Instant;

use loudou_rules::rule::Pattern;

const RUNS: u32 = 200;

/// Patterns, and the text that their values repeat.
const CASES: &[(&str, &str)] = &[
    ("[^/]*", "x"),
    ("[^/]*", "\u{e9}"),
    (
        "Bearer [A-Za-z0-9._-]+",
        "Bearer eyJhbGciOiJIUzI1NiIsInR5cCI6IkpXVCJ9",
    ),
    ("(?:/[a-z0-9-]+)*", "/api/v1/users/7"),
    ("(?:[a-z]*[0-9]*/?){8}x", "a"),
    ("(?:.*a){30}x", "a"),
    ("(?:.*a){60}x", "a"),
    ("(?:.*a){60}x", "\u{e9}a"),
    ("(?:.*a){90}x", "a"),
    ("(?:a*){120}b", "a"),
    ("(?:a*){240}b", "a"),
    (r"(?:\w*\b ?){20}x", "ab cd "),
];

/// The shortest of some runs, in tenths of a nanosecond per byte.
fn measure(pattern: &Pattern, value: &[u8]) -> u128 {
    let mut shortest = u128::MAX;
    for _ in 0..RUNS {
        let started = now();
        black_box(pattern.holds(black_box(value)));
        shortest = shortest.min(started.elapsed().as_nanos());
    }
    shortest * 10 / u128::try_from(value.len().max(1)).unwrap_or(1)
}

#[expect(clippy::disallowed_methods, reason = "a measurement reads the clock")]
fn now() -> Instant {
    Instant::now()
}

fn main() {
    let heading = [
        "pattern",
        "longest value",
        "estimate",
        "measured",
        "regex-lite",
    ];
    let [pattern, longest, estimate, measured, lite] = heading;
    println!("{pattern:32} {longest:>13} {estimate:>10} {measured:>10} {lite:>12}   (ns per byte)");
    for (text, piece) in CASES {
        let Ok(pattern) = Pattern::new(text) else {
            println!("{text:32} not accepted");
            continue;
        };
        let Ok(lite) = regex_lite::Regex::new(&format!(r"\A(?:{text})\z")) else {
            continue;
        };
        let longest = pattern.longest();
        let value: String = piece
            .chars()
            .cycle()
            .take(longest / piece.chars().map(char::len_utf8).max().unwrap_or(1))
            .collect();
        let tenths = measure(&pattern, value.as_bytes());
        let started = now();
        black_box(lite.is_match(black_box(&value)));
        let lite = started.elapsed().as_nanos() / u128::try_from(value.len().max(1)).unwrap_or(1);
        let estimate = pattern.worst_ns() / longest.max(1);
        println!(
            "{text:32} {longest:>13} {estimate:>10} {:>8}.{} {lite:>12}",
            tenths / 10,
            tenths % 10
        );
    }
}
