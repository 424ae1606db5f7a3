//! Edits of windows by example, worked out by hand.

use loudou_limiter::{Bucket, Carry, Clock, Limits, Nanos};
use loudou_rules::config::parse_limits;
use serde_json::{Value, json};

/// On a wall clock that started together with the monotonic one.
fn convert(old: &Limits, new: &Limits, carry: Carry, bucket: &Bucket, at: Nanos) -> Bucket {
    loudou_limiter::convert(old, new, carry, bucket, Clock::at(at))
}

/// Returns one limit. Its name does not depend on the algorithm, so that limits of different
/// algorithms continue from each other.
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

/// The remaining amount, and the seconds until the bucket is idle.
fn left(limits: &Limits, bucket: &Bucket, second: u64) -> (u64, u64) {
    let answer = limits.peek(bucket, 0, at(second));
    let decision = answer.reported().expect("one");
    (decision.remaining, decision.reset_after.secs_ceil())
}

/// Returns the seconds that a cost has to wait.
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
        // Taken amounts count longer by the same factor as the window.
        (Carry::Keep, 20, "1h", (16, 3_580)),
        (Carry::Proportional, 20, "60s", (12, 40)),
        (Carry::Proportional, 4, "60s", (2, 40)),
        (Carry::Reset, 20, "60s", (20, 0)),
    ] {
        let new = of("fixed_window", capacity, window);
        let edited = convert(&old, &new, carry, &bucket, at(20));
        assert_eq!(left(&new, &edited, 20), expected, "{carry:?}, {capacity}");
    }
    // The window is unchanged, so the amount taken now comes back with the rest, at 60 s.
    let new = of("fixed_window", 20, "60s");
    let mut edited = convert(&old, &new, Carry::Keep, &bucket, at(20));
    assert!(!new.decide(&mut edited, 16, at(30)).is_refused());
    assert_eq!(left(&new, &edited, 59), (0, 1));
    assert_eq!(left(&new, &edited, 60), (20, 0));
    // The excess over the capacity counts again for a larger capacity.
    let three = of("fixed_window", 3, "60s");
    let lowered = convert(&old, &three, Carry::Keep, &bucket, at(20));
    let back = convert(&three, &old, Carry::Keep, &lowered, at(30));
    assert_eq!(left(&old, &back, 30), (6, 30));
    // The window ended before the edit, so nothing is carried over.
    let late = convert(&old, &new, Carry::Keep, &bucket, at(60));
    assert_eq!(left(&new, &late, 60), (20, 0));
}

/// Six of ten used at noon of 1970-01-01 in UTC, edited an hour later.
#[test]
fn fixed_windows_and_calendars_follow_each_other() {
    let limit = |window: &str, more: &Value| {
        let mut limit = json!({ "algorithm": "fixed_window", "capacity": 10, "window": window });
        for (name, value) in more.as_object().expect("an object") {
            limit[name] = value.clone();
        }
        one(limit)
    };
    let noon = 12 * 3_600;
    let now = noon + 3_600;
    let (hours, days) = (3_600, 86_400);
    let day = limit("1d", &json!({ "align": "clock" }));
    let first = limit("1d", &json!({}));
    let calendar_day = limit("day", &json!({}));
    let month = limit("month", &json!({}));
    let from_the_2nd = limit("month", &json!({ "starts": { "day": 2 } }));
    for (old, new, left_s) in [
        // The count lasts until the end of the new window on the clock.
        (&day, &calendar_day, 11 * hours),
        (&day, &month, 31 * days - 13 * hours),
        (&first, &month, 31 * days - 13 * hours),
        (&month, &from_the_2nd, 11 * hours),
        (
            &month,
            &limit("month", &json!({ "zone": "+01:00" })),
            31 * days - 14 * hours,
        ),
        (&from_the_2nd, &day, 11 * hours),
        // A window that begins with a request continues for at most its length.
        (&month, &first, days),
        (&calendar_day, &limit("2d", &json!({})), days + 11 * hours),
        // The capacity changes, the window does not.
        (
            &month,
            &limit("month", &json!({ "align": "clock" })),
            31 * days - 13 * hours,
        ),
    ] {
        let bucket = used(old, &[(noon, 6)]);
        let edited = convert(old, new, Carry::Keep, &bucket, at(now));
        assert_eq!(left(new, &edited, now), (4, left_s), "{old:?} to {new:?}");
    }
}

/// The amount used under another algorithm counts for a window that begins with the edit.
#[test]
fn what_is_brought_into_a_window_begins_it() {
    let funnel = funnel(10, "10/h");
    let bucket = used(&funnel, &[(0, 4)]);
    let first = |most| of("fixed_window", most, "1h");
    let on_clock = |most| clock(most, "1h");
    let windows: [(&dyn Fn(u64) -> Limits, u64); 2] = [(&first, 4_200), (&on_clock, 3_600)];
    for (of, ends) in windows {
        let new = of(10);
        // Five thirds have leaked in ten minutes. The rest of the four is rounded up.
        let mut edited = convert(&funnel, &new, Carry::Keep, &bucket, at(600));
        assert_eq!(left(&new, &edited, 600), (7, ends - 600));
        assert!(!new.decide(&mut edited, 5, at(600)).is_refused());
        let waits = [3, 10, 11].map(|cost| wait(&new, &edited, cost, 600));
        assert_eq!(waits, [Some(ends - 600), Some(ends - 600), None]);
        for (carry, most, now) in [(Carry::Proportional, 5, 1), (Carry::Keep, 6, 0)] {
            let lowered = of(most);
            let again = convert(&new, &lowered, carry, &edited, at(660));
            assert_eq!(left(&lowered, &again, 660), (now, ends - 660));
            assert_eq!(left(&lowered, &again, ends - 1), (now, 1));
            assert_eq!(left(&lowered, &again, ends), (most, 0));
        }
    }
}

/// A clock-aligned window ends on the clock, even if it continues a limit without alignment.
#[test]
fn a_window_on_the_clock_stays_on_it() {
    let old = clock(10, "60s");
    let bucket = used(&old, &[(10, 4)]);
    let new = clock(10, "90s");
    let mut edited = convert(&old, &new, Carry::Keep, &bucket, at(20));
    assert_eq!(left(&new, &edited, 20), (6, 70));
    assert!(!new.decide(&mut edited, 6, at(20)).is_refused());
    assert_eq!(left(&new, &edited, 89), (0, 1));
    assert_eq!(left(&new, &edited, 90), (10, 0));
    // The length is unchanged, so the window is unchanged.
    let raised = clock(20, "60s");
    let mut edited = convert(&old, &raised, Carry::Keep, &bucket, at(20));
    assert!(!raised.decide(&mut edited, 16, at(20)).is_refused());
    assert_eq!(left(&raised, &edited, 20), (0, 40));
    assert_eq!(left(&raised, &edited, 60), (20, 0));
    // From windows that begin with a request, and back.
    let first = of("fixed_window", 10, "60s");
    let of_first = used(&first, &[(10, 4)]);
    let edited = convert(&first, &old, Carry::Keep, &of_first, at(20));
    assert_eq!(left(&old, &edited, 20), (6, 40));
    assert_eq!(left(&old, &edited, 60), (10, 0));
    for (window, ends) in [("60s", 60), ("90s", 90), ("30s", 50)] {
        let first = of("fixed_window", 10, window);
        let edited = convert(&old, &first, Carry::Keep, &bucket, at(20));
        assert_eq!(left(&first, &edited, 20), (6, ends - 20), "{window}");
    }
    // The wall clock shows 0:50 at 20 s.
    let shows = Clock {
        now: at(20),
        wall: at(50),
    };
    let edited = loudou_limiter::convert(&old, &new, Carry::Keep, &bucket, shows);
    assert_eq!(left(&new, &edited, 20), (6, 40));
    // Of the same length it is the same window, wherever the wall clock was put.
    let edited = loudou_limiter::convert(&old, &raised, Carry::Keep, &bucket, shows);
    assert_eq!(left(&raised, &edited, 20), (16, 40));
}

/// Four are used in the slot at 0 s and four in the slot at 2 s. The edit is at 4 s.
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
    // The excess is kept.
    let kept = edited(&halved, Carry::Keep);
    assert_eq!(left(&halved, &kept, 4), (0, 8));
    assert_eq!(wait(&halved, &kept, 1, 4), Some(6));
    assert_eq!(left(&halved, &kept, 10), (1, 2));
    let back = convert(&halved, &old, Carry::Keep, &kept, at(4));
    assert_eq!(left(&old, &back, 4), (2, 8));
    assert_eq!(left(&old, &back, 10), (4, 2));
    // With other slots, amounts that counted until 10 s and 12 s count longer by the difference in
    // window length, or until the current slot leaves.
    for (window, expected) in [
        ("10s", (2, 6)),
        ("20s", (2, 16)),
        ("24s", (2, 20)),
        ("30s", (2, 26)),
    ] {
        let new = slots(10, window, 2);
        assert_eq!(
            left(&new, &edited(&new, Carry::Keep), 4),
            expected,
            "{window}"
        );
    }
    // In a shorter window, no amount counts for longer than that window.
    let short = slots(10, "4s", 2);
    assert_eq!(left(&short, &edited(&short, Carry::Keep), 4), (2, 4));
}

/// A level is put into the latest slots that have room for it.
#[test]
fn a_level_is_spread_over_slots() {
    // Nine of ten, back within nine seconds.
    let old = funnel(10, "1/s");
    let bucket = used(&old, &[(1, 9)]);
    let new = slots(10, "10s", 5);
    let edited = convert(&old, &new, Carry::Keep, &bucket, at(1));
    // 4, 4 and 1 in the slots before 0 s, -2 s and -4 s.
    assert_eq!(left(&new, &edited, 1), (1, 7));
    assert_eq!(left(&new, &edited, 4), (2, 4));
    assert_eq!(left(&new, &edited, 6), (4, 2));
    assert_eq!(left(&new, &edited, 8), (4, 0));
    let tight = of("sliding_window", 10, "10s");
    let soon = funnel(10, "5/s");
    let edited = convert(&soon, &tight, Carry::Keep, &used(&soon, &[(0, 9)]), at(0));
    assert_eq!(left(&tight, &edited, 0), (1, 9));
    assert_eq!(left(&tight, &edited, 5), (2, 4));
    // The current slot takes the amount that fits no other slot, because 16 of 20 are in the
    // earlier slots.
    let wide = funnel(20, "1/s");
    let edited = convert(&wide, &new, Carry::Keep, &used(&wide, &[(0, 20)]), at(0));
    assert_eq!(left(&new, &edited, 0), (0, 10));
    assert_eq!(left(&new, &edited, 6), (2, 4));
    assert_eq!(left(&new, &edited, 8), (4, 2));
}

/// Two entries at 0 s and one at 4 s. The edit is at 5 s.
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
    assert_eq!(left(&long, &edited(&long, Carry::Keep), 5), (0, 3_599));
    assert_eq!(left(&long, &edited(&long, Carry::Keep), 3_600), (2, 4));
    // The excess over a smaller capacity is not forgotten.
    let one = of("sliding_log", 1, "10s");
    let back = convert(&one, &old, Carry::Keep, &edited(&one, Carry::Keep), at(6));
    assert_eq!(left(&old, &back, 6), (0, 8));
    assert_eq!(left(&old, &back, 10), (2, 4));
    // A level of another algorithm becomes that many entries, with one end.
    let funnel = funnel(10, "1/s");
    let level = used(&funnel, &[(0, 4)]);
    let ten = of("sliding_log", 10, "10s");
    let edited = convert(&funnel, &ten, Carry::Keep, &level, at(1));
    assert_eq!(left(&ten, &edited, 1), (7, 10));
    assert_eq!(left(&ten, &edited, 11), (10, 0));
    let edited = convert(&funnel, &short, Carry::Keep, &level, at(0));
    assert_eq!(
        left(&short, &edited, 0),
        (0, 3),
        "four of three, for a window"
    );
    let back = convert(&short, &funnel, Carry::Keep, &edited, at(1));
    assert_eq!(left(&funnel, &back, 1), (6, 4));
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
        // Eight of four, and five at 15 s.
        (Carry::Keep, 4, (0, 8), (0, 5)),
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
    for (carry, seconds) in [(Carry::Keep, 11), (Carry::Proportional, 7)] {
        let edited = convert(&old, &halved, carry, &bucket, at(5));
        assert_eq!(left(&halved, &edited, 5), (0, 15));
        // When four of ten, or of five, are left in the next window.
        assert_eq!(wait(&halved, &edited, 1, 5), Some(seconds));
    }
    // Three in the current window and eight tenths of five. After halving, two and eight tenths of
    // two.
    let both = used(&old, &[(5, 5), (12, 3)]);
    let edited = convert(&old, &halved, Carry::Proportional, &both, at(12));
    assert_eq!(left(&halved, &edited, 12), (1, 18));
    assert_eq!(left(&halved, &edited, 20), (3, 10));
    // After lowering to four, the whole amount stays.
    let four = of("sliding_counter", 4, "10s");
    let edited = convert(&old, &four, Carry::Keep, &both, at(12));
    assert_eq!(left(&four, &edited, 12), (0, 18));
    assert_eq!(wait(&four, &edited, 1, 12), Some(8));
    assert_eq!(left(&four, &edited, 20), (1, 10));
}

#[test]
fn a_level_becomes_a_count() {
    let counter = of("sliding_counter", 10, "10s");
    let slow = funnel(10, "1/10s");
    let edited = convert(&slow, &counter, Carry::Keep, &used(&slow, &[(0, 4)]), at(0));
    assert_eq!(left(&counter, &edited, 0), (6, 20));
    assert_eq!(left(&counter, &edited, 15), (8, 5));
    let fast = funnel(10, "1/s");
    let nine = used(&fast, &[(1, 9)]);
    let edited = convert(&fast, &counter, Carry::Keep, &nine, at(2));
    assert_eq!(left(&counter, &edited, 2), (2, 18));
    assert_eq!(left(&counter, &edited, 6), (2, 14));
    assert_eq!(left(&counter, &edited, 12), (3, 8));
    // The window has another length, and the level continues.
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

/// Returns true if used-up buckets now take longer to refill, which needs a warning.
#[test]
fn full_later_is_told_of_what_slows_down() {
    use loudou_limiter::full_later;
    let later = |old: &Limits, new: &Limits, carry| -> Vec<(u64, u64)> {
        let later = full_later(old, new, carry).into_iter();
        let times = later.map(|later| (later.before.secs_ceil(), later.after.secs_ceil()));
        times.collect()
    };
    let ten = funnel(10, "1/s");
    for (new, carry, expected) in [
        (funnel(10, "1/s"), Carry::Keep, vec![]),
        (funnel(10, "1/m"), Carry::Keep, vec![(10, 600)]),
        (funnel(10, "1/m"), Carry::Reset, vec![]),
        (funnel(20, "1/s"), Carry::Keep, vec![]),
        (funnel(20, "1/s"), Carry::Proportional, vec![(10, 20)]),
        (funnel(20, "2/s"), Carry::Proportional, vec![]),
        // The used amount beyond a smaller capacity is remembered, at the same pace.
        (funnel(5, "1/s"), Carry::Keep, vec![]),
        (of("fixed_window", 10, "60s"), Carry::Keep, vec![(10, 60)]),
    ] {
        assert_eq!(later(&ten, &new, carry), expected, "{new:?} {carry:?}");
    }
    let minute = of("fixed_window", 10, "60s");
    assert_eq!(
        later(&minute, &of("fixed_window", 10, "1h"), Carry::Keep),
        [(60, 3_600)]
    );
    assert_eq!(
        later(&minute, &of("fixed_window", 10, "30s"), Carry::Keep),
        []
    );
}
