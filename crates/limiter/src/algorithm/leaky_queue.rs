//! `leaky_queue`: the leaky bucket as a queue with constant outflow.
//!
//! Every admitted request is assigned the next free time slot of length 1/rate, and is held until
//! that slot begins. At most `capacity` requests wait at the same time. Further requests are
//! refused. The first `immediate` requests of a backlog also take slots, but do not wait for them.
//! A queue smooths a burst, whereas a funnel admits what fits and refuses the rest.
//!
//! The queue's level V falls at the configured rate. A request of cost c is refused if V + c
//! exceeds `capacity` + 1, or if the request would wait longer than `max_wait`. Otherwise, c is
//! added to the level immediately, and the request is held until the level it found on arrival has
//! fallen to `immediate`. With cost 1, this is nginx's `limit_req`: V is its excess, `capacity` its
//! `burst`, and `immediate` its `delay`. An `immediate` of at least `capacity` is its `nodelay`.
//! (For `burst=0`, use a `funnel` of capacity 1.) In any interval of length w, the total cost of
//! the requests that pass is at most `immediate + rate·w` plus the cost of the last request, except
//! that each wait is rounded up to a nanosecond.
//!
//! An edit with the carry `proportional` scales only the part of the level that causes no wait.
//!
//! Source: nginx, `ngx_http_limit_req_module`. The `leak` module contains the exact arithmetic.

use serde::Serialize;

use crate::bounds::{BadNumbers, MAX_DRAIN, MAX_WAIT, check_wait};
use crate::decision::BucketRequest;
use crate::decision::Decision;
use crate::leak::{Leak, Level, WORDS, check, drain_time};
use crate::meter::Meter;
use crate::meter::{Refund, USED_ONE, Used};
use crate::time::Rate;
use crate::time::{Clock, Nanos};

/// Parameters of a leaky queue.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Serialize)]
pub struct LeakyQueue {
    capacity: u64,
    rate: Rate,
    immediate: u32,
    #[serde(skip_serializing_if = "is_longest")]
    max_wait: Nanos,
}

#[cfg_attr(
    target_pointer_width = "64",
    expect(clippy::trivially_copy_pass_by_ref, reason = "as serde calls it")
)]
const fn is_longest(max_wait: &Nanos) -> bool {
    max_wait.get() == MAX_WAIT.get()
}

impl LeakyQueue {
    /// Creates a queue for up to `capacity` waiting requests, which pass one at a time at `rate`.
    /// By default, every request of a backlog waits, and the maximum wait is [`MAX_WAIT`].
    ///
    /// ```
    /// use loudou_limiter::{Limit, Limits, Nanos, Rate, algorithm::LeakyQueue};
    ///
    /// let queue = LeakyQueue::new(2, Rate::parse("1/s").unwrap()).unwrap();
    /// let limits = Limits::new(vec![Limit::new("queue", queue)]).unwrap();
    /// let mut bucket = limits.start(Nanos::ZERO);
    /// for second in 0..3 {
    ///     let answer = limits.decide(&mut bucket, 1, Nanos::ZERO);
    ///     assert_eq!(answer.wait(), Nanos::from_secs(second));
    /// }
    /// assert!(limits.decide(&mut bucket, 1, Nanos::ZERO).is_refused(), "both slots are taken");
    /// ```
    pub fn new(capacity: u64, rate: Rate) -> Result<Self, BadNumbers> {
        check(capacity, rate)?;
        let queue = Self {
            capacity,
            rate,
            immediate: 0,
            max_wait: MAX_WAIT,
        };
        if queue.drain_time() > MAX_DRAIN {
            return Err(BadNumbers::Drain);
        }
        Ok(queue)
    }

    /// Returns a copy of this queue with the given capacity and rate.
    pub(super) fn with(
        &self,
        capacity: Option<u64>,
        rate: Option<Rate>,
    ) -> Result<Self, BadNumbers> {
        let queue = Self::new(capacity.unwrap_or(self.capacity), rate.unwrap_or(self.rate))?;
        queue.immediate(self.immediate).waiting(self.max_wait)
    }

    /// Returns this queue, modified to let the first `immediate` requests of a backlog pass without
    /// waiting.
    ///
    /// ```
    /// use loudou_limiter::{Limit, Limits, Nanos, Rate, algorithm::LeakyQueue};
    ///
    /// let queue = LeakyQueue::new(2, Rate::parse("1/s").unwrap()).unwrap().immediate(1);
    /// let limits = Limits::new(vec![Limit::new("queue", queue)]).unwrap();
    /// let mut bucket = limits.start(Nanos::ZERO);
    /// let waits = [(); 3].map(|()| limits.decide(&mut bucket, 1, Nanos::ZERO).wait());
    /// assert_eq!(waits, [0, 0, 1].map(Nanos::from_secs));
    /// ```
    #[must_use]
    pub const fn immediate(self, immediate: u32) -> Self {
        Self { immediate, ..self }
    }

    /// Returns this queue, modified to refuse requests that would wait longer than `max_wait`.
    ///
    /// ```
    /// use loudou_limiter::{Limit, Limits, Nanos, Rate, algorithm::LeakyQueue};
    ///
    /// let queue = LeakyQueue::new(9, Rate::parse("1/s").unwrap()).unwrap();
    /// let limit = Limit::new("queue", queue.waiting(Nanos::from_secs(1)).unwrap());
    /// let limits = Limits::new(vec![limit]).unwrap();
    /// let mut bucket = limits.start(Nanos::ZERO);
    /// let refused = [(); 3].map(|()| limits.decide(&mut bucket, 1, Nanos::ZERO).is_refused());
    /// assert_eq!(refused, [false, false, true]);
    /// ```
    pub fn waiting(self, max_wait: Nanos) -> Result<Self, BadNumbers> {
        check_wait(max_wait)?;
        Ok(Self { max_wait, ..self })
    }

    /// Returns the maximum level: one slot for each waiting request, and one for the request that
    /// passes next.
    const fn places(&self) -> u64 {
        self.capacity.saturating_add(1)
    }

    pub(super) const fn leak(&self) -> Leak {
        Leak {
            capacity: self.places(),
            rate: self.rate,
        }
    }

    /// Returns the decision for a request that leaves the level at `drops`.
    fn at(&self, drops: u128) -> Decision {
        let (leak, level) = (self.leak(), self.leak().level());
        let places = level.units(leak.full().saturating_sub(drops));
        Decision::admit(
            self.capacity,
            places.min(self.capacity),
            level.leak_time(drops),
        )
    }
}

impl Meter for LeakyQueue {
    fn capacity(&self) -> u64 {
        self.capacity
    }

    fn rate(&self) -> Option<Rate> {
        Some(self.rate)
    }

    fn drain_time(&self) -> Nanos {
        drain_time(self.places(), self.rate)
    }

    fn max_cost(&self) -> u64 {
        self.places()
    }

    fn longest_wait(&self) -> Nanos {
        if u64::from(self.immediate) < self.capacity {
            self.max_wait
        } else {
            Nanos::ZERO
        }
    }

    fn as_level(&self) -> Option<Level> {
        Some(self.leak().level())
    }

    fn words(&self) -> usize {
        WORDS
    }

    fn decide(&self, words: &mut [u64], request: &BucketRequest) -> Decision {
        let BucketRequest { cost, now, .. } = *request;
        let (leak, level) = (self.leak(), self.leak().level());
        let old = level.read(words, now);
        if cost == 0 {
            return self.at(old);
        }
        if cost > self.places() && !request.is_queued {
            return self.at(old).refused(None);
        }
        let new = old.saturating_add(level.drops(cost));
        let until_it_fits = if request.is_queued {
            Nanos::ZERO
        } else {
            level.leak_time(new.saturating_sub(leak.full()))
        };
        let ahead = old.saturating_sub(level.drops(self.immediate.into()));
        let wait = level.leak_time(ahead);
        let too_long = wait.since(request.longest_wait(self.max_wait));
        let retry_after = until_it_fits.max(too_long);
        if retry_after > Nanos::ZERO {
            return self.at(old).refused(Some(retry_after));
        }
        level.write(words, new, now);
        self.at(new).after(wait)
    }

    fn give_back(&self, words: &mut [u64], refund: &Refund<'_>) -> bool {
        let level = self.leak().level();
        // If all slots are immediate, no request ever waits.
        let free = match u64::from(self.immediate) {
            immediate if immediate < self.capacity => immediate,
            _ => self.places(),
        };
        level.give_back(words, refund, level.drops(free))
    }

    fn full(&self) -> Used {
        let unheld = self.capacity.min(self.immediate.into()).saturating_add(1);
        Used::from(unheld).saturating_mul(USED_ONE)
    }

    fn resume(&self, words: &mut [u64], used: Used, clock: Clock) {
        self.leak().level().resume(words, used, clock.now);
    }

    fn as_leak(&self) -> Option<Leak> {
        Some(self.leak())
    }
}
