//! Returns of the cost of an abandoned request.

use loudou_limiter::{Bucket, BucketRequest, Limits, Nanos, Taken};
use proptest::prelude::*;

use super::spec::{Kind, spec, spec_of};
use super::{config, one, only, timed};

/// A request with its pause and cost as in [`super::Step`], and the number of further steps after
/// which it is given back, if ever.
type Step = ((u64, u64), Option<usize>);

fn train(most: usize) -> impl Strategy<Value = Vec<Step>> {
    let pause = prop_oneof![3 => Just(0), 6 => 1..=32_u64, 2 => 33..=200_u64, 1 => 201..=2_000_u64];
    let cost = prop_oneof![8 => 1..=3_u64, 2 => 4..=9_u64];
    let back = prop_oneof![2 => Just(None), 3 => (0..=4_usize).prop_map(Some)];
    prop::collection::vec(((pause, cost), back), 1..most)
}

/// Returns true for kinds where all requests still fit if one of them is left out.
fn is_monotone(kind: Kind) -> bool {
    // Exceptions: a window of `FixedFirst` begins with the request, a refusal counts in
    // `StrictLog`, a cold `Warmup` is slower, and generations of `InFlight` begin with the first
    // request.
    !matches!(
        kind,
        Kind::FixedFirst | Kind::StrictLog | Kind::Warmup | Kind::InFlight
    )
}

/// Kinds that know exactly which units count, in any order in which they were taken.
fn is_counted(kind: Kind) -> bool {
    matches!(
        kind,
        Kind::FixedClock | Kind::FixedDay | Kind::SlidingWindow | Kind::Log | Kind::Counter
    )
}

/// A bucket, and a second bucket that never saw the requests that are given back.
struct World {
    limits: Limits,
    bucket: Bucket,
    without: Bucket,
    /// The amount to give back, and the step after which it is given back.
    owed: Vec<(usize, Taken)>,
    /// When the others pass, and their cost.
    passed: Vec<(u64, u64)>,
}

impl World {
    fn new(limits: Limits, start: u64) -> Self {
        let bucket = limits.start(Nanos::new(start));
        Self {
            without: bucket.clone(),
            limits,
            bucket,
            owed: Vec::new(),
            passed: Vec::new(),
        }
    }

    /// Checks that the second bucket admits every request that the first one admits.
    fn step(&mut self, number: usize, (now, cost): (u64, u64), back: Option<usize>) -> bool {
        let ask = BucketRequest::new(cost, Nanos::new(now));
        let taken = Taken::new(&self.bucket, &ask);
        let answer = self.limits.answer(&mut self.bucket, &ask);
        let mut agrees = true;
        match back {
            _ if answer.is_refused() => {}
            Some(steps) => self.owed.push((number + steps, taken)),
            None => {
                self.passed
                    .push((answer.at().get() + answer.wait().get(), cost));
                agrees = !self.limits.answer(&mut self.without, &ask).is_refused();
            }
        }
        self.settle(number);
        agrees
    }

    /// Gives back the costs that are due after a step, latest first.
    fn settle(&mut self, number: usize) {
        while let Some(place) = self.owed.iter().rposition(|(due, _)| *due <= number) {
            let (_, taken) = self.owed.remove(place);
            self.limits.give_back(&mut self.bucket, &taken);
        }
    }

    /// Checks that the first bucket is at most as full as the second one at `now`.
    fn is_no_better(&self, now: u64) -> Result<(), TestCaseError> {
        let peek = |bucket: &Bucket, cost| only(&self.limits.peek(bucket, cost, Nanos::new(now)));
        for cost in [0, 1, 2, 5] {
            let (mine, other) = (peek(&self.bucket, cost), peek(&self.without, cost));
            prop_assert!(mine.is_refused() || !other.is_refused(), "{cost} at {now}");
            if !mine.is_refused() {
                prop_assert!(mine.wait >= other.wait, "{cost} at {now}");
                prop_assert!(mine.remaining <= other.remaining, "{cost} at {now}");
                prop_assert!(mine.reset_after >= other.reset_after, "{cost} at {now}");
            }
        }
        Ok(())
    }
}

proptest! {
    #![proptest_config(config(1_024))]

    /// For any returns in any order, no request is better off than without the returned ones.
    #[test]
    fn nothing_is_better_than_if_it_had_never_been(
        spec in spec_of(is_monotone), train in train(40), start in 0..=100_u64,
    ) {
        let mut world = World::new(one(spec), start);
        let steps: Vec<_> = train.iter().map(|(step, _)| *step).collect();
        for (number, (step, (_, back))) in timed(&steps, spec.period, start).into_iter().zip(&train).enumerate() {
            prop_assert!(world.step(number, step, *back), "it fits without the others");
            if world.owed.is_empty() {
                for later in [0, 1, 5, spec.period / 3, spec.period, 4 * spec.period] {
                    world.is_no_better(step.0 + later)?;
                }
            }
        }
    }

    /// Counted amounts are returned exactly.
    #[test]
    fn what_is_counted_comes_back_whole(spec in spec_of(is_counted), train in train(40)) {
        let mut world = World::new(one(spec), 0);
        let steps: Vec<_> = train.iter().map(|(step, _)| *step).collect();
        for (number, (step, (_, back))) in timed(&steps, spec.period, 0).into_iter().zip(&train).enumerate() {
            prop_assert!(world.step(number, step, *back));
            if world.owed.is_empty() {
                for later in [0, spec.period / 3, spec.period] {
                    let now = Nanos::new(step.0 + later);
                    let look = |bucket: &Bucket| only(&world.limits.peek(bucket, 0, now));
                    prop_assert_eq!(look(&world.bucket), look(&world.without));
                }
            }
        }
    }

    /// If no later request took anything, the former state is restored, regardless of refusals and
    /// time.
    #[test]
    fn the_last_one_comes_back_whole(
        spec in spec(), train in train(30), cost in 1..=6_u64, pause in 0..=500_u64,
    ) {
        let limits = one(spec);
        let mut bucket = limits.start(Nanos::ZERO);
        let steps: Vec<_> = train.iter().map(|(step, _)| *step).collect();
        let mut now = 0;
        for (at, cost) in timed(&steps, spec.period, 0) {
            limits.decide(&mut bucket, cost, Nanos::new(at));
            now = at;
        }
        let before = bucket.clone();
        let ask = BucketRequest::new(cost, Nanos::new(now));
        let taken = Taken::new(&bucket, &ask);
        if limits.answer(&mut bucket, &ask).is_refused() {
            return Ok(());
        }
        let too_large = spec.algorithm().max_cost().checked_add(1);
        if let Some(too_large) = too_large.filter(|_| spec.forgets_refusals()) {
            now += pause * (spec.period / 64).max(1);
            prop_assert!(limits.decide(&mut bucket, too_large, Nanos::new(now)).is_refused());
        }
        prop_assert!(limits.give_back(&mut bucket, &taken));
        prop_assert_eq!(bucket.words(), before.words());
    }

    /// Passing requests keep the bound of their limit and their order, whichever requests leave the queue.
    #[test]
    fn no_window_admits_more_for_what_is_given_back(
        spec in spec(), train in train(60), start in 0..=100_u64,
    ) {
        let mut world = World::new(one(spec), start);
        let steps: Vec<_> = train.iter().map(|(step, _)| *step).collect();
        for (number, (step, (_, back))) in timed(&steps, spec.period, start).into_iter().zip(&train).enumerate() {
            world.step(number, step, *back);
        }
        prop_assert!(world.passed.is_sorted_by_key(|(passes, _)| *passes));
        for (first, (from, _)) in world.passed.iter().enumerate() {
            let mut sum = 0;
            for (now, cost) in &world.passed[first..] {
                sum += u128::from(*cost) * u128::from(spec.period);
                prop_assert!(sum <= spec.bound(now - from), "{from} to {now}");
            }
        }
    }

    /// With any numbers, given back validly or not, nothing overflows or falls below zero.
    #[test]
    fn any_return_is_survived(
        spec in spec(), gives in prop::collection::vec(any::<(u64, u64, bool)>(), 1..12),
    ) {
        let limits = one(spec);
        let mut bucket = limits.start(Nanos::ZERO);
        let mut taken = Vec::new();
        for (now, cost, takes) in gives {
            let ask = BucketRequest::new(cost, Nanos::new(now));
            taken.push(Taken::new(&bucket, &ask));
            if takes {
                limits.answer(&mut bucket, &ask);
            }
            for taken in &taken {
                limits.give_back(&mut bucket, taken);
                prop_assert!(bucket.words().len() <= limits.words() + limits.promise_words());
            }
            let left = only(&limits.peek(&bucket, 0, Nanos::new(now)));
            prop_assert!(left.remaining <= left.capacity);
        }
    }
}
