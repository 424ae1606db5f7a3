//! Naive models that define the meaning of a limit, without regard for time, space or formulas.
//!
//! A model has no formula for a wait. A wait is right if the model refuses one nanosecond before it
//! and admits at it.

use std::fmt::Debug;

use super::holders::Line;
use super::spec::{HOUR, Kind, Spec};

/// A bucket. `now` is never before the `now` of the last [`Model::take`].
pub(super) trait Model: Debug {
    /// Returns how long a request with this cost is held; `None` if it is refused.
    fn wait(&self, cost: u64, now: u64) -> Option<u64>;
    /// It was admitted or held.
    fn take(&mut self, cost: u64, now: u64);
    /// It was refused, by this limit or by another one.
    fn note_refusal(&mut self, _cost: u64, _now: u64) {}
    /// Returns true if nothing is used any more.
    fn is_new(&self, now: u64) -> bool;

    /// Returns the remaining capacity; `None` if it is the maximum cost that fits.
    fn left(&self, _now: u64) -> Option<u64> {
        None
    }

    fn fits(&self, cost: u64, now: u64) -> bool {
        self.wait(cost, now).is_some()
    }
}

pub(super) fn model(spec: Spec, now: u64) -> Box<dyn Model> {
    match spec.kind {
        Kind::Funnel | Kind::Greedy | Kind::Interval => Box::new(Level::new(spec, now)),
        Kind::FixedFirst
        | Kind::FixedClock
        | Kind::FixedDay
        | Kind::SlidingWindow
        | Kind::Log
        | Kind::StrictLog
        | Kind::Counter => Box::new(History::new(spec)),
        _ => Box::new(Line::new(spec, now)),
    }
}

/// The level itself, as an exact fraction, brought forward step by step.
#[derive(Clone, Debug)]
struct Level {
    spec: Spec,
    /// The used capacity, in 1/period cost units.
    used: u128,
    last: u64,
}

impl Level {
    fn new(spec: Spec, now: u64) -> Self {
        let used = u128::from(spec.used_at_first()) * u128::from(spec.period);
        Self {
            spec,
            used,
            last: now,
        }
    }

    fn at(&self, now: u64) -> u128 {
        let Spec { kind, period, .. } = self.spec;
        let units = match kind {
            Kind::Interval => u128::from(now / period - self.last / period) * u128::from(period),
            _ => u128::from(now - self.last),
        };
        self.used
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
        self.used = self.with(cost, now);
        self.last = now;
    }

    fn is_new(&self, now: u64) -> bool {
        self.at(now) == 0
    }
}

/// Every request there ever was.
#[derive(Clone, Debug)]
struct History {
    spec: Spec,
    /// Instants and costs, oldest first.
    taken: Vec<(u128, u128)>,
}

impl History {
    fn new(spec: Spec) -> Self {
        let taken = Vec::new();
        Self { spec, taken }
    }

    /// Returns the cost of the selected requests.
    fn sum(&self, which: impl Fn(u128) -> bool) -> u128 {
        let which = self.taken.iter().filter(|(at, _)| which(*at));
        which.map(|(_, cost)| cost).sum()
    }

    /// The first instant of the last window that begins with a request.
    fn began(&self) -> Option<u128> {
        let mut began = None;
        for (at, _) in &self.taken {
            if began.is_none_or(|began| *at >= began + u128::from(self.spec.period)) {
                began = Some(*at);
            }
        }
        began
    }

    /// What counts at `now`, in 1/window cost units.
    fn level(&self, now: u128) -> u128 {
        let window = u128::from(self.spec.period);
        let slots = u128::from(self.spec.slots());
        let slot = |at: u128| at * slots / window;
        let of_window = |number: u128| self.sum(|at| at / window == number);
        window
            * match self.spec.kind {
                Kind::FixedFirst => {
                    let began = self.began().filter(|began| now < began + window);
                    began.map_or(0, |began| self.sum(|at| at >= began))
                }
                Kind::FixedClock => of_window(now / window),
                Kind::FixedDay => {
                    let day = |at: u128| (at + u128::from(HOUR)) / window;
                    self.sum(|at| day(at) == day(now))
                }
                Kind::SlidingWindow => self.sum(|at| slot(at) + slots > slot(now)),
                Kind::Counter => {
                    let before = now / window;
                    let previous = before.checked_sub(1).map_or(0, of_window);
                    return previous * (window - now % window) + of_window(before) * window;
                }
                _ => self
                    .sum(|at| now < at + window)
                    .min(self.spec.capacity.into()),
            }
    }
}

impl Model for History {
    fn wait(&self, cost: u64, now: u64) -> Option<u64> {
        let (now, cost) = (u128::from(now), u128::from(cost));
        let (window, slots) = (u128::from(self.spec.period), u128::from(self.spec.slots()));
        let slot = now * slots / window;
        let in_slot = self.sum(|at| at * slots / window == slot) + cost;
        let slot_fits = self.spec.kind != Kind::SlidingWindow
            || cost == 0
            || in_slot <= u128::from(self.spec.slot_capacity());
        let full = u128::from(self.spec.capacity) * window;
        (slot_fits && self.level(now) + cost * window <= full).then_some(0)
    }

    fn take(&mut self, cost: u64, now: u64) {
        self.taken.push((now.into(), cost.into()));
    }

    fn note_refusal(&mut self, cost: u64, now: u64) {
        if self.spec.kind == Kind::StrictLog {
            let most = u128::from(self.spec.capacity);
            // The excess is removed, oldest first.
            self.take(cost.min(self.spec.capacity), now);
            let mut over = self.sum(|_| true).saturating_sub(most);
            for (_, cost) in &mut self.taken {
                let goes = over.min(*cost);
                *cost -= goes;
                over -= goes;
            }
        }
    }

    fn is_new(&self, now: u64) -> bool {
        self.level(now.into()) == 0
    }
}
