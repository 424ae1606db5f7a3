//! Compares the warm-up with Guava's formulas in floating point.

use loudou_limiter::algorithm::{Algorithm, SmoothWarmup};
use loudou_limiter::{BucketRequest, Decimal, Limit, Limits, Nanos, Rate, Verdict};
use proptest::prelude::*;

use super::spec::{Kind, Spec, spec_of};
use super::{config, one, only, timed, train};

/// `SmoothRateLimiter.SmoothWarmingUp` of Guava 31.1, in nanoseconds and without the cut to
/// microseconds.
#[derive(Clone, Debug)]
struct Guava {
    stable: f64,
    slope: f64,
    threshold: f64,
    most: f64,
    cooling: f64,
    stored: f64,
    next_free: f64,
}

impl Guava {
    fn new(amount: u32, period: f64, warmup: f64, factor: f64) -> Self {
        let stable = period / f64::from(amount);
        let cold = stable * factor;
        let threshold = 0.5 * warmup / stable;
        let most = threshold + 2.0 * warmup / (stable + cold);
        Self {
            stable,
            slope: (cold - stable) / (most - threshold),
            threshold,
            most,
            cooling: warmup / most,
            stored: most,
            next_free: 0.0,
        }
    }

    fn time_of(&self, permits: f64) -> f64 {
        self.stable + permits * self.slope
    }

    /// Returns the wait, and records the permits.
    fn reserve(&mut self, permits: f64, now: f64) -> f64 {
        if now > self.next_free {
            let back = (now - self.next_free) / self.cooling;
            self.stored = self.most.min(self.stored + back);
            self.next_free = now;
        }
        let wait = self.next_free - now;
        let spent = permits.min(self.stored);
        let above = (self.stored - self.threshold).max(0.0);
        let from_above = above.min(spent);
        let length = self.time_of(above) + self.time_of(above - from_above);
        let cost = from_above * length / 2.0 + (spent - from_above) * self.stable;
        self.next_free += cost + (permits - spent) * self.stable;
        self.stored -= spent;
        wait
    }
}

fn numbers() -> impl Strategy<Value = (u32, u64, u64, u32)> {
    let amount = prop_oneof![1..=20_u32, 1..=1_000_000_u32];
    let period = prop::sample::select(vec![1_000_000_000_u64, 60_000_000_000, 7_000_003]);
    let warmup = prop_oneof![1..=1_000_u64, 1_000_000..=100_000_000_000_u64];
    let factor = prop_oneof![Just(1_000), Just(3_000), 1_000..=20_000_u32];
    (amount, period, warmup, factor)
}

proptest! {
    #![proptest_config(config(512))]

    /// Waits equal the results of the formulas within the precision of doubles: a billionth of the
    /// debt, and a nanosecond.
    #[test]
    #[expect(clippy::cast_precision_loss, clippy::as_conversions, reason = "doubles are the reference")]
    fn waits_are_those_of_the_formulas(
        (amount, period, warmup, factor) in numbers(), train in train(40),
    ) {
        let rate = Rate::new(amount, Nanos::new(period)).expect("positive");
        let factor = Decimal::from_thousandths(factor);
        let smooth = SmoothWarmup::new(rate, Nanos::new(warmup), factor).expect("in range");
        let limits = Limits::new(vec![Limit::new("w", Algorithm::SmoothWarmup(smooth))]);
        let limits = limits.expect("one");
        let mut guava = Guava::new(
            amount, period as f64, warmup as f64, f64::from(factor.thousandths()) / 1_000.0,
        );
        let mut bucket = limits.start(Nanos::ZERO);
        let pace = (period / u64::from(amount)).max(64);
        for (now, cost) in timed(&train, pace, 0) {
            if cost == 0 {
                continue;
            }
            let ask = BucketRequest::new(cost, Nanos::new(now)).waiting(Some(Nanos::MAX));
            let decision = only(&limits.answer(&mut bucket, &ask));
            if decision.verdict == Verdict::Refuse {
                break;
            }
            let expected = guava.reserve(cost as f64, now as f64);
            let off = (decision.wait.get() as f64 - expected).abs();
            let scale = expected + guava.next_free - now as f64 + warmup as f64;
            prop_assert!(off <= 1.5 + scale * 1e-9, "{expected} but {:?}", decision);
        }
    }

    /// Any split of a cost into parts at one instant takes the same amount, to the last drop.
    #[test]
    fn any_split_costs_the_same(
        spec in spec_of(|kind| kind == Kind::Warmup), costs in prop::collection::vec(1..=9_u64, 1..30),
        before in train(10),
    ) {
        let limits = one(Spec { ..spec });
        let mut whole = limits.start(Nanos::ZERO);
        let mut now = Nanos::ZERO;
        for (at, cost) in timed(&before, spec.period, 0) {
            now = Nanos::new(at);
            limits.decide(&mut whole, cost, now);
        }
        let patient = |cost: u64| BucketRequest::new(cost, now).waiting(Some(Nanos::MAX));
        let mut parts = whole.clone();
        let sum = costs.iter().sum();
        let all = only(&limits.answer(&mut whole, &patient(sum)));
        prop_assume!(!all.is_refused());
        for cost in costs {
            let part = only(&limits.answer(&mut parts, &patient(cost)));
            // A request that would wait too long is refused, so the rest cannot be compared.
            prop_assume!(!part.is_refused());
        }
        prop_assert_eq!(parts.words(), whole.words());
    }
}
