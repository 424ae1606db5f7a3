//! The pay-later limiters, worked out by hand.

use loudou_limiter::algorithm::smooth_bursty::MAX_BURST;
use loudou_limiter::algorithm::smooth_warmup::{COLD_FACTORS, MAX_WARMUP};
use loudou_limiter::algorithm::{SmoothBursty, SmoothWarmup};
use loudou_limiter::bounds::{BadNumbers, MAX_WAIT};
use loudou_limiter::{Bucket, Carry, Clock, Decimal, Limits, Nanos, Rate, convert};
use serde_json::json;

use super::waiting::{Admitted, Held, Is, Refused, is, run};
use super::{DAY, MS, S, limits};

/// Two permits per second, four stored.
fn bursty(max_wait: &str) -> serde_json::Value {
    json!([{
        "algorithm": "smooth_bursty", "rate": "2/s", "burst_seconds": 2, "max_wait": max_wait
    }])
}

#[test]
fn the_next_one_pays() {
    run(
        &bursty("0s"),
        &[
            // Nothing is stored at first, but the first one need not pay.
            (0, 0, Admitted, 1, 2 * S),
            (0, 7, Admitted, 0, 5_500 * MS),
            (0, 0, Admitted, 0, 5_500 * MS),
            (0, 1, Refused(3_500 * MS), 0, 5_500 * MS),
            (3_500 * MS - 1, 1, Refused(1), 0, 2 * S + 1),
            (3_500 * MS, 1, Admitted, 0, 2_500 * MS),
            (4 * S, 0, Admitted, 1, 2 * S),
            (4_250 * MS, 0, Admitted, 1, 1_750 * MS),
            (4_500 * MS, 0, Admitted, 2, 1_500 * MS),
            (6 * S, 0, Admitted, 5, 0),
            // Four permits are stored and free, so six have to be paid for.
            (99 * S, 10, Admitted, 0, 5 * S),
            (99 * S, 1, Refused(3 * S), 0, 5 * S),
        ],
    );
}

#[test]
fn a_bursty_limiter_holds() {
    run(
        &bursty("1s"),
        &[
            (5 * S, 1, Admitted, 0, 2_500 * MS),
            (5 * S, 2, Held(500 * MS), 0, 3_500 * MS),
            (5 * S, 1, Refused(500 * MS), 0, 3_500 * MS),
            (5_500 * MS - 1, 1, Refused(1), 0, 3 * S + 1),
            (5_500 * MS, 1, Held(S), 0, 3_500 * MS),
        ],
    );
}

/// A third of a second is no whole number of nanoseconds.
#[test]
fn thirds_do_not_drift() {
    run(
        &json!([{ "algorithm": "smooth_bursty", "rate": "3/s", "burst_seconds": 0, "max_wait": "1h" }]),
        &[
            (0, 1, Admitted, 0, 333_333_334),
            (0, 1, Held(333_333_334), 0, 666_666_667),
            (0, 1, Held(666_666_667), 0, S),
            (0, 1, Held(S), 0, 1_333_333_334),
        ],
    );
}

/// The maximum number of stored permits need not be whole.
#[test]
fn a_burst_has_fractions() {
    let tenth = json!([{ "algorithm": "smooth_bursty", "rate": "5/s", "burst_seconds": 0.5 }]);
    run(
        &tenth,
        &[
            (S, 0, Admitted, 1, 500 * MS),
            (9 * S, 0, Admitted, 3, 0),
            (9 * S, 1, Admitted, 2, 200 * MS),
            (9 * S, 1, Admitted, 1, 400 * MS),
            (9 * S, 1, Admitted, 0, 600 * MS),
            (9 * S, 1, Refused(100 * MS), 0, 600 * MS),
        ],
    );
    let limits = limits(&tenth);
    let algorithm = limits.iter().next().expect("one").algorithm().clone();
    assert_eq!((algorithm.capacity(), algorithm.max_cost()), (3, u64::MAX));
    assert_eq!(algorithm.drain_time(), Nanos::from_millis(700));
}

/// Any cost is taken, but no debt is longer than ten years.
#[test]
fn a_debt_has_an_end() {
    let longest = 3_660 * DAY;
    for limit in [
        json!({ "algorithm": "smooth_bursty", "rate": "1/d", "burst_seconds": 0 }),
        json!({ "algorithm": "smooth_warmup", "rate": "1/d", "warmup": "1ns", "cold_factor": 1 }),
    ] {
        for cost in [3_659, 3_660, 3_661, 1_000_000_000, u64::MAX] {
            let limits = limits(&json!([limit]));
            let mut bucket = limits.start(Nanos::ZERO);
            limits.decide(&mut bucket, cost, Nanos::ZERO);
            let answer = limits.decide(&mut bucket, 1, Nanos::ZERO);
            let decision = answer.reported().expect("one");
            let expected = longest.min(cost.saturating_mul(DAY));
            assert_eq!(is(decision), Refused(expected), "{cost}");
        }
    }
}

/// Guava 31.1, `RateLimiter.create(2, 4, SECONDS, 3)`. Eight permits are stored, and from the fifth
/// on they cost no more than fresh permits.
#[test]
fn a_cold_limiter_is_slow() {
    run(
        &json!([{ "algorithm": "smooth_warmup", "rate": "2/s", "warmup": "4s", "max_wait": "10s" }]),
        &[
            (0, 0, Admitted, 1, 0),
            // From 1.5 s a permit down to 1 s: 1.375, then 1.125, 0.875 and 0.625 s.
            (0, 1, Admitted, 0, 1_875 * MS),
            (0, 1, Held(1_375 * MS), 0, 3_500 * MS),
            (0, 2, Held(2_500 * MS), 0, 6 * S),
            // The last four and two fresh ones take half a second each.
            (0, 6, Held(4 * S), 0, 11 * S),
            (0, 1, Held(7 * S), 0, 11_500 * MS),
            (7_500 * MS, 0, Admitted, 1, 4 * S),
            // One permit is stored in half a second. At 9.5 s there are four, and the fifth costs
            // more.
            (9_500 * MS, 0, Admitted, 1, 2 * S),
            (10 * S, 1, Admitted, 0, 2_625 * MS),
        ],
    );
}

/// At a million per second, the stored permits do not fit a word.
#[test]
fn a_large_store_is_kept() {
    let smooth = json!([{
        "algorithm": "smooth_warmup", "rate": "1000000/s", "warmup": "60s", "max_wait": "1h"
    }]);
    run(
        &smooth,
        &[
            // All cold permits: half of sixty million, which cost two thirds of the total.
            (0, 30_000_000, Admitted, 0, 90 * S),
            (0, 30_000_000, Held(60 * S), 0, 150 * S),
            (0, 1_000_000, Held(90 * S), 0, 151 * S),
            (91 * S, 0, Admitted, 1, 60 * S),
            (121 * S, 30_000_000, Admitted, 0, 90 * S),
        ],
    );
    let limits = limits(&smooth);
    let algorithm = limits.iter().next().expect("one").algorithm();
    assert_eq!((algorithm.capacity(), algorithm.max_cost()), (1, u64::MAX));
    assert_eq!(algorithm.drain_time(), Nanos::new(60 * S + 1_000));
}

/// Computed in fractions: after two rests the last request may pass after 14 + 1/7344 ns.
#[test]
fn a_warmup_is_never_early() {
    let limits = limits(&json!([
        { "algorithm": "smooth_warmup", "rate": "1/5ns", "warmup": "17ns", "cold_factor": 2, "max_wait": "1h" }
    ]));
    let mut bucket = limits.start(Nanos::ZERO);
    let mut waits = Vec::new();
    for (at, cost) in [(0, 3), (13, 2), (38, 4), (44, 4)] {
        let answer = limits.decide(&mut bucket, cost, Nanos::new(at));
        waits.push(answer.wait().get());
    }
    assert_eq!(waits, [0, 8, 0, 15]);
}

/// Splitting a cost does not change the total, even across the threshold and beyond the stored
/// permits.
#[test]
fn a_warmup_costs_the_same_in_parts() {
    let limits = limits(&json!([
        { "algorithm": "smooth_warmup", "rate": "7/3s", "warmup": "10s", "cold_factor": 2.7, "max_wait": "1h" }
    ]));
    let after = |costs: &[u64]| {
        let mut bucket = limits.start(Nanos::ZERO);
        for cost in costs {
            assert!(!limits.decide(&mut bucket, *cost, Nanos::ZERO).is_refused());
        }
        bucket.words().to_vec()
    };
    let whole = after(&[60]);
    assert_eq!(after(&[1; 60]), whole);
    assert_eq!(after(&[13, 1, 29, 17]), whole);
}

#[test]
fn smooth_limiters_have_bounds() {
    let rate = |text: &str| Rate::parse(text).expect("a rate");
    let bursty = |text: &str, burst: Decimal| SmoothBursty::new(rate(text), burst).err();
    let seconds = |s: u32| Decimal::from_thousandths(s * 1_000);
    assert_eq!(bursty("1/s", MAX_BURST), None);
    let more = Decimal::from_thousandths(86_400_001);
    assert_eq!(bursty("1/s", more), Some(BadNumbers::Burst));
    assert_eq!(bursty("999999999/s", seconds(1)), None);
    assert_eq!(bursty("1000000000/s", seconds(1)), Some(BadNumbers::Burst));
    assert_eq!(bursty("1/367d", seconds(1)), Some(BadNumbers::Rate));
    let warmup =
        |warmup: Nanos, factor: Decimal| SmoothWarmup::new(rate("1/s"), warmup, factor).err();
    let [least, most] = COLD_FACTORS;
    assert_eq!(warmup(Nanos::new(1), least), None);
    assert_eq!(warmup(MAX_WARMUP, most), None);
    assert_eq!(warmup(Nanos::ZERO, least), Some(BadNumbers::Warmup));
    let longer = MAX_WARMUP.saturating_add(Nanos::new(1));
    assert_eq!(warmup(longer, least), Some(BadNumbers::Warmup));
    let below = Decimal::from_thousandths(least.thousandths() - 1);
    let above = Decimal::from_thousandths(most.thousandths() + 1);
    assert_eq!(warmup(Nanos::new(1), below), Some(BadNumbers::ColdFactor));
    assert_eq!(warmup(Nanos::new(1), above), Some(BadNumbers::ColdFactor));
    let wrong = SmoothWarmup::new(rate("1/367d"), Nanos::new(1), least);
    assert_eq!(wrong.err(), Some(BadNumbers::Rate));
    let longer = MAX_WAIT.saturating_add(Nanos::new(1));
    let bursty = SmoothBursty::new(rate("1/s"), least).expect("valid");
    assert_eq!(bursty.waiting(longer), Err(BadNumbers::MaxWait));
    let warmup = SmoothWarmup::new(rate("1/s"), Nanos::new(1), least).expect("valid");
    assert_eq!(warmup.waiting(longer), Err(BadNumbers::MaxWait));
    for (max_wait, holds) in [
        (Nanos::ZERO, false),
        (Nanos::new(1), true),
        (MAX_WAIT, true),
    ] {
        let of = |limit: loudou_limiter::algorithm::Algorithm| limit.may_hold();
        assert_eq!(of(bursty.waiting(max_wait).expect("valid").into()), holds);
        assert_eq!(of(warmup.waiting(max_wait).expect("valid").into()), holds);
    }
}

/// A bucket full of permits is better than a new one. A cold bucket is equal to a new one.
#[test]
fn what_a_smooth_bucket_is_worth() {
    let forgets = |limit: serde_json::Value| limits(&json!([limit])).forgets_losslessly();
    assert!(!forgets(
        json!({ "algorithm": "smooth_bursty", "rate": "1/s" })
    ));
    assert!(forgets(
        json!({ "algorithm": "smooth_bursty", "rate": "1/s", "burst_seconds": 0 })
    ));
    assert!(forgets(
        json!({ "algorithm": "smooth_warmup", "rate": "1/s", "warmup": "1s" })
    ));
}

fn first(limits: &Limits, bucket: &Bucket, now: u64) -> Is {
    let answer = limits.peek(bucket, 1, Nanos::new(now));
    is(answer.reported().expect("one"))
}

/// Owed permits stay owed. The number or the share of stored permits also stays.
#[test]
fn a_rate_changes_under_a_bursty_limiter() {
    let at_rate = |rate: &str| {
        limits(&json!([{
            "algorithm": "smooth_bursty", "rate": rate, "burst_seconds": 2, "max_wait": "1h"
        }]))
    };
    let old = at_rate("2/s");
    let mut bucket = old.start(Nanos::ZERO);
    old.decide(&mut bucket, 6, Nanos::ZERO);
    // Six, of which two are paid for at 1 s. Four at 7/3 s take 12/7 s.
    for (rate, wait) in [
        ("1/s", 4 * S),
        ("2/s", 2 * S),
        ("20/s", 200 * MS),
        ("7/3s", 1_714_285_715),
    ] {
        let new = at_rate(rate);
        for carry in [Carry::Keep, Carry::Proportional] {
            let edited = convert(&old, &new, carry, &bucket, Clock::at(Nanos::from_secs(1)));
            assert_eq!(first(&new, &edited, S), Held(wait), "{rate}");
        }
    }
    // Two permits stay two, which is the maximum at half the rate.
    let new = at_rate("1/s");
    let at = Nanos::from_secs(4);
    let edited = convert(&old, &new, Carry::Keep, &bucket, Clock::at(at));
    let answer = new.peek(&edited, 0, at);
    let decision = answer.reported().expect("one");
    assert_eq!((decision.remaining, decision.reset_after), (3, Nanos::ZERO));
    // At 4 s, two of four permits are stored. At a tenth of the rate this is 0.2 of 0.4, and at ten
    // times the rate 20.
    for (rate, left) in [("2/s", 3), ("20/s", 21), ("2/10s", 1)] {
        let new = at_rate(rate);
        let at = Nanos::from_secs(4);
        let edited = convert(&old, &new, Carry::Proportional, &bucket, Clock::at(at));
        let answer = new.peek(&edited, 0, at);
        let decision = answer.reported().expect("one");
        assert_eq!(
            (decision.remaining, decision.reset_after),
            (left, Nanos::from_secs(1))
        );
    }
}

/// The used part of a capacity is the part that is not stored. One request more than the stored
/// permits passes and is paid for later, so four count as five in proportion.
#[test]
fn a_burst_is_a_capacity() {
    let funnel = limits(&json!([{ "algorithm": "funnel", "capacity": 4, "rate": "2/s" }]));
    let smooth = limits(&bursty("0s"));
    let left = |limits: &Limits, bucket: &Bucket| {
        let answer = limits.peek(bucket, 0, Nanos::ZERO);
        answer.reported().expect("one").remaining
    };
    for (used, kept, share) in [(0, 5, 5), (1, 4, 3), (2, 3, 2), (3, 2, 1), (4, 1, 0)] {
        let mut bucket = funnel.start(Nanos::ZERO);
        funnel.decide(&mut bucket, used, Nanos::ZERO);
        for (carry, expected) in [(Carry::Keep, kept), (Carry::Proportional, share)] {
            let at = Clock::at(Nanos::ZERO);
            let there = convert(&funnel, &smooth, carry, &bucket, at);
            assert_eq!(left(&smooth, &there), expected, "{used} {carry:?}");
            let back = convert(&smooth, &funnel, carry, &there, at);
            assert_eq!(left(&funnel, &back), 4 - used, "{used} {carry:?}");
        }
    }
}

/// With proportional carry, no request passes that would not have passed before, and nothing is
/// forgotten on the way.
#[test]
fn a_used_capacity_is_a_debt_in_proportion() {
    let funnel = limits(&json!([{ "algorithm": "funnel", "capacity": 4, "rate": "2/s" }]));
    let mut bucket = funnel.start(Nanos::ZERO);
    funnel.decide(&mut bucket, 4, Nanos::ZERO);
    let at = Clock::at(Nanos::ZERO);
    for other in [
        json!({ "algorithm": "smooth_bursty", "rate": "2/s", "burst_seconds": 0 }),
        json!({ "algorithm": "smooth_warmup", "rate": "2/s", "warmup": "4s" }),
    ] {
        let smooth = limits(&json!([other]));
        let there = convert(&funnel, &smooth, Carry::Proportional, &bucket, at);
        assert_eq!(first(&smooth, &there, 0), Refused(500 * MS), "{other}");
        let back = convert(&smooth, &funnel, Carry::Proportional, &there, at);
        assert_eq!(first(&funnel, &back, 0), Refused(500 * MS), "{other}");
    }
}

#[test]
fn a_rate_changes_under_a_warmup() {
    let with = |rate: &str, warmup: &str, factor: f64| {
        limits(&json!([{
            "algorithm": "smooth_warmup", "rate": rate, "warmup": warmup, "cold_factor": factor,
            "max_wait": "1h"
        }]))
    };
    let old = with("2/s", "4s", 3.0);
    let mut bucket = old.start(Nanos::ZERO);
    // Half of the eight permits are left, and 4 s are owed. At 1 s, 3 s are owed, which are six
    // permits.
    old.decide(&mut bucket, 4, Nanos::ZERO);
    let at = Nanos::from_secs(1);
    let reset = |limits: &Limits, bucket: &Bucket| {
        let answer = limits.peek(bucket, 0, at);
        answer.reset_after().get()
    };
    for (new, carry, wait, cold) in [
        (with("2/s", "4s", 3.0), Carry::Keep, 3 * S, 2 * S),
        (
            with("20/s", "4s", 3.0),
            Carry::Proportional,
            300 * MS,
            2 * S,
        ),
        (with("1/s", "4s", 3.0), Carry::Proportional, 6 * S, 2 * S),
        // Four of eighty are missing.
        (with("20/s", "4s", 3.0), Carry::Keep, 300 * MS, 200 * MS),
        // Half of the stored permits come back in half of the warm-up.
        (with("2/s", "2s", 3.0), Carry::Proportional, 3 * S, S),
        (with("2/s", "40s", 3.0), Carry::Proportional, 3 * S, 20 * S),
        (with("2/s", "4s", 9.0), Carry::Proportional, 3 * S, 2 * S),
    ] {
        let edited = convert(&old, &new, carry, &bucket, Clock::at(at));
        assert_eq!(first(&new, &edited, S), Held(wait), "{carry:?} {new:?}");
        assert_eq!(reset(&new, &edited), wait + cold, "{carry:?} {new:?}");
    }
    // Another algorithm takes over the debt, and passes it on.
    let other = limits(&json!([
        { "algorithm": "smooth_bursty", "rate": "1/s", "burst_seconds": 0, "max_wait": "1h" }
    ]));
    let edited = convert(&old, &other, Carry::Proportional, &bucket, Clock::at(at));
    assert_eq!(first(&other, &edited, S), Held(6 * S));
    let back = convert(&other, &old, Carry::Proportional, &edited, Clock::at(at));
    assert_eq!(first(&old, &back, S), Held(3 * S));
    assert_eq!(reset(&old, &back), 3 * S, "cold");
}
