//! The leaky queue, worked out by hand.

use loudou_limiter::algorithm::LeakyQueue;
use loudou_limiter::bounds::{BadNumbers, MAX_WAIT};
use loudou_limiter::{Carry, Clock, Nanos, Rate, convert};
use serde_json::json;

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
            // Only what is found waiting counts: its own cost is for those behind it.
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
    // Without a bound of its own, the longest wait is an hour.
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

/// Lowering the capacity sends nobody away who waits: there is no place until they have passed.
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
        // Three need not wait, and all others flow out in 4.5 s; but eight wait until 8 s.
        (queue(20, 3, "1/s"), Held(8 * S)),
        (queue(99, 1, "2/s"), Held(8 * S)),
        (queue(99, 1, "1/2s"), Held(18 * S)),
    ] {
        for carry in [Carry::Keep, Carry::Proportional] {
            let mut edited = convert(&old, &new, carry, &bucket, Clock::at(Nanos::ZERO));
            let answer = new.decide(&mut edited, 1, Nanos::ZERO);
            assert_eq!(
                is(answer.reported().expect("one")),
                expected,
                "{carry:?} {new:?}"
            );
        }
    }
}
