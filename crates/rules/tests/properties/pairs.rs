//! A pair of edits there and back, a hundred times, for every algorithm.

use loudou_limiter::{Bucket, Carry, Clock, Limits, Nanos, convert};
use loudou_rules::config::parse_limits;
use serde_json::{Value, json};

use super::gains::most_at_once;

const DAY: u64 = 86_400_000_000_000;

/// Limits of every algorithm with this capacity, of which almost nothing comes back in a second.
fn all(capacity: u64) -> Vec<Limits> {
    let numbers = [
        json!({ "algorithm": "funnel", "rate": "1/d" }),
        json!({ "algorithm": "funnel", "rate": "1/d", "max_wait": "1h" }),
        json!({ "algorithm": "token_bucket", "rate": "1/d" }),
        json!({ "algorithm": "token_bucket", "rate": "1/d", "initial": capacity / 2 }),
        json!({ "algorithm": "token_bucket", "rate": "1/d", "refill": "interval" }),
        json!({ "algorithm": "token_bucket", "rate": "1/d", "refill": "interval", "align": "clock" }),
        json!({ "algorithm": "fixed_window", "window": "1d" }),
        json!({ "algorithm": "fixed_window", "window": "1d", "align": "clock" }),
        json!({ "algorithm": "fixed_window", "window": "day" }),
        json!({ "algorithm": "fixed_window", "window": "month", "zone": "CET-1CEST,M3.5.0,M10.5.0/3" }),
        json!({ "algorithm": "sliding_window", "window": "1d" }),
        json!({ "algorithm": "sliding_window", "window": "1d", "align": "clock" }),
        json!({ "algorithm": "sliding_window", "window": "1d", "slots": 2, "slot_capacity": capacity }),
        json!({ "algorithm": "sliding_log", "window": "1d" }),
        json!({ "algorithm": "sliding_log", "window": "1d", "count_refused": true }),
        json!({ "algorithm": "sliding_counter", "window": "1d" }),
        json!({ "algorithm": "sliding_counter", "window": "1d", "align": "clock" }),
        json!({ "algorithm": "leaky_queue", "rate": "1/d", "immediate": capacity / 2 }),
        json!({ "algorithm": "smooth_bursty", "rate": "1/m", "burst_seconds": 60 * (capacity - 1) }),
        json!({ "algorithm": "smooth_warmup", "rate": format!("{capacity}/d"), "warmup": "1d" }),
        json!({ "algorithm": "concurrency", "lease": "1d" }),
    ];
    let limits = numbers.into_iter().map(|mut limit: Value| {
        limit["name"] = json!("a");
        if !limit["algorithm"]
            .as_str()
            .expect("a name")
            .starts_with("smooth")
        {
            limit["capacity"] = json!(capacity);
        }
        parse_limits(&json!([limit])).expect("valid")
    });
    limits.collect()
}

/// Returns how many of `requests` pass without a wait.
fn pass(limits: &Limits, bucket: &mut Bucket, requests: u64, now: u64) -> u64 {
    let passes = (0..requests).filter(|_| {
        let answer = limits.decide(bucket, 1, Nanos::new(now));
        !answer.is_refused() && answer.wait() == Nanos::ZERO
    });
    u64::try_from(passes.count()).expect("few")
}

/// A time in the middle of a clock-aligned window, one day and a third from the start.
const START: u64 = DAY + DAY / 3;

/// Any number of pairs gives nothing, with or without requests in between.
#[test]
fn a_hundred_pairs_give_nothing() {
    let numbers = [100, 101, 50, 7].map(all);
    for (place, first) in numbers[0].iter().enumerate() {
        for other in numbers.iter().skip(1).map(|all| &all[place]) {
            for carry in [Carry::Keep, Carry::Proportional] {
                for (asked, step) in [(110, 0), (30, 0), (1, 1_000_000)] {
                    let most = [first, other]
                        .map(|limits| limits.iter().map(most_at_once).max().expect("one"));
                    let most = most.into_iter().max().expect("two");
                    let (mut now, mut bucket) = (START, first.start(Nanos::new(START)));
                    let mut sum = pass(first, &mut bucket, asked, now);
                    for _ in 0..100 {
                        for (old, new) in [(first, other), (other, first)] {
                            now += step;
                            let clock = Clock::at(Nanos::new(now));
                            bucket = convert(old, new, carry, &bucket, clock);
                            sum += pass(new, &mut bucket, asked.min(2), now);
                        }
                    }
                    assert!(
                        sum <= most,
                        "{sum} of {most}: {carry:?} {first:?} {other:?}"
                    );
                }
            }
        }
    }
}

/// In units, what passes over a week is what the larger capacity and its rate allow, though there are two
/// edits an hour.
#[test]
fn pairs_give_no_more_over_time() {
    for (first, other) in all(100).iter().zip(&all(101)) {
        let limit = other.iter().next().expect("one");
        // A rate gives one a day except for the last two. A window gives its capacity each day, and
        // once more.
        let most = match limit.algorithm().name() {
            "funnel" | "token_bucket" => 101 + 8,
            "leaky_queue" => 51 + 8,
            "smooth_bursty" => 101 + 7 * 1_440,
            "smooth_warmup" => 1 + 7 * 101,
            "concurrency" => 101 * 8,
            _ => 101 * 9,
        };
        let (mut now, mut bucket) = (START, first.start(Nanos::new(START)));
        let mut sum = 0;
        for _ in 0..7 * 24 {
            for (old, new) in [(first, other), (other, first)] {
                now += DAY / 48;
                let clock = Clock::at(Nanos::new(now));
                bucket = convert(old, new, Carry::Keep, &bucket, clock);
                sum += pass(new, &mut bucket, 20, now);
            }
        }
        assert!(sum <= most, "{sum} of {most}: {first:?}");
    }
}
