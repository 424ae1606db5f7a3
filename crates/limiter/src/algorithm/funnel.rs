//! `funnel`: the leaky bucket as a meter, also known as GCRA.
//!
//! Think of a funnel that leaks at the configured rate. Each admitted request pours its cost into
//! the funnel. A request is admitted if its cost still fits in the funnel. In any interval of
//! length w, at most `capacity + rate·w` units are admitted. The redis-cell command `CL.THROTTLE
//! key b n p` corresponds to `capacity: b+1` and a rate of `n` per `p` seconds.
//!
//! With `max_wait`, a request that does not fit is held until it fits, provided that the wait is at
//! most `max_wait`. A held request takes its units immediately, so later requests queue behind it.
//! The same bound applies to the times at which held requests pass, except that each wait is
//! rounded up to a nanosecond.
//!
//! Source: the Generic Cell Rate Algorithm, ITU-T I.371. The `leak` module contains the exact
//! arithmetic.

use serde::Serialize;

use crate::bounds::{BadNumbers, check_wait, part};
use crate::decision::BucketRequest;
use crate::decision::Decision;
use crate::leak::{Leak, Level, WORDS, check, drain_time};
use crate::lease::{Shared, Unfit};
use crate::meter::Meter;
use crate::meter::{Refund, Used};
use crate::time::Rate;
use crate::time::{Clock, Nanos};

/// Parameters of a funnel.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Serialize)]
pub struct Funnel {
    capacity: u64,
    rate: Rate,
    #[serde(skip_serializing_if = "Nanos::is_zero")]
    max_wait: Nanos,
}

impl Funnel {
    /// Creates a funnel that holds `capacity` cost units and leaks at `rate`.
    ///
    /// ```
    /// use loudou_limiter::{Limit, Limits, Nanos, Rate, algorithm::Funnel};
    ///
    /// let funnel = Funnel::new(2, Rate::parse("1/s").unwrap()).unwrap();
    /// let limits = Limits::new(vec![Limit::new("burst", funnel)]).unwrap();
    /// let mut bucket = limits.start(Nanos::ZERO);
    /// // Two at once, then one a second.
    /// for (second, is_refused) in [(0, false), (0, false), (0, true), (1, false), (1, true)] {
    ///     let answer = limits.decide(&mut bucket, 1, Nanos::from_secs(second));
    ///     assert_eq!(answer.is_refused(), is_refused);
    /// }
    /// ```
    pub fn new(capacity: u64, rate: Rate) -> Result<Self, BadNumbers> {
        check(capacity, rate)?;
        Ok(Self {
            capacity,
            rate,
            max_wait: Nanos::ZERO,
        })
    }

    /// Returns a copy of this funnel with the given capacity and rate.
    pub(super) fn with(
        &self,
        capacity: Option<u64>,
        rate: Option<Rate>,
    ) -> Result<Self, BadNumbers> {
        Self::new(capacity.unwrap_or(self.capacity), rate.unwrap_or(self.rate))?
            .waiting(self.max_wait)
    }

    /// Returns this funnel, modified to hold requests that will fit within `max_wait` instead of
    /// refusing them.
    ///
    /// ```
    /// use loudou_limiter::{Limit, Limits, Nanos, Rate, algorithm::Funnel};
    ///
    /// let funnel = Funnel::new(1, Rate::parse("1/s").unwrap()).unwrap();
    /// let limit = Limit::new("pace", funnel.waiting(Nanos::from_secs(1)).unwrap());
    /// let limits = Limits::new(vec![limit]).unwrap();
    /// let mut bucket = limits.start(Nanos::ZERO);
    /// let mut wait = || limits.decide(&mut bucket, 1, Nanos::ZERO).wait();
    /// assert_eq!(wait(), Nanos::ZERO);
    /// assert_eq!(wait(), Nanos::from_secs(1));
    /// ```
    pub fn waiting(self, max_wait: Nanos) -> Result<Self, BadNumbers> {
        check_wait(max_wait)?;
        Ok(Self { max_wait, ..self })
    }

    pub(super) const fn shared(&self) -> Result<Shared, Unfit> {
        if !self.max_wait.is_zero() {
            return Err(Unfit::MaxWait);
        }
        Ok(Shared::Leak {
            capacity: self.capacity,
            rate: self.rate,
        })
    }

    /// Divides the capacity and the rate into `envoys` equal shares, and returns a funnel with one
    /// share of each.
    pub(super) fn divided(&self, envoys: u32) -> Self {
        Self {
            capacity: part(self.capacity, envoys),
            rate: self.rate.divided(envoys),
            ..*self
        }
    }

    pub(super) const fn leak(&self) -> Leak {
        Leak {
            capacity: self.capacity,
            rate: self.rate,
        }
    }
}

impl Meter for Funnel {
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
        Some(self.leak().level())
    }

    fn words(&self) -> usize {
        WORDS
    }

    fn decide(&self, words: &mut [u64], request: &BucketRequest) -> Decision {
        self.leak().decide(words, request, self.max_wait)
    }

    fn give_back(&self, words: &mut [u64], refund: &Refund<'_>) -> bool {
        let leak = self.leak();
        leak.level().give_back(words, refund, leak.full())
    }

    fn resume(&self, words: &mut [u64], used: Used, clock: Clock) {
        self.leak().level().resume(words, used, clock.now);
    }

    fn as_leak(&self) -> Option<Leak> {
        Some(self.leak())
    }
}
