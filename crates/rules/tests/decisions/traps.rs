//! Defects of well-known limiters, some of which are fixed there by now.

use loudou_limiter::{Carry, Clock, Nanos, convert};
use serde_json::json;

use super::{DAY, MS, NONE, S, five, limits, run};

/// throttlecrab keeps an old arrival time back to one tolerance before now instead of now, so that
/// after one request and 8.9 idle seconds 17 pass at once. Ten is the contract.
#[test]
fn an_idle_bucket_is_never_better_than_new() {
    let limits = limits(&json!([{ "algorithm": "funnel", "capacity": 10, "rate": "1/s" }]));
    for idle_ms in [0, 500, 1_000, 8_900, 10_000, 3_600_000] {
        let mut bucket = limits.start(Nanos::ZERO);
        limits.decide(&mut bucket, 1, Nanos::ZERO);
        let now = Nanos::from_millis(idle_ms);
        let admitted = (0..30)
            .filter(|_| !limits.decide(&mut bucket, 1, now).is_refused())
            .count();
        let expected = if idle_ms < 1_000 { 9 } else { 10 };
        assert_eq!(admitted, expected, "after {idle_ms} ms");
    }
}

/// governor multiplies before it compares. With one per day and a burst of ten, a cost of 213 505
/// overflows 64 bits of nanoseconds and passes.
#[test]
fn a_huge_cost_does_not_wrap() {
    for algorithm in ["funnel", "token_bucket"] {
        let rule = json!([{ "algorithm": algorithm, "capacity": 10, "rate": "1/d" }]);
        run(
            &rule,
            &[
                (0, 213_504, (1, 10, 10, NONE, 0)),
                (0, 213_505, (1, 10, 10, NONE, 0)),
                (0, u64::MAX, (1, 10, 10, NONE, 0)),
                (0, 10, (0, 10, 0, NONE, 10 * DAY)),
                (0, u64::MAX, (1, 10, 0, NONE, 10 * DAY)),
            ],
        );
    }
    run(
        &json!([{ "algorithm": "token_bucket", "capacity": 10, "rate": "1/d", "refill": "interval" }]),
        &[
            (0, u64::MAX, (1, 10, 10, NONE, 0)),
            (0, 10, (0, 10, 0, NONE, 10 * DAY)),
            (0, u64::MAX, (1, 10, 0, NONE, 10 * DAY)),
        ],
    );
}

/// limitador computes limit − value unchecked, so lowering a limit below the used amount
/// underflows. The amount used beyond the limit has to leak, too.
#[test]
fn lowering_a_limit_under_load_leaves_zero() {
    let old = limits(&json!([{ "algorithm": "funnel", "capacity": 8, "rate": "1/s" }]));
    let new = limits(&json!([{ "algorithm": "funnel", "capacity": 4, "rate": "1/s" }]));
    let mut bucket = old.start(Nanos::ZERO);
    old.decide(&mut bucket, 7, Nanos::ZERO);
    for (carry, left, wait) in [
        (Carry::Keep, 0, 4_000_000_000),
        (Carry::Proportional, 0, 500_000_000),
        (Carry::Reset, 3, NONE),
    ] {
        let mut lowered = convert(&old, &new, carry, &bucket, Clock::at(Nanos::ZERO));
        let answer = new.decide(&mut lowered, 1, Nanos::ZERO);
        let (_, capacity, remaining, retry_after, _) = five(answer.reported().expect("one"));
        assert_eq!(
            (capacity, remaining, retry_after),
            (4, left, wait),
            "{carry:?}"
        );
    }
}

/// An old redis-cell compares whole seconds, so that a denial shorter than one second is admitted.
#[test]
fn a_denial_shorter_than_a_second_is_one() {
    run(
        &json!([{ "algorithm": "funnel", "capacity": 2, "rate": "10/s" }]),
        &[
            (0, 1, (0, 2, 1, NONE, 100 * MS)),
            (0, 1, (0, 2, 0, NONE, 200 * MS)),
            (0, 1, (1, 2, 0, 100_000_000, 200 * MS)),
            (40 * MS, 1, (1, 2, 0, 60_000_000, 160 * MS)),
            (100 * MS - 1, 1, (1, 2, 0, 1, 100 * MS + 1)),
            (100 * MS, 1, (0, 2, 0, NONE, 200 * MS)),
        ],
    );
    // A Retry-After for it is never zero.
    assert_eq!(Nanos::new(1).secs_ceil(), 1);
    assert_eq!(Nanos::new(S + 1).secs_ceil(), 2);
}
