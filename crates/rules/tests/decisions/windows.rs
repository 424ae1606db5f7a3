//! One limit with a window.

use loudou_limiter::{BucketRequest, Nanos};
use serde_json::json;

use super::{NONE, S, five, limits, run};

#[test]
fn a_fixed_window_begins_with_its_first_request() {
    run(
        &json!([{ "algorithm": "fixed_window", "capacity": 3, "window": "10s" }]),
        &[
            (S, 0, (0, 3, 3, NONE, 0)),
            (S, 4, (1, 3, 3, NONE, 0)),
            (5 * S, 1, (0, 3, 2, NONE, 10 * S)),
            (7 * S, 2, (0, 3, 0, NONE, 8 * S)),
            (7 * S, 0, (0, 3, 0, NONE, 8 * S)),
            (7 * S, 1, (1, 3, 0, 8_000_000_000, 8 * S)),
            (15 * S - 1, 1, (1, 3, 0, 1, 1)),
            (15 * S, 0, (0, 3, 3, NONE, 0)),
            (16 * S, 3, (0, 3, 0, NONE, 10 * S)),
            (16 * S, u64::MAX, (1, 3, 0, NONE, 10 * S)),
            (26 * S, 3, (0, 3, 0, NONE, 10 * S)),
        ],
    );
}

/// The wall clock is at second 7 of a minute when the monotonic clock is at 100 s.
#[test]
fn a_fixed_window_ends_on_the_clock() {
    let limits = limits(&json!([
        { "algorithm": "fixed_window", "capacity": 2, "window": "1m", "align": "clock" }
    ]));
    assert!(limits.reads_wall());
    let mut bucket = limits.start(Nanos::from_secs(100));
    for (now, wall, cost, expected) in [
        (100 * S, 607 * S, 0, (0, 2, 2, NONE, 0)),
        (100 * S, 607 * S, 1, (0, 2, 1, NONE, 53 * S)),
        // The wall clock goes back by a minute, then ahead by an hour. The current window stays
        // unchanged.
        (110 * S, 557 * S, 1, (0, 2, 0, NONE, 43 * S)),
        (111 * S, 4_211 * S, 1, (1, 2, 0, 42_000_000_000, 42 * S)),
        (153 * S - 1, 660 * S - 1, 1, (1, 2, 0, 1, 1)),
        (153 * S, 660 * S, 1, (0, 2, 1, NONE, 60 * S)),
        // The first and the last nanosecond of a minute.
        (213 * S, 720 * S + 1, 2, (0, 2, 0, NONE, 60 * S - 1)),
        (273 * S, 780 * S - 1, 2, (0, 2, 0, NONE, 1)),
    ] {
        let ask = BucketRequest::new(cost, Nanos::new(now)).at_wall(Nanos::new(wall));
        let answer = limits.answer(&mut bucket, &ask);
        let got = five(answer.reported().expect("a decision"));
        assert_eq!(got, expected, "{cost} at {now}, wall {wall}");
    }
}

/// Seconds on the wall clock, for 2024-02-29 00:00 in Berlin.
const LEAP_DAY: u64 = 1_709_161_200;

/// A month that ends with the leap day, in Berlin, and the month in which clocks are put forward.
#[test]
fn a_fixed_window_follows_the_calendar() {
    let limits = limits(&json!([{
        "algorithm": "fixed_window", "capacity": 2, "window": "month", "zone": "CET-1CEST,M3.5.0,M10.5.0/3"
    }]));
    assert!(limits.reads_wall());
    let limit = limits.iter().next().expect("one");
    let mut bucket = limits.start(Nanos::ZERO);
    let (day, month) = (86_400, 31 * 86_400 - 3_600);
    for (now, cost, length, expected) in [
        (0, 0, 29 * day, (0, 2, 2, NONE, 0)),
        (0, 1, 29 * day, (0, 2, 1, NONE, day * S)),
        (day - 1, 2, 29 * day, (1, 2, 1, 1_000_000_000, S)),
        (day - 1, 1, 29 * day, (0, 2, 0, NONE, S)),
        (day, 0, month, (0, 2, 2, NONE, 0)),
        (day + 1, 2, month, (0, 2, 0, NONE, (month - 1) * S)),
        (day + month - 1, 1, month, (1, 2, 0, 1_000_000_000, S)),
        (day + month, 1, 30 * day, (0, 2, 1, NONE, 30 * day * S)),
    ] {
        let wall = Nanos::from_secs(LEAP_DAY + now);
        let request = BucketRequest::new(cost, Nanos::from_secs(now)).at_wall(wall);
        let answer = limits.answer(&mut bucket, &request);
        let got = five(answer.reported().expect("a decision"));
        assert_eq!(got, expected, "{cost} at {now}");
        let length = Nanos::from_secs(length);
        assert_eq!(limit.algorithm().quota_time(wall), Some(length), "{now}");
    }
}

/// The clocks of this request were read before the clocks of the previous request, so both stand
/// still.
#[test]
fn both_clocks_stand_still_together() {
    let limits = limits(&json!([
        { "algorithm": "fixed_window", "capacity": 1, "window": "1m", "align": "clock" }
    ]));
    let mut bucket = limits.start(Nanos::from_secs(62));
    let early = BucketRequest::new(1, Nanos::from_secs(58));
    let answer = limits.answer(&mut bucket, &early);
    assert_eq!(answer.reset_after(), Nanos::from_secs(58));
    let first = json!([{ "algorithm": "fixed_window", "capacity": 1, "window": "1m" }]);
    assert!(!super::limits(&first).reads_wall());
}

/// Five slots of two seconds, with at most four in each slot.
#[test]
fn a_sliding_window_moves_slot_by_slot() {
    run(
        &json!([{ "algorithm": "sliding_window", "capacity": 10, "window": "10s", "slots": 5 }]),
        &[
            (S, 0, (0, 10, 4, NONE, 0)),
            (S, 4, (0, 10, 0, NONE, 9 * S)),
            (S, 1, (1, 10, 0, 1_000_000_000, 9 * S)),
            (S, 5, (1, 10, 0, NONE, 9 * S)),
            (2 * S - 1, 1, (1, 10, 0, 1, 8 * S + 1)),
            (2 * S, 4, (0, 10, 0, NONE, 10 * S)),
            (4 * S, 0, (0, 10, 2, NONE, 8 * S)),
            (4 * S, 3, (1, 10, 2, 6_000_000_000, 8 * S)),
            (4 * S, 2, (0, 10, 0, NONE, 10 * S)),
            (5 * S, 1, (1, 10, 0, 5_000_000_000, 9 * S)),
            (5 * S, 4, (1, 10, 0, 5_000_000_000, 9 * S)),
            (10 * S - 1, 1, (1, 10, 0, 1, 4 * S + 1)),
            (10 * S, 4, (0, 10, 0, NONE, 10 * S)),
            (12 * S, 3, (0, 10, 1, NONE, 10 * S)),
            // Only the slot at 14 s has room for two more, because the slot at 4 s has left by
            // then.
            (12 * S, 2, (1, 10, 1, 2_000_000_000, 10 * S)),
            (22 * S - 1, 0, (0, 10, 4, NONE, 1)),
            (22 * S, 4, (0, 10, 0, NONE, 10 * S)),
            (22 * S, u64::MAX, (1, 10, 0, NONE, 10 * S)),
        ],
    );
}

/// Slots of three and a third nanoseconds begin at 0, 4, 7 and 10.
#[test]
fn slots_that_do_not_divide_are_exact() {
    run(
        &json!([{ "algorithm": "sliding_window", "capacity": 6, "window": "10ns", "slots": 3 }]),
        &[
            (3, 4, (0, 6, 0, NONE, 7)),
            (3, 1, (1, 6, 0, 1, 7)),
            (4, 2, (0, 6, 0, NONE, 10)),
            (4, 1, (1, 6, 0, 6, 10)),
            (9, 1, (1, 6, 0, 1, 5)),
            (10, 4, (0, 6, 0, NONE, 10)),
            (13, 1, (1, 6, 0, 1, 7)),
            (14, 2, (0, 6, 0, NONE, 10)),
        ],
    );
}

#[test]
fn a_slot_may_have_a_capacity_of_its_own() {
    run(
        &json!([{
            "algorithm": "sliding_window", "capacity": 5, "window": "4s", "slots": 2,
            "slot_capacity": 3
        }]),
        &[
            (0, 3, (0, 5, 0, NONE, 4 * S)),
            (0, 4, (1, 5, 0, NONE, 4 * S)),
            (2 * S, 3, (1, 5, 2, 2_000_000_000, 2 * S)),
            (2 * S, 2, (0, 5, 0, NONE, 4 * S)),
            (4 * S, 3, (0, 5, 0, NONE, 4 * S)),
        ],
    );
}

#[test]
fn a_sliding_log_is_exact() {
    run(
        &json!([{ "algorithm": "sliding_log", "capacity": 3, "window": "10s" }]),
        &[
            (0, 0, (0, 3, 3, NONE, 0)),
            (0, 2, (0, 3, 1, NONE, 10 * S)),
            (4 * S, 1, (0, 3, 0, NONE, 10 * S)),
            (4 * S, 1, (1, 3, 0, 6_000_000_000, 10 * S)),
            (4 * S, 3, (1, 3, 0, 10_000_000_000, 10 * S)),
            (4 * S, 4, (1, 3, 0, NONE, 10 * S)),
            (4 * S, u64::MAX, (1, 3, 0, NONE, 10 * S)),
            (10 * S - 1, 1, (1, 3, 0, 1, 4 * S + 1)),
            (10 * S, 1, (0, 3, 1, NONE, 10 * S)),
            (10 * S, 2, (1, 3, 1, 4_000_000_000, 10 * S)),
            (14 * S, 2, (0, 3, 0, NONE, 10 * S)),
            (24 * S, 3, (0, 3, 0, NONE, 10 * S)),
        ],
    );
}

#[test]
fn who_keeps_hammering_stays_out() {
    run(
        &json!([{
            "algorithm": "sliding_log", "capacity": 2, "window": "10s", "count_refused": true
        }]),
        &[
            (0, 2, (0, 2, 0, NONE, 10 * S)),
            // The entry at 5 s takes the place of one at 0.
            (5 * S, 1, (1, 2, 0, 5_000_000_000, 10 * S)),
            (6 * S, 1, (1, 2, 0, 9_000_000_000, 10 * S)),
            (15 * S - 1, 0, (0, 2, 0, NONE, S + 1)),
            (15 * S, 1, (0, 2, 0, NONE, 10 * S)),
            // A refused cost above the capacity counts only as the capacity of two.
            (15 * S, 9, (1, 2, 0, NONE, 10 * S)),
            (25 * S - 1, 1, (1, 2, 0, 1, 10 * S)),
            (25 * S, 1, (0, 2, 0, NONE, 10 * S)),
            (35 * S - 2, 0, (0, 2, 0, NONE, 2)),
            (35 * S - 1, 0, (0, 2, 1, NONE, 1)),
        ],
    );
}

/// Refusals by another limit also count, and the answer describes the resulting state.
#[test]
fn a_refusal_by_another_limit_counts() {
    let limits = limits(&json!([
        { "name": "burst", "algorithm": "funnel", "capacity": 1, "rate": "1/s" },
        {
            "name": "strict", "algorithm": "sliding_log", "capacity": 3, "window": "10s",
            "count_refused": true
        },
        { "name": "plain", "algorithm": "sliding_log", "capacity": 3, "window": "10s" },
    ]));
    let mut bucket = limits.start(Nanos::ZERO);
    let mut ask = |cost, at| {
        let answer = limits.decide(&mut bucket, cost, Nanos::new(at));
        let all: Vec<_> = answer.decisions().map(five).collect();
        (answer.reported_index(), all)
    };
    ask(1, 0);
    // One more would still fit.
    let refused = [
        (1, 1, 0, 900_000_000, 900_000_000),
        (0, 3, 1, NONE, 10 * S),
        (0, 3, 2, NONE, 9_900_000_000),
    ];
    assert_eq!(ask(1, S / 10), (0, refused.to_vec()));
    // Now none fits, and the strict log has the maximum wait.
    let refused = [
        (1, 1, 0, 800_000_000, 800_000_000),
        (1, 3, 0, 9_800_000_000, 10 * S),
        (0, 3, 2, NONE, 9_800_000_000),
    ];
    assert_eq!(ask(1, S / 5), (1, refused.to_vec()));
    // A look is no request.
    assert_eq!(ask(0, S / 5).1[1], (0, 3, 0, NONE, 10 * S));
}

#[test]
fn a_sliding_counter_weighs_the_window_before() {
    run(
        &json!([{ "algorithm": "sliding_counter", "capacity": 10, "window": "10s" }]),
        &[
            (5 * S, 0, (0, 10, 10, NONE, 0)),
            (5 * S, 10, (0, 10, 0, NONE, 15 * S)),
            (5 * S, 1, (1, 10, 0, 6_000_000_000, 15 * S)),
            (10 * S, 0, (0, 10, 0, NONE, 10 * S)),
            (11 * S - 1, 1, (1, 10, 0, 1, 9 * S + 1)),
            (11 * S, 1, (0, 10, 0, NONE, 19 * S)),
            (15 * S, 4, (0, 10, 0, NONE, 15 * S)),
            // In this window, in the next, at the end of the next, never.
            (15 * S, 1, (1, 10, 0, 1_000_000_000, 15 * S)),
            (15 * S, 5, (1, 10, 0, 5_000_000_000, 15 * S)),
            (15 * S, 6, (1, 10, 0, 7_000_000_000, 15 * S)),
            (15 * S, 10, (1, 10, 0, 15_000_000_000, 15 * S)),
            (15 * S, 11, (1, 10, 0, NONE, 15 * S)),
            (15 * S, u64::MAX, (1, 10, 0, NONE, 15 * S)),
            (17 * S, 0, (0, 10, 2, NONE, 13 * S)),
            (20 * S - 1, 5, (1, 10, 4, 1, 10 * S + 1)),
            (20 * S, 5, (0, 10, 0, NONE, 20 * S)),
            (30 * S, 0, (0, 10, 5, NONE, 10 * S)),
            (40 * S, 0, (0, 10, 10, NONE, 0)),
        ],
    );
}
