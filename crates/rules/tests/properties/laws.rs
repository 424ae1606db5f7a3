//! The promises of algorithms.md that every algorithm makes.

use loudou_limiter::bounds::{MAX_DRAIN, MAX_WAIT};
use loudou_limiter::{Bucket, Limits, Nanos};
use proptest::prelude::*;

use super::spec::{Kind, Spec, kind, spec};
use super::{config, one, only, timed, train};

/// The words of the limits, without the promises.
fn own(limits: &Limits, bucket: &Bucket) -> Vec<u64> {
    let mut words = bucket.words.to_vec();
    words.resize(limits.words(), 0);
    words
}

proptest! {
    #![proptest_config(config(512))]

    #[test]
    fn no_window_admits_more_than_capacity_and_rate(
        spec in spec(), train in train(60), start in 0..=100_u64,
    ) {
        prop_assume!(!train.iter().any(|(_, cost)| spec.forgets(*cost)));
        let limits = one(spec);
        let mut bucket = limits.start(Nanos::new(start));
        let mut admitted = Vec::new();
        for (now, cost) in timed(&train, spec.period, start) {
            let answer = limits.decide(&mut bucket, cost, Nanos::new(now));
            if !answer.is_refused() && cost > 0 {
                admitted.push((now + answer.wait().get(), cost));
            }
        }
        // No request overtakes a waiting request.
        prop_assert!(admitted.is_sorted_by_key(|(passes, _)| *passes));
        for (first, (from, _)) in admitted.iter().enumerate() {
            let mut sum = 0;
            for (now, cost) in &admitted[first..] {
                sum += u128::from(*cost) * u128::from(spec.period);
                prop_assert!(sum <= spec.bound(now - from), "{from} to {now}");
            }
        }
    }

    /// If clocks go back, the window is measured on the bucket's clock, which never does.
    #[test]
    fn a_clock_that_jumps_about_admits_no_more(
        spec in spec(), steps in prop::collection::vec((0..=64_u64, 1..=3_u64), 1..60),
    ) {
        let limits = one(spec);
        let mut bucket = limits.start(Nanos::ZERO);
        let mut sum = 0;
        let mut latest = 0;
        for (place, cost) in steps {
            let now = place * (spec.period / 16).max(1);
            latest = latest.max(now);
            let answer = limits.decide(&mut bucket, cost, Nanos::new(now));
            if !answer.is_refused() {
                sum += u128::from(cost) * u128::from(spec.period);
                latest = latest.max(answer.at().get() + answer.wait().get());
            }
            prop_assert!(sum <= spec.bound(latest));
        }
    }

    #[test]
    fn waits_are_exact(spec in spec(), train in train(30), start in 0..=100_u64) {
        let limits = one(spec);
        let mut bucket = limits.start(Nanos::new(start));
        for (now, cost) in timed(&train, spec.period, start) {
            let decision = only(&limits.decide(&mut bucket, cost, Nanos::new(now)));
            let Some(wait) = decision.retry_after else { continue };
            let then = Nanos::new(now).saturating_add(wait);
            prop_assert!(!limits.peek(&bucket, cost, then).is_refused());
            let just_before = then.since(Nanos::new(1));
            prop_assert!(limits.peek(&bucket, cost, just_before).is_refused());
        }
    }

    #[test]
    fn peeks_and_refusals_change_nothing(spec in spec(), train in train(40)) {
        prop_assume!(spec.forgets_refusals());
        let limits = one(spec);
        let mut bucket = limits.start(Nanos::ZERO);
        let mut taken = Vec::new();
        for (now, cost) in timed(&train, spec.period, 0) {
            let before = bucket.clone();
            let refused = limits.decide(&mut bucket, cost, Nanos::new(now)).is_refused();
            if cost == 0 {
                prop_assert_eq!(&bucket, &before);
                prop_assert!(!refused);
            } else if refused {
                prop_assert_eq!(bucket.words(), before.words());
                prop_assert!(bucket.last == Nanos::new(now));
            } else {
                taken.push((now, cost));
            }
        }
        // The train without them is fully admitted, and ends in an equal state.
        let mut again = limits.start(Nanos::ZERO);
        for (now, cost) in taken {
            prop_assert!(!limits.decide(&mut again, cost, Nanos::new(now)).is_refused());
        }
        prop_assert_eq!(again.words(), bucket.words());
    }

    /// While nothing is taken, the instant at which a cost fits and the instant at which the bucket
    /// is full do not move. A larger cost never waits less.
    #[test]
    fn waits_are_monotone(
        spec in spec(), train in train(20), later in 0..=5_000_u64, cost in 1..=12_u64,
    ) {
        prop_assume!(spec.forgets_refusals());
        let limits = one(spec);
        let mut bucket = limits.start(Nanos::ZERO);
        let mut now = 0;
        for (at, cost) in timed(&train, spec.period, 0) {
            limits.decide(&mut bucket, cost, Nanos::new(at));
            now = at;
        }
        let then = now + later * (spec.period / 64).max(1);
        let (first, second) = (
            only(&limits.peek(&bucket, cost, Nanos::new(now))),
            only(&limits.peek(&bucket, cost, Nanos::new(then))),
        );
        let instant = |wait: Nanos, at: u64| Nanos::new(at).saturating_add(wait);
        match (first.retry_after, second.retry_after) {
            (Some(a), Some(b)) => prop_assert_eq!(instant(a, now), instant(b, then)),
            (Some(a), None) => prop_assert!(instant(a, now) <= Nanos::new(then)),
            (None, wait) => prop_assert_eq!(wait, None),
        }
        let reset = instant(first.reset_after, now).max(Nanos::new(then));
        prop_assert!(first.is_refused() || cost > 0);
        if first.is_refused() && second.is_refused() {
            prop_assert_eq!(instant(second.reset_after, then), reset);
        }
        let larger = only(&limits.peek(&bucket, cost + 1, Nanos::new(now)));
        prop_assert!(larger.is_refused() || !first.is_refused());
        if let (Some(a), Some(b)) = (first.retry_after, larger.retry_after) {
            prop_assert!(a <= b);
        }
    }

    /// A cost taken in two parts at one instant is the same as taken at once.
    #[test]
    fn a_cost_can_be_split(
        spec in spec(), train in train(20), (a, b) in (1..=6_u64, 1..=6_u64),
    ) {
        // In parts more can be held than the capacity.
        prop_assume!(!spec.kind.holds() || a + b <= spec.algorithm().max_cost());
        let limits = one(spec);
        let mut whole = limits.start(Nanos::ZERO);
        let mut now = Nanos::ZERO;
        for (at, cost) in timed(&train, spec.period, 0) {
            now = Nanos::new(at);
            limits.decide(&mut whole, cost, now);
        }
        let mut parts = whole.clone();
        let at_once = only(&limits.decide(&mut whole, a + b, now));
        let first = only(&limits.decide(&mut parts, a, now));
        let second = only(&limits.decide(&mut parts, b, now));
        if spec.kind.pays_later() {
            // The second part waits for the first one.
            prop_assert!(at_once.is_refused() || !first.is_refused());
            if !at_once.is_refused() && !second.is_refused() {
                prop_assert_eq!(own(&limits, &whole), own(&limits, &parts));
            }
            return Ok(());
        }
        prop_assert_eq!(at_once.is_refused(), first.is_refused() || second.is_refused());
        if !at_once.is_refused() {
            prop_assert_eq!((whole.last, whole.queue_end), (parts.last, parts.queue_end));
            // Where they wait, two are promised something instead of one.
            prop_assert_eq!(own(&limits, &whole), own(&limits, &parts));
            prop_assert_eq!(at_once, second);
        }
    }

    /// With all possible numbers, nothing overflows, and the values stay within bounds.
    #[test]
    fn extreme_numbers_are_survived(
        kind in kind(), seed in 0..100_u64,
        capacity in prop_oneof![Just(1), Just(1_000_000_000), 1..=1_000_000_000_u64],
        amount in prop_oneof![Just(1), Just(1_000_000_000), 1..=1_000_000_000_u32],
        period in prop_oneof![Just(1), Just(366 * 86_400_000_000_000), 1..=366 * 86_400_000_000_000_u64],
        steps in prop::collection::vec(
            (any::<u64>(), prop_oneof![any::<u64>(), Just(u64::MAX), 0..=1_000_000_000_u64]), 1..20,
        ),
    ) {
        // Maximum period with which a full bucket still empties in time.
        let most = 3_660 * 86_400_000_000_000 * u128::from(amount) / u128::from(capacity);
        let period = period.min(u64::try_from(most).unwrap_or(u64::MAX));
        let spec = Spec::new(kind, capacity, amount, period, seed);
        let (limits, algorithm) = (one(spec), spec.algorithm());
        let mut bucket = limits.start(Nanos::new(steps[0].0));
        for (now, cost) in steps {
            let decision = only(&limits.decide(&mut bucket, cost, Nanos::new(now)));
            prop_assert!(decision.remaining <= spec.capacity);
            prop_assert_eq!(
                decision.retry_after.is_some(),
                decision.is_refused() && cost <= algorithm.max_cost() && kind != Kind::InFlight
            );
            // Refills at intervals follow the clock, up to a period later than the drain would end.
            let most = algorithm.drain_time().saturating_add(Nanos::new(spec.period));
            // Waits are added, where no request waits longer than an hour, or pays for ten years.
            let debt = if kind.pays_later() { MAX_DRAIN } else { MAX_WAIT };
            let most = if kind.holds() { most.saturating_add(debt) } else { most };
            prop_assert!(decision.reset_after <= most);
        }
    }
}
