//! Several limits in one rule: all of them or none are charged, and one is reported.

use loudou_limiter::algorithm::{Algorithm, Funnel};
use loudou_limiter::{BucketDecision, Decision, Limit, Limits, Nanos, Rate};
use serde_json::json;

use super::{DAY, MS, NONE, Row, S, five, limits, run};

/// Two at once and one per second, and three at once and one per minute.
fn burst_and_steady() -> Limits {
    limits(&json!([
        { "name": "burst", "algorithm": "funnel", "capacity": 2, "rate": "1/s" },
        { "name": "steady", "algorithm": "token_bucket", "capacity": 3, "rate": "1/m" },
    ]))
}

fn remaining(answer: &BucketDecision) -> Vec<u64> {
    answer.decisions().map(|limit| limit.remaining).collect()
}

/// The reported limit is the refusing one, else the one with the smallest share left.
#[test]
fn the_tightest_limit_is_reported() {
    let rows: [Row; 8] = [
        // Both limits are equally full, so the first is reported.
        (0, 0, (0, 2, 2, NONE, 0)),
        // 1 of 2 against 2 of 3.
        (0, 1, (0, 2, 1, NONE, S)),
        (0, 1, (0, 2, 0, NONE, 2 * S)),
        (0, 1, (1, 2, 0, 1_000_000_000, 2 * S)),
        (S, 1, (0, 2, 0, NONE, 2 * S)),
        // Both refuse now, and `steady` refuses for longer.
        (S, 1, (1, 3, 0, 59_000_000_000, 179 * S)),
        (4 * S, 1, (1, 3, 0, 56_000_000_000, 176 * S)),
        (60 * S, 1, (0, 3, 0, NONE, 180 * S)),
    ];
    let document = serde_json::to_value(burst_and_steady()).expect("serialises");
    run(&document, &rows);
}

#[test]
fn a_refusal_takes_from_none() {
    let limits = burst_and_steady();
    let mut bucket = limits.start(Nanos::ZERO);
    limits.decide(&mut bucket, 2, Nanos::ZERO);
    let before = bucket.clone();
    let refused = limits.decide(&mut bucket, 1, Nanos::from_millis(500));
    assert!(refused.is_refused());
    assert_eq!(bucket.words(), before.words());
    // `steady` would have admitted the request, and its numbers are unchanged.
    let verdicts: Vec<bool> = refused.decisions().map(Decision::is_refused).collect();
    assert_eq!(verdicts, [true, false]);
    assert_eq!(remaining(&refused), [0, 1]);
    assert_eq!(refused.reported_index(), 0);
    assert_eq!(refused.reset_after(), Nanos::new(119_500 * MS));
}

/// Never is longer than any wait.
#[test]
fn a_cost_that_never_fits_is_reported_before_a_wait() {
    let limits = limits(&json!([
        { "name": "slow", "algorithm": "funnel", "capacity": 10, "rate": "1/d" },
        { "name": "small", "algorithm": "funnel", "capacity": 4, "rate": "1/s" },
        { "name": "tiny", "algorithm": "funnel", "capacity": 3, "rate": "1/s" },
    ]));
    let mut bucket = limits.start(Nanos::ZERO);
    assert!(!limits.decide(&mut bucket, 3, Nanos::ZERO).is_refused());
    let answer = limits.decide(&mut bucket, 8, Nanos::ZERO);
    let all: Vec<_> = answer.decisions().map(five).collect();
    let slow_wait = 86_400_000_000_000;
    assert_eq!(
        all,
        [
            (1, 10, 7, slow_wait, 3 * DAY),
            (1, 4, 1, NONE, 3 * S),
            (1, 3, 0, NONE, 3 * S)
        ]
    );
    assert_eq!(answer.reported_index(), 1, "the first that never admits");
}

/// Shares are compared exactly, not by the remaining amounts.
#[test]
fn a_share_is_not_a_count() {
    let limits = limits(&json!([
        { "name": "large", "algorithm": "funnel", "capacity": 1000, "rate": "1/h" },
        { "name": "small", "algorithm": "funnel", "capacity": 5, "rate": "1/h" },
    ]));
    let mut bucket = limits.start(Nanos::ZERO);
    let answer = limits.decide(&mut bucket, 1, Nanos::ZERO);
    assert_eq!(
        (remaining(&answer), answer.reported_index()),
        (vec![999, 4], 1)
    );
}

#[test]
fn eight_limits_share_a_bucket() {
    let eight: Vec<_> = (1..=8)
        .map(|n| json!({ "name": format!("l{n}"), "algorithm": "funnel", "capacity": n, "rate": "1/d" }))
        .collect();
    let limits = limits(&json!(eight));
    let mut bucket = limits.start(Nanos::ZERO);
    let answer = limits.decide(&mut bucket, 1, Nanos::ZERO);
    assert_eq!(remaining(&answer), [0, 1, 2, 3, 4, 5, 6, 7]);
    let answer = limits.decide(&mut bucket, 1, Nanos::ZERO);
    assert_eq!(remaining(&answer), [0, 1, 2, 3, 4, 5, 6, 7]);
    assert!(answer.is_refused());
}

/// A set of limits has one to eight, named apart.
#[test]
fn not_every_list_is_a_set() {
    let listed = |names: &[&str]| {
        let funnel = Funnel::new(1, Rate::parse("1/s").expect("a rate")).expect("valid");
        let limit = |name: &&str| Limit::new(*name, Algorithm::Funnel(funnel));
        Limits::new(names.iter().map(limit).collect()).is_some()
    };
    assert!(listed(&["a"]) && listed(&["a", "b", "c", "d", "e", "f", "g", "h"]));
    assert!(!listed(&[]) && !listed(&["a", "b", "a"]));
    assert!(!listed(&["a", "b", "c", "d", "e", "f", "g", "h", "i"]));
}

#[test]
fn peek_answers_for_any_cost_and_touches_nothing() {
    let limits = burst_and_steady();
    let mut bucket = limits.start(Nanos::ZERO);
    limits.decide(&mut bucket, 1, Nanos::ZERO);
    let before = bucket.clone();
    assert!(!limits.peek(&bucket, 1, Nanos::ZERO).is_refused());
    assert!(limits.peek(&bucket, 2, Nanos::ZERO).is_refused());
    assert_eq!(bucket, before);
}
