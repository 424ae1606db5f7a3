//! An edit to other numbers and back at one instant, in units, changes nothing.

use loudou_limiter::{Bucket, Carry, Clock, Limits, Nanos, convert};
use proptest::prelude::*;

use super::gains::rated;
use super::spec::{Kind, Spec, spec, spec_of};
use super::{config, limits, only, timed, train};

/// A bucket of one limit after some requests, and the instant of the last one.
fn used(spec: Spec, train: &[(u64, u64)]) -> (Limits, Bucket, u64) {
    let limits = limits(&[spec]);
    let mut bucket = limits.start(Nanos::ZERO);
    let mut last = 0;
    for (now, cost) in timed(train, spec.period, 0) {
        limits.decide(&mut bucket, cost, Nanos::new(now));
        last = now;
    }
    (limits, bucket, last)
}

fn left(limits: &Limits, bucket: &Bucket, now: u64) -> u64 {
    only(&limits.peek(bucket, 0, Nanos::new(now))).remaining
}

proptest! {
    #![proptest_config(config(512))]

    /// Also down and up again, and hundreds of times.
    #[test]
    fn there_and_back_is_nothing(
        spec in spec(), train in train(20), capacity in 1..=1_000_u64, amount in 1..=100_u32,
        times in prop_oneof![Just(1), Just(200)], pause in 0..=200_u64, later in 0..=500_u64,
    ) {
        // The slowest may not last for more than ten years.
        let amount = if spec.period < 1 << 48 { amount } else { spec.amount };
        let capacity = if spec.period < 1 << 48 { capacity } else { capacity % 10 + 1 };
        let other = Spec::new(spec.kind, capacity, amount, spec.period, spec.seed);
        // Permits stored beyond the maximum of a slower rate are lost.
        prop_assume!(spec.kind != Kind::Warmup || other.amount >= spec.amount);
        let other = limits(&[other]);
        let (limits, bucket, last) = used(spec, &train);
        let part = (spec.period / 64).max(1);
        let now = last + pause * part;
        let clock = Clock::at(Nanos::new(now));
        let mut back = bucket.clone();
        for _ in 0..times {
            let there = convert(&limits, &other, Carry::Keep, &back, clock);
            back = convert(&other, &limits, Carry::Keep, &there, clock);
        }
        let look = limits.peek(&bucket, 1, clock.now);
        let stores = spec.kind == Kind::Bursty && !look.is_refused() && look.wait() == Nanos::ZERO;
        for later in [0, 1, later, 10_000] {
            let now = Nanos::new(now + later * part);
            for cost in 0..=3 {
                let (was, is) = (limits.peek(&bucket, cost, now), limits.peek(&back, cost, now));
                if stores {
                    let [was, is] = [was, is].map(|answer| only(&answer).remaining);
                    prop_assert!(is <= was);
                } else if spec.kind == Kind::InFlight {
                    // When a generation begins in which nothing is in flight yet is nothing that counts.
                    let (was, is) = (only(&was), only(&is));
                    prop_assert_eq!((was.verdict, was.remaining), (is.verdict, is.remaining));
                } else {
                    prop_assert_eq!(was, is, "{} later", later);
                }
            }
        }
    }

    /// A detour through any other algorithm gains nothing, and loses fractions of a unit.
    #[test]
    fn no_way_back_gives_anything(
        spec in spec_of(|kind| !matches!(kind, Kind::InFlight | Kind::Bursty)), train in train(20),
        others in prop::collection::vec(rated(), 1..6),
        pause in 0..=200_u64,
    ) {
        // The remaining amount must determine the used amount.
        let spec = spec.with_wide_slots();
        let most = train.iter().map(|(_, cost)| cost).sum::<u64>() + spec.used_at_first();
        prop_assume!(!others.iter().any(|other| other.forgets(most)));
        let (first, bucket, last) = used(spec, &train);
        let now = last + pause * (spec.period / 64).max(1);
        let clock = Clock::at(Nanos::new(now));
        let (mut old, mut back) = (first.clone(), bucket.clone());
        for other in others.iter().chain([&spec]) {
            let new = limits(&[*other]);
            back = convert(&old, &new, Carry::Keep, &back, clock);
            old = new;
        }
        prop_assert!(left(&first, &back, now) <= left(&first, &bucket, now));
    }
}
