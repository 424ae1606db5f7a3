//! `smooth_warmup`: a limiter where requests pay later, and pay more while the limiter is cold.
//!
//! As in `smooth_bursty`, a request of any cost passes as soon as the previous requests have been
//! paid for. However, stored permits are not a reserve. Their number indicates how cold the backend
//! is, and the colder the backend, the more time a stored permit costs. This algorithm suits
//! backends that must fill caches or open connections before they are fast.
//!
//! A new bucket is cold, which means that the maximum number of permits is stored. In steady use,
//! the interval between permits falls from `cold_factor`/rate to 1/rate within `warmup`. After
//! `warmup` without requests, the bucket is cold again. A request that would wait longer than
//! `max_wait` is refused. In any interval of length w, the total cost of the requests that pass is
//! at most `rate·w` plus the cost of the last request, except that each wait is rounded up to a
//! nanosecond. Debt is capped at an amount that takes 3 660 days to pay off.
//!
//! Source: Guava's `RateLimiter.create(permitsPerSecond, warmupPeriod)`, class `SmoothWarmingUp` in
//! version 31.1. Let f be the cold factor, and u the stored permits, measured as the time that they
//! cost at the stable rate. The maximum of u is warmup/2 + 2·warmup/(1+f). The threshold is
//! warmup/2. If u exceeds the threshold by x, taking all stored permits costs u +
//! x²·(f²−1)/(4·warmup). Each fresh permit costs 1/rate.
//!
//! The unit of the arithmetic is the drop, 1/(2·(1+f)·1000·amount) ns, which is at most 1/4000 ns.
//! A permit, a nanosecond, the threshold and the maximum are whole numbers of drops, so only the
//! quadratic term is rounded. The cost of stored permits is the difference between two sums. In a
//! run of requests without a pause, the first sum is rounded up to a drop, and all other sums are
//! rounded down. As a result, splitting a cost over several requests does not change the total. No
//! request in a run passes earlier than the formulas allow, starting from the state in which the
//! run began, and all requests together are less than two drops late. The permits stored during a
//! pause are rounded up to a drop.

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
/// A factor of 1, in thousandths.
const ONE: u128 = 1_000;

/// Parameters of a pay-later limiter with a warm-up.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Serialize)]
pub struct SmoothWarmup {
    rate: Rate,
    warmup: Nanos,
    cold_factor: Decimal,
    #[serde(skip_serializing_if = "Nanos::is_zero")]
    max_wait: Nanos,
}

/// State of a bucket at an instant, measured in drops.
#[derive(Clone, Copy, Debug)]
struct WarmupState {
    /// Time until all admitted requests have been paid for.
    debt: u128,
    /// Difference between the stored permits and their maximum. The difference shrinks while there
    /// is no debt.
    missing: u128,
}

/// All quantities are in drops. With amounts up to 10^9, periods and warm-ups up to 2^55 ns, and
/// factors up to 1000, they stay below 2^110.
impl SmoothWarmup {
    /// Creates a limiter that is warm after `warmup` of steady use and does not hold requests.
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

    /// Returns this limiter, modified to hold requests that would pass within `max_wait` instead of
    /// refusing them.
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

    /// Returns the factor that turns all products into whole numbers: 2·(1 + f), in thousandths.
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

    /// Returns the threshold, warmup/2. Stored permits below the threshold cost no more than fresh
    /// permits.
    fn threshold(&self) -> u128 {
        product(self.warmup(), self.factor().saturating_add(ONE))
    }

    /// Returns the numerator of the speed at which permits accumulate, 1/2 + 2/(1+f). The
    /// denominator is [`SmoothWarmup::scale`].
    fn restores(&self) -> u128 {
        self.factor().saturating_add(ONE.saturating_mul(5))
    }

    /// Returns the maximum of the stored permits: warmup/2 + 2·warmup/(1+f).
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

    /// Returns the number of drops, rounded up, that accumulate during `time`, which is also
    /// measured in drops.
    fn restored_in(&self, time: u128) -> u128 {
        // A saturated product still exceeds any missing amount, so the final result is correct.
        product(time, self.restores()).div_ceil(self.scale().max(1))
    }

    /// Returns the time, in drops, that `missing` drops take to accumulate.
    fn restore_time(&self, missing: u128) -> u128 {
        let Some(but_one) = missing.checked_sub(1) else {
            return 0;
        };
        let not_yet = mul_div(but_one, self.scale(), self.restores());
        not_yet.saturating_add(1)
    }

    /// Returns the cost of the lowest `stored` drops, which are taken last. `divide` determines how
    /// the quotient is rounded.
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
        // `rest` is a fraction of a nanosecond beyond `free`, so the debt can outlast `free`.
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

    /// Returns the decision for a request that leaves the bucket in `state`.
    fn at(&self, state: WarmupState) -> Decision {
        Decision::admit(1, u64::from(state.debt == 0), self.reset_after(state))
    }
}

impl Meter for SmoothWarmup {
    /// A request of any cost is admitted and the next request waits for that cost, so at most one request can pass at
    /// once.
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

    /// Two words contain the time at which all requests will have been paid for: its whole
    /// nanoseconds, and the remaining drops. The other two words contain the missing amount.
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

    /// Only the debt counts as used, because stored permits are not a reserve.
    fn used(&self, words: &[u64], now: Nanos) -> Used {
        mul_div_ceil(self.read(words, now).debt, USED_ONE, self.permit())
    }

    /// Writes a cold bucket, like a new bucket.
    fn resume(&self, words: &mut [u64], used: Used, clock: Clock) {
        let debt = mul_div_ceil(used, self.permit(), USED_ONE);
        self.write(words, WarmupState { debt, missing: 0 }, clock.now);
    }

    /// An edit preserves the number of permits owed. Of the missing amount, it preserves either the
    /// number of permits (carry `keep`) or the share of the maximum.
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
        /// Compares the debt with exact values, which are multiplied by the divisor of the
        /// quadratic term so that the test involves no rounding.
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
