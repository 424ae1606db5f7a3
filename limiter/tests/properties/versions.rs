//! Carry-over by example: which limit goes on from which, and buckets touched long after an edit.

use loudou_limiter::carry::{Past, Versions, convert};
use loudou_limiter::config::parse_limits;
use loudou_limiter::{Bucket, Carry, Limits, Nanos};
use serde_json::{Value, json};

fn limits(document: &Value) -> Limits {
    parse_limits(document).expect("valid")
}

fn funnel(capacity: u64, rate: &str) -> Limits {
    limits(&json!([{ "algorithm": "funnel", "capacity": capacity, "rate": rate }]))
}

fn used(limits: &Limits, cost: u64) -> Bucket {
    let mut bucket = limits.start(Nanos::ZERO);
    assert!(!limits.decide(&mut bucket, cost, Nanos::ZERO).is_refused());
    bucket
}

fn left(limits: &Limits, bucket: &Bucket, seconds: u64) -> Vec<u64> {
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
        // At half the rate only two of the four come back before the old reset time.
        (Carry::Keep, 10, "5/h", 8),
        (Carry::Proportional, 20, "20/h", 12),
        (Carry::Proportional, 10, "1000/h", 6),
        (Carry::Proportional, 5, "10/h", 3),
        // Four tenths of two is 0.8.
        (Carry::Proportional, 2, "10/h", 1),
        // Eight would be proportional, but only four come back in time.
        (Carry::Proportional, 20, "10/h", 16),
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

/// Water that leaked before the edit is gone.
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

/// A conversion gives nothing away: a fraction of a unit or of a nanosecond stays used.
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
    // Six and a very little of ten used: half of it is a little more than three.
    let half = limits(&json!([{
        "algorithm": "token_bucket", "capacity": 5, "rate": "1/s", "refill": "interval",
        "name": "funnel"
    }]));
    let mut seven = old.start(Nanos::ZERO);
    old.decide(&mut seven, 7, Nanos::ZERO);
    let of_half = convert(&old, &half, Carry::Proportional, &seven, almost);
    assert_eq!(left(&half, &of_half), Some(1));
    let at_once = lumps.peek(&converted, 0, Nanos::ZERO);
    assert_eq!(at_once.reported().map(|limit| limit.remaining), Some(1));
}

/// Not by a nanosecond: a level that is handed over unchanged is as good as new when it was before.
#[test]
fn the_old_reset_time_is_kept_to_the_nanosecond() {
    let (old, new) = (funnel(1, "1/s"), funnel(2, "1/s"));
    let bucket = used(&old, 1);
    for at in [1, 2, 3, 333_333_333, 999_999_999] {
        let at = Nanos::new(at);
        let converted = convert(&old, &new, Carry::Keep, &bucket, at);
        let reset = new.peek(&converted, 0, at).reset_after();
        assert_eq!(reset, Nanos::from_secs(1).since(at), "at {at}");
    }
}

/// By name first; a limit that was renamed goes on from the one in its place; a new one is new.
#[test]
fn limits_go_on_from_their_counterparts() {
    let named = |names: &[&str]| {
        let list = names.iter().map(
            |name| json!({ "name": name, "algorithm": "funnel", "capacity": 10, "rate": "10/h" }),
        );
        limits(&list.collect())
    };
    let old = named(&["a", "b"]);
    // A live bucket whose limits differ: three of ten used, and three of five made six of ten.
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

fn past(limits: &Limits, carry: Carry, until: u64) -> Past {
    Past {
        limits: limits.clone(),
        carry,
        until: Nanos::from_secs(until),
    }
}

/// A late touch sees what an immediate conversion would have left, through several edits.
#[test]
fn a_late_touch_is_brought_forward_edit_by_edit() {
    let (a, b, c) = (funnel(10, "1/s"), funnel(20, "10/s"), funnel(40, "1/h"));
    let bucket = used(&a, 10);
    let versions = Versions::new(
        c.clone(),
        vec![past(&a, Carry::Proportional, 5), past(&b, Carry::Keep, 6)],
    );
    // 5 of 10 used at 5 s, so 10 of 20; none after one more second of 10/s.
    let brought =
        versions.bring_forward(&bucket, a.tag(), Nanos::from_secs(10), Nanos::from_secs(9));
    assert_eq!(left(&c, &brought, 9), [40]);
    let versions = Versions::new(
        c.clone(),
        vec![
            past(&a, Carry::Proportional, 5),
            past(&b, Carry::Proportional, 5),
        ],
    );
    let brought =
        versions.bring_forward(&bucket, a.tag(), Nanos::from_secs(10), Nanos::from_secs(9));
    // Half full, but as good as new within the old 5 s: at 1/h that is next to nothing.
    assert_eq!(left(&c, &brought, 9), [40]);
    // Written under b, the first edit does not concern it.
    let under_b = used(&b, 20);
    let brought =
        versions.bring_forward(&under_b, b.tag(), Nanos::from_secs(2), Nanos::from_secs(9));
    assert_eq!(left(&c, &brought, 9), [40]);
}

#[test]
fn the_current_limits_need_no_conversion() {
    let (a, b) = (funnel(10, "1/h"), funnel(20, "1/h"));
    let versions = Versions::new(b.clone(), vec![past(&a, Carry::Reset, 5)]);
    assert_eq!((versions.tag(), versions.current()), (b.tag(), &b));
    let bucket = used(&b, 20);
    let same = versions.bring_forward(&bucket, b.tag(), Nanos::MAX, Nanos::from_secs(9));
    assert_eq!(same, bucket);
}

/// The same limits may have been in force twice: the last touch tells which time wrote the bucket.
#[test]
fn an_edit_there_and_back_is_two_edits() {
    let (a, b) = (funnel(10, "1/h"), funnel(20, "1/h"));
    let edits = vec![past(&a, Carry::Reset, 5), past(&b, Carry::Keep, 6)];
    let there_and_back = Versions::new(a.clone(), edits.clone());
    let forward = |versions: &Versions, bucket: &Bucket| {
        versions.bring_forward(bucket, a.tag(), Nanos::MAX, Nanos::from_secs(9))
    };
    // Full at 0 s, reset at 5 s.
    let first = used(&a, 10);
    assert_eq!(left(&a, &forward(&there_and_back, &first), 9), [10]);
    // Full again after the second edit: that one stays.
    let mut second = a.start(Nanos::from_secs(7));
    a.decide(&mut second, 10, Nanos::from_secs(7));
    assert_eq!(left(&a, &forward(&there_and_back, &second), 9), [0]);
    // And with yet another edit behind it.
    let mut edits = edits;
    edits.push(past(&a, Carry::Keep, 8));
    let on = Versions::new(b.clone(), edits);
    assert_eq!(left(&b, &forward(&on, &first), 9), [20]);
    assert_eq!(left(&b, &forward(&on, &second), 9), [10]);
}

/// A worker that has not heard of an edit yet writes with the old tag after it. What it took counts
/// from its own instant, and by the newest edit of those limits.
#[test]
fn a_late_worker_is_brought_forward_from_its_last_touch() {
    let (a, b, c) = (funnel(10, "1/h"), funnel(20, "1/h"), funnel(30, "1/h"));
    let mut late = a.start(Nanos::ZERO);
    a.decide(&mut late, 10, Nanos::from_secs(9));
    let forward = |current: &Limits, edits: Vec<Past>| {
        let versions = Versions::new(current.clone(), edits);
        let bucket = versions.bring_forward(&late, a.tag(), Nanos::MAX, Nanos::from_secs(9));
        left(current, &bucket, 9)
    };
    let reset = |until| past(&a, Carry::Reset, until);
    let keep = |until| past(&a, Carry::Keep, until);
    assert_eq!(forward(&b, vec![reset(5)]), [20]);
    assert_eq!(forward(&b, vec![keep(5)]), [10]);
    assert_eq!(
        forward(&c, vec![reset(5), past(&b, Carry::Keep, 6), keep(8)]),
        [20]
    );
    assert_eq!(
        forward(&c, vec![keep(5), past(&b, Carry::Keep, 6), reset(8)]),
        [30]
    );
}

/// A bucket touched at the very instant of an edit was touched after it.
#[test]
fn an_edit_is_applied_once() {
    let a = funnel(10, "1/h");
    let versions = Versions::new(a.clone(), vec![past(&a, Carry::Reset, 5)]);
    let at = Nanos::from_secs(5);
    let mut bucket = versions.bring_forward(&used(&a, 10), a.tag(), Nanos::MAX, at);
    assert!(!a.decide(&mut bucket, 10, at).is_refused());
    let again = versions.bring_forward(&bucket, a.tag(), Nanos::MAX, at);
    assert_eq!(left(&a, &again, 5), [0]);
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
    let forgotten = Versions::new(new.clone(), Vec::new());
    let kept = forgotten.bring_forward(&bucket, 1, Nanos::from_secs(50), Nanos::from_secs(5));
    assert_eq!(kept.last, touched);
    assert_eq!(left(&new, &kept, 39), [11], "two lumps until 50 s");
}

/// A reset edit that leaves the numbers alone empties live buckets, too.
#[test]
fn the_same_numbers_can_be_reset() {
    let a = funnel(10, "1/h");
    let versions = Versions::new(a.clone(), vec![past(&a, Carry::Reset, 5)]);
    let brought = versions.bring_forward(&used(&a, 10), a.tag(), Nanos::MAX, Nanos::from_secs(9));
    assert_eq!(left(&a, &brought, 9), [10]);
}

/// Limits that nobody remembers: as full as can be without waiting longer than before.
#[test]
fn forgotten_limits_keep_their_reset_time() {
    let new = funnel(10, "1/s");
    let versions = Versions::new(new.clone(), Vec::new());
    let bucket = used(&funnel(3, "1/h"), 3);
    for (idle_at, expected) in [(5, 10), (9, 10), (12, 7), (20, 0), (100_000, 0)] {
        let idle_at = Nanos::from_secs(idle_at);
        let kept = versions.bring_forward(&bucket, 1, idle_at, Nanos::from_secs(9));
        assert_eq!(left(&new, &kept, 9), [expected], "idle at {idle_at}");
        assert_eq!(kept.last, Nanos::from_secs(9));
        // Full is all that is owed, however long the old wait.
        let later = left(&new, &kept, 19);
        assert_eq!(later, [10], "idle at {idle_at}");
    }
}

/// A request whose clock was read before the edit must not move the refill's clock back: the lumps
/// between would come twice.
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

/// Replacing step by step is the same as knowing the whole past, and only so much is remembered.
#[test]
fn replaced_limits_are_remembered() {
    let step = |capacity: u64| funnel(capacity, "10/h");
    let at = |second: u64| Nanos::from_secs(second);
    let mut versions = Versions::new(step(1), Vec::new());
    for capacity in 1..=12 {
        versions.replace(step(capacity), Carry::Keep, at(capacity));
    }
    let past = |capacity| Past {
        limits: step(capacity),
        carry: Carry::Keep,
        until: at(capacity + 1),
    };
    assert_eq!(
        versions,
        Versions::new(step(12), (4..12).map(past).collect())
    );
}
