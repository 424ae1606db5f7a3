//! Requests in flight, worked out by hand.

use loudou_limiter::algorithm::Concurrency;
use loudou_limiter::algorithm::concurrency::{LEASE, MAX_LEASE};
use loudou_limiter::bounds::BadNumbers;
use loudou_limiter::{Bucket, Carry, Clock, Limits, Nanos, convert};
use serde_json::json;

use super::waiting::{Admitted, Is, Never, is};
use super::{S, limits};

/// A bucket and its limits.
struct World {
    limits: Limits,
    bucket: Bucket,
}

fn at_most(capacity: u64, lease: &str) -> Limits {
    limits(&json!([{ "algorithm": "concurrency", "capacity": capacity, "lease": lease }]))
}

impl World {
    fn new(capacity: u64, lease: &str, now: u64) -> Self {
        let limits = at_most(capacity, lease);
        let bucket = limits.start(Nanos::new(now));
        Self { limits, bucket }
    }

    /// Returns the outcome of a request, the remaining capacity, and the time until the bucket is
    /// full.
    fn take(&mut self, cost: u64, now: u64) -> (Is, u64, u64) {
        let answer = self.limits.decide(&mut self.bucket, cost, Nanos::new(now));
        let decision = answer.reported().expect("one");
        (is(decision), decision.remaining, decision.reset_after.get())
    }

    fn give(&mut self, cost: u64, taken_at: u64, now: u64) -> u64 {
        let (taken_at, now) = (Nanos::new(taken_at), Nanos::new(now));
        self.limits.release(&mut self.bucket, cost, taken_at, now);
        self.left(now.get())
    }

    fn left(&self, now: u64) -> u64 {
        let answer = self.limits.peek(&self.bucket, 0, Nanos::new(now));
        answer.reported().expect("one").remaining
    }

    fn edit(&self, limits: Limits, carry: Carry, now: u64) -> Self {
        let bucket = convert(
            &self.limits,
            &limits,
            carry,
            &self.bucket,
            Clock::at(Nanos::new(now)),
        );
        Self { limits, bucket }
    }
}

/// Refused, with an unknown wait.
const FULL: Is = Never;

#[test]
fn requests_come_and_go() {
    let mut world = World::new(3, "10s", 0);
    assert_eq!(world.take(0, 0), (Admitted, 3, 0));
    assert_eq!(world.take(1, 0), (Admitted, 2, 20 * S));
    assert_eq!(world.take(2, S), (Admitted, 0, 19 * S));
    assert_eq!(world.take(1, S), (FULL, 0, 19 * S));
    assert_eq!(world.take(0, S), (Admitted, 0, 19 * S));
    assert_eq!(world.give(1, 0, 2 * S), 1);
    assert_eq!(world.take(2, 2 * S), (FULL, 1, 18 * S));
    assert_eq!(world.take(1, 2 * S), (Admitted, 0, 18 * S));
    assert_eq!(world.give(2, S, 3 * S), 2);
    assert_eq!(world.give(1, 2 * S, 3 * S), 3);
    assert_eq!(world.take(0, 3 * S), (Admitted, 3, 0));
    assert_eq!(world.take(4, 3 * S), (FULL, 3, 0));
    assert_eq!(world.take(u64::MAX, 3 * S), (FULL, 3, 0));
}

/// Permits that are not given back expire between one and two leases after they were taken.
#[test]
fn lost_returns_heal() {
    let mut world = World::new(3, "10s", 5 * S);
    assert_eq!(world.take(1, 5 * S), (Admitted, 2, 20 * S));
    assert_eq!(world.take(1, 15 * S - 1), (Admitted, 1, 10 * S + 1));
    assert_eq!(world.take(1, 15 * S), (Admitted, 0, 20 * S));
    assert_eq!(world.take(1, 25 * S - 1), (FULL, 0, 10 * S + 1));
    assert_eq!(world.take(0, 25 * S), (Admitted, 2, 10 * S));
    assert_eq!(world.take(0, 35 * S - 1), (Admitted, 2, 1));
    assert_eq!(world.take(0, 35 * S), (Admitted, 3, 0));
    assert_eq!(world.take(3, 35 * S), (Admitted, 0, 20 * S));
    // After a long pause, at once.
    assert_eq!(world.take(3, 1_000 * S + 3), (Admitted, 0, 20 * S));
}

#[test]
fn a_return_is_of_its_own_generation() {
    let mut world = World::new(9, "10s", 0);
    world.take(1, 3 * S);
    world.take(2, 12 * S);
    assert_eq!(world.take(0, 19 * S), (Admitted, 6, 11 * S));
    // A permit that was taken first and is given back late is not subtracted from later ones.
    assert_eq!(world.give(1, 3 * S, 19 * S), 7);
    assert_eq!(world.take(0, 19 * S), (Admitted, 7, 11 * S));
    // A second return of the same cost changes nothing.
    assert_eq!(world.give(1, 3 * S, 19 * S), 7);
    assert_eq!(world.give(5, 10 * S - 1, 19 * S), 7);
    // At the very instant at which a generation begins.
    assert_eq!(world.give(1, 10 * S, 19 * S), 8);
    assert_eq!(world.give(u64::MAX, 12 * S, 19 * S), 9);
}

/// A return after its lease, or for a bucket that was forgotten, takes nothing from other requests.
#[test]
fn late_returns_take_nothing() {
    let mut world = World::new(3, "10s", 0);
    world.take(1, S);
    world.take(2, 21 * S);
    assert_eq!(world.give(1, S, 21 * S), 1);
    assert_eq!(world.give(1, S, 22 * S), 1);
    let mut fresh = World::new(3, "10s", 5 * S);
    fresh.take(3, 5 * S);
    assert_eq!(fresh.give(3, 5 * S - 1, 6 * S), 0);
    assert_eq!(fresh.give(3, 4 * S, 16 * S), 0);
    assert_eq!(fresh.give(3, 5 * S, 16 * S), 3);
}

/// The bucket's instant counts, because the clock of another worker may be ahead.
#[test]
fn a_decision_tells_its_instant() {
    let mut world = World::new(3, "10s", 0);
    world.take(1, 10 * S);
    let early = Nanos::from_secs(9);
    let answer = world.limits.decide(&mut world.bucket, 1, early);
    assert_eq!(answer.at(), Nanos::from_secs(10));
    world
        .limits
        .release(&mut world.bucket, 1, answer.at(), early);
    assert_eq!(world.bucket.last, Nanos::from_secs(10));
    assert_eq!(world.left(10 * S), 2);
    let refused = world
        .limits
        .decide(&mut world.bucket, 3, Nanos::from_secs(11));
    assert_eq!(
        (refused.is_refused(), refused.at()),
        (true, Nanos::from_secs(11))
    );
    assert_eq!(world.bucket.last, Nanos::from_secs(11));
    world.limits.release(
        &mut world.bucket,
        1,
        Nanos::from_secs(10),
        Nanos::from_secs(12),
    );
    assert_eq!(world.bucket.last, Nanos::from_secs(12));
}

/// If there is also a rate, a request charges both limits or neither, and gives back only to one.
#[test]
fn only_what_is_in_flight_is_given_back() {
    let limits = limits(&json!([
        { "algorithm": "funnel", "capacity": 3, "rate": "1/d" },
        { "algorithm": "concurrency", "capacity": 1 },
    ]));
    assert!(limits.holds_until_end() && !limits.may_hold());
    assert!(
        !super::limits(&json!([{ "algorithm": "funnel", "capacity": 3, "rate": "1/d" }]))
            .holds_until_end()
    );
    let now = Nanos::from_secs(1);
    let mut bucket = limits.start(now);
    let left = |bucket: &Bucket| -> Vec<u64> {
        let answer = limits.peek(bucket, 0, now);
        answer.decisions().map(|limit| limit.remaining).collect()
    };
    assert!(!limits.decide(&mut bucket, 1, now).is_refused());
    let refused = limits.decide(&mut bucket, 1, now);
    assert_eq!((refused.is_refused(), refused.reported_index()), (true, 1));
    assert_eq!(left(&bucket), [2, 0]);
    limits.release(&mut bucket, 1, now, now);
    assert_eq!(left(&bucket), [2, 1]);
}

/// A request in flight stays in flight under any new numbers.
#[test]
fn an_edit_keeps_what_is_in_flight() {
    let mut world = World::new(8, "10s", 0);
    world.take(3, S);
    world.take(4, 11 * S);
    for carry in [Carry::Keep, Carry::Proportional] {
        let mut lower = world.edit(at_most(4, "10s"), carry, 12 * S);
        assert_eq!(lower.take(1, 12 * S), (FULL, 0, 18 * S));
        assert_eq!(lower.give(3, S, 12 * S), 0);
        assert_eq!(lower.give(1, 11 * S, 12 * S), 1);
        assert_eq!(
            world.edit(at_most(20, "10s"), carry, 12 * S).left(12 * S),
            13
        );
        // With a shorter lease, all permits end one lease after the edit. This is also true if a
        // longer lease would have ended by then: permits from 0 s end two leases later.
        for (lease, end, comes_back) in [
            ("5s", 17 * S + 1, false),
            ("12s", 24 * S + 1, true),
            ("1m", 120 * S, true),
        ] {
            let mut other = world.edit(at_most(8, lease), carry, 12 * S);
            assert_eq!(
                other.take(0, 12 * S),
                (Admitted, 1, end - 12 * S),
                "{lease}"
            );
            assert_eq!(other.left(end - 1), 1);
            assert_eq!(other.left(end), 8);
            // Permits that were taken in the new lease before the edit, or are known by their
            // generation, come back.
            let mut other = world.edit(at_most(8, lease), carry, 12 * S);
            assert_eq!(other.give(4, 11 * S, 13 * S), 5);
            assert_eq!(other.give(3, S, 13 * S), if comes_back { 8 } else { 5 });
        }
    }
    // `reset` forgets the used amount. Requests in flight continue.
    let mut reset = world.edit(at_most(8, "10s"), Carry::Reset, 12 * S);
    assert_eq!(reset.left(12 * S), 1);
    assert_eq!(reset.give(4, 11 * S, 12 * S), 5);
}

/// A rate has no requests in flight. Permits in flight count as used in a rate.
#[test]
fn from_and_to_a_rate() {
    let funnel = limits(&json!([{ "algorithm": "funnel", "capacity": 10, "rate": "1/s" }]));
    let mut bucket = funnel.start(Nanos::ZERO);
    funnel.decide(&mut bucket, 5, Nanos::ZERO);
    let at = Nanos::from_secs(1);
    let flight = at_most(4, "10s");
    let converted = convert(
        &funnel,
        &flight,
        Carry::Proportional,
        &bucket,
        Clock::at(at),
    );
    assert_eq!(
        flight
            .peek(&converted, 0, at)
            .reported()
            .expect("one")
            .remaining,
        4
    );
    let mut world = World::new(4, "10s", 0);
    world.take(3, S);
    for (carry, left) in [(Carry::Keep, 7), (Carry::Proportional, 2)] {
        let funnel = world.edit(funnel.clone(), carry, S);
        assert_eq!(funnel.left(S), left, "{carry:?}");
    }
}

/// The limit is removed for a while, and comes back. Requests still in flight then count, with any
/// carry. Returns in the meantime are not lost.
#[test]
fn what_is_in_flight_survives_another_algorithm() {
    let others = [
        json!([{ "algorithm": "funnel", "capacity": 100, "rate": "100/s" }]),
        json!([{ "algorithm": "fixed_window", "capacity": 100, "window": "1s" }]),
        json!([{ "algorithm": "sliding_log", "capacity": 5, "window": "1s" }]),
        json!([{ "algorithm": "leaky_queue", "capacity": 5, "rate": "1/s" }]),
        json!([
            { "name": "concurrency", "algorithm": "sliding_window", "capacity": 50, "window": "1s" },
            { "name": "b", "algorithm": "leaky_queue", "capacity": 5, "rate": "1/s" },
            { "name": "c", "algorithm": "sliding_log", "capacity": 5, "window": "1s" },
        ]),
    ];
    for other in others {
        for carry in [Carry::Keep, Carry::Proportional, Carry::Reset] {
            let mut world = World::new(10, "1m", 0);
            assert_eq!(world.take(6, S).0, Admitted);
            assert_eq!(world.take(4, 2 * S).0, Admitted);
            let mut between = world.edit(limits(&other), carry, 3 * S);
            for now in [4 * S, 5 * S] {
                between.take(1, now);
            }
            // It survives another edit, too.
            let mut larger = other.clone();
            larger[0]["capacity"] = json!(77);
            let mut between = between.edit(limits(&larger), carry, 6 * S);
            assert!(between.limits.may_release(&between.bucket));
            between.give(6, S, 7 * S);
            between.take(1, 7 * S);
            let mut back = between.edit(at_most(10, "1m"), carry, 8 * S);
            assert_eq!(back.take(0, 8 * S).1, 6, "{carry:?} {other}");
            assert_eq!(back.take(7, 8 * S).0, FULL);
            assert_eq!(back.give(4, 2 * S, 9 * S), 10);
            assert_eq!(back.take(0, 9 * S), (Admitted, 10, 0));
            // Lost ones expire with their lease.
            let late = between.edit(at_most(10, "1m"), carry, 122 * S);
            assert_eq!(late.left(122 * S), 10);
            let now = Nanos::from_secs(8);
            let ends = between.limits.noted_until(&between.bucket, now);
            assert_eq!(ends, Some(Nanos::from_secs(120)));
        }
    }
}

#[test]
fn concurrency_has_bounds() {
    let concurrency = |capacity: u64, lease: Nanos| Concurrency::new(capacity, lease).err();
    assert_eq!(concurrency(1, Nanos::new(1)), None);
    assert_eq!(concurrency(1_000_000_000, MAX_LEASE), None);
    assert_eq!(concurrency(0, LEASE), Some(BadNumbers::Capacity));
    assert_eq!(
        concurrency(1_000_000_001, LEASE),
        Some(BadNumbers::Capacity)
    );
    assert_eq!(concurrency(1, Nanos::ZERO), Some(BadNumbers::Lease));
    let longer = MAX_LEASE.saturating_add(Nanos::new(1));
    assert_eq!(concurrency(1, longer), Some(BadNumbers::Lease));
    let unsaid = limits(&json!([{ "algorithm": "concurrency", "capacity": 1 }]));
    let algorithm = unsaid.iter().next().expect("one").algorithm();
    assert_eq!(algorithm.drain_time(), Nanos::from_secs(600));
    assert_eq!(
        (algorithm.rate(), algorithm.holds_until_end()),
        (None, true)
    );
}
