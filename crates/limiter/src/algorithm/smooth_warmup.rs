//! `smooth_warmup`: pay later, and slower while cold.
//!
//! As in `smooth_bursty`, a request of any cost passes as soon as the previous requests are paid
//! for. But stored permits are not a reserve. They measure how cold the backend is, and each costs
//! more time the colder it is. This suits backends that must fill caches or open connections before
//! they are fast.
//!
//! A new bucket is cold, which means that the maximum number of permits is stored. In steady use,
//! the interval between permits falls from `cold_factor`/rate to 1/rate within `warmup`. After
//! `warmup` without requests, the bucket is cold again. A request that would wait longer than
//! `max_wait` is refused. In any window of length w, the requests that pass cost at most `rate·w`
//! plus the cost of the last one, except that each wait is rounded up to a nanosecond. A debt lasts
//! at most 3 660 days.
//!
//! Source: Guava's `RateLimiter.create(permitsPerSecond, warmupPeriod)`, class `SmoothWarmingUp` of
//! 31.1. Let u be the stored permits, counted as the time that they take at the stable rate, and f
//! the cold factor. At most warmup/2 + 2·warmup/(1+f) is stored. With x = u − threshold above the
//! threshold warmup/2, taking all stored permits costs u + x²·(f²−1)/(4·warmup). Fresh permits cost
//! 1/rate each.
//!
//! The arithmetic uses drops, of which a permit, a nanosecond, the threshold and the maximum are
//! whole numbers: a drop is 1/(2·(1+f)·1000·amount) ns, at most 1/4000 ns. Only the square is
//! rounded. The cost of stored permits is the difference of two sums. In a run of requests without
//! a pause, the first sum is rounded up to a drop and all others are rounded down. So every split
//! of a cost costs the same, no request of a run passes earlier than the formulas allow from the
//! state in which the run began, and all requests together are less than two drops late. Permits
//! that a pause stores are rounded up to a drop.

use serde::Serialize;

use crate::bounds::{BadNumbers, MAX_DRAIN, MAX_PERIOD, check_wait};
use crate::convert::Carry;
use crate::decimal::Decimal;
use crate::decision::BucketRequest;
use crate::decision::Decision;
use crate::leak::check;
use crate::meter::{Meter, same};
use crate::meter::{USED_ONE, Used};
use crate::time::Rate;
use crate::time::{Clock, Nanos};
use crate::wide::{mul_div, mul_div_ceil, product};

/// Maximum warm-up.
pub const MAX_WARMUP: Nanos = MAX_PERIOD;
/// Minimum and maximum cold factor.
pub const COLD_FACTORS: [Decimal; 2] = [
    Decimal::from_thousandths(1_000),
    Decimal::from_thousandths(1_000_000),
];
/// A factor of 1.
const ONE: u128 = 1_000;

/// Numbers of a pay-later limiter with a warm-up.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Serialize)]
pub struct SmoothWarmup {
    rate: Rate,
    warmup: Nanos,
    cold_factor: Decimal,
    #[serde(skip_serializing_if = "Nanos::is_zero")]
    max_wait: Nanos,
}

/// State of a bucket at an instant, in drops.
#[derive(Clone, Copy, Debug)]
struct WarmupState {
    /// Time until everything is paid for.
    debt: u128,
    /// Difference to the maximum that can be stored. It shrinks once the debt is paid.
    missing: u128,
}

/// All numbers are in drops. With amounts up to 10^9, periods and warm-ups up to 2^55 ns and
/// factors up to 1000, they are below 2^110.
impl SmoothWarmup {
    /// Creates a limiter that is warm after `warmup` and holds no request.
    ///
    /// ```
    /// use loudou_limiter::{Decimal, Limit, Limits, Nanos, Rate, algorithm::SmoothWarmup};
    ///
    /// let (rate, factor) = (Rate::parse("1/s").unwrap(), Decimal::parse("3").unwrap());
    /// let smooth = SmoothWarmup::new(rate, Nanos::from_secs(1_000), factor).unwrap();
    /// let limits = Limits::new(vec![Limit::new("cache", smooth)]).unwrap();
    /// let mut bucket = limits.start(Nanos::ZERO);
    /// // Cold: the first permit takes nearly three seconds instead of one.
    /// limits.decide(&mut bucket, 1, Nanos::ZERO);
    /// let answer = limits.decide(&mut bucket, 1, Nanos::ZERO);
    /// let wait = answer.reported().unwrap().retry_after.unwrap();
    /// assert_eq!(wait.as_millis(), 2_998);
    /// ```
    pub fn new(rate: Rate, warmup: Nanos, cold_factor: Decimal) -> Result<Self, BadNumbers> {
        check(1, rate)?;
        if warmup == Nanos::ZERO || warmup > MAX_WARMUP {
            return Err(BadNumbers::Warmup);
        }
        let [least, most] = COLD_FACTORS;
        if !(least..=most).contains(&cold_factor) {
            return Err(BadNumbers::ColdFactor);
        }
        Ok(Self {
            rate,
            warmup,
            cold_factor,
            max_wait: Nanos::ZERO,
        })
    }

    /// Returns this limiter, but with requests held for up to `max_wait` instead of refused.
    ///
    /// ```
    /// use loudou_limiter::{Decimal, Limit, Limits, Nanos, Rate, algorithm::SmoothWarmup};
    ///
    /// let (rate, factor) = (Rate::parse("1/s").unwrap(), Decimal::parse("3").unwrap());
    /// let smooth = SmoothWarmup::new(rate, Nanos::from_secs(1_000), factor).unwrap();
    /// let limit = Limit::new("cache", smooth.waiting(Nanos::from_secs(4)).unwrap());
    /// let limits = Limits::new(vec![limit]).unwrap();
    /// let mut bucket = limits.start(Nanos::ZERO);
    /// limits.decide(&mut bucket, 1, Nanos::ZERO);
    /// assert_eq!(limits.decide(&mut bucket, 1, Nanos::ZERO).wait().as_millis(), 2_998);
    /// ```
    pub fn waiting(self, max_wait: Nanos) -> Result<Self, BadNumbers> {
        check_wait(max_wait)?;
        Ok(Self { max_wait, ..self })
    }

    fn factor(&self) -> u128 {
        self.cold_factor.thousandths().into()
    }

    fn amount(&self) -> u128 {
        self.rate.amount().into()
    }

    /// Returns the warm-up in units of 1/amount ns.
    fn warmup(&self) -> u128 {
        product(self.warmup.get().into(), self.amount())
    }

    /// Returns the factor that makes all products whole: 2·(1 + f), in thousandths.
    fn scale(&self) -> u128 {
        self.factor().saturating_add(ONE).saturating_mul(2)
    }

    /// Returns the number of drops in a nanosecond.
    fn nano(&self) -> u128 {
        product(self.amount(), self.scale())
    }

    /// Returns the number of drops in a permit at the stable rate.
    fn permit(&self) -> u128 {
        product(self.rate.period().get().into(), self.scale())
    }

    /// Returns warmup/2. Stored permits below this threshold cost no more than fresh ones.
    fn threshold(&self) -> u128 {
        product(self.warmup(), self.factor().saturating_add(ONE))
    }

    /// Returns how much is stored in one [`SmoothWarmup::scale`]-th of a nanosecond, multiplied by
    /// the amount: 1/2 + 2/(1+f) of it.
    fn restores(&self) -> u128 {
        self.factor().saturating_add(ONE.saturating_mul(5))
    }

    /// Returns the maximum that is stored: warmup/2 + 2·warmup/(1+f).
    fn max_stored(&self) -> u128 {
        product(self.warmup(), self.restores())
    }

    fn max_debt(&self) -> u128 {
        product(MAX_DRAIN.get().into(), self.nano())
    }

    fn span(&self, span: Nanos) -> u128 {
        product(span.get().into(), self.nano())
    }

    fn nanos_ceil(&self, drops: u128) -> Nanos {
        let nanos = drops.div_ceil(self.nano().max(1));
        Nanos::new(u64::try_from(nanos).unwrap_or(u64::MAX))
    }

    /// Returns how much is stored again in `time` drops, rounded up.
    fn restored_in(&self, time: u128) -> u128 {
        // A product that saturates is larger than any missing amount, so the result stays right.
        product(time, self.restores()).div_ceil(self.scale().max(1))
    }

    /// Returns the time in drops after which `missing` is stored again.
    fn restore_time(&self, missing: u128) -> u128 {
        let Some(but_one) = missing.checked_sub(1) else {
            return 0;
        };
        let not_yet = mul_div(but_one, self.scale(), self.restores());
        not_yet.saturating_add(1)
    }

    /// Returns the cost of the first `stored` drops, which are taken last. `divide` rounds.
    fn price_of(&self, stored: u128, divide: fn(u128, u128, u128) -> u128) -> u128 {
        let above = stored.saturating_sub(self.threshold());
        let steep = self.factor().saturating_sub(ONE);
        let over = product(self.warmup(), 8_000_000);
        let extra = divide(above, product(above, steep), over);
        stored.saturating_add(extra)
    }

    fn read(&self, words: &[u64], now: Nanos) -> WarmupState {
        let [free_ns, rest, low, high] = words else {
            return WarmupState {
                debt: 0,
                missing: 0,
            };
        };
        let missing = u128::from(*high) << 64 | u128::from(*low);
        let missing = missing.min(self.max_stored());
        let free = Nanos::new(*free_ns);
        let debt = self
            .span(free.since(now))
            .saturating_add((*rest).into())
            .min(self.max_debt());
        // The debt also includes a part of a nanosecond after `free`.
        let idle = self.span(now.since(free));
        let back = self.restored_in(idle.saturating_sub(debt));
        WarmupState {
            debt: debt.saturating_sub(idle),
            missing: missing.saturating_sub(back),
        }
    }

    fn write(&self, words: &mut [u64], state: WarmupState, now: Nanos) {
        let nano = self.nano().max(1);
        let debt = state.debt.min(self.max_debt());
        let ahead = Nanos::new(u64::try_from(debt.div_euclid(nano)).unwrap_or(u64::MAX));
        let part = |wide: u128| u64::try_from(wide & u128::from(u64::MAX)).unwrap_or(u64::MAX);
        if let [free_ns, rest, low, high] = words {
            *free_ns = now.saturating_add(ahead).get();
            *rest = part(debt.rem_euclid(nano));
            *low = part(state.missing);
            *high = part(state.missing >> 64);
        }
    }

    fn take(&self, state: WarmupState, cost: u64) -> WarmupState {
        let cost = product(cost.into(), self.permit());
        let stored = self.max_stored().saturating_sub(state.missing);
        let spent = cost.min(stored);
        let divide = if state.debt == 0 {
            mul_div_ceil
        } else {
            mul_div
        };
        let price = self
            .price_of(stored, divide)
            .saturating_sub(self.price_of(stored.saturating_sub(spent), mul_div))
            .saturating_add(cost.saturating_sub(spent));
        WarmupState {
            debt: state.debt.saturating_add(price),
            missing: state.missing.saturating_add(spent),
        }
    }

    fn reset_after(&self, state: WarmupState) -> Nanos {
        let restored = self.restore_time(state.missing);
        self.nanos_ceil(state.debt.min(self.max_debt()).saturating_add(restored))
    }

    /// Returns the answer after a decision that leaves `state`.
    fn at(&self, state: WarmupState) -> Decision {
        Decision::admit(1, u64::from(state.debt == 0), self.reset_after(state))
    }
}

impl Meter for SmoothWarmup {
    /// The algorithm admits a request of any cost and lets the next request wait for that cost, so there is never room
    /// for more than one request at once.
    fn capacity(&self) -> u64 {
        1
    }

    fn rate(&self) -> Option<Rate> {
        Some(self.rate)
    }

    fn drain_time(&self) -> Nanos {
        self.warmup.saturating_add(self.nanos_ceil(self.permit()))
    }

    fn max_cost(&self) -> u64 {
        u64::MAX
    }

    fn longest_wait(&self) -> Nanos {
        self.max_wait
    }

    /// The words are the time at which everything is paid for, in nanoseconds and drops, and the
    /// missing amount in two words.
    fn words(&self) -> usize {
        4
    }

    fn start(&self, words: &mut [u64], clock: Clock) {
        self.resume(words, 0, clock);
    }

    fn decide(&self, words: &mut [u64], request: &BucketRequest) -> Decision {
        let BucketRequest { cost, now, .. } = *request;
        let old = self.read(words, now);
        if cost == 0 {
            return self.at(old);
        }
        let wait = self.nanos_ceil(old.debt);
        let longest = request.longest_wait(self.max_wait);
        if wait > longest {
            return self.at(old).refused(Some(wait.since(longest)));
        }
        let new = self.take(old, cost);
        self.write(words, new, now);
        self.at(new).after(wait)
    }

    /// The level is the debt alone, because stored permits are not a reserve.
    fn used(&self, words: &[u64], now: Nanos) -> Used {
        mul_div_ceil(self.read(words, now).debt, USED_ONE, self.permit())
    }

    /// The bucket is cold, like a new bucket.
    fn resume(&self, words: &mut [u64], used: Used, clock: Clock) {
        let debt = mul_div_ceil(used, self.permit(), USED_ONE);
        self.write(words, WarmupState { debt, missing: 0 }, clock.now);
    }

    /// If the warm-up changes, the debt in permits and the warmth of the bucket stay the same.
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
        let before = from.read(old, clock.now);
        let missing = match carry {
            Carry::Keep => mul_div(before.missing, self.permit(), from.permit()),
            _ => mul_div(before.missing, self.max_stored(), from.max_stored()),
        };
        let state = WarmupState {
            debt: mul_div_ceil(before.debt, self.permit(), from.permit()),
            missing: missing.min(self.max_stored()),
        };
        self.write(words, state, clock.now);
        true
    }
}

#[cfg(test)]
mod tests {
    use proptest::prelude::*;

    use super::*;

    proptest! {
        /// The state is in whole multiples of the divisor of the square, so that nothing is rounded
        /// in this test.
        #[test]
        #[expect(clippy::arithmetic_side_effects, reason = "the numbers are small")]
        fn a_run_is_never_early_and_hardly_late(
            amount in 1..=5_u32, period in 1..=50_u64, warmup in 1..=100_u64, factor in 1_000..=20_000_u32,
            missing in 0..=1_000_000_u128, costs in prop::collection::vec(1..=5_u64, 1..20),
        ) {
            let rate = Rate::new(amount, Nanos::new(period)).expect("positive");
            let factor = Decimal::from_thousandths(factor);
            let smooth = SmoothWarmup::new(rate, Nanos::new(warmup), factor).expect("in range");
            let over = smooth.warmup() * 8_000_000;
            let exact = |stored: u128| {
                let above = stored.saturating_sub(smooth.threshold());
                stored * over + above * above * (smooth.factor() - ONE)
            };
            let missing = missing % (smooth.max_stored() + 1);
            let first = WarmupState { debt: 0, missing };
            let stored = smooth.max_stored() - missing;
            let mut state = first;
            let mut taken = 0;
            for cost in costs {
                state = smooth.take(state, cost);
                taken += u128::from(cost) * smooth.permit();
                let left = stored.saturating_sub(taken);
                let owed = exact(stored) - exact(left) + taken.saturating_sub(stored) * over;
                prop_assert!(state.debt * over >= owed);
                prop_assert!(state.debt * over < owed + 2 * over);
            }
        }
    }
}
