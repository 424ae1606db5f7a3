//! Equality with the naive models.

use loudou_limiter::{Decision, Nanos, Verdict};
use proptest::prelude::*;

use super::naive::{Model, model};
use super::spec::{Kind, Spec, spec, spec_of};
use super::{config, limits, timed, train};

/// Compares a decision on `cost` at `now`, and the state after it, with the model.
fn agrees(
    (spec, model): (&Spec, &dyn Model),
    (now, cost): (u64, u64),
    decision: &Decision,
) -> Result<(), TestCaseError> {
    prop_assert_eq!(decision.capacity, spec.capacity);
    let left = decision.remaining;
    prop_assert!(left <= decision.capacity);
    if spec.kind.holds() {
        prop_assert_eq!(left, model.left(now).unwrap_or(left));
    } else {
        prop_assert!(left == 0 || model.fits(left, now), "what is left fits");
        prop_assert!(!model.fits(left + 1, now), "and no more");
    }
    let reset = decision.reset_after.get();
    prop_assert!(model.is_new(now + reset), "as good as new at reset_after");
    prop_assert!(
        reset == 0 || !model.is_new(now + reset - 1),
        "but not before"
    );
    match decision.retry_after {
        None => prop_assert!(!decision.is_refused() || cost > spec.algorithm().max_cost()),
        Some(wait) => {
            prop_assert!(decision.is_refused() && wait > Nanos::ZERO);
            prop_assert!(cost <= spec.algorithm().max_cost());
            prop_assert!(
                model.fits(cost, now + wait.get()),
                "admitted at retry_after"
            );
            prop_assert!(!model.fits(cost, now + wait.get() - 1), "but not before");
        }
    }
    Ok(())
}

proptest! {
    #![proptest_config(config(512))]

    /// Verdicts and all values of every limit equal the model's, for one to three limits.
    #[test]
    fn decisions_equal_the_naive_model(
        specs in prop::collection::vec(spec_of(Kind::has_model), 1..=3),
        train in train(40),
        start in prop_oneof![Just(0), 1..=1_000_000_000_000_u64],
    ) {
        let limits = limits(&specs);
        let mut bucket = limits.start(Nanos::new(start));
        let mut models: Vec<_> = specs.iter().map(|spec| model(*spec, start)).collect();
        for (now, cost) in timed(&train, specs[0].period, start) {
            let answer = limits.decide(&mut bucket, cost, Nanos::new(now));
            let waits: Vec<_> = models.iter().map(|model| model.wait(cost, now)).collect();
            let admitted = waits.iter().all(Option::is_some);
            prop_assert_eq!(answer.is_refused(), !admitted);
            for model in &mut models {
                match admitted {
                    true if cost > 0 => model.take(cost, now),
                    true => {}
                    false => model.note_refusal(cost, now),
                }
            }
            let limits = specs.iter().zip(&models).zip(waits);
            for (((spec, model), wait), decision) in limits.zip(answer.decisions()) {
                if admitted {
                    let hold = wait.unwrap_or(0);
                    prop_assert_eq!(decision.verdict == Verdict::Hold, hold > 0);
                    prop_assert_eq!(decision.wait.get(), hold);
                }
                prop_assert_eq!(decision.is_refused(), !admitted && !model.fits(cost, now));
                agrees((spec, model.as_ref()), (now, cost), decision)?;
            }
        }
    }

    /// The reported limit is the refusing limit with the maximum wait. If none refuses, it is the
    /// limit with the smallest share.
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
