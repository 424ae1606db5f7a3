//! Tables of requests at chosen times and the five values each must get, worked out by hand.
#![cfg(test)]

use loudou_limiter::{Decision, Limits, Nanos};
use loudou_rules::config::parse_limits;
use serde_json::Value;

mod clocks;
mod extremes;
mod in_flight;
mod many;
mod queues;
mod single;
mod smooth;
mod traps;
mod waiting;
mod windows;

const MS: u64 = 1_000_000;
const S: u64 = 1_000 * MS;
const DAY: u64 = 86_400 * S;
/// No wait to report, because the request was admitted or never will be.
const NONE: i64 = -1;

/// Limited, capacity, remaining, nanoseconds to wait, nanoseconds until the bucket is full.
type Five = (u8, u64, u64, i64, u64);
/// Instant, cost, and answer.
type Row = (u64, u64, Five);

fn limits(document: &Value) -> Limits {
    parse_limits(document).expect("limits of a test are valid")
}

fn five(decision: &Decision) -> Five {
    (
        u8::from(decision.is_refused()),
        decision.capacity,
        decision.remaining,
        decision.retry_after.map_or(NONE, |wait| {
            i64::try_from(wait.get()).expect("less than 292 years")
        }),
        decision.reset_after.get(),
    )
}

/// Runs the rows on one bucket, first touched at the first row's instant.
fn run(document: &Value, rows: &[Row]) {
    let limits = limits(document);
    let mut bucket = limits.start(Nanos::new(rows.first().expect("a row").0));
    for (number, (now, cost, expected)) in rows.iter().enumerate() {
        let answer = limits.decide(&mut bucket, *cost, Nanos::new(*now));
        let got = five(answer.reported().expect("a decision"));
        assert_eq!(got, *expected, "row {number}: cost {cost} at {now} ns");
    }
}

/// Time of a quota. It is one window, even for a counter that needs two windows until it is full.
#[test]
fn the_rate_gives_the_capacity_once_in_the_time_of_a_quota() {
    let time = |limit: Value| {
        let limits = limits(&serde_json::json!([limit]));
        let limit = limits.iter().next().expect("one");
        limit.algorithm().quota_time(Nanos::ZERO).map(Nanos::get)
    };
    let counter =
        serde_json::json!({ "algorithm": "sliding_counter", "capacity": 7, "window": "1m" });
    let funnel = serde_json::json!({ "algorithm": "funnel", "capacity": 7, "rate": "2/s" });
    let places = serde_json::json!({ "algorithm": "concurrency", "capacity": 7 });
    assert_eq!(time(counter), Some(60 * S));
    assert_eq!(time(funnel), Some(3_500 * MS));
    assert_eq!(time(places), None);
}
