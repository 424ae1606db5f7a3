//! `smooth_bursty`: a limiter where requests pay later. A request of any cost passes as soon as the
//! previous requests have been paid for, and the next request waits until that cost has been paid
//! off.
//!
//! While no requests arrive, permits accumulate, up to the number that the rate yields in
//! `burst_seconds`. Requests use stored permits first, without waiting for them. A new bucket has
//! no stored permits. This algorithm suits a small number of jobs of very different sizes. An
//! algorithm with a capacity would refuse the large jobs.
//!
//! A request that would wait longer than `max_wait` is refused. In any interval of length w, the
//! total cost of the requests that pass is at most `rate·(burst + w)` plus the cost of the last
//! request, except that each wait is rounded up to a nanosecond. Debt is capped at the cost that
//! can be paid off in 3 660 days at the given rate.
//!
//! Source: Guava's `RateLimiter.create(permitsPerSecond)`, class `SmoothBursty` in version 31.1.
//! Guava's state amounts to one value: the time at which the next request may pass, minus the time
//! that the stored permits took to accumulate. Here, this value is a level (`leak`), which is zero
//! when the maximum number of permits is stored, and equals the burst when none are stored. Guava
//! truncates waits to microseconds. Here, only the wait itself is rounded, up to a nanosecond.

use serde::Serialize;

use crate::bounds::{BadNumbers, MAX_AMOUNT, MAX_DRAIN, check_wait};
use crate::convert::Carry;
use crate::decimal::Decimal;
use crate::decision::BucketRequest;
use crate::decision::Decision;
use crate::leak::{Level, WORDS, check};
use crate::meter::{Meter, same};
use crate::meter::{Refund, Used};
use crate::time::Rate;
use crate::time::{Clock, Nanos};
use crate::wide::{mul_div, mul_div_ceil, mul_div_near};

/// Maximum `burst_seconds`: one day.
pub const MAX_BURST: Decimal = Decimal::from_thousandths(86_400_000);

/// Parameters of a bursty pay-later limiter.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Serialize)]
pub struct SmoothBursty {
    rate: Rate,
    burst_seconds: Decimal,
    #[serde(skip_serializing_if = "Nanos::is_zero")]
    max_wait: Nanos,
}

impl SmoothBursty {
    /// Creates a limiter that stores up to `burst_seconds` worth of permits and does not hold
    /// requests.
    ///
    /// ```
    /// use loudou_limiter::{Decimal, Limit, Limits, Nanos, Rate, algorithm::SmoothBursty};
    ///
    /// let rate = Rate::parse("2/s").unwrap();
    /// let jobs = SmoothBursty::new(rate, Decimal::parse("1").unwrap()).unwrap();
    /// let limits = Limits::new(vec![Limit::new("jobs", jobs)]).unwrap();
    /// let mut bucket = limits.start(Nanos::ZERO);
    /// // Any cost passes, and the next request waits until it is paid for.
    /// assert!(!limits.decide(&mut bucket, 10, Nanos::ZERO).is_refused());
    /// let answer = limits.decide(&mut bucket, 1, Nanos::ZERO);
    /// assert_eq!(answer.reported().unwrap().retry_after, Some(Nanos::from_secs(5)));
    /// ```
    pub fn new(rate: Rate, burst_seconds: Decimal) -> Result<Self, BadNumbers> {
        check(1, rate)?;
        let bursty = Self {
            rate,
            burst_seconds,
            max_wait: Nanos::ZERO,
        };
        if burst_seconds > MAX_BURST || bursty.capacity() > MAX_AMOUNT.into() {
            return Err(BadNumbers::Burst);
        }
        Ok(bursty)
    }

    /// Returns a copy of this limiter with the given rate.
    pub(super) fn with(&self, rate: Option<Rate>) -> Result<Self, BadNumbers> {
        Self::new(rate.unwrap_or(self.rate), self.burst_seconds)?.waiting(self.max_wait)
    }

    /// Returns this limiter, modified to hold requests that would pass within `max_wait` instead of
    /// refusing them.
    ///
    /// ```
    /// use loudou_limiter::{Decimal, Limit, Limits, Nanos, Rate, algorithm::SmoothBursty};
    ///
    /// let rate = Rate::parse("2/s").unwrap();
    /// let jobs = SmoothBursty::new(rate, Decimal::parse("1").unwrap()).unwrap();
    /// let limit = Limit::new("jobs", jobs.waiting(Nanos::from_secs(10)).unwrap());
    /// let limits = Limits::new(vec![limit]).unwrap();
    /// let mut bucket = limits.start(Nanos::ZERO);
    /// limits.decide(&mut bucket, 10, Nanos::ZERO);
    /// assert_eq!(limits.decide(&mut bucket, 1, Nanos::ZERO).wait(), Nanos::from_secs(5));
    /// ```
    pub fn waiting(self, max_wait: Nanos) -> Result<Self, BadNumbers> {
        check_wait(max_wait)?;
        Ok(Self { max_wait, ..self })
    }

    fn burst(&self) -> Nanos {
        Nanos::from_millis(self.burst_seconds.thousandths().into())
    }

    /// Returns the level at which no permits are stored and no cost is owed.
    fn even(&self) -> u128 {
        self.level().leaks_in(self.burst())
    }

    fn level(&self) -> Level {
        let level = Level {
            rate: self.rate,
            most: 0,
        };
        let most = level.leaks_in(self.burst().saturating_add(MAX_DRAIN));
        Level { most, ..level }
    }

    /// Returns the decision for a request that leaves the level at `drops`.
    fn at(&self, drops: u128) -> Decision {
        let stored = self.even().checked_sub(drops);
        let remaining = stored.map_or(0, |stored| self.level().units(stored).saturating_add(1));
        let reset_after = self.level().leak_time(drops);
        Decision::admit(self.capacity(), remaining, reset_after)
    }
}

impl Meter for SmoothBursty {
    /// Maximum number of requests of cost 1 that pass at once: one for each stored permit, and one
    /// that pays later.
    fn capacity(&self) -> u64 {
        self.level().units(self.even()).saturating_add(1)
    }

    fn rate(&self) -> Option<Rate> {
        Some(self.rate)
    }

    fn drain_time(&self) -> Nanos {
        let one = self.level().drops(1);
        self.level().leak_time(self.even().saturating_add(one))
    }

    fn max_cost(&self) -> u64 {
        u64::MAX
    }

    fn longest_wait(&self) -> Nanos {
        self.max_wait
    }

    fn as_level(&self) -> Option<Level> {
        Some(self.level())
    }

    fn words(&self) -> usize {
        WORDS
    }

    fn start(&self, words: &mut [u64], clock: Clock) {
        self.level().write(words, self.even(), clock.now);
    }

    fn decide(&self, words: &mut [u64], request: &BucketRequest) -> Decision {
        let BucketRequest { cost, now, .. } = *request;
        let level = self.level();
        let old = level.read(words, now);
        if cost == 0 {
            return self.at(old);
        }
        let wait = level.leak_time(old.saturating_sub(self.even()));
        let longest = request.longest_wait(self.max_wait);
        if wait > longest {
            return self.at(old).refused(Some(wait.since(longest)));
        }
        let new = old.saturating_add(level.drops(cost)).min(level.most);
        level.write(words, new, now);
        self.at(new).after(wait)
    }

    fn give_back(&self, words: &mut [u64], refund: &Refund<'_>) -> bool {
        self.level().give_back(words, refund, self.even())
    }

    fn forgets_losslessly(&self) -> bool {
        self.burst() == Nanos::ZERO
    }

    /// The level after all stored permits have been used and one more request has passed without a
    /// permit.
    fn full(&self) -> Used {
        let one = self.level().drops(1);
        self.level().to_used(self.even().saturating_add(one))
    }

    fn resume(&self, words: &mut [u64], used: Used, clock: Clock) {
        self.level().resume(words, used, clock.now);
    }

    /// If the burst or the rate changes, the number of permits owed stays the same. For stored
    /// permits, either their number or their share of the maximum stays the same. A longer burst
    /// adds no permits.
    fn adopt(
        &self,
        words: &mut [u64],
        from: &dyn Meter,
        old: &[u64],
        carry: Carry,
        clock: Clock,
    ) -> bool {
        let Some(from) = same::<Self>(from) else {
            return false;
        };
        let drops = from.level().read(old, clock.now);
        let (was_even, even) = (from.even(), self.even());
        let permit = |of: &Self| of.level().drops(1);
        let new = match was_even.checked_sub(drops) {
            None | Some(0) => {
                let debt = drops.saturating_sub(was_even);
                even.saturating_add(mul_div_ceil(debt, permit(self), permit(from)))
            }
            Some(stored) if carry == Carry::Keep => {
                even.saturating_sub(mul_div(stored, permit(self), permit(from)))
            }
            Some(_) => mul_div_near(drops, even, was_even),
        };
        self.level().write(words, new, clock.now);
        true
    }
}
