//! Rules with one limit: the funnel, and the token bucket in its three variants.

use loudou_limiter::algorithm::{Funnel, Refill, TokenBucket};
use loudou_limiter::bounds::BadNumbers;
use loudou_limiter::{Nanos, Rate};
use serde_json::json;

use super::{DAY, MS, NONE, S, run};

#[test]
fn a_funnel_fills_leaks_and_is_peeked_at() {
    run(
        &json!([{ "algorithm": "funnel", "capacity": 3, "rate": "1/s" }]),
        &[
            (0, 0, (0, 3, 3, NONE, 0)),
            (0, 1, (0, 3, 2, NONE, S)),
            (0, 1, (0, 3, 1, NONE, 2 * S)),
            (0, 0, (0, 3, 1, NONE, 2 * S)),
            (0, 1, (0, 3, 0, NONE, 3 * S)),
            (0, 1, (1, 3, 0, 1_000_000_000, 3 * S)),
            (0, 0, (0, 3, 0, NONE, 3 * S)),
            (S - 1, 1, (1, 3, 0, 1, 2 * S + 1)),
            (S, 1, (0, 3, 0, NONE, 3 * S)),
            (1_500 * MS, 1, (1, 3, 0, 500_000_000, 2_500 * MS)),
            (2_500 * MS, 2, (1, 3, 1, 500_000_000, 1_500 * MS)),
            (3 * S, 2, (0, 3, 0, NONE, 3 * S)),
            (60 * S, 0, (0, 3, 3, NONE, 0)),
            (60 * S, 4, (1, 3, 3, NONE, 0)),
            (60 * S, 3, (0, 3, 0, NONE, 3 * S)),
            (60 * S, 3, (1, 3, 0, 3_000_000_000, 3 * S)),
        ],
    );
}

/// A third of a second is not a whole number of nanoseconds. The remainder is carried, and waits
/// are always rounded up.
#[test]
fn a_rate_that_does_not_divide_is_exact() {
    run(
        &json!([{ "algorithm": "funnel", "capacity": 2, "rate": "3/s" }]),
        &[
            (0, 1, (0, 2, 1, NONE, 333_333_334)),
            (1, 1, (0, 2, 0, NONE, 666_666_666)),
            (1, 1, (1, 2, 0, 333_333_333, 666_666_666)),
            (333_333_333, 1, (1, 2, 0, 1, 333_333_334)),
            (333_333_334, 1, (0, 2, 0, NONE, 666_666_666)),
            (1_000_000_000, 2, (0, 2, 0, NONE, 666_666_667)),
        ],
    );
}

#[test]
fn a_greedy_token_bucket_refills_continuously() {
    run(
        &json!([{ "algorithm": "token_bucket", "capacity": 5, "rate": "2/s" }]),
        &[
            (7 * S, 5, (0, 5, 0, NONE, 2_500 * MS)),
            (7 * S, 1, (1, 5, 0, 500_000_000, 2_500 * MS)),
            (7_250 * MS, 1, (1, 5, 0, 250_000_000, 2_250 * MS)),
            (7_500 * MS, 1, (0, 5, 0, NONE, 2_500 * MS)),
            (9 * S, 4, (1, 5, 3, 500_000_000, S)),
            (9_500 * MS, 4, (0, 5, 0, NONE, 2_500 * MS)),
        ],
    );
}

#[test]
fn a_greedy_token_bucket_starts_with_its_initial_tokens() {
    run(
        &json!([{ "algorithm": "token_bucket", "capacity": 10, "rate": "1/s", "initial": 2 }]),
        &[
            (0, 0, (0, 10, 2, NONE, 8 * S)),
            (0, 1, (0, 10, 1, NONE, 9 * S)),
            (0, 1, (0, 10, 0, NONE, 10 * S)),
            (0, 1, (1, 10, 0, 1_000_000_000, 10 * S)),
            (1_500 * MS, 2, (1, 10, 1, 500_000_000, 8_500 * MS)),
            (2 * S, 2, (0, 10, 0, NONE, 10 * S)),
            (100 * S, 10, (0, 10, 0, NONE, 10 * S)),
        ],
    );
}

/// Refills come at multiples of the period on the clock, not relative to the first request.
#[test]
fn an_interval_token_bucket_refills_in_lumps() {
    run(
        &json!([
            { "algorithm": "token_bucket", "capacity": 10, "rate": "4/10s", "refill": "interval" }
        ]),
        &[
            (3 * S, 0, (0, 10, 10, NONE, 0)),
            (3 * S, 10, (0, 10, 0, NONE, 27 * S)),
            (3 * S, 1, (1, 10, 0, 7_000_000_000, 27 * S)),
            (3 * S, 5, (1, 10, 0, 17_000_000_000, 27 * S)),
            (10 * S - 1, 1, (1, 10, 0, 1, 20 * S + 1)),
            (10 * S, 1, (0, 10, 3, NONE, 20 * S)),
            (10 * S, 4, (1, 10, 3, 10_000_000_000, 20 * S)),
            (20 * S, 4, (0, 10, 3, NONE, 20 * S)),
            (95 * S, 0, (0, 10, 10, NONE, 0)),
            (95 * S, 11, (1, 10, 10, NONE, 0)),
        ],
    );
}

#[test]
fn an_interval_token_bucket_may_start_empty() {
    run(
        &json!([{
            "algorithm": "token_bucket", "capacity": 10, "rate": "4/10s",
            "refill": "interval", "initial": 0
        }]),
        &[
            (12 * S, 0, (0, 10, 0, NONE, 28 * S)),
            (12 * S, 1, (1, 10, 0, 8_000_000_000, 28 * S)),
            (20 * S, 1, (0, 10, 3, NONE, 20 * S)),
        ],
    );
}

#[test]
fn the_slowest_rate_neither_drifts_nor_overflows() {
    let wait = 366 * 86_400_000_000_000_i64;
    run(
        &json!([{ "algorithm": "funnel", "capacity": 1, "rate": "1/366d" }]),
        &[
            (0, 1, (0, 1, 0, NONE, 366 * DAY)),
            (0, 1, (1, 1, 0, wait, 366 * DAY)),
            (366 * DAY - 1, 1, (1, 1, 0, 1, 1)),
            (366 * DAY, 1, (0, 1, 0, NONE, 366 * DAY)),
            (366 * DAY, 1_000_000_000, (1, 1, 0, NONE, 366 * DAY)),
        ],
    );
}

#[test]
fn the_fastest_rate_neither_drifts_nor_overflows() {
    let most = 1_000_000_000;
    for refill in ["greedy", "interval"] {
        run(
            &json!([{
                "algorithm": "token_bucket", "capacity": most, "rate": "1000000000/1ns",
                "refill": refill
            }]),
            &[
                (5, most, (0, most, 0, NONE, 1)),
                (5, 1, (1, most, 0, 1, 1)),
                (6, most, (0, most, 0, NONE, 1)),
                (u64::MAX - 1, most, (0, most, 0, NONE, 1)),
            ],
        );
    }
}

#[test]
fn a_clock_that_goes_back_stands_still() {
    run(
        &json!([{ "algorithm": "funnel", "capacity": 1, "rate": "1/s" }]),
        &[
            (10 * S, 1, (0, 1, 0, NONE, S)),
            (4 * S, 1, (1, 1, 0, 1_000_000_000, S)),
            (0, 0, (0, 1, 0, NONE, S)),
            // A peek does not move the bucket's clock, but a refusal does.
            (20 * S, 0, (0, 1, 1, NONE, 0)),
            (10_500 * MS, 1, (1, 1, 0, 500_000_000, 500 * MS)),
            (10_900 * MS, 1, (1, 1, 0, 100_000_000, 100 * MS)),
            (10_200 * MS, 1, (1, 1, 0, 100_000_000, 100 * MS)),
            (11 * S, 1, (0, 1, 0, NONE, S)),
        ],
    );
    run(
        &json!([
            { "algorithm": "token_bucket", "capacity": 2, "rate": "2/10s", "refill": "interval" }
        ]),
        &[
            (25 * S, 2, (0, 2, 0, NONE, 5 * S)),
            (3 * S, 1, (1, 2, 0, 5_000_000_000, 5 * S)),
            (19 * S, 1, (1, 2, 0, 5_000_000_000, 5 * S)),
            (30 * S, 2, (0, 2, 0, NONE, 10 * S)),
        ],
    );
}

#[test]
fn numbers_have_bounds() {
    let funnel = |capacity: u64, amount: u32, period: Nanos| {
        Funnel::new(capacity, Rate::new(amount, period).expect("positive")).err()
    };
    let most_period = Nanos::new(366 * DAY);
    let longer = Nanos::new(366 * DAY + 1);
    let second = Nanos::from_secs(1);
    for (numbers, expected) in [
        ((1, 1, second), None),
        ((0, 1, second), Some(BadNumbers::Capacity)),
        ((1_000_000_000, 1_000_000_000, second), None),
        (
            (1_000_000_001, 1_000_000_000, second),
            Some(BadNumbers::Capacity),
        ),
        ((1, 1_000_000_001, second), Some(BadNumbers::Rate)),
        ((1, 1, most_period), None),
        ((1, 1, longer), Some(BadNumbers::Rate)),
        ((10, 1, most_period), None),
        ((11, 1, most_period), Some(BadNumbers::Drain)),
    ] {
        assert_eq!(
            funnel(numbers.0, numbers.1, numbers.2),
            expected,
            "{numbers:?}"
        );
    }
    let rate = Rate::parse("1/s").expect("a rate");
    let bucket = |initial: u64| TokenBucket::new(5, rate, Refill::Greedy, initial).err();
    assert_eq!((bucket(5), bucket(6)), (None, Some(BadNumbers::Initial)));
    assert_eq!(
        (Rate::new(0, second), Rate::new(1, Nanos::ZERO)),
        (None, None)
    );
}
