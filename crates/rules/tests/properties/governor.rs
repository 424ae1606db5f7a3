//! Compares the funnel with the `governor` crate, an independent GCRA implementation.

use core::num::NonZeroU32;
use core::time::Duration;

use governor::clock::FakeRelativeClock;
use governor::{Quota, RateLimiter};
use loudou_limiter::Nanos;
use proptest::prelude::*;

use super::spec::{Kind, Spec};
use super::{Step, config, one, only, timed, train};

/// The governor's answer to a cost: `None` if it passes, else the wait, if waiting helps at all.
type Refusal = Option<Option<u64>>;

/// The answers of `governor` with the numbers of `spec` to the train, which begins at `start`.
fn refusals(spec: &Spec, train: &[(u64, u64)], start: u64) -> Vec<Refusal> {
    let burst = u32::try_from(spec.capacity).ok().and_then(NonZeroU32::new);
    let quota = Quota::with_period(Duration::from_nanos(spec.period)).expect("a period");
    let clock = FakeRelativeClock::default();
    let limiter = RateLimiter::direct_with_clock(
        quota.allow_burst(burst.expect("a capacity")),
        clock.clone(),
    );
    let mut now = start;
    let answers = train.iter().map(|(at, cost)| {
        clock.advance(Duration::from_nanos(at - now));
        now = *at;
        let cost = u32::try_from(*cost).ok().and_then(NonZeroU32::new)?;
        match limiter.check_n(cost) {
            Ok(Ok(())) => None,
            Ok(Err(until)) => {
                let wait = until.wait_time_from(governor::clock::Clock::now(&clock));
                Some(u64::try_from(wait.as_nanos()).ok())
            }
            Err(_) => Some(None),
        }
    });
    answers.collect()
}

/// Rates of one per whole nanoseconds, which `governor` can express exactly.
fn spec() -> impl Strategy<Value = Spec> {
    let period = prop_oneof![
        1..=20_u64,
        1..=1_000_000_000_u64,
        prop::sample::select(vec![333_333_333, 60_000_000_000, 86_400_000_000_000]),
    ];
    let capacity = prop_oneof![4 => 1..=12_u64, 1 => 1..=1_000_u64];
    (capacity, period)
        .prop_map(|(capacity, period)| Spec::new(Kind::Funnel, capacity, 1, period, 0))
}

fn costly(train: Vec<Step>) -> Vec<Step> {
    // governor knows no cost of zero.
    let at_least_one = train.into_iter().map(|(pause, cost)| (pause, cost.max(1)));
    at_least_one.collect()
}

proptest! {
    #![proptest_config(config(512))]

    /// Both give equal verdicts, and waits that are equal to the nanosecond.
    #[test]
    fn the_funnel_equals_governor(
        spec in spec(), train in train(60).prop_map(costly), start in 0..=1_000_000_000_u64,
    ) {
        let train = timed(&train, spec.period, start);
        let limits = one(spec);
        let mut bucket = limits.start(Nanos::new(start));
        for ((now, cost), refusal) in train.iter().zip(refusals(&spec, &train, start)) {
            let ours = only(&limits.decide(&mut bucket, *cost, Nanos::new(*now)));
            prop_assert_eq!(ours.is_refused(), refusal.is_some(), "cost {} at {}", cost, now);
            if let Some(wait) = refusal {
                prop_assert_eq!(ours.retry_after.map(Nanos::get), wait);
            }
        }
    }
}
