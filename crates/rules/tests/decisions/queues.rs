//! The leaky queue, worked out by hand.

use loudou_limiter::algorithm::LeakyQueue;
use loudou_limiter::bounds::{BadNumbers, MAX_WAIT};
use loudou_limiter::{
    Bucket, BucketRequest, Carry, Clock, Limits, Nanos, Plan, Rate, Taken, convert,
};
use serde_json::{Value, json};

use super::waiting::{Admitted, Held, Never, Refused, is, run};
use super::{MS, S, limits};

/// nginx: `rate=2r/s burst=3`.
#[test]
fn a_leaky_queue_gives_each_its_slot() {
    run(
        &json!([{ "algorithm": "leaky_queue", "capacity": 3, "rate": "2/s" }]),
        &[
            (0, 0, Admitted, 3, 0),
            (0, 1, Admitted, 3, 500 * MS),
            (0, 1, Held(500 * MS), 2, S),
            (0, 1, Held(S), 1, 1_500 * MS),
            (0, 1, Held(1_500 * MS), 0, 2 * S),
            (0, 1, Refused(500 * MS), 0, 2 * S),
            (0, 2, Refused(S), 0, 2 * S),
            (0, 4, Refused(2 * S), 0, 2 * S),
            (0, 5, Never, 0, 2 * S),
            (250 * MS, 1, Refused(250 * MS), 0, 1_750 * MS),
            (500 * MS, 1, Held(1_500 * MS), 0, 2 * S),
            // Only requests that already wait count. The request's cost counts for later requests.
            (2 * S, 3, Held(500 * MS), 0, 2 * S),
            (10 * S, 4, Admitted, 0, 2 * S),
            (12 * S - 1, 1, Held(1), 2, 500 * MS + 1),
        ],
    );
}

/// nginx: `burst=3 delay=2`, and `nodelay`.
#[test]
fn some_of_a_backlog_pass_at_once() {
    let queue = |immediate: u32| {
        json!([{
            "algorithm": "leaky_queue", "capacity": 3, "rate": "1/s", "immediate": immediate
        }])
    };
    run(
        &queue(2),
        &[
            (0, 1, Admitted, 3, S),
            (0, 1, Admitted, 2, 2 * S),
            (0, 1, Admitted, 1, 3 * S),
            (0, 1, Held(S), 0, 4 * S),
            (0, 1, Refused(S), 0, 4 * S),
            (S, 1, Held(S), 0, 4 * S),
            (3 * S, 1, Admitted, 1, 3 * S),
        ],
    );
    for immediate in [3, 4, 1_000_000_000] {
        run(
            &queue(immediate),
            &[
                (0, 1, Admitted, 3, S),
                (0, 3, Admitted, 0, 4 * S),
                (0, 1, Refused(S), 0, 4 * S),
                (S, 1, Admitted, 0, 4 * S),
            ],
        );
        assert!(!limits(&queue(immediate)).may_hold());
    }
    assert!(limits(&queue(2)).may_hold());
}

/// Refused for the wait or for want of a place, whichever is longer.
#[test]
fn a_leaky_queue_refuses_what_would_wait_too_long() {
    let queue = |max_wait: &str| json!([{ "algorithm": "leaky_queue", "capacity": 3, "rate": "1/s", "max_wait": max_wait }]);
    run(
        &queue("1500ms"),
        &[
            (0, 1, Admitted, 3, S),
            (0, 1, Held(S), 2, 2 * S),
            (0, 1, Refused(500 * MS), 2, 2 * S),
            (0, 3, Refused(S), 2, 2 * S),
            (500 * MS - 1, 1, Refused(1), 2, 1_500 * MS + 1),
            (500 * MS, 1, Held(1_500 * MS), 1, 2_500 * MS),
        ],
    );
    run(
        &queue("0s"),
        &[
            (0, 1, Admitted, 3, S),
            (0, 1, Refused(S), 3, S),
            (S, 1, Admitted, 3, S),
        ],
    );
    assert!(!limits(&queue("0s")).may_hold());
    // Without `max_wait`, the maximum wait is an hour.
    run(
        &json!([{ "algorithm": "leaky_queue", "capacity": 9, "rate": "1/50m" }]),
        &[
            (0, 1, Admitted, 9, 3_000 * S),
            (0, 1, Held(3_000 * S), 8, 6_000 * S),
            (0, 1, Refused(2_400 * S), 8, 6_000 * S),
            (2_400 * S, 1, Held(3_600 * S), 7, 6_600 * S),
        ],
    );
}

#[test]
fn leaky_queues_have_bounds() {
    let queue = |capacity: u64, rate: &str| {
        LeakyQueue::new(capacity, Rate::parse(rate).expect("a rate")).err()
    };
    assert_eq!(queue(0, "1/s"), Some(BadNumbers::Capacity));
    assert_eq!(queue(1_000_000_000, "1000000000/s"), None);
    assert_eq!(queue(1_000_000_001, "1/s"), Some(BadNumbers::Capacity));
    // All places and the one whose turn it is.
    assert_eq!(queue(9, "1/366d"), None);
    assert_eq!(queue(10, "1/366d"), Some(BadNumbers::Drain));
    let rate = Rate::parse("1/s").expect("a rate");
    let longer = MAX_WAIT.saturating_add(Nanos::new(1));
    let waiting = LeakyQueue::new(1, rate).and_then(|queue| queue.waiting(longer));
    assert_eq!(waiting.err(), Some(BadNumbers::MaxWait));
}

/// A lower capacity refuses no waiting request, but new requests find no room until they have
/// passed.
#[test]
fn an_edit_keeps_the_queue() {
    let queue = |capacity: u64, immediate: u64, rate: &str| {
        limits(&json!([{
            "algorithm": "leaky_queue", "capacity": capacity, "rate": rate, "immediate": immediate
        }]))
    };
    let old = queue(9, 1, "1/s");
    let mut bucket = old.start(Nanos::ZERO);
    for _ in 0..10 {
        old.decide(&mut bucket, 1, Nanos::ZERO);
    }
    for (new, expected) in [
        (queue(9, 1, "1/s"), Refused(S)),
        (queue(4, 1, "1/s"), Refused(6 * S)),
        (queue(20, 1, "1/s"), Held(9 * S)),
        // Waiting requests leave at the new rate, and this one follows them.
        (queue(99, 1, "2/s"), Held(4_500 * MS)),
        (queue(99, 1, "1/2s"), Held(18 * S)),
    ] {
        for carry in [Carry::Keep, Carry::Proportional] {
            let mut edited = convert(&old, &new, carry, &bucket, Clock::at(Nanos::ZERO));
            let answer = new.decide(&mut edited, 1, Nanos::ZERO);
            // In shares, two that need not wait become four of four.
            let is_wider = new == queue(20, 3, "1/s") && carry == Carry::Proportional;
            let expected = if is_wider { Held(9 * S) } else { expected };
            assert_eq!(
                is(answer.reported().expect("one")),
                expected,
                "{carry:?} {new:?}"
            );
        }
    }
    // Three need not wait.
    let new = queue(20, 3, "1/s");
    let mut edited = convert(&old, &new, Carry::Keep, &bucket, Clock::at(Nanos::ZERO));
    let answer = new.decide(&mut edited, 1, Nanos::ZERO);
    assert_eq!(is(answer.reported().expect("one")), Held(7 * S));
}

/// Eight requests at 1/s, of which seven wait. They are planned again half a second later, with
/// other numbers.
#[test]
fn who_waits_is_planned_anew() {
    let one = |limit: Value| limits(&json!([limit]));
    let queue = |capacity: u64, rate: &str, max_wait: &str| {
        one(json!({
            "name": "pace", "algorithm": "leaky_queue", "capacity": capacity, "rate": rate,
            "max_wait": max_wait
        }))
    };
    let at = |millis: u64| Some(millis);
    let late = None;
    let old = queue(30, "1/s", "1h");
    for (new, carry, planned, next) in [
        // A faster rate with less capacity. Half a unit precedes the first request.
        (
            queue(2, "10/s", "1h"),
            Carry::Keep,
            [550, 650, 750, 850, 950, 1_050, 1_150].map(at),
            Refused(550 * MS),
        ),
        (
            queue(30, "100/s", "1s"),
            Carry::Keep,
            [505, 515, 525, 535, 545, 555, 565].map(at),
            Held(75 * MS),
        ),
        // The same rate. A shorter maximum wait affects only new requests.
        (
            queue(30, "1/s", "3s"),
            Carry::Keep,
            [1_000, 2_000, 3_000, 4_000, 5_000, 6_000, 7_000].map(at),
            Refused(4_500 * MS),
        ),
        // A slower rate, with which the fifth and later requests would wait longer than five
        // seconds.
        (
            queue(30, "1/2s", "5s"),
            Carry::Keep,
            [at(1_500), at(3_500), at(5_500), late, late, late, late],
            Refused(10 * S),
        ),
        // A reset forgets the request that passed, but not the waiting requests. The first passes
        // at once, and the others follow at the rate.
        (
            queue(30, "1/s", "1h"),
            Carry::Reset,
            [500, 1_500, 2_500, 3_500, 4_500, 5_500, 6_500].map(at),
            Held(7 * S),
        ),
        // A funnel has no queue. Requests that fit pass, and the others follow at the rate if that
        // is sooner than before.
        (
            one(
                json!({ "name": "pace", "algorithm": "funnel", "capacity": 1_000, "rate": "1000/s" }),
            ),
            Carry::Reset,
            [500; 7].map(at),
            Admitted,
        ),
        (
            one(json!({ "name": "pace", "algorithm": "funnel", "capacity": 3, "rate": "2/s" })),
            Carry::Keep,
            [500, 500, 750, 1_250, 1_750, 2_250, 2_750].map(at),
            Refused(2_750 * MS),
        ),
        (
            one(json!({ "name": "pace", "algorithm": "funnel", "capacity": 3, "rate": "1/4s" })),
            Carry::Keep,
            [at(500), at(500), at(2_500), late, late, late, late],
            Refused(22 * S),
        ),
        // A window holds no request.
        (
            one(
                json!({ "name": "pace", "algorithm": "fixed_window", "capacity": 4, "window": "1h" }),
            ),
            Carry::Keep,
            [at(500), at(500), at(500), late, late, late, late],
            Refused(3_600 * S),
        ),
    ] {
        let mut bucket = old.start(Nanos::ZERO);
        let ask = BucketRequest::new(1, Nanos::ZERO);
        let mut waiting = Vec::new();
        for _ in 0..8 {
            let taken = Taken::new(&bucket, &ask);
            let answer = old.answer(&mut bucket, &ask);
            waiting.push((answer.wait(), taken));
        }
        let clock = Clock::at(Nanos::from_millis(500));
        let plans = waiting.iter().skip(1).map(|(due, taken)| {
            let taken = taken.converted(&old, &new, carry, clock);
            match new.plan(&old, &taken, *due) {
                Plan::At(due) => Some(due.as_millis()),
                Plan::Again => None,
            }
        });
        let plans: Vec<_> = plans.collect();
        assert_eq!(plans, planned, "{carry:?} {new:?}");
        let mut edited = convert(&old, &new, carry, &bucket, clock);
        let answer = new.decide(&mut edited, 1, clock.now);
        assert_eq!(
            is(answer.reported().expect("one")),
            next,
            "{carry:?} {new:?}"
        );
    }
}

/// A waiting request has no permit of a limit on requests in flight. If such a limit replaces the
/// queue, waiting requests are decided again. If it is added to the queue, they are new to it.
#[test]
fn who_waits_has_no_permit() {
    let queue = json!({ "name": "pace", "algorithm": "leaky_queue", "capacity": 9, "rate": "1/s" });
    let permits = |name: &str| json!({ "name": name, "algorithm": "concurrency", "capacity": 4 });
    let funnel = json!({ "name": "pace", "algorithm": "funnel", "capacity": 9, "rate": "1/s" });
    let old = limits(&json!([queue]));
    let mut bucket = old.start(Nanos::ZERO);
    old.decide(&mut bucket, 1, Nanos::ZERO);
    let taken = Taken::new(&bucket, &BucketRequest::new(1, Nanos::ZERO));
    let due = Nanos::from_secs(1);
    for (new, expected) in [
        (json!([permits("pace")]), Plan::Again),
        (json!([permits("slots")]), Plan::Again),
        (json!([funnel, permits("slots")]), Plan::Again),
        (json!([permits("slots"), queue]), Plan::At(due)),
    ] {
        let new = limits(&new);
        let taken = taken.converted(&old, &new, Carry::Keep, Clock::at(Nanos::ZERO));
        assert_eq!(new.plan(&old, &taken, due), expected, "{new:?}");
    }
}

/// The bucket does not count permits for waiting requests, with any carry, because they would never
/// be given back.
#[test]
fn who_waits_is_not_in_flight() {
    let queue = json!({ "name": "pace", "algorithm": "leaky_queue", "capacity": 9, "rate": "1/s" });
    let slots = json!({ "name": "pace", "algorithm": "concurrency", "capacity": 4 });
    let funnel = json!({
        "name": "pace", "algorithm": "funnel", "capacity": 1, "rate": "1/s", "max_wait": "9s"
    });
    let new = limits(&json!([slots]));
    for old in [queue, funnel] {
        let old = limits(&json!([old]));
        let mut bucket = old.start(Nanos::ZERO);
        for _ in 0..5 {
            old.decide(&mut bucket, 1, Nanos::ZERO);
        }
        for carry in [Carry::Keep, Carry::Proportional, Carry::Reset] {
            let edited = convert(&old, &new, carry, &bucket, Clock::at(Nanos::ZERO));
            assert_eq!(new.used(&edited, Nanos::ZERO), [0], "{carry:?}");
        }
    }
}

/// What admitted a request before it began to wait does not refuse it later.
#[test]
fn a_lower_window_lets_who_waits_pass() {
    let both = |most: u64| {
        limits(&json!([
            { "name": "pace", "algorithm": "leaky_queue", "capacity": 9, "rate": "1/s" },
            { "name": "day", "algorithm": "fixed_window", "capacity": most, "window": "1d" }
        ]))
    };
    let (old, new) = (both(9), both(1));
    let mut bucket = old.start(Nanos::ZERO);
    old.decide(&mut bucket, 1, Nanos::ZERO);
    let ask = BucketRequest::new(1, Nanos::ZERO);
    let taken = Taken::new(&bucket, &ask);
    old.answer(&mut bucket, &ask);
    let taken = taken.converted(&old, &new, Carry::Keep, Clock::at(Nanos::ZERO));
    let due = Nanos::from_secs(1);
    assert_eq!(new.plan(&old, &taken, due), Plan::At(due));
}

/// Another worker decides by the old numbers for a moment after a change, until it knows of the
/// change. Requests that waited before, and later requests, are nevertheless spaced at the new
/// rate.
#[test]
fn a_bucket_that_was_touched_after_a_change_keeps_its_line() {
    let limits = |ms: u32| {
        limits(&json!([{
            "algorithm": "leaky_queue", "name": "q", "capacity": 22, "rate": format!("1/{ms}ms")
        }]))
    };
    let (old, new) = (limits(22), limits(52));
    let mut bucket = old.start(Nanos::ZERO);
    let at = |ms: u64| Nanos::from_millis(ms);
    let come = |limits: &Limits, bucket: &mut Bucket, now: u64| {
        let ask = BucketRequest::new(1, at(now));
        let taken = Taken::new(bucket, &ask);
        let answer = limits.answer(bucket, &ask);
        (taken, answer.at().saturating_add(answer.wait()))
    };
    let waiting = [0, 0, 0, 0, 0].map(|now| come(&old, &mut bucket, now));
    // The change is made at 10 ms. One request is decided by the old numbers at 39 ms.
    let (change, late) = (Clock::at(at(10)), come(&old, &mut bucket, 39));
    let mut due: Vec<u64> = waiting[1..]
        .iter()
        .chain([&late])
        .map(|(taken, due)| {
            let taken = taken.converted(&old, &new, Carry::Keep, change);
            match new.plan(&old, &taken, *due) {
                Plan::At(due) => due.as_millis(),
                Plan::Again => panic!("{due:?}"),
            }
        })
        .collect();
    let mut bucket = convert(&old, &new, Carry::Keep, &bucket, change);
    due.push(come(&new, &mut bucket, 41).1.as_millis());
    let apart: Vec<u64> = due.windows(2).map(|two| two[1] - two[0]).collect();
    assert!(apart.iter().all(|ms| *ms >= 51), "{due:?}: {apart:?}");
}
