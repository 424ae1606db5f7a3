//! The numbers of a limit change while its bucket is in use.

use loudou_limiter::bounds::MAX_REMEMBERED;
use loudou_limiter::{Bucket, Carry, Clock, Decision, Limits, Nanos, Rate};
use proptest::prelude::*;

use super::spec::{Kind, Spec, spec, spec_of};
use super::{config, limits, timed, train};

/// On a wall clock that started together with the monotonic one.
fn convert(old: &Limits, new: &Limits, carry: Carry, bucket: &Bucket, at: Nanos) -> Bucket {
    loudou_limiter::convert(old, new, carry, bucket, Clock::at(at))
}

fn each(limits: &Limits, bucket: &Bucket, now: Nanos) -> Vec<Decision> {
    limits.peek(bucket, 0, now).decisions().copied().collect()
}

fn carry() -> impl Strategy<Value = Carry> {
    prop_oneof![Just(Carry::Keep), Just(Carry::Proportional)]
}

/// The number of limits does not change, so that each continues from another one.
fn pair() -> impl Strategy<Value = (Vec<Spec>, Vec<Spec>)> {
    prop::collection::vec((spec(), spec()), 1..=3).prop_map(|both| both.into_iter().unzip())
}

/// Returns a bucket of `specs` after some requests, and the time of the last request.
fn used(specs: &[Spec], train: &[(u64, u64)]) -> (Bucket, u64) {
    let limits = limits(specs);
    let mut bucket = limits.start(Nanos::ZERO);
    let mut last = 0;
    for (now, cost) in timed(train, specs[0].period, 0) {
        limits.decide(&mut bucket, cost, Nanos::new(now));
        last = now;
    }
    (bucket, last)
}

proptest! {
    #![proptest_config(config(512))]

    /// The level stays within the new capacity, and the excess is gone in the end.
    #[test]
    fn a_conversion_stays_within_bounds(
        (old, new) in pair(), train in train(20), wait in 0..=200_u64, carry in carry(),
    ) {
        let (bucket, last) = used(&old, &train);
        let at = Nanos::new(last + wait * (old[0].period / 64).max(1));
        let (old_limits, new_limits) = (limits(&old), limits(&new));
        let converted = convert(&old_limits, &new_limits, carry, &bucket, at);
        let decisions = each(&new_limits, &converted, at);
        for (limit, is) in new_limits.iter().zip(decisions) {
            prop_assert!(is.remaining <= is.capacity);
            let most = limit.algorithm().drain_time().saturating_add(MAX_REMEMBERED);
            // Refills at intervals come in whole lumps.
            let lump = limit.algorithm().rate().map_or(Nanos::ZERO, Rate::period);
            let most = most.saturating_add(lump).saturating_add(lump);
            prop_assert!(is.reset_after <= most, "{:?}", is);
        }
    }

    /// An edit to equal numbers leaves an equal bucket, to the word.
    #[test]
    fn the_same_numbers_change_nothing(
        (specs, _) in pair(), train in train(20), carry in carry(), pause in 0..=200_u64,
    ) {
        let (mut bucket, last) = used(&specs, &train);
        let same = limits(&specs);
        let mut converted = convert(&same, &same, carry, &bucket, Nanos::new(last));
        for pause in [0, pause] {
            let now = Nanos::new(last + pause * (specs[0].period / 64).max(1));
            let answer = same.decide(&mut bucket, 1, now);
            prop_assert_eq!(same.decide(&mut converted, 1, now), answer);
        }
    }

    /// Checks the amount that is admitted at once after a conversion, and the window bound of the
    /// new limit from then on. This includes a request whose clock was read before the edit.
    #[test]
    fn a_converted_bucket_keeps_the_new_bound(
        (old, new) in (spec(), spec()), train in train(20), more in train(30),
        carry in prop_oneof![carry(), Just(Carry::Reset)], early in 0..=40_u64,
    ) {
        let (bucket, last) = used(&[old], &train);
        let at = last + early;
        let (old, new_limits) = (limits(&[old]), limits(&[new]));
        let mut bucket = convert(&old, &new_limits, carry, &bucket, Nanos::new(at));
        let (mut sum, mut latest) = (0, at);
        for (now, cost) in timed(&more, new.period, last) {
            let answer = new_limits.decide(&mut bucket, cost, Nanos::new(now));
            if !answer.is_refused() {
                sum += u128::from(cost) * u128::from(new.period);
                latest = latest.max(answer.at().get() + answer.wait().get());
            }
            let bound = new.bound(latest.max(now).saturating_sub(at));
            prop_assert!(sum <= bound, "{sum} of {bound} by {now}");
        }
    }

    /// The used amount, or its share, stays used up to rounding.
    #[test]
    fn keep_keeps_the_level_and_proportional_the_share(
        // Waiting requests are above the capacity.
        old in spec_of(|kind| kind.is_level() && !kind.holds()), new in spec_of(Kind::is_level),
        train in train(20), carry in carry(),
    ) {
        // The remaining amount must determine the used amount.
        let (old, new) = (old.with_wide_slots(), new.with_wide_slots());
        let (bucket, last) = used(&[old], &train);
        let at = Nanos::new(last);
        let (old_limits, new_limits) = (limits(&[old]), limits(&[new]));
        let converted = convert(&old_limits, &new_limits, carry, &bucket, at);
        let (was, is) = (
            each(&old_limits, &bucket, at)[0],
            each(&new_limits, &converted, at)[0],
        );
        // The remaining amount is rounded down, so the level is known within one unit.
        let (old_cap, new_cap) = (u128::from(was.capacity), u128::from(is.capacity));
        let most_used = old_cap - u128::from(was.remaining);
        let most_target = match carry {
            Carry::Keep => most_used,
            _ => (most_used * new_cap).div_ceil(old_cap),
        };
        // In proportion a counter rounds two counts up.
        let rounded = if new.kind == Kind::Counter { 2 } else { 1 };
        prop_assert!(u128::from(is.remaining) + rounded >= new_cap - most_target.min(new_cap));
        let least_used = most_used.saturating_sub(1);
        let least_target = match carry {
            Carry::Keep => least_used,
            _ => least_used * new_cap / old_cap,
        };
        prop_assert!(u128::from(is.remaining) <= new_cap - least_target.min(new_cap));
    }

    /// Except for requests in flight, and for waiting requests.
    #[test]
    fn reset_is_as_new((old, new) in pair(), train in train(20)) {
        let keeps = old.iter().zip(&new).any(|both| both.0.kind == Kind::InFlight && both.1.kind == Kind::InFlight);
        prop_assume!(!keeps);
        let (mut bucket, last) = used(&old, &train);
        bucket.queue_end = Nanos::ZERO;
        let at = Nanos::new(last);
        let (old_limits, new_limits) = (limits(&old), limits(&new));
        let converted = convert(&old_limits, &new_limits, Carry::Reset, &bucket, at);
        let fresh = new_limits.start(at);
        prop_assert_eq!(each(&new_limits, &converted, at), each(&new_limits, &fresh, at));
    }
}
