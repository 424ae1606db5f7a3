//! Extreme cases of windows: the smallest and largest numbers, and the maximum that they admit.

use loudou_limiter::algorithm::{Align, FixedWindow, SlidingCounter, SlidingLog, SlidingWindow};
use loudou_limiter::bounds::BadNumbers;
use loudou_limiter::{Limits, Nanos};
use serde_json::{Value, json};

use super::{DAY, NONE, Row, S, limits, run};

const MOST: u64 = 1_000_000_000;

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

/// Returns the amount admitted from the first step to the last.
fn admitted(limits: &Limits, steps: impl IntoIterator<Item = (u64, u64)>) -> u64 {
    let mut bucket = limits.start(Nanos::ZERO);
    let taken = steps.into_iter().filter(|(now, cost)| {
        let answer = limits.decide(&mut bucket, *cost, Nanos::new(*now));
        !answer.is_refused()
    });
    taken.map(|(_, cost)| cost).sum()
}

/// The documented bounds of the algorithms are reached, so they cannot be lower.
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
    // A window that begins in the last nanosecond of a slot admits the capacity and one more slot.
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
    // The whole capacity at the end of a window, then a request whenever it fits, through the next
    // window.
    let counter = limits(&of("sliding_counter", 10, "1us"));
    let steps = [(999, 10)]
        .into_iter()
        .chain((1_000..1_999).map(|at| (at, 1)));
    assert_eq!(admitted(&counter, steps), 19, "in 1000 instants");
}

/// Conversely, requests early in a window keep others out for longer than they are in it.
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

/// How the terminal and the headers describe a limit.
#[test]
fn a_window_is_a_rate_and_a_drain() {
    for (algorithm, drain, bytes, max_cost) in [
        ("fixed_window", 60, 16, 30),
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
