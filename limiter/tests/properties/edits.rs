//! Edits of windows by example, worked out by hand.

use loudou_limiter::carry::convert;
use loudou_limiter::config::parse_limits;
use loudou_limiter::{Bucket, Carry, Limits, Nanos};
use serde_json::{Value, json};

/// One limit; the name is the same whatever the algorithm, so that one goes on from another.
fn one(mut limit: Value) -> Limits {
    limit["name"] = "a".into();
    parse_limits(&json!([limit])).expect("valid")
}

fn of(algorithm: &str, capacity: u64, window: &str) -> Limits {
    one(json!({ "algorithm": algorithm, "capacity": capacity, "window": window }))
}

fn slots(capacity: u64, window: &str, slots: u64) -> Limits {
    one(json!({
        "algorithm": "sliding_window", "capacity": capacity, "window": window, "slots": slots
    }))
}

fn clock(capacity: u64, window: &str) -> Limits {
    one(json!({
        "algorithm": "fixed_window", "capacity": capacity, "window": window, "align": "clock"
    }))
}

fn funnel(capacity: u64, rate: &str) -> Limits {
    one(json!({ "algorithm": "funnel", "capacity": capacity, "rate": rate }))
}

fn at(seconds: u64) -> Nanos {
    Nanos::from_secs(seconds)
}

/// A bucket that took these costs at these seconds.
fn used(limits: &Limits, taken: &[(u64, u64)]) -> Bucket {
    let mut bucket = limits.start(Nanos::ZERO);
    for (second, cost) in taken {
        let answer = limits.decide(&mut bucket, *cost, at(*second));
        assert!(!answer.is_refused());
    }
    bucket
}

/// What is left, and the seconds until it is as good as new.
fn left(limits: &Limits, bucket: &Bucket, second: u64) -> (u64, u64) {
    let answer = limits.peek(bucket, 0, at(second));
    let decision = answer.reported().expect("one");
    (decision.remaining, decision.reset_after.secs_ceil())
}

/// The seconds that a cost has to wait.
fn wait(limits: &Limits, bucket: &Bucket, cost: u64, second: u64) -> Option<u64> {
    let answer = limits.peek(bucket, cost, at(second));
    let retry_after = answer.reported().expect("one").retry_after;
    retry_after.map(Nanos::secs_ceil)
}

/// Four of ten used at 0 s, edited at 20 s.
#[test]
fn a_fixed_window_goes_on() {
    let old = of("fixed_window", 10, "60s");
    let bucket = used(&old, &[(0, 4)]);
    for (carry, capacity, window, expected) in [
        (Carry::Keep, 20, "60s", (16, 40)),
        (Carry::Keep, 3, "60s", (0, 40)),
        (Carry::Keep, 20, "30s", (16, 30)),
        (Carry::Keep, 20, "1h", (16, 40)),
        (Carry::Proportional, 20, "60s", (12, 40)),
        (Carry::Proportional, 4, "60s", (2, 40)),
        (Carry::Reset, 20, "60s", (20, 0)),
    ] {
        let new = of("fixed_window", capacity, window);
        let edited = convert(&old, &new, carry, &bucket, at(20));
        assert_eq!(left(&new, &edited, 20), expected, "{carry:?}, {capacity}");
    }
    // It is the same window: what is taken now comes back with the rest, at 60 s.
    let new = of("fixed_window", 20, "60s");
    let mut edited = convert(&old, &new, Carry::Keep, &bucket, at(20));
    assert!(!new.decide(&mut edited, 16, at(30)).is_refused());
    assert_eq!(left(&new, &edited, 59), (0, 1));
    assert_eq!(left(&new, &edited, 60), (20, 0));
    // Over before the edit: nothing is brought over.
    let late = convert(&old, &new, Carry::Keep, &bucket, at(60));
    assert_eq!(left(&new, &late, 60), (20, 0));
}

/// Four of ten, back within 24 minutes.
fn back_in_24_minutes() -> (Limits, Bucket) {
    let old = funnel(10, "10/h");
    let bucket = used(&old, &[(0, 4)]);
    (old, bucket)
}

/// What another algorithm had used ends when it would have, and the window when it does.
#[test]
fn what_is_brought_into_a_window_has_an_end_of_its_own() {
    let (old, bucket) = back_in_24_minutes();
    for of in [
        |most| of("fixed_window", most, "1h"),
        |most| clock(most, "1h"),
    ] {
        let new = of(10);
        let mut edited = convert(&old, &new, Carry::Keep, &bucket, at(0));
        assert_eq!(left(&new, &edited, 0), (6, 1_440));
        assert!(!new.decide(&mut edited, 5, at(0)).is_refused());
        assert_eq!(left(&new, &edited, 0), (1, 3_600));
        let waits = [2, 5, 6, 11].map(|cost| wait(&new, &edited, cost, 0));
        assert_eq!(waits, [Some(1_440), Some(1_440), Some(3_600), None]);
        assert_eq!(left(&new, &edited, 1_440), (5, 2_160));
        // Edited once more, both go on: half of four and half of five, rounded up. Lowered to six,
        // there is room for one of what was brought over beside five of the window.
        for (carry, most, later) in [(Carry::Proportional, 5, 2), (Carry::Keep, 6, 1)] {
            let lowered = of(most);
            let again = convert(&new, &lowered, carry, &edited, at(60));
            assert_eq!(left(&lowered, &again, 60), (0, 3_540));
            assert_eq!(left(&lowered, &again, 1_440), (later, 2_160));
        }
    }
}

#[test]
fn a_window_may_be_over_before_what_was_brought_into_it() {
    let (old, bucket) = back_in_24_minutes();
    let minute = of("fixed_window", 10, "60s");
    let mut edited = convert(&old, &minute, Carry::Keep, &bucket, at(1_430));
    assert_eq!(left(&minute, &edited, 1_430), (9, 10));
    assert!(!minute.decide(&mut edited, 9, at(1_430)).is_refused());
    assert_eq!(wait(&minute, &edited, 1, 1_430), Some(10));
    assert_eq!(wait(&minute, &edited, 2, 1_430), Some(60));
    let mut long = convert(&old, &minute, Carry::Keep, &bucket, at(0));
    assert_eq!(left(&minute, &long, 0), (6, 60), "no longer than a window");
    // A window that ends on the clock in ten seconds.
    let on_clock = clock(10, "60s");
    long = convert(&minute, &on_clock, Carry::Keep, &long, at(50));
    assert_eq!(left(&on_clock, &long, 50), (6, 10));
    let (old, bucket) = (clock(10, "70s"), used(&clock(10, "70s"), &[(0, 4)]));
    let mut edited = convert(&old, &on_clock, Carry::Keep, &bucket, at(50));
    assert!(!on_clock.decide(&mut edited, 6, at(50)).is_refused());
    assert_eq!(wait(&on_clock, &edited, 6, 50), Some(10));
    assert_eq!(wait(&on_clock, &edited, 7, 50), Some(20));
}

/// An edit of the length does not put the ends of windows anywhere else.
#[test]
fn a_window_on_the_clock_stays_on_it() {
    let old = clock(10, "60s");
    let bucket = used(&old, &[(10, 4)]);
    let new = clock(10, "90s");
    let mut edited = convert(&old, &new, Carry::Keep, &bucket, at(20));
    assert_eq!(left(&new, &edited, 20), (6, 40));
    assert!(!new.decide(&mut edited, 6, at(20)).is_refused());
    assert_eq!(left(&new, &edited, 60), (4, 30));
    assert_eq!(left(&new, &edited, 90), (10, 0));
    // The same length: it is the same window.
    let raised = clock(20, "60s");
    let mut edited = convert(&old, &raised, Carry::Keep, &bucket, at(20));
    assert!(!raised.decide(&mut edited, 16, at(20)).is_refused());
    assert_eq!(left(&raised, &edited, 20), (0, 40));
    assert_eq!(left(&raised, &edited, 60), (20, 0));
    // From windows that begin with a request, the end is not on the clock.
    let first = of("fixed_window", 10, "60s");
    let bucket = used(&first, &[(10, 4)]);
    let mut edited = convert(&first, &old, Carry::Keep, &bucket, at(20));
    assert!(!old.decide(&mut edited, 1, at(20)).is_refused());
    assert_eq!(left(&old, &edited, 60), (6, 10));
    assert_eq!(left(&old, &edited, 70), (10, 0));
}

/// Four in the slot of 0 s and four in that of 2 s, edited at 4 s.
#[test]
fn slots_go_on() {
    let old = slots(10, "10s", 5);
    let bucket = used(&old, &[(1, 4), (2, 4)]);
    let edited = |new: &Limits, carry| convert(&old, new, carry, &bucket, at(4));
    let raised = slots(20, "10s", 5);
    let mut kept = edited(&raised, Carry::Keep);
    assert_eq!(left(&raised, &kept, 4), (8, 8), "as much as a slot takes");
    assert!(!raised.decide(&mut kept, 8, at(4)).is_refused());
    assert!(!raised.decide(&mut kept, 4, at(6)).is_refused());
    assert_eq!(wait(&raised, &kept, 4, 6), Some(4));
    assert_eq!(wait(&raised, &kept, 5, 6), Some(6));
    // Half of each.
    let halved = slots(5, "10s", 5);
    let half = edited(&halved, Carry::Proportional);
    assert_eq!(left(&halved, &half, 4), (1, 8));
    assert_eq!(left(&halved, &half, 10), (2, 2));
    // Of what does not fit any more, the oldest goes.
    let kept = edited(&halved, Carry::Keep);
    assert_eq!(left(&halved, &kept, 4), (0, 8));
    assert_eq!(wait(&halved, &kept, 1, 4), Some(6));
    assert_eq!(left(&halved, &kept, 10), (1, 2));
    // Other slots, none of which stays for longer: both leave at 10 s, both at 12 s, none in time.
    for (window, expected) in [
        ("10s", (2, 6)),
        ("20s", (2, 6)),
        ("24s", (2, 8)),
        ("30s", (10, 0)),
    ] {
        let new = slots(10, window, 2);
        assert_eq!(
            left(&new, &edited(&new, Carry::Keep), 4),
            expected,
            "{window}"
        );
    }
    // In a shorter window nothing stays for longer than that.
    let short = slots(10, "4s", 2);
    assert_eq!(left(&short, &edited(&short, Carry::Keep), 4), (2, 4));
}

/// A level is put where it leaves as late as it may, and no more in a slot than that takes.
#[test]
fn a_level_is_spread_over_slots() {
    // Nine of ten, back within nine seconds.
    let old = funnel(10, "1/s");
    let bucket = used(&old, &[(1, 9)]);
    let new = slots(10, "10s", 5);
    let edited = convert(&old, &new, Carry::Keep, &bucket, at(1));
    // 4 and 4 in the slots before 0 s would leave later than 1 in the current one, and may.
    assert_eq!(left(&new, &edited, 1), (0, 9));
    assert_eq!(left(&new, &edited, 5), (1, 5));
    assert_eq!(left(&new, &edited, 6), (2, 4));
    assert_eq!(left(&new, &edited, 8), (4, 2));
    assert_eq!(left(&new, &edited, 10), (4, 0));
    // The oldest slot takes whatever has no other.
    let late = convert(&old, &new, Carry::Keep, &used(&old, &[(0, 9)]), at(0));
    assert_eq!(left(&new, &late, 0), (1, 8));
    let tight = of("sliding_window", 10, "10s");
    let soon = funnel(10, "5/s");
    let edited = convert(&soon, &tight, Carry::Keep, &used(&soon, &[(0, 9)]), at(0));
    assert_eq!(left(&tight, &edited, 0), (1, 1));
    assert_eq!(left(&tight, &edited, 1), (2, 0));
}

/// Two entries of 0 s and one of 4 s, edited at 5 s.
#[test]
fn entries_go_on() {
    let old = of("sliding_log", 3, "10s");
    let bucket = used(&old, &[(0, 2), (4, 1)]);
    let edited = |new: &Limits, carry| convert(&old, new, carry, &bucket, at(5));
    for (carry, capacity, now, later) in [
        (Carry::Keep, 5, (2, 9), (4, 4)),
        (Carry::Keep, 2, (0, 9), (1, 4)),
        (Carry::Proportional, 6, (0, 9), (4, 4)),
        (Carry::Proportional, 2, (0, 9), (1, 4)),
        (Carry::Proportional, 1, (0, 9), (0, 4)),
    ] {
        let new = of("sliding_log", capacity, "10s");
        let bucket = edited(&new, carry);
        assert_eq!(left(&new, &bucket, 5), now, "{carry:?} to {capacity}");
        assert_eq!(left(&new, &bucket, 10), later, "{carry:?} to {capacity}");
        assert_eq!(left(&new, &bucket, 14), (capacity, 0));
    }
    let short = of("sliding_log", 3, "3s");
    assert_eq!(left(&short, &edited(&short, Carry::Keep), 5), (0, 3));
    assert_eq!(left(&short, &edited(&short, Carry::Keep), 8), (3, 0));
    let long = of("sliding_log", 3, "1h");
    assert_eq!(left(&long, &edited(&long, Carry::Keep), 10), (2, 4));
    // A level of another algorithm becomes that many entries, with one end.
    let funnel = funnel(10, "1/s");
    let level = used(&funnel, &[(0, 4)]);
    let ten = of("sliding_log", 10, "10s");
    let edited = convert(&funnel, &ten, Carry::Keep, &level, at(1));
    assert_eq!(left(&ten, &edited, 1), (7, 3));
    assert_eq!(left(&ten, &edited, 4), (10, 0));
    let edited = convert(&funnel, &short, Carry::Keep, &level, at(0));
    assert_eq!(
        left(&short, &edited, 0),
        (0, 3),
        "at most all, for a window"
    );
    let idle = convert(&funnel, &short, Carry::Keep, &level, at(4));
    assert_eq!(idle.words(), [0; 0]);
}

/// Ten of ten at 5 s.
#[test]
fn counters_go_on() {
    let old = of("sliding_counter", 10, "10s");
    let bucket = used(&old, &[(5, 10)]);
    // At 12 s eight tenths of the previous window count.
    for (carry, capacity, now, later) in [
        (Carry::Keep, 20, (12, 8), (15, 5)),
        (Carry::Proportional, 20, (4, 8), (10, 5)),
        // No more than 4 may count for the previous window: 3.2, and 2 at 15 s.
        (Carry::Keep, 4, (0, 8), (2, 5)),
        (Carry::Proportional, 5, (1, 8), (2, 5)),
    ] {
        let new = of("sliding_counter", capacity, "10s");
        let edited = convert(&old, &new, carry, &bucket, at(12));
        assert_eq!(left(&new, &edited, 12), now, "{carry:?} to {capacity}");
        assert_eq!(left(&new, &edited, 15), later, "{carry:?} to {capacity}");
        assert_eq!(left(&new, &edited, 20), (capacity, 0));
    }
    // In the window itself they are the current count.
    let halved = of("sliding_counter", 5, "10s");
    for carry in [Carry::Keep, Carry::Proportional] {
        let edited = convert(&old, &halved, carry, &bucket, at(5));
        assert_eq!(left(&halved, &edited, 5), (0, 15));
        assert_eq!(wait(&halved, &edited, 1, 5), Some(7));
    }
    // Three of the current window and eight tenths of five: halved, two and 1.5 of the rest.
    let both = used(&old, &[(5, 5), (12, 3)]);
    let edited = convert(&old, &halved, Carry::Proportional, &both, at(12));
    assert_eq!(left(&halved, &edited, 12), (1, 18));
    assert_eq!(left(&halved, &edited, 20), (3, 10));
    // Lowered to four, three stay and one of four for the previous window.
    let four = of("sliding_counter", 4, "10s");
    let edited = convert(&old, &four, Carry::Keep, &both, at(12));
    assert_eq!(left(&four, &edited, 12), (0, 18));
    assert_eq!(wait(&four, &edited, 1, 12), Some(8));
    assert_eq!(left(&four, &edited, 20), (1, 10));
}

#[test]
fn a_level_becomes_a_count() {
    let counter = of("sliding_counter", 10, "10s");
    // Time enough until the end of the next window: the current one.
    let slow = funnel(10, "1/10s");
    let edited = convert(&slow, &counter, Carry::Keep, &used(&slow, &[(0, 4)]), at(0));
    assert_eq!(left(&counter, &edited, 0), (6, 20));
    assert_eq!(left(&counter, &edited, 15), (8, 5));
    let two = used(&slow, &[(0, 2)]);
    let edited = convert(&slow, &counter, Carry::Keep, &two, at(0));
    assert_eq!(left(&counter, &edited, 0), (8, 20), "to the nanosecond");
    // Until the end of this one: the previous one, which weighs eight tenths.
    let fast = funnel(10, "1/s");
    let nine = used(&fast, &[(1, 9)]);
    let edited = convert(&fast, &counter, Carry::Keep, &nine, at(2));
    assert_eq!(left(&counter, &edited, 2), (2, 8));
    assert_eq!(left(&counter, &edited, 6), (6, 4));
    // Not even that: it would be as good as new only later.
    let eight = used(&fast, &[(1, 8)]);
    let edited = convert(&fast, &counter, Carry::Keep, &eight, at(2));
    assert_eq!(left(&counter, &edited, 2), (10, 0));
    // Another length of the window: the level goes on.
    let short = of("sliding_counter", 10, "5s");
    let edited = convert(
        &counter,
        &short,
        Carry::Keep,
        &used(&counter, &[(5, 10)]),
        at(12),
    );
    assert_eq!(left(&short, &edited, 12), (2, 8));
    // And from a window to a funnel, as fast as that leaks.
    let edited = convert(
        &counter,
        &fast,
        Carry::Keep,
        &used(&counter, &[(5, 10)]),
        at(12),
    );
    assert_eq!(left(&fast, &edited, 12), (2, 8));
    assert_eq!(left(&fast, &edited, 15), (5, 5));
}
