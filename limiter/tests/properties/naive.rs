//! Naive models: what a limit means, written without regard for time, space or formulas.
//!
//! A model has no formula for a wait: a wait is right when the model refuses one nanosecond before it
//! and admits at it.

use super::spec::{Kind, Spec};
use std::fmt::Debug;

/// A bucket. `now` is never earlier than that of the last [`Model::take`].
pub(super) trait Model: Debug {
    /// How long a request of that cost is held; `None` when it is refused.
    fn wait(&self, cost: u64, now: u64) -> Option<u64>;
    /// It was admitted or held.
    fn take(&mut self, cost: u64, now: u64);
    /// It was refused, by this limit or by another one.
    fn note_refusal(&mut self, _cost: u64, _now: u64) {}
    /// Whether nothing of what was taken is left.
    fn is_new(&self, now: u64) -> bool;

    fn fits(&self, cost: u64, now: u64) -> bool {
        self.wait(cost, now).is_some()
    }
}

pub(super) fn model(spec: Spec, now: u64) -> Box<dyn Model> {
    match spec.kind {
        Kind::Funnel | Kind::Greedy | Kind::Interval => Box::new(Level::new(spec, now)),
    }
}

/// The level itself, as an exact fraction, brought forward step by step.
#[derive(Clone, Debug)]
struct Level {
    spec: Spec,
    /// The used capacity, in 1/period cost units.
    level: u128,
    last: u64,
}

impl Level {
    fn new(spec: Spec, now: u64) -> Self {
        let level = u128::from(spec.used_at_first()) * u128::from(spec.period);
        Self {
            spec,
            level,
            last: now,
        }
    }

    fn at(&self, now: u64) -> u128 {
        let Spec { kind, period, .. } = self.spec;
        let units = match kind {
            Kind::Interval => u128::from(now / period - self.last / period) * u128::from(period),
            _ => u128::from(now - self.last),
        };
        self.level
            .saturating_sub(units * u128::from(self.spec.amount))
    }

    fn with(&self, cost: u64, now: u64) -> u128 {
        self.at(now) + u128::from(cost) * u128::from(self.spec.period)
    }
}

impl Model for Level {
    fn wait(&self, cost: u64, now: u64) -> Option<u64> {
        let full = u128::from(self.spec.capacity) * u128::from(self.spec.period);
        (self.with(cost, now) <= full).then_some(0)
    }

    fn take(&mut self, cost: u64, now: u64) {
        self.level = self.with(cost, now);
        self.last = now;
    }

    fn is_new(&self, now: u64) -> bool {
        self.at(now) == 0
    }
}
