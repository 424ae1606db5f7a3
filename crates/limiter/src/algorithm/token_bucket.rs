//! `token_bucket`: a bucket of tokens that refill continuously (`greedy`) or in lumps (`interval`).
//!
//! A greedy bucket is a funnel seen from the other end: the remaining tokens are the capacity minus
//! the level of the funnel. Funnels and greedy buckets use the same exact arithmetic (`leak`). An
//! interval bucket adds `amount` tokens at once at every multiple of the period, like Bucket4j's
//! intervally-aligned refill. Because these multiples are the same for every bucket, a full bucket
//! has no phase to remember and can be evicted without loss. By default, the multiples are counted
//! on the monotonic clock of the process, so they fall at a different time of day in each process.
//! With `align: clock`, they are counted on the wall clock. In any interval of length w, an
//! interval bucket admits at most `capacity + amount·(⌊w/period⌋ + 1)`, plus `amount` for each wall
//! clock jump. A greedy bucket admits at most `capacity + rate·w`.
//!
//! With `max_wait`, a request that finds too few tokens is held until enough tokens have been
//! refilled, provided that the wait is at most `max_wait`. A held request takes its tokens
//! immediately, so later requests queue behind it. The same bounds apply to the times at which held
//! requests pass, except that each wait is rounded up to a nanosecond.
//!
//! A bucket starts with `initial` tokens. If `initial` is below the capacity, a full bucket has
//! more tokens than a new bucket, so evicting a full bucket loses tokens.

use serde::Serialize;

use super::grid::{Grid, Periods, Place};
use crate::bounds::{BadNumbers, MAX_REMEMBERED, check_wait, part};
use crate::convert::Carry;
use crate::decision::BucketRequest;
use crate::decision::Decision;
use crate::leak::{Leak, Level, WORDS, check, drain_time};
use crate::lease::{Shared, Unfit};
use crate::meter::{Meter, continue_leak, same};
use crate::meter::{Refund, USED_ONE, Used};
use crate::time::Rate;
use crate::time::{Clock, Nanos};
use crate::wide::clamp;

/// How tokens refill.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq, Serialize)]
#[serde(rename_all = "snake_case")]
pub enum Refill {
    /// Continuously.
    #[default]
    Greedy,
    /// In lumps: the rate's whole amount at every multiple of its period.
    Interval,
}

impl Refill {
    /// Names of the variants, as written in rule files.
    pub const NAMES: [&'static str; 2] = ["greedy", "interval"];
}

/// Parameters of a token bucket.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Serialize)]
pub struct TokenBucket {
    capacity: u64,
    rate: Rate,
    refill: Refill,
    #[serde(skip_serializing_if = "Grid::is_process")]
    align: Grid,
    initial: u64,
    #[serde(skip_serializing_if = "Nanos::is_zero")]
    max_wait: Nanos,
    /// Length of this bucket's period, in periods of the undivided bucket. The value can exceed 1 only for an Envoy's
    /// share of an interval bucket. Stored states count periods of the undivided bucket, so that the undivided bucket
    /// and its shares can read each other's states.
    #[serde(skip)]
    of_whole: u64,
}

impl TokenBucket {
    /// Creates a bucket of `capacity` tokens that refills at `rate` and starts with `initial`
    /// tokens.
    ///
    /// ```
    /// use loudou_limiter::algorithm::{Refill, TokenBucket};
    /// use loudou_limiter::{Limit, Limits, Nanos, Rate};
    ///
    /// let tokens = TokenBucket::new(10, Rate::parse("5/m").unwrap(), Refill::Interval, 10).unwrap();
    /// let limits = Limits::new(vec![Limit::new("tokens", tokens)]).unwrap();
    /// let mut bucket = limits.start(Nanos::ZERO);
    /// limits.decide(&mut bucket, 10, Nanos::ZERO);
    /// let remaining = |second| {
    ///     let look = limits.peek(&bucket, 0, Nanos::from_secs(second));
    ///     look.reported().unwrap().remaining
    /// };
    /// assert_eq!([0, 59, 60, 120].map(remaining), [0, 0, 5, 10]);
    /// ```
    pub fn new(
        capacity: u64,
        rate: Rate,
        refill: Refill,
        initial: u64,
    ) -> Result<Self, BadNumbers> {
        check(capacity, rate)?;
        if initial > capacity {
            return Err(BadNumbers::Initial);
        }
        Ok(Self {
            capacity,
            rate,
            refill,
            align: Grid::Process,
            initial,
            max_wait: Nanos::ZERO,
            of_whole: 1,
        })
    }

    /// Returns a copy of this bucket with the given capacity and rate. If the capacity is replaced,
    /// the bucket starts full.
    pub(super) fn with(
        &self,
        capacity: Option<u64>,
        rate: Option<Rate>,
    ) -> Result<Self, BadNumbers> {
        let initial = capacity.unwrap_or(self.initial);
        let (capacity, rate) = (capacity.unwrap_or(self.capacity), rate.unwrap_or(self.rate));
        let bucket = Self::new(capacity, rate, self.refill, initial)?;
        bucket.aligned(self.align)?.waiting(self.max_wait)
    }

    /// Returns this bucket with refills aligned to the clock `align`. A greedy bucket refills
    /// continuously, so it accepts only the process clock.
    ///
    /// ```
    /// use loudou_limiter::algorithm::{Grid, Refill, TokenBucket};
    /// use loudou_limiter::{BucketRequest, Limit, Limits, Nanos, Rate};
    ///
    /// let daily = Rate::parse("1000/d").unwrap();
    /// let tokens = TokenBucket::new(1000, daily, Refill::Interval, 1000).unwrap();
    /// let limit = Limit::new("daily", tokens.aligned(Grid::Clock).unwrap());
    /// let limits = Limits::new(vec![limit]).unwrap();
    /// let mut bucket = limits.start(Nanos::ZERO);
    /// // All tokens are taken at 23:00 UTC, and refill at midnight.
    /// let request = BucketRequest::new(1000, Nanos::ZERO).at_wall(Nanos::from_secs(23 * 3_600));
    /// let answer = limits.answer(&mut bucket, &request);
    /// assert_eq!(answer.reset_after(), Nanos::from_secs(3_600));
    /// ```
    pub fn aligned(self, align: Grid) -> Result<Self, BadNumbers> {
        if self.is_greedy() && align == Grid::Clock {
            return Err(BadNumbers::Align);
        }
        Ok(Self { align, ..self })
    }

    /// Returns this bucket, modified to hold requests that will find enough tokens within
    /// `max_wait` instead of refusing them.
    ///
    /// ```
    /// use loudou_limiter::algorithm::{Refill, TokenBucket};
    /// use loudou_limiter::{Limit, Limits, Nanos, Rate};
    ///
    /// let tokens = TokenBucket::new(1, Rate::parse("1/s").unwrap(), Refill::Greedy, 0).unwrap();
    /// let limit = Limit::new("tokens", tokens.waiting(Nanos::from_secs(5)).unwrap());
    /// let limits = Limits::new(vec![limit]).unwrap();
    /// let mut bucket = limits.start(Nanos::ZERO);
    /// assert_eq!(limits.decide(&mut bucket, 1, Nanos::ZERO).wait(), Nanos::from_secs(1));
    /// ```
    pub fn waiting(self, max_wait: Nanos) -> Result<Self, BadNumbers> {
        check_wait(max_wait)?;
        Ok(Self { max_wait, ..self })
    }

    pub(super) const fn is_greedy(&self) -> bool {
        matches!(self.refill, Refill::Greedy)
    }

    pub(super) const fn shared(&self) -> Result<Shared, Unfit> {
        let Self { capacity, rate, .. } = *self;
        if !self.max_wait.is_zero() {
            return Err(Unfit::MaxWait);
        }
        if self.initial < capacity {
            return Err(Unfit::Initial);
        }
        Ok(match self.refill {
            Refill::Greedy => Shared::Leak { capacity, rate },
            Refill::Interval => Shared::Interval { capacity, rate },
        })
    }

    /// Divides this bucket into `envoys` equal shares, and returns one share. Each lump of the
    /// share contains at least one token.
    pub(super) fn divided(&self, envoys: u32) -> Self {
        let capacity = part(self.capacity, envoys);
        let rate = match self.refill {
            Refill::Greedy => self.rate.divided(envoys),
            Refill::Interval => self.rate.divided_in_lumps(envoys),
        };
        let periods = rate.period().get().checked_div(self.rate.period().get());
        Self {
            capacity,
            rate,
            initial: capacity,
            of_whole: periods.unwrap_or(1).max(1),
            ..*self
        }
    }

    pub(super) const fn leak(&self) -> Leak {
        Leak {
            capacity: self.capacity,
            rate: self.rate,
        }
    }

    const fn periods(&self) -> Periods {
        Periods::of(self.align, self.rate.period())
    }

    /// Returns the position of `now`. The state consists of the index of the period in which it was
    /// written, and the number of tokens that were used then.
    fn place(&self, words: &[u64], now: Nanos) -> Place {
        let written = words.first().copied().unwrap_or(0);
        let written = written.checked_div(self.of_whole).unwrap_or(0);
        self.periods().place(written.into(), words, now)
    }

    /// Returns the time until refills have added `tokens`.
    fn until_tokens(&self, tokens: u64, place: &Place) -> Nanos {
        match tokens.div_ceil(u64::from(self.rate.amount()).max(1)) {
            0 => Nanos::ZERO,
            lumps => self.periods().until(place, lumps),
        }
    }

    /// Returns the maximum number of used tokens: the capacity plus the tokens that refill within
    /// [`MAX_REMEMBERED`], the time for which a debt is kept.
    fn max_used(&self) -> u64 {
        let lumps = MAX_REMEMBERED.get().checked_div(self.rate.period().get());
        let debt = lumps
            .unwrap_or(0)
            .saturating_add(1)
            .saturating_mul(self.rate.amount().into());
        self.capacity.saturating_add(debt)
    }

    /// Returns the number of used tokens.
    fn used_tokens(&self, words: &[u64], place: &Place) -> u64 {
        let used = words.get(1).copied().unwrap_or(0);
        let refilled = clamp(place.gone).saturating_mul(self.rate.amount().into());
        used.saturating_sub(refilled).min(self.max_used())
    }

    /// Returns the index of the undivided bucket's period that contains this position.
    fn number_of_whole(&self, place: &Place) -> u128 {
        if self.of_whole == 1 {
            return place.number;
        }
        let period = self.rate.period().get().checked_div(self.of_whole);
        let whole = Periods::of(self.align, Nanos::new(period.unwrap_or(1).max(1)));
        let first = place.number.saturating_mul(self.of_whole.into());
        whole.number(place.at()).max(first)
    }

    fn write_used(&self, words: &mut [u64], used: u64, place: &Place) {
        if let [written, tokens, ..] = words {
            *written = clamp(self.number_of_whole(place));
            *tokens = used;
        }
        self.periods().note(words, place);
    }

    /// Returns the position to store when a request takes tokens now, given that `used` tokens are
    /// already used. If the request is held, the position keeps the stored clock offset, because
    /// the wait was computed with that offset.
    fn taking(&self, place: Place, used: u64, request: &BucketRequest) -> Place {
        if used.saturating_add(request.cost) > self.capacity {
            return place;
        }
        self.periods().follow(place, used == 0, request.clock())
    }

    fn decide_interval(&self, words: &mut [u64], request: &BucketRequest) -> Decision {
        let cost = request.cost;
        let place = self.place(words, request.now);
        let used = self.used_tokens(words, &place);
        if cost == 0 {
            return self.at(used, &place);
        }
        if cost > self.capacity {
            return self.at(used, &place).refused(None);
        }
        let new = used.saturating_add(cost);
        let wait = self.until_tokens(new.saturating_sub(self.capacity), &place);
        let longest = request.longest_wait(self.max_wait);
        if wait > longest {
            let retry_after = wait.since(longest);
            return self.at(used, &place).refused(Some(retry_after));
        }
        let place = self.taking(place, used, request);
        self.write_used(words, new, &place);
        self.at(new, &place).after(wait)
    }

    /// Like [`Level::give_back`](crate::leak::Level::give_back), but for tokens that refill in
    /// lumps.
    fn give_back_interval(&self, words: &mut [u64], refund: &Refund<'_>) -> bool {
        let place = self.place(words, refund.last);
        let used = self.used_tokens(words, &place);
        if used > self.capacity && !refund.nobody_waits {
            return false;
        }
        let found = self.place(refund.before, refund.request.now);
        let used_before = self.used_tokens(refund.before, &found);
        let taken = self.taking(found, used_before, &refund.request);
        let Some(lumps) = self.periods().since(&place, &taken) else {
            return false;
        };
        let refilled = clamp(lumps).saturating_mul(self.rate.amount().into());
        let ahead = used_before.saturating_sub(refund.given);
        let left = refund
            .request
            .cost
            .saturating_sub(refilled.saturating_sub(ahead));
        self.write_used(words, used.saturating_sub(left), &place);
        left.min(used) > 0
    }

    /// Returns the decision for a request that brings the number of used tokens to `used`.
    fn at(&self, used: u64, place: &Place) -> Decision {
        let remaining = self.capacity.saturating_sub(used);
        let reset_after = self.until_tokens(used, place);
        Decision::admit(self.capacity, remaining, reset_after)
    }
}

impl Meter for TokenBucket {
    fn capacity(&self) -> u64 {
        self.capacity
    }

    fn rate(&self) -> Option<Rate> {
        Some(self.rate)
    }

    fn drain_time(&self) -> Nanos {
        drain_time(self.capacity, self.rate)
    }

    fn longest_wait(&self) -> Nanos {
        self.max_wait
    }

    fn as_level(&self) -> Option<Level> {
        self.is_greedy().then(|| self.leak().level())
    }

    fn reads_wall(&self) -> bool {
        self.align == Grid::Clock
    }

    fn words(&self) -> usize {
        self.periods().words().saturating_add(WORDS)
    }

    fn start(&self, words: &mut [u64], clock: Clock) {
        let missing = u128::from(self.capacity.saturating_sub(self.initial));
        self.resume(words, missing.saturating_mul(USED_ONE), clock);
    }

    fn decide(&self, words: &mut [u64], request: &BucketRequest) -> Decision {
        match self.refill {
            Refill::Greedy => self.leak().decide(words, request, self.max_wait),
            Refill::Interval => self.decide_interval(words, request),
        }
    }

    fn give_back(&self, words: &mut [u64], refund: &Refund<'_>) -> bool {
        match self.refill {
            Refill::Greedy => {
                let leak = self.leak();
                leak.level().give_back(words, refund, leak.full())
            }
            Refill::Interval => self.give_back_interval(words, refund),
        }
    }

    fn overdraw(&self, words: &mut [u64], units: u64, clock: Clock) {
        match self.refill {
            Refill::Greedy => self.leak().level().overdraw(words, units, clock.now),
            Refill::Interval => {
                let place = self.place(words, clock.now);
                let used = self.used_tokens(words, &place);
                let place = self.periods().follow(place, used == 0, clock);
                let used = used.saturating_add(units).min(self.max_used());
                self.write_used(words, used, &place);
            }
        }
    }

    fn forgets_losslessly(&self) -> bool {
        self.initial == self.capacity
    }

    fn used(&self, words: &[u64], now: Nanos) -> Used {
        match self.refill {
            Refill::Greedy => self.leak().level().used(words, now),
            Refill::Interval => {
                let used = self.used_tokens(words, &self.place(words, now));
                u128::from(used).saturating_mul(USED_ONE)
            }
        }
    }

    fn resume(&self, words: &mut [u64], used: Used, clock: Clock) {
        match self.refill {
            Refill::Greedy => self.leak().level().resume(words, used, clock.now),
            Refill::Interval => {
                let tokens = clamp(used.div_ceil(USED_ONE)).min(self.max_used());
                self.write_used(words, tokens, &self.periods().fresh(clock));
            }
        }
    }

    fn counted(&self, words: &[u64], now: Nanos) -> Option<u64> {
        (!self.is_greedy()).then(|| self.used_tokens(words, &self.place(words, now)))
    }

    fn recount(&self, words: &mut [u64], count: u64, now: Nanos) {
        let place = self.place(words, now);
        self.write_used(words, count.min(self.max_used()), &place);
    }

    fn as_leak(&self) -> Option<Leak> {
        self.is_greedy().then(|| self.leak())
    }

    /// If both buckets refill in lumps, with periods of the same length on the same clock, the used
    /// tokens and the position in the period are preserved.
    fn adopt(
        &self,
        words: &mut [u64],
        from: &dyn Meter,
        old: &[u64],
        carry: Carry,
        clock: Clock,
    ) -> bool {
        if self.is_greedy() {
            let leak = (self.leak(), self.full());
            return continue_leak(leak, words, (from, old), (carry, clock));
        }
        let same = same::<Self>(from).filter(|before| !before.is_greedy());
        let Some(before) = same.filter(|before| before.periods() == self.periods()) else {
            return false;
        };
        let place = before.place(old, clock.now);
        let used = before.used_tokens(old, &place);
        self.write_used(words, used.min(self.max_used()), &place);
        true
    }
}
