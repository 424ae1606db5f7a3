//! One limit with a window.

use loudou_limiter::algorithm::{
    Align, BadNumbers, FixedWindow, SlidingCounter, SlidingLog, SlidingWindow,
};
use loudou_limiter::{Ask, Limits, Nanos};
use serde_json::{Value, json};

use super::{DAY, NONE, Row, S, five, limits, run};

const MOST: u64 = 1_000_000_000;

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

/// The wall clock stands at 7 s of a minute when the monotonic one is at 100 s.
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
        // A minute back, an hour on: the window that runs stays as it is.
        (110 * S, 557 * S, 1, (0, 2, 0, NONE, 43 * S)),
        (111 * S, 4_211 * S, 1, (1, 2, 0, 42_000_000_000, 42 * S)),
        (153 * S - 1, 660 * S - 1, 1, (1, 2, 0, 1, 1)),
        (153 * S, 660 * S, 1, (0, 2, 1, NONE, 60 * S)),
        // The first nanosecond and the last one of a minute.
        (213 * S, 720 * S + 1, 2, (0, 2, 0, NONE, 60 * S - 1)),
        (273 * S, 780 * S - 1, 2, (0, 2, 0, NONE, 1)),
    ] {
        let ask = Ask::new(cost, Nanos::new(now)).at_wall(Nanos::new(wall));
        let answer = limits.answer(&mut bucket, &ask);
        let got = five(answer.reported().expect("a decision"));
        assert_eq!(got, expected, "{cost} at {now}, wall {wall}");
    }
}

/// A request whose clocks were read before the last one's: both stand still.
#[test]
fn both_clocks_stand_still_together() {
    let limits = limits(&json!([
        { "algorithm": "fixed_window", "capacity": 1, "window": "1m", "align": "clock" }
    ]));
    let mut bucket = limits.start(Nanos::from_secs(62));
    let early = Ask::new(1, Nanos::from_secs(58));
    let answer = limits.answer(&mut bucket, &early);
    assert_eq!(answer.reset_after(), Nanos::from_secs(58));
    let first = json!([{ "algorithm": "fixed_window", "capacity": 1, "window": "1m" }]);
    assert!(!super::limits(&first).reads_wall());
}

/// Five slots of two seconds, and at most four in one of them.
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
            // Only the slot at 14 s takes two more: that at 4 s has left by then.
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
            // More than ever fits still makes no more than two.
            (15 * S, 9, (1, 2, 0, NONE, 10 * S)),
            (25 * S - 1, 1, (1, 2, 0, 1, 10 * S)),
            (25 * S, 1, (0, 2, 0, NONE, 10 * S)),
            (35 * S - 2, 0, (0, 2, 0, NONE, 2)),
            (35 * S - 1, 0, (0, 2, 1, NONE, 1)),
        ],
    );
}

/// What another limit refuses counts as well, and the answer says what holds then.
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
    // Now none: the strict log has the longest wait.
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

fn of(algorithm: &str, capacity: u64, window: &str) -> Value {
    json!([{ "algorithm": algorithm, "capacity": capacity, "window": window }])
}

#[test]
fn the_shortest_window_is_exact() {
    for algorithm in ["fixed_window", "sliding_window", "sliding_log"] {
        let rows: [Row; 4] = [
            (0, 1, (0, 1, 0, NONE, 1)),
            (0, 1, (1, 1, 0, 1, 1)),
            (1, 1, (0, 1, 0, NONE, 1)),
            (u64::MAX - 1, 1, (0, 1, 0, NONE, 1)),
        ];
        run(&of(algorithm, 1, "1ns"), &rows);
    }
    run(
        &of("sliding_counter", 1, "1ns"),
        &[
            (0, 1, (0, 1, 0, NONE, 2)),
            (0, 1, (1, 1, 0, 2, 2)),
            (1, 1, (1, 1, 0, 1, 1)),
            (2, 1, (0, 1, 0, NONE, 2)),
            (u64::MAX - 1, 1, (0, 1, 0, NONE, 2)),
        ],
    );
}

#[test]
fn the_longest_window_and_the_largest_capacity_do_not_overflow() {
    let year = 366 * DAY;
    let wait = 366 * 86_400_000_000_000_i64;
    run(
        &of("fixed_window", MOST, "366d"),
        &[
            (7, MOST, (0, MOST, 0, NONE, year)),
            (7, 1, (1, MOST, 0, wait, year)),
            (year + 6, MOST, (1, MOST, 0, 1, 1)),
            (year + 7, MOST, (0, MOST, 0, NONE, year)),
        ],
    );
    let wide = json!([{
        "algorithm": "sliding_window", "capacity": MOST, "window": "366d", "slots": 64,
        "slot_capacity": MOST
    }]);
    run(
        &wide,
        &[
            (0, MOST, (0, MOST, 0, NONE, year)),
            (0, 1, (1, MOST, 0, wait, year)),
            (year - 1, MOST, (1, MOST, 0, 1, 1)),
            (year, MOST, (0, MOST, 0, NONE, year)),
        ],
    );
    run(
        &of("sliding_log", 256, "366d"),
        &[
            (7, 256, (0, 256, 0, NONE, year)),
            (7, 1, (1, 256, 0, wait, year)),
            (year + 6, 256, (1, 256, 0, 1, 1)),
            (year + 7, 256, (0, 256, 0, NONE, year)),
        ],
    );
    run(
        &of("sliding_counter", MOST, "366d"),
        &[
            (0, MOST, (0, MOST, 0, NONE, 2 * year)),
            (0, MOST, (1, MOST, 0, 2 * wait, 2 * year)),
            (2 * year - 1, MOST, (1, MOST, MOST - 1, 1, 1)),
            (2 * year, MOST, (0, MOST, 0, NONE, 2 * year)),
        ],
    );
}

/// What is admitted in the instants from the first step to the last.
fn admitted(limits: &Limits, steps: impl IntoIterator<Item = (u64, u64)>) -> u64 {
    let mut bucket = limits.start(Nanos::ZERO);
    let taken = steps.into_iter().filter(|(now, cost)| {
        let answer = limits.decide(&mut bucket, *cost, Nanos::new(*now));
        !answer.is_refused()
    });
    taken.map(|(_, cost)| cost).sum()
}

/// The bounds that the algorithms state are reached: they cannot be stated any lower.
#[test]
fn the_worst_that_a_window_lets_through() {
    let around = |at: u64| [(at - 1, 9), (at, 10)];
    let fixed = limits(&of("fixed_window", 10, "10s"));
    let first = [(0, 1)].into_iter().chain(around(10 * S));
    assert_eq!(admitted(&fixed, first) - 1, 19, "within two nanoseconds");
    let clock = limits(&json!([
        { "algorithm": "fixed_window", "capacity": 10, "window": "10s", "align": "clock" }
    ]));
    assert_eq!(admitted(&clock, [(10 * S - 1, 10), (10 * S, 10)]), 20);
    // One window's length from the last nanosecond of a slot on: the capacity and one slot more.
    let slots = json!([
        { "algorithm": "sliding_window", "capacity": 10, "window": "10s", "slots": 5 }
    ]);
    let steps = [
        (2 * S - 1, 4),
        (2 * S, 4),
        (4 * S, 2),
        (10 * S, 4),
        (12 * S - 2, 1),
    ];
    assert_eq!(admitted(&limits(&slots), steps), 14);
    let log = limits(&of("sliding_log", 10, "10s"));
    let every = |step: u64| (0..10 * S / step).map(move |i| (i * step, 1));
    assert_eq!(admitted(&log, every(S / 10)), 10);
    // All at the end of one window, and then one as soon as it fits, all through the next.
    let counter = limits(&of("sliding_counter", 10, "1us"));
    let steps = [(999, 10)]
        .into_iter()
        .chain((1_000..1_999).map(|at| (at, 1)));
    assert_eq!(admitted(&counter, steps), 19, "in 1000 instants");
}

/// The other way: what came early in a window keeps out for longer than it is in it.
#[test]
fn a_sliding_counter_refuses_what_an_exact_count_admits() {
    let counter = limits(&of("sliding_counter", 10, "10s"));
    assert_eq!(admitted(&counter, [(0, 10), (10 * S, 1)]), 10);
    let log = limits(&of("sliding_log", 10, "10s"));
    assert_eq!(admitted(&log, [(0, 10), (10 * S, 1)]), 11);
}

#[test]
fn numbers_of_windows_have_bounds() {
    let second = Nanos::from_secs(1);
    let year = Nanos::new(366 * DAY);
    let longer = Nanos::new(366 * DAY + 1);
    for (capacity, window, expected) in [
        (1, second, None),
        (MOST, year, None),
        (1, Nanos::new(1), None),
        (0, second, Some(BadNumbers::Capacity)),
        (MOST + 1, second, Some(BadNumbers::Capacity)),
        (1, Nanos::ZERO, Some(BadNumbers::Window)),
        (1, longer, Some(BadNumbers::Window)),
    ] {
        let numbers = (capacity, window);
        let fixed = FixedWindow::new(capacity, window, Align::First).err();
        assert_eq!(fixed, expected, "{numbers:?}");
        let sliding = SlidingWindow::new(capacity, window, 2, None).err();
        assert_eq!(sliding, expected, "{numbers:?}");
        let counter = SlidingCounter::new(capacity, window).err();
        assert_eq!(counter, expected, "{numbers:?}");
        let log = SlidingLog::new(capacity.min(257), window, false).err();
        let log_expected = expected.or_else(|| (capacity > 256).then_some(BadNumbers::Capacity));
        assert_eq!(log, log_expected, "{numbers:?}");
    }
    assert!(SlidingLog::new(256, second, true).is_ok());
    assert!(SlidingLog::new(257, second, true).is_err());
    for (slots, slot_capacity, expected) in [
        (1, None, Some(BadNumbers::Slots)),
        (2, None, None),
        (64, None, None),
        (65, None, Some(BadNumbers::Slots)),
        // A tenth of 15, rounded up, is the least with which 15 can be reached.
        (10, Some(0), Some(BadNumbers::SlotCapacity)),
        (10, Some(1), Some(BadNumbers::SlotCapacity)),
        (10, Some(2), None),
        (10, Some(15), None),
        (10, Some(16), Some(BadNumbers::SlotCapacity)),
    ] {
        let sliding = SlidingWindow::new(15, second, slots, slot_capacity).err();
        assert_eq!(sliding, expected, "{slots} slots of {slot_capacity:?}");
    }
}

/// What the terminal and the headers say of a limit.
#[test]
fn a_window_is_a_rate_and_a_drain() {
    for (algorithm, drain, bytes, max_cost) in [
        ("fixed_window", 60, 32, 30),
        ("sliding_window", 60, 48, 6),
        ("sliding_log", 60, 240, 30),
        ("sliding_counter", 120, 16, 30),
    ] {
        let limits = limits(&of(algorithm, 30, "60s"));
        let limit = limits.iter().next().expect("one").algorithm();
        let rate = limit.rate().map(|rate| rate.to_string());
        assert_eq!(rate.as_deref(), Some("30/m"), "{algorithm}");
        assert_eq!(limit.capacity(), 30, "{algorithm}");
        assert_eq!(limit.drain_time(), Nanos::from_secs(drain), "{algorithm}");
        assert_eq!(limit.state_bytes(), bytes, "{algorithm}");
        assert_eq!(limit.max_cost(), max_cost, "{algorithm}");
        assert!(limits.forgets_losslessly(), "{algorithm}");
    }
}
