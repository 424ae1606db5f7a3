//! Properties of every limit and every train of requests. Also compares every limit with a model
//! that is too simple to be wrong.
#![cfg(test)]

use loudou_limiter::{Decision, Limits};
use proptest::prelude::*;
use proptest::test_runner::FileFailurePersistence;

mod carried;
mod carry;
mod changing;
mod clocks;
mod cold;
mod edits;
mod exact;
mod fraction;
mod gains;
mod given;
mod governor;
mod health;
mod history;
mod holders;
mod in_flight;
mod late;
mod laws;
mod line;
mod lines;
mod mixed;
mod model;
mod more;
mod naive;
mod neutral;
mod pairs;
mod promises;
mod queue;
mod refunds;
mod settled;
mod spec;
mod windows;

use spec::Spec;

/// Failing cases are stored next to the source, so that they are always tried first.
fn config(cases: u32) -> ProptestConfig {
    let regressions = FileFailurePersistence::WithSource("regressions");
    ProptestConfig {
        failure_persistence: Some(Box::new(regressions)),
        ..ProptestConfig::with_cases(cases)
    }
}

fn limits(specs: &[Spec]) -> Limits {
    let named = specs.iter().enumerate();
    let limits = named
        .map(|(i, spec)| spec.limit(&format!("l{i}")))
        .collect();
    Limits::new(limits).expect("one to eight, named apart")
}

fn one(spec: Spec) -> Limits {
    limits(&[spec])
}

fn only(answer: &loudou_limiter::BucketDecision) -> Decision {
    *answer.reported().expect("a decision")
}

/// A request, as the pause after the previous request in 64ths of the limit's period, and its cost.
type Step = (u64, u64);

fn train(most: usize) -> impl Strategy<Value = Vec<Step>> {
    let pause = prop_oneof![4 => 0..=32_u64, 2 => 33..=200_u64, 1 => 201..=5_000_u64];
    let cost = prop_oneof![1 => Just(0), 8 => 1..=3_u64, 2 => 4..=14_u64];
    prop::collection::vec((pause, cost), 1..most)
}

/// Last instant of a train: 146 years. Beyond the clock's range of 584 years, an arrival time
/// cannot be distinguished from the end of time. The only guarantee is then that nothing panics.
const END: u64 = 1 << 62;

/// The instants and costs of a train, for a limit with that period.
fn timed(train: &[Step], period: u64, start: u64) -> Vec<(u64, u64)> {
    let mut now = start;
    let timed = train.iter().map(|(pause, cost)| {
        // Below 64 ns, a 64th of the period would be zero, so whole nanoseconds are used.
        let step = if period < 64 {
            *pause / 4
        } else {
            pause * (period / 64) + pause % 5
        };
        now = now.saturating_add(step).min(END);
        (now, *cost)
    });
    timed.collect()
}
