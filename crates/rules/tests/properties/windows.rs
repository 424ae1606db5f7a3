//! Properties of limits with a window.

use loudou_limiter::{BucketRequest, Nanos};
use proptest::prelude::*;

use super::spec::{Kind, Spec, spec};
use super::{config, one, only, timed, train};

fn of_kind(kind: Kind) -> impl Strategy<Value = Spec> {
    spec().prop_map(move |spec| Spec::new(kind, spec.capacity, spec.amount, spec.period, spec.seed))
}

proptest! {
    #![proptest_config(config(512))]

    /// Maximum error of a sliding counter in both directions.
    #[test]
    fn a_counter_is_wrong_by_a_share_of_the_window_before(
        spec in of_kind(Kind::Counter), train in train(60), start in 0..=100_u64,
    ) {
        let limits = one(spec);
        let mut bucket = limits.start(Nanos::new(start));
        let (window, capacity) = (u128::from(spec.period), u128::from(spec.capacity));
        let mut taken: Vec<(u128, u128)> = Vec::new();
        for (now, cost) in timed(&train, spec.period, start) {
            let decision = only(&limits.decide(&mut bucket, cost, Nanos::new(now)));
            let now = u128::from(now);
            if !decision.is_refused() {
                taken.push((now, cost.into()));
            }
            let sum = |which: &dyn Fn(u128) -> bool| -> u128 {
                taken.iter().filter(|(at, _)| which(*at)).map(|(_, cost)| cost).sum()
            };
            let (number, elapsed) = (now / window, now % window);
            let current = sum(&|at| at / window == number);
            let previous = sum(&|at| at / window + 1 == number);
            let counted = current * window + previous * (window - elapsed);
            prop_assert_eq!(u128::from(decision.remaining), (capacity * window - counted) / window);
            let exact = sum(&|at| now < at + window) * window;
            prop_assert!(exact <= counted + previous * elapsed);
            prop_assert!(counted <= exact + previous * (window - elapsed));
            prop_assert!(previous <= capacity);
            // Any window's length, the instants at both of its ends included.
            prop_assert!(sum(&|at| now <= at + window) <= 2 * capacity);
        }
    }

    /// However the wall clock jumps, the current window keeps its end, and no window is too long.
    #[test]
    fn a_wall_clock_that_jumps_locks_nobody_out(
        spec in of_kind(Kind::FixedClock),
        train in train(40),
        walls in prop::collection::vec(any::<u64>(), 40),
    ) {
        let limits = one(spec);
        let mut bucket = limits.start(Nanos::ZERO);
        let mut end = 0;
        let mut sum = 0;
        for ((now, cost), wall) in timed(&train, spec.period, 0).into_iter().zip(walls) {
            let ask = BucketRequest::new(cost, Nanos::new(now)).at_wall(Nanos::new(wall));
            let decision = only(&limits.answer(&mut bucket, &ask));
            if now >= end {
                sum = 0;
            }
            if sum > 0 {
                prop_assert_eq!(decision.reset_after.get(), end - now);
            }
            if !decision.is_refused() && cost > 0 {
                if sum == 0 {
                    prop_assert_eq!(decision.reset_after.get(), spec.period - wall % spec.period);
                    end = now + decision.reset_after.get();
                }
                sum += cost;
            }
            prop_assert!(sum <= spec.capacity);
            prop_assert_eq!(decision.remaining, spec.capacity - sum);
            if decision.is_refused() && cost <= spec.capacity {
                prop_assert_eq!(decision.retry_after.map(Nanos::get), Some(end - now));
            }
        }
    }

    /// Hammering locks a client out for at most one window after the last attempt, and needs no
    /// additional memory.
    #[test]
    fn a_strict_log_forgives_after_a_window(
        spec in of_kind(Kind::StrictLog), train in train(60), cost in 1..=12_u64,
    ) {
        let limits = one(spec);
        let mut bucket = limits.start(Nanos::ZERO);
        let mut last = 0;
        for (now, cost) in timed(&train, spec.period, 0) {
            let answer = limits.decide(&mut bucket, cost, Nanos::new(now));
            prop_assert!(bucket.words().len() <= limits.words());
            if answer.is_refused() {
                let noted = spec.capacity - answer.reported().expect("one").remaining;
                prop_assert!(noted >= cost.min(spec.capacity));
                prop_assert_eq!(answer.reset_after().get(), spec.period);
            }
            last = now;
        }
        let then = Nanos::new(last + spec.period);
        prop_assert_eq!(limits.peek(&bucket, cost, then).is_refused(), cost > spec.capacity);
    }
}
