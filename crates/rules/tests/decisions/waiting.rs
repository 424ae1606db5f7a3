//! Limits that hold requests, with waits that were computed by hand.

use loudou_limiter::algorithm::Funnel;
use loudou_limiter::bounds::{BadNumbers, MAX_WAIT};
use loudou_limiter::{
    Bucket, BucketRequest, Carry, Clock, Decision, Limits, Nanos, Rate, Taken, Verdict, convert,
};
use serde_json::{Value, json};

use super::{MS, S, limits};

/// Outcome of a request.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(super) enum Is {
    Admitted,
    /// Held for this many nanoseconds.
    Held(u64),
    /// Refused, and may come again after this many nanoseconds.
    Refused(u64),
    /// It never passes.
    Never,
}
pub(super) use Is::{Admitted, Held, Never, Refused};

/// Instant, cost, outcome, remaining capacity, and time until the bucket is full.
pub(super) type Row = (u64, u64, Is, u64, u64);

pub(super) fn is(decision: &Decision) -> Is {
    match (decision.verdict, decision.retry_after) {
        (Verdict::Admit, None) if decision.wait == Nanos::ZERO => Admitted,
        (Verdict::Hold, None) if decision.wait > Nanos::ZERO => Held(decision.wait.get()),
        (Verdict::Refuse, Some(wait)) if decision.wait == Nanos::ZERO => Refused(wait.get()),
        (Verdict::Refuse, None) if decision.wait == Nanos::ZERO => Never,
        _ => panic!("{decision:?}"),
    }
}

fn check(limits: &Limits, bucket: &mut Bucket, rows: &[Row]) {
    for (number, (now, cost, expected, remaining, reset_after)) in rows.iter().enumerate() {
        let answer = limits.decide(bucket, *cost, Nanos::new(*now));
        let decision = answer.reported().expect("a decision");
        let got = (is(decision), decision.remaining, decision.reset_after.get());
        let expected = (*expected, *remaining, *reset_after);
        assert_eq!(got, expected, "row {number}: cost {cost} at {now} ns");
    }
}

/// Runs the rows on one bucket, first touched at the first row's instant.
pub(super) fn run(document: &Value, rows: &[Row]) {
    let limits = limits(document);
    let mut bucket = limits.start(Nanos::new(rows.first().expect("a row").0));
    check(&limits, &mut bucket, rows);
}

#[test]
fn a_funnel_reserves_the_future() {
    run(
        &json!([{ "algorithm": "funnel", "capacity": 2, "rate": "1/s", "max_wait": "3s" }]),
        &[
            (0, 2, Admitted, 0, 2 * S),
            (0, 1, Held(S), 0, 3 * S),
            (0, 0, Admitted, 0, 3 * S),
            (0, 2, Held(3 * S), 0, 5 * S),
            (0, 1, Refused(S), 0, 5 * S),
            (0, 2, Refused(2 * S), 0, 5 * S),
            (0, 3, Never, 0, 5 * S),
            (S - 1, 1, Refused(1), 0, 4 * S + 1),
            (S, 1, Held(3 * S), 0, 5 * S),
            (3_500 * MS, 1, Held(1_500 * MS), 0, 3_500 * MS),
            // Below the capacity again, and idle at last.
            (6 * S, 0, Admitted, 1, S),
            (6 * S, 2, Held(S), 0, 3 * S),
            (9 * S, 2, Admitted, 0, 2 * S),
        ],
    );
}

/// Waits are rounded up to the nanosecond separately, so that the rounding errors do not add up.
#[test]
fn waits_of_a_rate_that_does_not_divide_do_not_drift() {
    let algorithm =
        |name: &str| json!([{ "algorithm": name, "capacity": 1, "rate": "3/s", "max_wait": "2s" }]);
    for name in ["funnel", "token_bucket"] {
        run(
            &algorithm(name),
            &[
                (0, 1, Admitted, 0, 333_333_334),
                (0, 1, Held(333_333_334), 0, 666_666_667),
                (0, 1, Held(666_666_667), 0, S),
                (0, 1, Held(S), 0, 1_333_333_334),
                (1, 1, Held(1_333_333_333), 0, 1_666_666_666),
                (1, 1, Held(1_666_666_666), 0, 1_999_999_999),
                (1, 1, Held(1_999_999_999), 0, 2_333_333_333),
                (1, 1, Refused(333_333_333), 0, 2_333_333_333),
                (333_333_334, 1, Held(2 * S), 0, 2_333_333_333),
            ],
        );
    }
}

#[test]
fn an_interval_bucket_reserves_lumps() {
    run(
        &json!([{
            "algorithm": "token_bucket", "capacity": 4, "rate": "3/10s", "refill": "interval",
            "initial": 1, "max_wait": "15s"
        }]),
        &[
            (2 * S, 1, Admitted, 0, 18 * S),
            (2 * S, 2, Held(8 * S), 0, 18 * S),
            (2 * S, 1, Held(8 * S), 0, 28 * S),
            // The refill after the next comes 3 s too late.
            (2 * S, 1, Refused(3 * S), 0, 28 * S),
            (5 * S - 1, 4, Refused(10 * S + 1), 0, 25 * S + 1),
            (5 * S, 3, Held(15 * S), 0, 35 * S),
            (12 * S, 5, Never, 0, 28 * S),
            (21 * S, 0, Admitted, 0, 19 * S),
            (30 * S, 1, Admitted, 2, 10 * S),
        ],
    );
}

/// A maximum wait of the request takes precedence over the limit's, whether it is shorter or
/// longer, but it cannot exceed the overall maximum.
#[test]
fn a_request_may_have_its_own_bound() {
    let limits = limits(&json!([
        { "algorithm": "funnel", "capacity": 1, "rate": "1/h", "max_wait": "10m" }
    ]));
    let hour = 3_600 * S;
    let mut bucket = limits.start(Nanos::ZERO);
    let mut ask = |now: u64, max_wait: Option<Nanos>| {
        let ask = BucketRequest::new(1, Nanos::new(now)).waiting(max_wait);
        is(limits.answer(&mut bucket, &ask).reported().expect("one"))
    };
    assert_eq!(ask(0, None), Admitted);
    assert_eq!(ask(0, None), Refused(hour - 600 * S));
    assert_eq!(ask(0, Some(Nanos::ZERO)), Refused(hour));
    assert_eq!(ask(0, Some(Nanos::from_secs(3_599))), Refused(S));
    assert_eq!(ask(0, Some(Nanos::from_secs(3_600))), Held(hour));
    assert_eq!(ask(0, Some(Nanos::MAX)), Refused(hour));
    assert_eq!(ask(hour - 1, Some(Nanos::MAX)), Refused(1));
    assert_eq!(ask(hour, Some(Nanos::MAX)), Held(hour));
    // A request may wait even if the limit holds no requests.
    let limits = super::limits(&json!([{ "algorithm": "funnel", "capacity": 1, "rate": "1/s" }]));
    let mut bucket = limits.start(Nanos::ZERO);
    assert!(!limits.may_hold());
    for wait in [Admitted, Held(S), Held(2 * S)] {
        let ask = BucketRequest::new(1, Nanos::ZERO).waiting(Some(Nanos::from_secs(2)));
        let answer = limits.answer(&mut bucket, &ask);
        assert_eq!(is(answer.reported().expect("one")), wait);
    }
}

/// A request is held if one limit holds it and the other admits it. If any limit refuses, it is
/// refused and nothing is taken.
#[test]
fn limits_that_hold_beside_limits_that_refuse() {
    let limits = limits(&json!([
        { "name": "slow", "algorithm": "funnel", "capacity": 1, "rate": "1/10s", "max_wait": "25s" },
        { "name": "fast", "algorithm": "funnel", "capacity": 1, "rate": "1/s", "max_wait": "2s" },
        { "name": "few", "algorithm": "token_bucket", "capacity": 3, "rate": "1/d" },
    ]));
    let mut bucket = limits.start(Nanos::ZERO);
    let mut take = |cost: u64| limits.decide(&mut bucket, cost, Nanos::ZERO);
    assert_eq!(take(1).verdict(), Verdict::Admit);
    let second = take(1);
    assert_eq!(
        (second.verdict(), second.wait()),
        (Verdict::Hold, Nanos::from_secs(10))
    );
    let waits: Vec<u64> = second.decisions().map(|limit| limit.wait.get()).collect();
    assert_eq!(waits, [10 * S, S, 0]);
    let third = take(1);
    assert_eq!(
        (third.verdict(), third.wait()),
        (Verdict::Hold, Nanos::from_secs(20))
    );
    let before = bucket.clone();
    let fourth = limits.decide(&mut bucket, 1, Nanos::ZERO);
    assert_eq!(
        (fourth.verdict(), fourth.wait()),
        (Verdict::Refuse, Nanos::ZERO)
    );
    let all: Vec<Is> = fourth.decisions().map(is).collect();
    assert_eq!(all, [Refused(5 * S), Refused(S), Refused(86_400 * S)]);
    assert_eq!(bucket, before);
    let much_later = limits.decide(&mut bucket, 2, Nanos::from_secs(100_000_000));
    assert_eq!(
        much_later.decisions().map(is).collect::<Vec<_>>(),
        [Never, Never, Admitted]
    );
    assert_eq!(bucket.words(), before.words());
}

#[test]
fn a_limit_says_whether_it_holds() {
    for (limit, holds) in [
        (
            json!({ "algorithm": "funnel", "capacity": 1, "rate": "1/s" }),
            false,
        ),
        (
            json!({ "algorithm": "funnel", "capacity": 1, "rate": "1/s", "max_wait": "0s" }),
            false,
        ),
        (
            json!({ "algorithm": "funnel", "capacity": 1, "rate": "1/s", "max_wait": "1ns" }),
            true,
        ),
        (
            json!({ "algorithm": "token_bucket", "capacity": 1, "rate": "1/s" }),
            false,
        ),
        (
            json!({ "algorithm": "token_bucket", "capacity": 1, "rate": "1/s", "max_wait": "1h" }),
            true,
        ),
    ] {
        assert_eq!(limits(&json!([limit])).may_hold(), holds, "{limit}");
    }
}

#[test]
fn a_wait_has_a_bound() {
    let rate = Rate::parse("1/s").expect("a rate");
    let funnel = |max_wait| {
        Funnel::new(1, rate)
            .and_then(|funnel| funnel.waiting(max_wait))
            .err()
    };
    assert_eq!(funnel(MAX_WAIT), None);
    let longer = MAX_WAIT.saturating_add(Nanos::new(1));
    assert_eq!(funnel(longer), Some(BadNumbers::MaxWait));
}

/// After an edit, new requests queue after the waiting requests. The used amount is counted in
/// units, and leaks at the new rate.
#[test]
fn an_edit_keeps_what_waits() {
    let funnel = |capacity: u64, rate: &str| {
        limits(&json!([
            { "algorithm": "funnel", "capacity": capacity, "rate": rate, "max_wait": "1h" }
        ]))
    };
    let old = funnel(2, "1/s");
    let mut bucket = old.start(Nanos::ZERO);
    // Two pass, four wait until 4 s.
    old.decide(&mut bucket, 2, Nanos::ZERO);
    old.decide(&mut bucket, 2, Nanos::ZERO);
    old.decide(&mut bucket, 2, Nanos::ZERO);
    for (new, carry, wait) in [
        (funnel(2, "1/s"), Carry::Keep, Held(5 * S)),
        (funnel(2, "10/s"), Carry::Keep, Held(500 * MS)),
        (funnel(2, "10/s"), Carry::Proportional, Held(500 * MS)),
        // Six of four are used, so there is room in 3 s.
        (funnel(4, "1/s"), Carry::Keep, Held(3 * S)),
        (funnel(10, "1/s"), Carry::Keep, Admitted),
        (funnel(2, "1/10s"), Carry::Keep, Held(50 * S)),
        // Waiting requests enter the new bucket first: two pass, two wait.
        (funnel(2, "1/s"), Carry::Reset, Held(3 * S)),
        (
            limits(&json!([{ "algorithm": "funnel", "capacity": 9, "rate": "1/s" }])),
            Carry::Reset,
            Admitted,
        ),
    ] {
        let mut edited = convert(&old, &new, carry, &bucket, Clock::at(Nanos::ZERO));
        let answer = new.decide(&mut edited, 1, Nanos::ZERO);
        assert_eq!(
            is(answer.reported().expect("one")),
            wait,
            "{carry:?} {new:?}"
        );
    }
}

/// A queue that was reverted when a request left was empty when that request came, so only the rest
/// of its cost comes back.
#[test]
fn who_came_to_an_empty_queue_gives_back_its_rest() {
    let limits = limits(&json!([
        { "algorithm": "funnel", "capacity": 5, "rate": "1/s", "max_wait": "1h" }
    ]));
    let mut bucket = limits.start(Nanos::ZERO);
    let ask = |bucket: &mut Bucket, millis: u64, cost: u64, expected: Is| {
        let ask = BucketRequest::new(cost, Nanos::from_millis(millis));
        let taken = Taken::new(bucket, &ask);
        let answer = limits.answer(bucket, &ask);
        assert_eq!(is(answer.reported().expect("one")), expected, "{millis} ms");
        taken
    };
    ask(&mut bucket, 0, 5, Admitted);
    // Its worker dies, so it is never reported as passed or left.
    ask(&mut bucket, 0, 1, Held(S));
    let left = [
        ask(&mut bucket, 5_200, 5, Held(800 * MS)),
        ask(&mut bucket, 5_200, 1, Held(1_800 * MS)),
    ];
    for taken in &left {
        limits.give_back(&mut bucket, taken);
    }
    // At 6 s nothing of the lost one remains, and the queue is empty.
    let first = ask(&mut bucket, 6_500, 1, Admitted);
    let mut without = limits.start(Nanos::from_millis(6_500));
    for bucket in [&mut bucket, &mut without] {
        ask(bucket, 7_000, 1, Admitted);
    }
    assert!(limits.give_back(&mut bucket, &first));
    let tail = |bucket: &Bucket| bucket.words().first().copied();
    assert_eq!(tail(&bucket), tail(&without));
}

/// A returned cost lowers the level below what was promised. An earlier promise must not count as a
/// later one.
#[test]
fn what_comes_back_confuses_no_promises() {
    let limits = limits(&json!([
        { "algorithm": "funnel", "capacity": 3, "rate": "1/s", "max_wait": "1s" }
    ]));
    let mut bucket = limits.start(Nanos::ZERO);
    let ask = |bucket: &mut Bucket, millis: u64, cost: u64, expected: Is| {
        let ask = BucketRequest::new(cost, Nanos::from_millis(millis));
        let taken = Taken::new(bucket, &ask);
        let answer = limits.answer(bucket, &ask);
        assert_eq!(is(answer.reported().expect("one")), expected, "{millis} ms");
        taken
    };
    ask(&mut bucket, 0, 3, Admitted);
    ask(&mut bucket, 1_500, 1, Admitted);
    ask(&mut bucket, 2_500, 2, Held(500 * MS));
    let first = ask(&mut bucket, 4_000, 1, Admitted);
    let second = ask(&mut bucket, 4_000, 1, Held(S));
    ask(&mut bucket, 5_250, 2, Refused(750 * MS));
    assert!(limits.give_back(&mut bucket, &first));
    ask(&mut bucket, 6_000, 3, Held(S));
    limits.give_back(&mut bucket, &second);
    // The three pass at 7 s, and the bucket is full with them.
    ask(&mut bucket, 7_000, 1, Held(S));
    ask(&mut bucket, 7_000, 1, Refused(S));
}
