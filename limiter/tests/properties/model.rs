//! The naive model: the level itself, as an exact fraction, brought forward step by step.
//!
//! It has no arrival time and no formula for a wait: a wait is right when the model refuses one
//! nanosecond before it and admits at it.

use super::{Kind, Spec, config, limits, spec, timed, train};
use loudou_limiter::{Decision, Nanos};
use proptest::prelude::*;

#[derive(Clone, Debug)]
pub(super) struct Naive {
    spec: Spec,
    /// The used capacity, in 1/period cost units.
    level: u128,
    last: u64,
}

impl Naive {
    pub(super) fn new(spec: Spec, now: u64) -> Self {
        let level = u128::from(spec.capacity - spec.initial) * u128::from(spec.period);
        Self {
            spec,
            level,
            last: now,
        }
    }

    fn full(&self) -> u128 {
        u128::from(self.spec.capacity) * u128::from(self.spec.period)
    }

    pub(super) fn at(&self, now: u64) -> Self {
        let period = u128::from(self.spec.period);
        let now = now.max(self.last);
        let units = match self.spec.kind {
            Kind::Funnel | Kind::Greedy => u128::from(now - self.last),
            Kind::Interval => {
                u128::from(now / self.spec.period - self.last / self.spec.period) * period
            }
        };
        let gone = units * u128::from(self.spec.amount);
        Self {
            spec: self.spec,
            level: self.level.saturating_sub(gone),
            last: now,
        }
    }

    pub(super) fn fits(&self, cost: u64) -> bool {
        self.level + u128::from(cost) * u128::from(self.spec.period) <= self.full()
    }

    pub(super) fn take(&mut self, cost: u64) {
        self.level += u128::from(cost) * u128::from(self.spec.period);
    }

    fn remaining(&self) -> u128 {
        (self.full() - self.level) / u128::from(self.spec.period)
    }

    /// Compares a decision on `cost` with this model, which stands at its instant and after it.
    pub(super) fn agrees(&self, cost: u64, decision: &Decision) -> Result<(), TestCaseError> {
        let ahead = |span: u64| self.at(self.last + span);
        prop_assert_eq!(decision.capacity, self.spec.capacity);
        prop_assert_eq!(u128::from(decision.remaining), self.remaining());
        let reset = decision.reset_after.get();
        prop_assert_eq!(ahead(reset).level, 0, "full again at reset_after");
        prop_assert!(reset == 0 || ahead(reset - 1).level > 0, "but not before");
        match decision.retry_after {
            None => prop_assert!(!decision.is_refused() || cost > self.spec.capacity),
            Some(wait) => {
                prop_assert!(decision.is_refused() && wait > Nanos::ZERO);
                prop_assert!(ahead(wait.get()).fits(cost), "admitted at retry_after");
                prop_assert!(!ahead(wait.get() - 1).fits(cost), "but not before");
            }
        }
        Ok(())
    }
}

proptest! {
    #![proptest_config(config(512))]

    /// Verdicts and all five values of every limit equal the model's, for one to three limits.
    #[test]
    fn decisions_equal_the_naive_model(
        specs in prop::collection::vec(spec(), 1..=3),
        train in train(40),
        start in prop_oneof![Just(0), 1..=1_000_000_000_000_u64],
    ) {
        let limits = limits(&specs);
        let mut bucket = limits.start(Nanos::new(start));
        let mut models: Vec<Naive> = specs.iter().map(|spec| Naive::new(*spec, start)).collect();
        for (now, cost) in timed(&train, specs[0].period, start) {
            let answer = limits.decide(&mut bucket, cost, Nanos::new(now));
            for model in &mut models {
                *model = model.at(now);
            }
            let verdicts: Vec<bool> = models.iter().map(|model| model.fits(cost)).collect();
            let admitted = verdicts.iter().all(|fits| *fits);
            prop_assert_eq!(answer.is_refused(), !admitted);
            for ((model, decision), fits) in models.iter_mut().zip(answer.decisions()).zip(verdicts) {
                if admitted {
                    model.take(cost);
                }
                prop_assert_eq!(decision.is_refused(), !fits);
                model.agrees(cost, decision)?;
            }
        }
    }

    /// Which limit is reported: among the refusing ones the longest wait, else the smallest share.
    #[test]
    fn the_reported_limit_is_the_one_that_matters(
        specs in prop::collection::vec(spec(), 2..=4),
        train in train(20),
    ) {
        let limits = limits(&specs);
        let mut bucket = limits.start(Nanos::ZERO);
        for (now, cost) in timed(&train, specs[0].period, 0) {
            let answer = limits.decide(&mut bucket, cost, Nanos::new(now));
            let reported = answer.reported().expect("some");
            prop_assert_eq!(reported.is_refused(), answer.is_refused());
            let wait = |d: &Decision| d.retry_after.unwrap_or(Nanos::MAX);
            let share = |d: &Decision, of: &Decision| u128::from(d.remaining) * u128::from(of.capacity);
            for (index, other) in answer.decisions().enumerate() {
                let before = index < answer.reported_index();
                if other.is_refused() {
                    prop_assert!(wait(reported) >= wait(other));
                    prop_assert!(!before || wait(reported) > wait(other), "the first of equals");
                } else if !reported.is_refused() {
                    prop_assert!(share(reported, other) <= share(other, reported));
                    prop_assert!(!before || share(reported, other) < share(other, reported));
                }
            }
        }
    }
}
