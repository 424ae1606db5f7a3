//! The engine's side of a lease: what its script computes, as a pure function.
//!
//! Tokens are taken from all limits of a key or from none. Only the engine's clock determines how
//! many units have refilled. If the parameters of a limit change, used units stay used and refill
//! at the new rate.
//!
//! The engine's clock can jump, because a different machine answers after a failover. If the clock
//! jumps ahead by `j`, units refill earlier by `j`. If the clock jumps back by `j`, units refill
//! later by `j`. A stored window or period that is further ahead than the next one is treated as
//! the next one, so that its count expires soon.

use smallvec::SmallVec;

use super::grant::{Demand, Grant};
use super::remaining::RemainingUnits;
use super::shared::Shared;
use super::terms::Terms;
use crate::leak::Leak;
use crate::meter::{USED_ONE, Used};
use crate::time::Nanos;
use crate::wide::clamp;

/// State of one key in the engine.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub struct Central {
    levels: SmallVec<[Level; 2]>,
}

impl Central {
    /// Answers a lease request. `now` is the time on the engine's clock.
    ///
    /// ```
    /// use loudou_limiter::lease::{Central, Demand, LeaseSettings, Shared, Terms};
    /// use loudou_limiter::{Nanos, Rate};
    ///
    /// let second = Nanos::from_secs(1);
    /// let settings = LeaseSettings { lease: second, timeout: second, credit: 0 };
    /// let limit = Shared::Leak { capacity: 5, rate: Rate::parse("1/s").unwrap() };
    /// let terms = Terms::new(&[limit], &settings).unwrap();
    ///
    /// let mut central = Central::default();
    /// let request = Demand { want: 7, need: 1, debt: 0 };
    /// let grant = central.grant(&terms, request, Nanos::ZERO);
    /// assert_eq!((grant.granted, grant.left.at(0), grant.wait), (5, 0, second));
    /// ```
    pub fn grant(&mut self, terms: &Terms, request: Demand, now: Nanos) -> Grant {
        let mut levels = self.under(terms, now);
        for level in &mut levels {
            level.charge(request.debt, now);
        }
        let free = levels.iter().map(|level| level.free(now)).min();
        let mut granted = free.unwrap_or(0).min(request.want);
        if granted < request.need {
            granted = 0;
        }
        for level in &mut levels {
            level.charge(granted, now);
        }
        let is_short = granted < request.want || levels.iter().any(|level| level.is_over(now));
        let next = request.need.max(1);
        let waits = levels.iter().map(|level| level.until(next, now)).max();
        let ends = levels.iter().filter_map(|level| level.ends_in(now)).min();
        let left = RemainingUnits::of(levels.iter().map(|level| level.free(now)));
        self.levels = levels;
        Grant {
            granted,
            charged: request.debt,
            wait: waits.filter(|_| is_short).unwrap_or(Nanos::ZERO),
            left: left.unwrap_or_default(),
            ends_in: ends.unwrap_or(Nanos::ZERO),
        }
    }

    /// Converts the levels to the limits of a lease request. Each limit continues the level with
    /// the same parameters or, if there is none, the level at the same index. A new limit starts
    /// full.
    fn under(&self, terms: &Terms, now: Nanos) -> SmallVec<[Level; 2]> {
        let numbers = terms.limits().iter().enumerate();
        let levels = numbers.map(|(place, limit)| {
            let mut before = self.levels.iter();
            let same = before.find(|level| level.limit == *limit);
            match same.or_else(|| self.levels.get(place)) {
                Some(level) => level.under(*limit, now),
                None => Level::full(*limit),
            }
        });
        levels.collect()
    }
}

/// State of one limit in the engine.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
struct Level {
    limit: Shared,
    /// For a leak, its state words. For other limits, the index of a period and the number of units
    /// used in that period.
    words: [u64; 2],
}

impl Level {
    const fn full(limit: Shared) -> Self {
        Self {
            limit,
            words: [0; 2],
        }
    }

    /// Converts the level to another limit.
    fn under(mut self, limit: Shared, now: Nanos) -> Self {
        if limit == self.limit {
            // If the clock has jumped far back, the period index must be rewritten, because
            // otherwise the count would not expire until the clock reached the old index.
            if let Kind::Lumps(lumps) = Kind::of(limit) {
                self.words = [lumps.number(self.words, now), lumps.used(self.words, now)];
            }
            return self;
        }
        let used = match Kind::of(self.limit) {
            Kind::Leak(leak) => leak.level().used(&self.words, now),
            Kind::Lumps(lumps) => Used::from(lumps.used(self.words, now)).saturating_mul(USED_ONE),
        };
        let mut level = Self::full(limit);
        match Kind::of(limit) {
            Kind::Leak(leak) => leak.level().resume(&mut level.words, used, now),
            Kind::Lumps(lumps) => {
                let units = clamp(used.div_ceil(USED_ONE));
                level.words = [lumps.number(self.words, now), units];
            }
        }
        level
    }

    /// Takes `units`, even if fewer units are available.
    fn charge(&mut self, units: u64, now: Nanos) {
        if units == 0 {
            return;
        }
        match Kind::of(self.limit) {
            Kind::Leak(leak) => {
                let level = leak.level();
                let used = level.read(&self.words, now);
                let used = used.saturating_add(level.drops(units));
                level.write(&mut self.words, used, now);
            }
            Kind::Lumps(lumps) => {
                let used = lumps.used(self.words, now).saturating_add(units);
                self.words = [lumps.number(self.words, now), used];
            }
        }
    }

    /// Returns the number of available units, rounded down.
    fn free(&self, now: Nanos) -> u64 {
        match Kind::of(self.limit) {
            Kind::Leak(leak) => {
                let level = leak.level();
                level.units(leak.full().saturating_sub(level.read(&self.words, now)))
            }
            Kind::Lumps(lumps) => lumps.capacity.saturating_sub(lumps.used(self.words, now)),
        }
    }

    /// Returns true if the used units exceed the capacity.
    fn is_over(&self, now: Nanos) -> bool {
        match Kind::of(self.limit) {
            Kind::Leak(leak) => leak.level().read(&self.words, now) > leak.full(),
            Kind::Lumps(lumps) => lumps.used(self.words, now) > lumps.capacity,
        }
    }

    /// Returns the time until `units` are available.
    fn until(&self, units: u64, now: Nanos) -> Nanos {
        match Kind::of(self.limit) {
            Kind::Leak(leak) => {
                let level = leak.level();
                let used = level.read(&self.words, now);
                let over = used.saturating_add(level.drops(units));
                level.leak_time(over.saturating_sub(leak.full()))
            }
            Kind::Lumps(lumps) => {
                let used = lumps.used(self.words, now).saturating_add(units);
                let missing = used.saturating_sub(lumps.capacity);
                lumps.until(missing.div_ceil(lumps.lump), self.words, now)
            }
        }
    }

    /// Returns the time until the current window ends, or `None` for a limit without windows.
    fn ends_in(&self, now: Nanos) -> Option<Nanos> {
        match (self.limit, Kind::of(self.limit)) {
            (Shared::Window { .. }, Kind::Lumps(lumps)) => Some(lumps.until(1, self.words, now)),
            _ => None,
        }
    }
}

/// How a limit's units refill.
enum Kind {
    /// Continuously.
    Leak(Leak),
    /// In lumps.
    Lumps(Lumps),
}

impl Kind {
    fn of(limit: Shared) -> Self {
        match limit {
            Shared::Leak { capacity, rate } => Self::Leak(Leak { capacity, rate }),
            Shared::Interval { capacity, rate } => Self::Lumps(Lumps {
                capacity,
                period: rate.period(),
                lump: rate.amount().into(),
            }),
            Shared::Window { capacity, window } => Self::Lumps(Lumps {
                capacity,
                period: window,
                lump: u64::MAX,
            }),
        }
    }
}

/// A limit whose units refill at multiples of a period.
struct Lumps {
    capacity: u64,
    period: Nanos,
    /// Number of units per refill, at least 1.
    lump: u64,
}

impl Lumps {
    /// Returns the index of the current period.
    fn number(&self, [written, used]: [u64; 2], now: Nanos) -> u64 {
        let number = now.get().checked_div(self.period.get()).unwrap_or(0);
        if used == 0 {
            return number;
        }
        number.max(written.min(number.saturating_add(1)))
    }

    /// Returns the number of used units at `now`.
    fn used(&self, words: [u64; 2], now: Nanos) -> u64 {
        let [written, used] = words;
        let gone = self.number(words, now).saturating_sub(written);
        used.saturating_sub(gone.saturating_mul(self.lump))
    }

    /// Returns the time until `lumps` more periods have begun; zero if `lumps` is 0.
    fn until(&self, lumps: u64, words: [u64; 2], now: Nanos) -> Nanos {
        if lumps == 0 {
            return Nanos::ZERO;
        }
        let number = self.number(words, now).saturating_add(lumps);
        Nanos::new(number.saturating_mul(self.period.get())).since(now)
    }
}
