//! `token_bucket`: tokens refill continuously (`greedy`) or in whole lumps (`interval`).
//!
//! Greedy is the funnel seen from the other end: tokens left are capacity less water, and the same
//! exact arithmetic (`leak`) runs it. Interval adds `amount` tokens at once at every multiple of the
//! period on the process's clock, as Bucket4j's intervally-aligned refill does; because the
//! multiples are the same for every bucket, a full bucket carries no phase and can be forgotten
//! without loss. In any window of length w at most `capacity + amount·(⌊w/period⌋ + 1)` is admitted
//! by interval refill, `capacity + rate·w` by greedy.
//!
//! With `max_wait` a request for which there are not enough tokens is held until they have come, if
//! that is soon enough; it takes them at once, so later ones wait behind it. The instants at which
//! requests pass keep the same bounds, to the nanosecond to which a wait is rounded up.
//!
//! `initial` is what a bucket starts with. Below the capacity, a full bucket is better than a new
//! one, so forgetting it is a loss.

use serde::Serialize;

use crate::ask::Ask;
use crate::bounds::{BadNumbers, MAX_REMEMBERED, check_wait};
use crate::carry::Carry;
use crate::decision::Decision;
use crate::leak::{Leak, WORDS, check, drain_time};
use crate::meter::{Meter, continue_leak};
use crate::rate::Rate;
use crate::time::{Clock, Nanos};
use crate::used::{Back, USED_ONE, Used};
use crate::wide::clamp;

/// How tokens come back.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq, Serialize)]
#[serde(rename_all = "snake_case")]
pub enum Refill {
    /// Continuously.
    #[default]
    Greedy,
    /// The rate's whole amount at every multiple of its period.
    Interval,
}

impl Refill {
    /// The names in rule files.
    pub const NAMES: [&'static str; 2] = ["greedy", "interval"];
}

/// Numbers of a token bucket.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Serialize)]
pub struct TokenBucket {
    capacity: u64,
    rate: Rate,
    refill: Refill,
    initial: u64,
    #[serde(skip_serializing_if = "Nanos::is_zero")]
    max_wait: Nanos,
}

impl TokenBucket {
    /// A bucket of `capacity` tokens that refills at `rate` and starts with `initial`.
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
            initial,
            max_wait: Nanos::ZERO,
        })
    }

    /// The same that holds requests for up to `max_wait` instead of refusing them.
    pub fn waiting(self, max_wait: Nanos) -> Result<Self, BadNumbers> {
        check_wait(max_wait)?;
        Ok(Self { max_wait, ..self })
    }

    pub(super) const fn is_greedy(&self) -> bool {
        matches!(self.refill, Refill::Greedy)
    }

    pub(super) const fn leak(&self) -> Leak {
        Leak {
            capacity: self.capacity,
            rate: self.rate,
        }
    }

    /// The number of refills the clock has seen by `now`.
    fn lumps(&self, now: Nanos) -> u64 {
        now.get().checked_div(self.rate.period().get()).unwrap_or(0)
    }

    /// The time from `now` until `count` more refills have come.
    fn until_lumps(&self, count: u64, now: Nanos) -> Nanos {
        let instant = self.lumps(now).saturating_add(count);
        Nanos::new(instant.saturating_mul(self.rate.period().get())).since(now)
    }

    /// The most tokens that can be used: the capacity, and what comes back while it is remembered.
    fn most_used(&self) -> u64 {
        let lumps = MAX_REMEMBERED.get().checked_div(self.rate.period().get());
        let debt = lumps
            .unwrap_or(0)
            .saturating_add(1)
            .saturating_mul(self.rate.amount().into());
        self.capacity.saturating_add(debt)
    }

    /// The tokens used at `now`; the state is the lump count and the tokens used as of then.
    fn used_tokens(&self, words: &[u64], now: Nanos) -> u64 {
        let [seen, used] = words else { return 0 };
        let lumps = self.lumps(now).saturating_sub(*seen);
        used.saturating_sub(lumps.saturating_mul(self.rate.amount().into()))
            .min(self.most_used())
    }

    fn write_used(&self, words: &mut [u64], used: u64, now: Nanos) {
        if let [seen, tokens] = words {
            *seen = self.lumps(now);
            *tokens = used;
        }
    }

    fn lumps_for(&self, tokens: u64) -> u64 {
        tokens.div_ceil(u64::from(self.rate.amount()).max(1))
    }

    fn decide_interval(&self, words: &mut [u64], ask: &Ask) -> Decision {
        let Ask { cost, now, .. } = *ask;
        let used = self.used_tokens(words, now);
        if cost == 0 {
            return self.at(used, now);
        }
        if cost > self.capacity {
            return self.at(used, now).refused(None);
        }
        let new = used.saturating_add(cost);
        let over = new.saturating_sub(self.capacity);
        let wait = self.until_lumps(self.lumps_for(over), now);
        let longest = ask.longest_wait(self.max_wait);
        if wait > longest {
            let retry_after = wait.since(longest);
            return self.at(used, now).refused(Some(retry_after));
        }
        self.write_used(words, new, now);
        self.at(new, now).after(wait)
    }

    /// As [`Level::give_back`](super::leak::Level::give_back) does it, in lumps.
    fn give_back_interval(&self, words: &mut [u64], back: &Back<'_>) -> bool {
        let used = self.used_tokens(words, back.last);
        if used > self.capacity {
            return false;
        }
        let Ask { cost, now: at, .. } = back.ask;
        let lumps = self.lumps(back.last).saturating_sub(self.lumps(at));
        let refilled = lumps.saturating_mul(self.rate.amount().into());
        let ahead = self.used_tokens(back.before, at).saturating_sub(back.given);
        let left = cost.saturating_sub(refilled.saturating_sub(ahead));
        self.write_used(words, used.saturating_sub(left), back.last);
        left.min(used) > 0
    }

    /// The answer that leaves `used` tokens taken.
    fn at(&self, used: u64, now: Nanos) -> Decision {
        let remaining = self.capacity.saturating_sub(used);
        let reset_after = self.until_lumps(self.lumps_for(used), now);
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

    fn drains(&self) -> bool {
        self.refill == Refill::Greedy
    }

    fn words(&self) -> usize {
        WORDS
    }

    fn start(&self, words: &mut [u64], now: Nanos) {
        let missing = u128::from(self.capacity.saturating_sub(self.initial));
        self.resume(words, missing.saturating_mul(USED_ONE), Clock::at(now));
    }

    fn decide(&self, words: &mut [u64], ask: &Ask) -> Decision {
        match self.refill {
            Refill::Greedy => self.leak().decide(words, ask, self.max_wait),
            Refill::Interval => self.decide_interval(words, ask),
        }
    }

    fn give_back(&self, words: &mut [u64], back: &Back<'_>) -> bool {
        match self.refill {
            Refill::Greedy => {
                let leak = self.leak();
                leak.level().give_back(words, back, leak.full())
            }
            Refill::Interval => self.give_back_interval(words, back),
        }
    }

    fn forgets_losslessly(&self) -> bool {
        self.initial == self.capacity
    }

    fn used(&self, words: &[u64], now: Nanos) -> Used {
        match self.refill {
            Refill::Greedy => self.leak().level().used(words, now),
            Refill::Interval => u128::from(self.used_tokens(words, now)).saturating_mul(USED_ONE),
        }
    }

    fn resume(&self, words: &mut [u64], used: Used, clock: Clock) {
        let now = clock.now;
        match self.refill {
            Refill::Greedy => self.leak().level().resume(words, used, now),
            Refill::Interval => {
                let tokens = clamp(used.div_ceil(USED_ONE)).min(self.most_used());
                self.write_used(words, tokens, now);
            }
        }
    }

    fn as_leak(&self) -> Option<Leak> {
        self.is_greedy().then(|| self.leak())
    }

    fn adopt(
        &self,
        words: &mut [u64],
        from: &dyn Meter,
        old: &[u64],
        carry: Carry,
        clock: Clock,
    ) -> bool {
        self.is_greedy()
            && continue_leak(
                (self.leak(), self.full()),
                words,
                (from, old),
                (carry, clock),
            )
    }
}
