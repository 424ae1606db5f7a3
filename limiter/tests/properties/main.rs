//! What holds for every limit and every train of requests, and equality with a model that is too
//! plain to be wrong.
#![cfg(test)]

use loudou_limiter::algorithm::{Algorithm, Funnel, Refill, TokenBucket};
use loudou_limiter::{Decision, Limit, Limits, Nanos, Rate};
use proptest::prelude::*;
use proptest::test_runner::FileFailurePersistence;

mod carry;
mod governor;
mod laws;
mod model;
mod versions;

/// Failing cases are kept beside the source, so that they are tried first for ever.
fn config(cases: u32) -> ProptestConfig {
    let regressions = FileFailurePersistence::WithSource("regressions");
    ProptestConfig {
        failure_persistence: Some(Box::new(regressions)),
        ..ProptestConfig::with_cases(cases)
    }
}

#[derive(Clone, Copy, Debug, PartialEq, Eq)]
enum Kind {
    Funnel,
    Greedy,
    Interval,
}

/// The numbers of a limit.
#[derive(Clone, Copy, Debug)]
struct Spec {
    kind: Kind,
    capacity: u64,
    amount: u32,
    period: u64,
    initial: u64,
}

impl Spec {
    fn limit(&self, name: &str) -> Limit {
        let rate = Rate::new(self.amount, Nanos::new(self.period)).expect("positive");
        let refill = match self.kind {
            Kind::Funnel => {
                let funnel = Funnel::new(self.capacity, rate).expect("in range");
                return Limit::new(name, Algorithm::Funnel(funnel));
            }
            Kind::Greedy => Refill::Greedy,
            Kind::Interval => Refill::Interval,
        };
        let bucket = TokenBucket::new(self.capacity, rate, refill, self.initial).expect("in range");
        Limit::new(name, Algorithm::TokenBucket(bucket))
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

fn kind() -> impl Strategy<Value = Kind> {
    prop_oneof![Just(Kind::Funnel), Just(Kind::Greedy), Just(Kind::Interval)]
}

/// Limits within the bounds, most of them so small that every edge is met.
fn spec() -> impl Strategy<Value = Spec> {
    let small = (1..=12_u64, 1..=7_u32, 1..=20_u64);
    let usual = (
        1..=1_000_u64,
        1..=100_u32,
        prop::sample::select(vec![1_000_000_000, 60_000_000_000, 999_999_937]),
    );
    let large = (1..=10_u64, 1..=3_u32, 1..=366 * 86_400_000_000_000_u64);
    let numbers = prop_oneof![3 => small, 1 => usual, 1 => large];
    (kind(), numbers, 0..=4_u64).prop_map(|(kind, (capacity, amount, period), missing)| Spec {
        kind,
        capacity,
        amount,
        period,
        initial: match kind {
            Kind::Funnel => capacity,
            Kind::Greedy | Kind::Interval => capacity.saturating_sub(missing),
        },
    })
}

/// A request: how long after the one before it, in 64ths of the rate's period, and its cost.
type Step = (u64, u64);

fn train(most: usize) -> impl Strategy<Value = Vec<Step>> {
    let pause = prop_oneof![4 => 0..=32_u64, 2 => 33..=200_u64, 1 => 201..=5_000_u64];
    let cost = prop_oneof![1 => Just(0), 8 => 1..=3_u64, 2 => 4..=14_u64];
    prop::collection::vec((pause, cost), 1..most)
}

/// The last instant of a train: 146 years. Beyond the 584 years that the clock counts, an arrival time
/// cannot be told from the end of time, and nothing is promised but that nothing panics.
const END: u64 = 1 << 62;

/// The instants and costs of a train, for a limit with that period.
fn timed(train: &[Step], period: u64, start: u64) -> Vec<(u64, u64)> {
    let mut now = start;
    let timed = train.iter().map(|(pause, cost)| {
        // Below 64 ns a 64th of the period is nothing: whole nanoseconds then.
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
