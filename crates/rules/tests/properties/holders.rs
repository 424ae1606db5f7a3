//! Numbers and models of limits that hold requests, and of requests in flight.

use loudou_limiter::algorithm::{
    Algorithm, Concurrency, Funnel, LeakyQueue, Refill, SmoothBursty, SmoothWarmup, TokenBucket,
};
use loudou_limiter::bounds::{BadNumbers, MAX_DRAIN};
use loudou_limiter::{Decimal, Nanos};

use super::naive::Model;
use super::spec::{Kind, Spec};

const MS: u64 = 1_000_000;
/// Maximum cost of a request in a train.
const LARGEST: u64 = 14;

impl Spec {
    /// Maximum time for which a request is held, from zero to five periods.
    fn max_wait(&self) -> Nanos {
        let wait = self.period / 4 * (self.seed % 21);
        Nanos::new(wait).min(loudou_limiter::bounds::MAX_WAIT)
    }

    fn immediate(&self) -> u32 {
        u32::try_from(self.seed / 21 % 4).expect("small")
    }

    /// For up to about a dozen permits.
    fn burst_ms(&self) -> u64 {
        let permits = self.period / MS * (self.seed % 13) / u64::from(self.amount);
        let odd = if self.amount < 1_000 {
            self.seed % 3
        } else {
            0
        };
        (permits + odd).min(86_400_000)
    }

    fn cold_factor(&self) -> u32 {
        [1_000, 1_500, 3_000, 7_777, 1_000_000][usize::try_from(self.seed % 5).expect("small")]
    }

    /// Returns the nearest numbers that a holding kind allows. For example, bursts are whole
    /// milliseconds.
    pub(super) fn holding(mut self) -> Self {
        match self.kind {
            Kind::Bursty => {
                self.period = self.period.max(MS);
                self.capacity = self.algorithm().capacity();
            }
            Kind::Warmup => self.capacity = 1,
            Kind::Queue => self.capacity = (self.capacity - 1).max(1),
            _ => {}
        }
        self
    }

    pub(super) fn holder(&self) -> Result<Algorithm, BadNumbers> {
        let (capacity, rate, max_wait) = (self.capacity, self.rate(), self.max_wait());
        let bucket = |refill| {
            TokenBucket::new(capacity, rate, refill, capacity - self.used_at_first())
                .and_then(|bucket| bucket.waiting(max_wait))
        };
        match self.kind {
            Kind::HoldingGreedy => bucket(Refill::Greedy).map(Into::into),
            Kind::HoldingInterval => bucket(Refill::Interval)
                .and_then(|bucket| bucket.aligned(self.align()))
                .map(Into::into),
            Kind::Queue => LeakyQueue::new(capacity, rate)
                .and_then(|queue| queue.immediate(self.immediate()).waiting(max_wait))
                .map(Into::into),
            Kind::Bursty => {
                let burst = u32::try_from(self.burst_ms()).expect("at most a day");
                SmoothBursty::new(rate, Decimal::from_thousandths(burst))
                    .and_then(|bursty| bursty.waiting(max_wait))
                    .map(Into::into)
            }
            Kind::Warmup => {
                let warmup = Nanos::new((self.period * (self.seed % 7)).clamp(1, 1 << 54));
                let factor = Decimal::from_thousandths(self.cold_factor());
                SmoothWarmup::new(rate, warmup, factor)
                    .and_then(|smooth| smooth.waiting(max_wait))
                    .map(Into::into)
            }
            Kind::InFlight => Concurrency::new(capacity, Nanos::new(self.period)).map(Into::into),
            _ => Funnel::new(capacity, rate)
                .and_then(|funnel| funnel.waiting(max_wait))
                .map(Into::into),
        }
    }

    /// Maximum amount that may pass in a closed window of length `w`, in 1/period cost units. It
    /// accounts for waits that are rounded up to whole nanoseconds.
    pub(super) fn holders_bound(&self, w: u64) -> u128 {
        let [capacity, period, amount] =
            [self.capacity, self.period, self.amount.into()].map(u128::from);
        let falls = amount * u128::from(w + 1);
        let last = u128::from(LARGEST) * period;
        match self.kind {
            Kind::HoldingInterval => {
                capacity * period + amount * period * (u128::from(w) / period + 1)
            }
            Kind::Queue => u128::from(self.immediate()) * period + last + falls,
            Kind::Bursty => u128::from(self.burst_ms() * MS) * amount + last + falls,
            Kind::Warmup => last + falls,
            Kind::InFlight => capacity * period * (u128::from(w) / period + 1),
            _ => capacity * period + falls,
        }
    }
}

/// The level as an exact fraction, as `naive::Level`, of a limit that lets it rise above the capacity.
#[derive(Clone, Debug)]
pub(super) struct Line {
    spec: Spec,
    /// In 1/period cost units.
    used: u128,
    last: u64,
}

impl Line {
    pub(super) fn new(spec: Spec, now: u64) -> Self {
        let used = match spec.kind {
            Kind::Bursty => u128::from(spec.burst_ms() * MS) * u128::from(spec.amount),
            _ => u128::from(spec.used_at_first()) * u128::from(spec.period),
        };
        Self {
            spec,
            used,
            last: now,
        }
    }

    fn units(&self, cost: u64) -> u128 {
        u128::from(cost) * u128::from(self.spec.period)
    }

    fn at(&self, now: u64) -> u128 {
        let Spec { kind, period, .. } = self.spec;
        let units = match kind {
            Kind::HoldingInterval => {
                u128::from(now / period - self.last / period) * u128::from(period)
            }
            _ => u128::from(now - self.last),
        };
        self.used
            .saturating_sub(units * u128::from(self.spec.amount))
    }

    /// Returns true if it would pass without waiting at `now`.
    fn passes(&self, cost: u64, now: u64) -> bool {
        let level = self.at(now);
        match self.spec.kind {
            Kind::Queue => level <= self.units(self.spec.immediate().into()),
            Kind::Bursty => {
                level <= u128::from(self.spec.burst_ms() * MS) * u128::from(self.spec.amount)
            }
            _ => level + self.units(cost) <= self.units(self.spec.capacity),
        }
    }
}

impl Model for Line {
    /// The first instant at which it passes, by trying.
    fn wait(&self, cost: u64, now: u64) -> Option<u64> {
        let places = match self.spec.kind {
            Kind::Queue => self.spec.capacity + 1,
            Kind::Bursty => u64::MAX,
            _ => self.spec.capacity,
        };
        let full =
            self.spec.kind == Kind::Queue && self.at(now) + self.units(cost) > self.units(places);
        if cost > places || full && cost > 0 {
            return None;
        }
        if cost == 0 || self.passes(cost, now) {
            return Some(0);
        }
        let longest = self.spec.max_wait().get();
        if !self.passes(cost, now + longest) {
            return None;
        }
        let (mut no, mut yes) = (0, longest);
        while yes - no > 1 {
            let middle = no + (yes - no) / 2;
            if self.passes(cost, now + middle) {
                yes = middle;
            } else {
                no = middle;
            }
        }
        Some(yes)
    }

    fn take(&mut self, cost: u64, now: u64) {
        self.used = self.at(now) + self.units(cost);
        self.last = now;
        if self.spec.kind == Kind::Bursty {
            // No debt is longer than ten years.
            let longest = u128::from(MAX_DRAIN.get() + self.spec.burst_ms() * MS);
            self.used = self.used.min(longest * u128::from(self.spec.amount));
        }
    }

    fn is_new(&self, now: u64) -> bool {
        self.at(now) == 0
    }

    fn left(&self, now: u64) -> Option<u64> {
        let mut after = self.clone();
        after.used = self.at(now);
        after.last = now;
        let mut left = 0;
        // One at a time, as long as the next one passes or has a place.
        loop {
            let has_place = match self.spec.kind {
                Kind::Queue => {
                    left < self.spec.capacity
                        && after.used + self.units(1) <= self.units(self.spec.capacity + 1)
                }
                _ => after.passes(1, now),
            };
            if !has_place {
                return Some(left);
            }
            after.take(1, now);
            left += 1;
            if left > 2_000 {
                return None;
            }
        }
    }
}
