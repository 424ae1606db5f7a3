//! Examples of carry-over: which amounts are carried, and which limit continues from which.

use loudou_limiter::{Bucket, Carry, Clock, Limits, Nanos};
use loudou_rules::config::parse_limits;
use serde_json::{Value, json};

/// On a wall clock that started together with the monotonic one.
fn convert(old: &Limits, new: &Limits, carry: Carry, bucket: &Bucket, at: Nanos) -> Bucket {
    loudou_limiter::convert(old, new, carry, bucket, Clock::at(at))
}

fn limits(document: &Value) -> Limits {
    parse_limits(document).expect("valid")
}

pub(super) fn funnel(capacity: u64, rate: &str) -> Limits {
    limits(&json!([{ "algorithm": "funnel", "capacity": capacity, "rate": rate }]))
}

pub(super) fn used(limits: &Limits, cost: u64) -> Bucket {
    let mut bucket = limits.start(Nanos::ZERO);
    assert!(!limits.decide(&mut bucket, cost, Nanos::ZERO).is_refused());
    bucket
}

pub(super) fn left(limits: &Limits, bucket: &Bucket, seconds: u64) -> Vec<u64> {
    let answer = limits.peek(bucket, 0, Nanos::from_secs(seconds));
    answer.decisions().map(|limit| limit.remaining).collect()
}

/// Four of ten used, which come back within 24 minutes.
#[test]
fn keep_proportional_and_reset() {
    let old = funnel(10, "10/h");
    let bucket = used(&old, 4);
    for (carry, capacity, rate, expected) in [
        (Carry::Keep, 20, "10/h", 16),
        (Carry::Keep, 10, "20/h", 6),
        (Carry::Keep, 5, "10/h", 1),
        (Carry::Keep, 3, "10/h", 0),
        // A slower rate frees nothing.
        (Carry::Keep, 10, "5/h", 6),
        (Carry::Proportional, 20, "20/h", 12),
        (Carry::Proportional, 10, "1000/h", 6),
        (Carry::Proportional, 5, "10/h", 3),
        // Four tenths of two is 0.8.
        (Carry::Proportional, 2, "10/h", 1),
        (Carry::Proportional, 20, "10/h", 12),
        (Carry::Reset, 20, "1/h", 20),
        (Carry::Reset, 3, "10/h", 3),
    ] {
        let new = funnel(capacity, rate);
        let converted = convert(&old, &new, carry, &bucket, Nanos::ZERO);
        assert_eq!(
            left(&new, &converted, 0),
            [expected],
            "{carry:?} to {capacity}, {rate}"
        );
    }
}

/// Units that leaked before the edit are gone.
#[test]
fn the_level_is_that_of_the_edit() {
    let (old, new) = (funnel(10, "1/s"), funnel(20, "1/s"));
    let bucket = used(&old, 8);
    for (at, expected) in [(0, 12), (3, 15), (8, 20), (100, 20)] {
        let converted = convert(&old, &new, Carry::Keep, &bucket, Nanos::from_secs(at));
        assert_eq!(left(&new, &converted, at), [expected], "at {at} s");
    }
}

#[test]
fn one_algorithm_hands_its_level_to_another() {
    let all = [
        funnel(8, "8/8s"),
        limits(
            &json!([{ "name": "funnel", "algorithm": "token_bucket", "capacity": 8, "rate": "8/8s" }]),
        ),
        limits(&json!([{
            "name": "funnel", "algorithm": "token_bucket", "capacity": 8, "rate": "1/s",
            "refill": "interval"
        }])),
    ];
    for old in &all {
        let bucket = used(old, 6);
        for new in &all {
            let converted = convert(old, new, Carry::Keep, &bucket, Nanos::from_secs(2));
            assert_eq!(left(new, &converted, 2), [4], "{old:?} to {new:?}");
        }
    }
}

/// A conversion never reduces the used amount: fractions of a unit or a nanosecond stay used.
#[test]
fn fractions_are_rounded_up() {
    let (old, new) = (funnel(10, "1/h"), funnel(11, "1/h"));
    let bucket = used(&old, 4);
    // Three used and the leak of one nanosecond, of an hour for each.
    let almost = Nanos::new(3_600_000_000_000 - 1);
    let converted = convert(&old, &new, Carry::Keep, &bucket, almost);
    let left = |limits: &Limits, bucket| {
        let answer = limits.peek(bucket, 0, almost);
        answer.reported().map(|limit| limit.remaining)
    };
    assert_eq!(left(&old, &bucket), Some(6));
    assert_eq!(left(&new, &converted), Some(7));
    // Four tenths of two are 0.8: lumps are whole tokens.
    let lumps = limits(&json!([{
        "algorithm": "token_bucket", "capacity": 2, "rate": "1/m", "refill": "interval",
        "name": "funnel"
    }]));
    let converted = convert(&old, &lumps, Carry::Proportional, &bucket, Nanos::ZERO);
    assert_eq!(left(&lumps, &converted), Some(2), "a lump came since");
    // Slightly more than six of ten are used. Half of this is slightly more than three, by less
    // than a billionth of a unit.
    let half = limits(&json!([{
        "algorithm": "token_bucket", "capacity": 5, "rate": "1/s", "refill": "interval",
        "name": "funnel"
    }]));
    let mut seven = old.start(Nanos::ZERO);
    old.decide(&mut seven, 7, Nanos::ZERO);
    let of_half = convert(&old, &half, Carry::Proportional, &seven, almost);
    assert_eq!(left(&half, &of_half), Some(2));
    let at_once = lumps.peek(&converted, 0, Nanos::ZERO);
    assert_eq!(at_once.reported().map(|limit| limit.remaining), Some(1));
}

/// Accurate to the nanosecond: a level that is carried over unchanged empties at the same time as
/// before.
#[test]
fn an_unchanged_level_leaks_as_before() {
    let (old, new) = (funnel(1, "1/s"), funnel(2, "1/s"));
    let bucket = used(&old, 1);
    for at in [1, 2, 3, 333_333_333, 999_999_999] {
        let at = Nanos::new(at);
        let converted = convert(&old, &new, Carry::Keep, &bucket, at);
        let reset = new.peek(&converted, 0, at).reset_after();
        assert_eq!(reset, Nanos::from_secs(1).since(at), "at {at}");
    }
}

/// Seven of ten stay used if the rate is cut to a sixtieth, and come back at that rate.
#[test]
fn a_slower_rate_frees_nothing() {
    let (fast, slow) = (funnel(10, "1/s"), funnel(10, "1/m"));
    let bucket = used(&fast, 7);
    for carry in [Carry::Keep, Carry::Proportional] {
        let cut = convert(&fast, &slow, carry, &bucket, Nanos::ZERO);
        assert_eq!(left(&slow, &cut, 0), [3], "{carry:?}");
        assert_eq!(left(&slow, &cut, 59), [3], "{carry:?}");
        assert_eq!(left(&slow, &cut, 60), [4], "{carry:?}");
        let back = convert(&slow, &fast, carry, &cut, Nanos::from_secs(60));
        assert_eq!(left(&fast, &back, 60), [4], "{carry:?}");
        assert_eq!(left(&fast, &back, 66), [10], "{carry:?}");
    }
}

/// The amount used beyond a smaller capacity leaks like the rest. In proportion, it is the same
/// amount, or all of a capacity that covers it.
#[test]
fn what_is_used_beyond_the_capacity_is_not_forgotten() {
    let (large, small) = (funnel(10, "1/s"), funnel(4, "1/s"));
    let bucket = used(&large, 9);
    let lowered = convert(&large, &small, Carry::Keep, &bucket, Nanos::ZERO);
    assert_eq!(left(&small, &lowered, 0), [0]);
    assert_eq!(left(&small, &lowered, 5), [0]);
    assert_eq!(left(&small, &lowered, 6), [1]);
    let raised = |capacity, carry, second| {
        let raised = funnel(capacity, "1/s");
        let at = Nanos::from_secs(second);
        left(
            &raised,
            &convert(&small, &raised, carry, &lowered, at),
            second,
        )
    };
    assert_eq!(raised(10, Carry::Keep, 0), [1]);
    assert_eq!(raised(10, Carry::Keep, 2), [3]);
    // Nine of four become nine of six or twelve of twelve. At 6 s, three of four become nine of
    // twelve.
    assert_eq!(raised(6, Carry::Proportional, 0), [0]);
    assert_eq!(raised(12, Carry::Proportional, 0), [0]);
    assert_eq!(raised(12, Carry::Proportional, 6), [3]);
}

/// Limits are matched by name first. A renamed limit continues from the limit at its index, and a
/// new limit starts empty.
#[test]
fn limits_go_on_from_their_counterparts() {
    let named = |names: &[&str]| {
        let list = names.iter().map(
            |name| json!({ "name": name, "algorithm": "funnel", "capacity": 10, "rate": "10/h" }),
        );
        limits(&list.collect())
    };
    let old = named(&["a", "b"]);
    // A live bucket with different limits. Three of ten are used in one, and three of five became
    // six of ten in the other.
    let wide = limits(&json!([
        { "name": "a", "algorithm": "funnel", "capacity": 10, "rate": "10/h" },
        { "name": "b", "algorithm": "funnel", "capacity": 5, "rate": "5/h" },
    ]));
    let bucket = convert(
        &wide,
        &old,
        Carry::Proportional,
        &used(&wide, 3),
        Nanos::ZERO,
    );
    assert_eq!(left(&old, &bucket, 0), [7, 4]);
    for (names, expected) in [
        (vec!["a", "b"], vec![7, 4]),
        (vec!["b", "a"], vec![4, 7]),
        (vec!["b"], vec![4]),
        (vec!["a", "c"], vec![7, 4]),
        (vec!["c", "b"], vec![7, 4]),
        (vec!["c", "d"], vec![7, 4]),
        (vec!["b", "c"], vec![4, 10]),
        (vec!["a", "b", "c"], vec![7, 4, 10]),
        (vec!["c", "a", "b"], vec![10, 7, 4]),
    ] {
        let new = named(&names);
        let converted = convert(&old, &new, Carry::Keep, &bucket, Nanos::ZERO);
        assert_eq!(left(&new, &converted, 0), expected, "{names:?}");
    }
}

/// An edit dated before a bucket's last touch converts the level of that touch.
#[test]
fn an_edit_never_goes_back_in_time() {
    let lumps = |capacity: u64| {
        limits(&json!([{
            "algorithm": "token_bucket", "capacity": capacity, "rate": "10/10s",
            "refill": "interval"
        }]))
    };
    let (old, new) = (lumps(30), lumps(31));
    let touched = Nanos::from_secs(39);
    let mut bucket = old.start(touched);
    old.decide(&mut bucket, 30, touched);
    let converted = convert(&old, &new, Carry::Keep, &bucket, Nanos::from_secs(5));
    assert_eq!(converted.last, touched);
    assert_eq!(left(&new, &converted, 39), [1]);
}

/// A request whose clock was read before the edit must not move the refill's clock back, because
/// the refills in between would be given twice.
#[test]
fn an_earlier_now_after_an_edit_refills_nothing_twice() {
    let interval = |capacity: u64| {
        limits(&json!([{
            "algorithm": "token_bucket", "capacity": capacity, "rate": "10/10s",
            "refill": "interval"
        }]))
    };
    let (old, new) = (interval(10), interval(30));
    let at = Nanos::from_secs(39);
    let mut bucket = convert(&old, &new, Carry::Keep, &used(&old, 10), at);
    assert_eq!(left(&new, &bucket, 39), [30]);
    let early = new.decide(&mut bucket, 30, Nanos::from_secs(5));
    assert!(!early.is_refused());
    assert!(new.decide(&mut bucket, 1, at).is_refused());
}
