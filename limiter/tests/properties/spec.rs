//! Numbers of limits of every kind, and what each kind promises.
//!
//! A new kind is a variant here with its arms below, and a model in `naive`.

use loudou_limiter::algorithm::{Algorithm, Funnel, Refill, TokenBucket};
use loudou_limiter::{Limit, Nanos, Rate};
use proptest::prelude::*;

#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(super) enum Kind {
    Funnel,
    Greedy,
    Interval,
}

const KINDS: [Kind; 3] = [Kind::Funnel, Kind::Greedy, Kind::Interval];

/// The numbers of a limit: `amount` comes back per `period`.
#[derive(Clone, Copy, Debug)]
pub(super) struct Spec {
    pub(super) kind: Kind,
    pub(super) capacity: u64,
    pub(super) amount: u32,
    pub(super) period: u64,
    /// What the other numbers of a kind are made from.
    pub(super) seed: u64,
}

impl Spec {
    /// The nearest numbers that the kind allows.
    pub(super) fn new(kind: Kind, capacity: u64, amount: u32, period: u64, seed: u64) -> Self {
        Self {
            kind,
            capacity,
            amount,
            period,
            seed,
        }
    }

    pub(super) fn rate(&self) -> Rate {
        Rate::new(self.amount, Nanos::new(self.period)).expect("positive")
    }

    /// What a new bucket has used.
    pub(super) fn used_at_first(&self) -> u64 {
        match self.kind {
            Kind::Greedy | Kind::Interval => self.capacity.min(self.seed % 5),
            Kind::Funnel => 0,
        }
    }

    pub(super) fn algorithm(&self) -> Algorithm {
        let bucket = |refill| {
            let initial = self.capacity - self.used_at_first();
            TokenBucket::new(self.capacity, self.rate(), refill, initial).map(Into::into)
        };
        let algorithm = match self.kind {
            Kind::Funnel => Funnel::new(self.capacity, self.rate()).map(Into::into),
            Kind::Greedy => bucket(Refill::Greedy),
            Kind::Interval => bucket(Refill::Interval),
        };
        algorithm.expect("in range")
    }

    pub(super) fn limit(&self, name: &str) -> Limit {
        Limit::new(name, self.algorithm())
    }

    /// The most that may be admitted in a closed window of length `w`, in 1/period cost units.
    pub(super) fn bound(&self, w: u64) -> u128 {
        let [capacity, period, amount, w] =
            [self.capacity, self.period, self.amount.into(), w].map(u128::from);
        match self.kind {
            Kind::Funnel | Kind::Greedy => capacity * period + amount * w,
            Kind::Interval => capacity * period + amount * period * (w / period + 1),
        }
    }

    /// The most that can be used at `now` in a bucket that is as good as new `reset` later, in whole
    /// cost units.
    pub(super) fn most_used(&self, now: u64, reset: u64) -> u128 {
        let [period, amount, now, reset] =
            [self.period, self.amount.into(), now, reset].map(u128::from);
        let most = match self.kind {
            Kind::Funnel | Kind::Greedy => reset * amount / period,
            Kind::Interval => ((now + reset) / period - now / period) * amount,
        };
        most.min(self.capacity.into())
    }

    /// Whether a refusal leaves the state as it is.
    pub(super) fn forgets_refusals(&self) -> bool {
        true
    }
}

pub(super) fn kind() -> impl Strategy<Value = Kind> {
    prop::sample::select(KINDS.to_vec())
}

/// Limits within the bounds, most of them so small that every edge is met.
pub(super) fn spec() -> impl Strategy<Value = Spec> {
    let small = (1..=12_u64, 1..=7_u32, 1..=20_u64);
    let usual = (
        1..=1_000_u64,
        1..=100_u32,
        prop::sample::select(vec![1_000_000_000, 60_000_000_000, 999_999_937]),
    );
    let large = (1..=10_u64, 1..=3_u32, 1..=366 * 86_400_000_000_000_u64);
    let numbers = prop_oneof![3 => small, 1 => usual, 1 => large];
    (kind(), numbers, 0..100_u64).prop_map(|(kind, (capacity, amount, period), seed)| {
        Spec::new(kind, capacity, amount, period, seed)
    })
}
