//! Refills, slots and windows on the wall clock.

use loudou_limiter::{BucketRequest, Clock, Nanos, Taken};
use serde_json::{Value, json};

use super::{Five, NONE, S, five, limits};

/// Instants on both clocks, cost, and answer.
type Row = (u64, u64, u64, Five);

fn run(document: &Value, rows: &[Row]) {
    let limits = limits(document);
    assert!(limits.reads_wall());
    let (now, wall, ..) = *rows.first().expect("a row");
    let [now, wall] = [now, wall].map(Nanos::new);
    let mut bucket = limits.start_at(Clock { now, wall });
    for (number, (now, wall, cost, expected)) in rows.iter().enumerate() {
        let ask = BucketRequest::new(*cost, Nanos::new(*now)).at_wall(Nanos::new(*wall));
        let answer = limits.answer(&mut bucket, &ask);
        let got = five(answer.reported().expect("a decision"));
        assert_eq!(got, *expected, "row {number}: {cost} at {now}, wall {wall}");
    }
}

/// The wall clock is at second 7 of a minute when the monotonic clock is at 100 s.
#[test]
fn a_token_bucket_refills_on_the_clock() {
    run(
        &json!([{
            "algorithm": "token_bucket", "capacity": 20, "rate": "10/m", "refill": "interval",
            "align": "clock"
        }]),
        &[
            (100 * S, 607 * S, 0, (0, 20, 20, NONE, 0)),
            (100 * S, 607 * S, 15, (0, 20, 5, NONE, 113 * S)),
            // The wall clock goes back by a minute, then ahead by an hour. The current period still
            // ends at the same time.
            (110 * S, 557 * S, 5, (0, 20, 0, NONE, 103 * S)),
            (111 * S, 4_241 * S, 1, (1, 20, 0, 42_000_000_000, 102 * S)),
            (153 * S - 1, 4_283 * S - 1, 1, (1, 20, 0, 1, 60 * S + 1)),
            (153 * S, 4_283 * S, 0, (0, 20, 10, NONE, 60 * S)),
            // The next one ends on the clock again: 37 s later.
            (153 * S, 4_283 * S, 1, (0, 20, 9, NONE, 97 * S)),
            (190 * S - 1, 4_320 * S - 1, 0, (0, 20, 9, NONE, 60 * S + 1)),
            (190 * S, 4_320 * S, 0, (0, 20, 19, NONE, 60 * S)),
            // The minute that would end at 250 s ended ten seconds ago on the wall clock.
            (240 * S, 4_390 * S, 1, (0, 20, 18, NONE, 0)),
            (240 * S, 4_390 * S, 0, (0, 20, 20, NONE, 0)),
            (250 * S, 4_400 * S, 15, (0, 20, 5, NONE, 100 * S)),
            // The minute that began at 290 s is about to begin on the wall clock.
            (291 * S, 4_491 * S, 1, (0, 20, 14, NONE, 69 * S)),
            (300 * S, 4_500 * S, 0, (0, 20, 14, NONE, 60 * S)),
            (360 * S - 1, 4_560 * S - 1, 0, (0, 20, 14, NONE, 1)),
            (360 * S, 4_560 * S, 0, (0, 20, 20, NONE, 0)),
        ],
    );
}

/// A request that is held has been promised an instant, so it leaves the periods where they are.
#[test]
fn a_held_request_moves_no_refill() {
    run(
        &json!([{
            "algorithm": "token_bucket", "capacity": 1, "rate": "1/m", "refill": "interval",
            "align": "clock", "max_wait": "5m"
        }]),
        &[
            (100 * S, 607 * S, 1, (0, 1, 0, NONE, 53 * S)),
            (110 * S, 617 * S, 1, (0, 1, 0, NONE, 103 * S)),
            // The wall clock is 20 s ahead, and this request passes at 213 s.
            (160 * S, 687 * S, 1, (0, 1, 0, NONE, 113 * S)),
            (214 * S, 741 * S, 0, (0, 1, 0, NONE, 59 * S)),
        ],
    );
}

/// Five slots of two seconds, with at most four in each slot.
#[test]
fn a_sliding_window_has_its_slots_on_the_clock() {
    const H: u64 = S / 2;
    run(
        &json!([{
            "algorithm": "sliding_window", "capacity": 10, "window": "10s", "slots": 5,
            "align": "clock"
        }]),
        &[
            (100 * S, 7 * S + H, 4, (0, 10, 0, NONE, 8 * S + H)),
            (100 * S, 7 * S + H, 1, (1, 10, 0, 500_000_000, 8 * S + H)),
            (100 * S + H, 8 * S, 0, (0, 10, 4, NONE, 8 * S)),
            // The wall clock is a second ahead.
            (100 * S + H, 9 * S, 4, (0, 10, 0, NONE, 9 * S)),
            (101 * S + H, 10 * S, 2, (0, 10, 0, NONE, 10 * S)),
            (101 * S + H, 10 * S, 1, (1, 10, 0, 6_000_000_000, 10 * S)),
        ],
    );
}

#[test]
fn a_sliding_counter_has_its_windows_on_the_clock() {
    run(
        &json!([{
            "algorithm": "sliding_counter", "capacity": 10, "window": "10s", "align": "clock"
        }]),
        &[
            (100 * S, 4 * S, 10, (0, 10, 0, NONE, 16 * S)),
            (100 * S, 4 * S, 1, (1, 10, 0, 7_000_000_000, 16 * S)),
            (106 * S, 10 * S, 0, (0, 10, 0, NONE, 10 * S)),
            // The wall clock is three seconds ahead, so six tenths of the previous window count.
            (107 * S, 14 * S, 1, (0, 10, 3, NONE, 16 * S)),
            (113 * S, 20 * S, 0, (0, 10, 9, NONE, 10 * S)),
        ],
    );
}

/// The two clocks are not read at one instant, so they differ a little more or less each time. An
/// abandoned request gets its units back nevertheless, if the wall clock did not jump.
#[test]
fn units_come_back_after_the_periods_moved_a_little() {
    const MS: u64 = S / 1_000;
    for document in [
        json!([{ "algorithm": "sliding_window", "capacity": 9, "window": "60s", "slots": 6, "align": "clock" }]),
        json!([{ "algorithm": "sliding_counter", "capacity": 9, "window": "10s", "align": "clock" }]),
    ] {
        for (wall, comes_back) in [(612 * S + MS, true), (612 * S, true), (672 * S, false)] {
            let limits = limits(&document);
            let clock = |now, wall| Clock {
                now: Nanos::new(now),
                wall: Nanos::new(wall),
            };
            let mut bucket = limits.start_at(clock(100 * S, 600 * S));
            let first = BucketRequest::new(2, Nanos::new(100 * S)).at_wall(Nanos::new(600 * S));
            let taken = Taken::new(&bucket, &first);
            assert!(!limits.answer(&mut bucket, &first).is_refused());
            let later = BucketRequest::new(1, Nanos::new(112 * S)).at_wall(Nanos::new(wall));
            assert!(!limits.answer(&mut bucket, &later).is_refused());
            assert_eq!(limits.give_back(&mut bucket, &taken), comes_back, "{wall}");
        }
    }
}
