//! Numbers of limits of every kind, and what each kind promises.
//!
//! A new kind is a variant here with its arms below, and a model in `naive`.

use loudou_limiter::algorithm::{
    Algorithm, Align, FixedWindow, Funnel, Grid, Refill, SlidingCounter, SlidingLog, SlidingWindow,
    TokenBucket,
};
use loudou_limiter::bounds::MAX_DRAIN;
use loudou_limiter::calendar::{Calendar, Period, Zone};
use loudou_limiter::{Limit, Nanos, Rate};
use proptest::prelude::*;

pub(super) const HOUR: u64 = 3_600_000_000_000;
const DAY: u64 = 24 * HOUR;

#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(super) enum Kind {
    Funnel,
    Greedy,
    Interval,
    FixedFirst,
    FixedClock,
    /// Days in a zone that is an hour ahead of UTC.
    FixedDay,
    SlidingWindow,
    Log,
    /// One that counts refused requests.
    StrictLog,
    Counter,
    /// As the first three, with a longest wait.
    HoldingFunnel,
    HoldingGreedy,
    HoldingInterval,
    Queue,
    Bursty,
    Warmup,
    /// Of which nothing is given back.
    InFlight,
}

const KINDS: [Kind; 17] = [
    Kind::Funnel,
    Kind::Greedy,
    Kind::Interval,
    Kind::FixedFirst,
    Kind::FixedClock,
    Kind::FixedDay,
    Kind::SlidingWindow,
    Kind::Log,
    Kind::StrictLog,
    Kind::Counter,
    Kind::HoldingFunnel,
    Kind::HoldingGreedy,
    Kind::HoldingInterval,
    Kind::Queue,
    Kind::Bursty,
    Kind::Warmup,
    Kind::InFlight,
];

/// Numbers of a limit. `amount` comes back per `period`, which is the window for limits with a
/// window.
#[derive(Clone, Copy, Debug)]
pub(super) struct Spec {
    pub(super) kind: Kind,
    pub(super) capacity: u64,
    pub(super) amount: u32,
    pub(super) period: u64,
    /// The source of the other numbers of a kind.
    pub(super) seed: u64,
}

impl Spec {
    /// The nearest numbers that the kind allows.
    pub(super) fn new(kind: Kind, capacity: u64, amount: u32, period: u64, seed: u64) -> Self {
        let capacity = match kind {
            Kind::Log | Kind::StrictLog => capacity.min(256),
            _ => capacity,
        };
        let period = match kind {
            Kind::FixedDay => DAY,
            _ => period,
        };
        Self {
            kind,
            capacity,
            amount,
            period,
            seed,
        }
        .holding()
    }

    pub(super) fn rate(&self) -> Rate {
        Rate::new(self.amount, Nanos::new(self.period)).expect("positive")
    }

    /// The used amount of a new bucket.
    pub(super) fn used_at_first(&self) -> u64 {
        match self.kind {
            Kind::Greedy | Kind::Interval | Kind::HoldingGreedy | Kind::HoldingInterval => {
                self.capacity.min(self.seed % 5)
            }
            _ => 0,
        }
    }

    pub(super) fn slots(&self) -> u32 {
        [2, 3, 7, 10, 64][usize::try_from(self.seed % 5).expect("small")]
    }

    /// From the minimum with which the capacity can be reached to the whole capacity.
    pub(super) fn slot_capacity(&self) -> u64 {
        let least = self.capacity.div_ceil(self.slots().into());
        least + (self.capacity - least) * (self.seed / 5 % 5) / 4
    }

    /// Half of the limits with periods have them on the wall clock.
    pub(super) fn align(&self) -> Grid {
        [Grid::Process, Grid::Clock][usize::try_from(self.seed / 25 % 2).expect("small")]
    }

    /// Returns the numbers with slots that take the whole capacity.
    pub(super) fn with_wide_slots(self) -> Self {
        let seed = self.seed % 5 + 20;
        Self { seed, ..self }
    }

    pub(super) fn algorithm(&self) -> Algorithm {
        let bucket = |refill| {
            let initial = self.capacity - self.used_at_first();
            TokenBucket::new(self.capacity, self.rate(), refill, initial)
        };
        let (capacity, window) = (self.capacity, Nanos::new(self.period));
        let algorithm = match self.kind {
            Kind::Funnel => Funnel::new(self.capacity, self.rate()).map(Into::into),
            Kind::Greedy => bucket(Refill::Greedy).map(Into::into),
            Kind::Interval => bucket(Refill::Interval)
                .and_then(|bucket| bucket.aligned(self.align()))
                .map(Into::into),
            Kind::FixedFirst => FixedWindow::new(capacity, window, Align::First).map(Into::into),
            Kind::FixedClock => FixedWindow::new(capacity, window, Align::Clock).map(Into::into),
            Kind::FixedDay => {
                let zone = Zone::parse("+01:00").expect("a zone");
                FixedWindow::of_calendar(capacity, Calendar::new(Period::Day, zone)).map(Into::into)
            }
            Kind::SlidingWindow => {
                let slot_capacity = Some(self.slot_capacity());
                SlidingWindow::new(capacity, window, self.slots(), slot_capacity)
                    .map(|limit| limit.aligned(self.align()).into())
            }
            Kind::Log => SlidingLog::new(capacity, window, false).map(Into::into),
            Kind::StrictLog => SlidingLog::new(capacity, window, true).map(Into::into),
            Kind::Counter => SlidingCounter::new(capacity, window)
                .map(|limit| limit.aligned(self.align()).into()),
            _ => self.holder(),
        };
        algorithm.expect("in range")
    }

    pub(super) fn limit(&self, name: &str) -> Limit {
        Limit::new(name, self.algorithm())
    }

    /// Maximum amount that may be admitted in a closed window of length `w`, in 1/period cost
    /// units.
    pub(super) fn bound(&self, w: u64) -> u128 {
        let [capacity, period, amount, w] =
            [self.capacity, self.period, self.amount.into(), w].map(u128::from);
        match self.kind {
            Kind::Funnel | Kind::Greedy => capacity * period + amount * w,
            Kind::Interval => capacity * period + amount * period * (w / period + 1),
            Kind::FixedFirst | Kind::FixedClock | Kind::FixedDay => {
                capacity * period * (w.div_ceil(period) + 1)
            }
            Kind::Log | Kind::StrictLog => capacity * period * (w / period + 1),
            Kind::Counter => capacity * period + capacity * w,
            Kind::HoldingFunnel
            | Kind::HoldingGreedy
            | Kind::HoldingInterval
            | Kind::Queue
            | Kind::Bursty
            | Kind::Warmup
            | Kind::InFlight => self.holders_bound(u64::try_from(w).expect("it was")),
            Kind::SlidingWindow => {
                let (slots, in_slot) = (u128::from(self.slots()), u128::from(self.slot_capacity()));
                // A single instant is in one slot, or at the edge of two slots. This many slots lie
                // wholly between the first and the last.
                let begins = w * slots / period;
                let touched = (begins.saturating_sub(1)..=begins + 2)
                    .rev()
                    .find(|touched| {
                        let between = touched.saturating_sub(2) * period / slots;
                        *touched < 2 || between < w
                    })
                    .expect("one is");
                let rest = capacity.min(in_slot * (touched % slots));
                (capacity * (touched / slots) + rest) * period
            }
        }
    }

    /// Returns true if a part of such a large debt is forgotten. The debt of some kinds ends after
    /// ten years.
    pub(super) fn forgets(&self, cost: u64) -> bool {
        let [cost, period, amount] = [cost, self.period, self.amount.into()].map(u128::from);
        matches!(self.kind, Kind::Bursty | Kind::Warmup)
            && cost * period > amount * u128::from(MAX_DRAIN.get())
    }

    /// Returns true if a refusal leaves the state unchanged.
    pub(super) fn forgets_refusals(&self) -> bool {
        self.kind != Kind::StrictLog
    }
}

impl Kind {
    /// Returns true if the remaining capacity determines the used capacity.
    pub(super) const fn is_level(self) -> bool {
        !matches!(
            self,
            Self::Queue | Self::Bursty | Self::Warmup | Self::InFlight
        )
    }

    /// Returns true if a request waits for the costs of earlier requests, but not for its own cost.
    pub(super) const fn pays_later(self) -> bool {
        matches!(self, Self::Queue | Self::Bursty | Self::Warmup)
    }

    /// Returns true if it may hold a request.
    pub(super) const fn holds(self) -> bool {
        self.pays_later()
            || matches!(
                self,
                Self::HoldingFunnel | Self::HoldingGreedy | Self::HoldingInterval
            )
    }

    /// Returns true if there is a naive model of this kind.
    pub(super) const fn has_model(self) -> bool {
        !matches!(self, Self::Warmup | Self::InFlight)
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

/// Generates numbers of kinds for which the predicate holds.
pub(super) fn spec_of(which: fn(Kind) -> bool) -> impl Strategy<Value = Spec> {
    spec().prop_filter("of another kind", move |spec| which(spec.kind))
}
