//! Exact arithmetic for a level that leaks at a rational rate. The funnel and the greedy token
//! bucket share this arithmetic, because both describe the same meter: the funnel by its used
//! capacity, and the token bucket by its available capacity.
//!
//! For a rate of `a` units per `p` nanoseconds, the used capacity is counted in *drops* of 1/p cost
//! unit. In one nanosecond, `a` drops leak, and one cost unit is `p` drops. Both numbers of drops
//! are integers, so nothing is rounded. The state is the theoretical arrival time (TAT) of GCRA
//! (ITU-T I.371), the instant at which the level reaches zero. The TAT is stored as whole
//! nanoseconds, plus the drops that leak in the remaining fraction of a nanosecond.
//!
//! A waiting request takes its cost when it arrives, so the level exceeds the capacity by the cost
//! of the waiting requests. This excess is *debt*. Debt never exceeds the amount that leaks during
//! the longest permitted wait. If an edit reduces the capacity below the used amount, the level
//! stays above the capacity until the difference has leaked, for up to 250 years.

use crate::bounds::{BadNumbers, MAX_AMOUNT, MAX_DRAIN, MAX_PERIOD, MAX_REMEMBERED};
use crate::convert::Carry;
use crate::decision::BucketRequest;
use crate::decision::Decision;
use crate::meter::{Refund, USED_ONE, Used};
use crate::time::Nanos;
use crate::time::Rate;
use crate::wide::{clamp, mul_div_ceil, product, times};

/// Number of state words, which contain the TAT's nanoseconds and drops.
pub(crate) const WORDS: usize = 2;

/// Divides by a positive number and returns the quotient and the remainder. Uses the hardware's
/// 64-bit division if the dividend fits.
pub(crate) fn div_rem(dividend: u128, divisor: u64) -> (u128, u64) {
    if let Ok(small) = u64::try_from(dividend) {
        let quotient = small.checked_div(divisor).unwrap_or(u64::MAX);
        let rest = small.checked_rem(divisor).unwrap_or(0);
        return (u128::from(quotient), rest);
    }
    let divisor = u128::from(divisor);
    let quotient = dividend.checked_div(divisor).unwrap_or(u128::MAX);
    let rest = dividend.checked_rem(divisor).unwrap_or(0);
    (quotient, u64::try_from(rest).unwrap_or(u64::MAX))
}

pub(crate) fn div_ceil(dividend: u128, divisor: u64) -> u128 {
    let (quotient, rest) = div_rem(dividend, divisor);
    quotient.saturating_add(u128::from(rest > 0))
}

/// Returns the time that `capacity` takes to leak away, rounded up.
pub(crate) fn drain_time(capacity: u64, rate: Rate) -> Nanos {
    Nanos::new(clamp(div_ceil(
        times(capacity, rate.period().get()),
        rate.amount().into(),
    )))
}

/// Checks the parameters shared by all algorithms with a capacity and a rate.
pub(crate) fn check(capacity: u64, rate: Rate) -> Result<(), BadNumbers> {
    if capacity == 0 || capacity > u64::from(MAX_AMOUNT) {
        return Err(BadNumbers::Capacity);
    }
    if rate.amount() > MAX_AMOUNT || rate.period() > MAX_PERIOD {
        return Err(BadNumbers::Rate);
    }
    if drain_time(capacity, rate) > MAX_DRAIN {
        return Err(BadNumbers::Drain);
    }
    Ok(())
}

/// Returns the time at which the level stored in `words` reaches zero, rounded up to a nanosecond.
pub(crate) fn tail(words: &[u64]) -> Nanos {
    let [tat_ns, drops, ..] = words else {
        return Nanos::new(words.first().copied().unwrap_or(0));
    };
    Nanos::new(tat_ns.saturating_add(u64::from(*drops > 0)))
}

/// Lowers the level so that it reaches zero at `end`, unless it does so earlier.
pub(crate) fn cut(words: &mut [u64], end: Nanos) {
    if tail(words) > end
        && let [tat_ns, drops] = words
    {
        (*tat_ns, *drops) = (end.get(), 0);
    }
}

/// Properties of a level that falls at `rate`. Levels are measured in drops.
#[derive(Clone, Copy, Debug)]
pub(crate) struct Level {
    pub(crate) rate: Rate,
    /// Upper bound on the level.
    pub(crate) most: u128,
}

impl Level {
    fn amount(self) -> u64 {
        self.rate.amount().into()
    }

    const fn period(self) -> u64 {
        self.rate.period().get()
    }

    /// Converts cost units to drops.
    pub(crate) fn drops(self, cost: u64) -> u128 {
        times(cost, self.period())
    }

    /// Converts drops to cost units, rounded down.
    pub(crate) fn units(self, drops: u128) -> u64 {
        clamp(div_rem(drops, self.period()).0)
    }

    /// Returns the number of drops that leak in `span`.
    pub(crate) fn leaks_in(self, span: Nanos) -> u128 {
        times(span.get(), self.amount())
    }

    /// Returns the time that `drops` take to leak away, rounded up.
    pub(crate) fn leak_time(self, drops: u128) -> Nanos {
        Nanos::new(clamp(div_ceil(drops, self.amount())))
    }

    /// Returns the level at `now`. The level is capped at [`Level::most`], in case the words are
    /// corrupt.
    pub(crate) fn read(self, words: &[u64], now: Nanos) -> u128 {
        let [tat_ns, drops] = words else { return 0 };
        if *tat_ns < now.get() {
            return 0;
        }
        let ahead = Nanos::new(*tat_ns).since(now);
        self.leaks_in(ahead)
            .saturating_add(u128::from(*drops))
            .min(self.most)
    }

    pub(crate) fn write(self, words: &mut [u64], level: u128, now: Nanos) {
        let (ahead, drops) = div_rem(level.min(self.most), self.amount());
        if let [tat_ns, rest] = words {
            *tat_ns = now.saturating_add(Nanos::new(clamp(ahead))).get();
            *rest = drops;
        }
    }

    /// Gives back the part of a request's cost that has not leaked away yet. The level that the
    /// request found on arrival leaks away before the request's own cost. If the level is above
    /// `free`, other requests may be waiting. Nothing is given back in this case, because those
    /// requests keep their promised times, so no other request could use the gap.
    pub(crate) fn give_back(self, words: &mut [u64], refund: &Refund<'_>, free: u128) -> bool {
        let level = self.read(words, refund.last);
        if level > free && !refund.nobody_waits {
            return false;
        }
        let found = self.read(refund.before, refund.request.now);
        let room = self.most.saturating_sub(found);
        let taken = self.drops(refund.request.cost).min(room);
        let leaked = self.leaks_in(refund.last.since(refund.request.now));
        let ahead = found.saturating_sub(self.drops(refund.given));
        let left = taken.saturating_sub(leaked.saturating_sub(ahead));
        self.write(words, level.saturating_sub(left), refund.last);
        left.min(level) > 0
    }

    /// Takes units even if they are not available.
    pub(crate) fn overdraw(self, words: &mut [u64], units: u64, now: Nanos) {
        let level = self.read(words, now);
        self.write(words, level.saturating_add(self.drops(units)), now);
    }

    pub(crate) fn used(self, words: &[u64], now: Nanos) -> Used {
        self.to_used(self.read(words, now))
    }

    pub(crate) fn to_used(self, drops: u128) -> Used {
        div_ceil(drops.saturating_mul(USED_ONE), self.period())
    }

    pub(crate) fn resume(self, words: &mut [u64], used: Used, now: Nanos) {
        let level = used
            .saturating_mul(u128::from(self.period()))
            .div_ceil(USED_ONE);
        self.write(words, level, now);
    }
}

/// A meter with `capacity` that leaks at `rate`.
#[derive(Clone, Copy, Debug)]
pub(crate) struct Leak {
    pub(crate) capacity: u64,
    pub(crate) rate: Rate,
}

impl Leak {
    pub(crate) fn full(self) -> u128 {
        times(self.capacity, self.rate.period().get())
    }

    /// Returns the level properties of this meter. The upper bound is the full level plus the
    /// amount that leaks in 250 years, so that usage beyond a reduced capacity is kept.
    pub(crate) fn level(self) -> Level {
        let debt = times(MAX_REMEMBERED.get(), self.rate.amount().into());
        Level {
            rate: self.rate,
            most: self.full().saturating_add(debt),
        }
    }

    /// Decides whether to admit, hold or refuse a request. A request that does not fit yet is held
    /// if it will fit within `max_wait`, or within its own maximum wait if it has one. A held
    /// request takes its units immediately.
    pub(crate) fn decide(
        self,
        words: &mut [u64],
        request: &BucketRequest,
        max_wait: Nanos,
    ) -> Decision {
        let narrow = self.decide_narrow(words, request, max_wait);
        narrow.unwrap_or_else(|| self.decide_wide(words, request, max_wait))
    }

    /// Makes the decision in 128-bit arithmetic, in case an intermediate value does not fit in 64
    /// bits. This function is large and rarely needed, so it is not inlined.
    #[inline(never)]
    fn decide_wide(self, words: &mut [u64], request: &BucketRequest, max_wait: Nanos) -> Decision {
        let BucketRequest { cost, now, .. } = *request;
        let (level, full) = (self.level(), self.full());
        let at = |drops: u128| {
            let remaining = level.units(full.saturating_sub(drops));
            Decision::admit(self.capacity, remaining, level.leak_time(drops))
        };
        let old = level.read(words, now);
        if cost == 0 {
            return at(old);
        }
        if cost > self.capacity {
            return at(old).refused(None);
        }
        let new = old.saturating_add(level.drops(cost));
        let wait = match new.saturating_sub(full) {
            0 => Nanos::ZERO,
            above => level.leak_time(above),
        };
        let longest = request.longest_wait(max_wait);
        if wait > longest {
            return at(old).refused(Some(wait.since(longest)));
        }
        level.write(words, new, now);
        at(new).after(wait)
    }

    /// Takes over another leak's level, exact to the drop. Passing the level as a [`Used`] would
    /// round it.
    pub(crate) fn adopt(
        self,
        words: &mut [u64],
        (before, was_full, old): (Self, Used, &[u64]),
        own: Used,
        (carry, now): (Carry, Nanos),
    ) {
        let level = self.level();
        let (old_period, period) = (before.level().period().into(), level.period().into());
        let drops = before.level().read(old, now);
        let full = |used: Used, period: u128| product(used.div_ceil(USED_ONE), period);
        let own = full(own, period);
        let shared = full(was_full, old_period);
        let used = if matches!(carry, Carry::Proportional | Carry::Stepped) && drops <= shared {
            carry.apply(drops, shared, own)
        } else {
            let kept = mul_div_ceil(drops, period, old_period);
            carry.apply(kept, full(was_full, period), own)
        };
        level.write(words, used, now);
    }
}

// Decisions made in 64-bit arithmetic. Except for extreme rates, all intermediate values fit in 64
// bits. Because wasm has no instructions for 128-bit arithmetic, the 128-bit decision needs five
// times as much code.

impl Leak {
    /// Admits or refuses a request. Returns `None` and changes nothing if the request may have to
    /// wait, costs nothing or can never fit, or if a value may need more than 64 bits.
    fn decide_narrow(
        self,
        words: &mut [u64],
        request: &BucketRequest,
        max_wait: Nanos,
    ) -> Option<Decision> {
        let (amount, period) = (u64::from(self.rate.amount()), self.rate.period().get());
        let [tat_ns, drops] = words else { return None };
        let full = narrow_product(self.capacity, period)?;
        let now_ns = request.now.get();
        let old = match tat_ns.checked_sub(now_ns) {
            None => 0,
            Some(ahead) => narrow_product(ahead, amount)?.checked_add(*drops)?,
        };
        if request.cost == 0 || request.cost > self.capacity {
            return None;
        }
        let new = old.checked_add(narrow_product(request.cost, period)?)?;
        let is_refused = new > full;
        let level = if is_refused { old } else { new };
        // The amount of a rate is never zero, so the division cannot fail.
        let (ahead, rest) = (level.checked_div(amount)?, level.checked_rem(amount)?);
        // After the capacity was reduced, or while requests wait, the level is above full, and the
        // subtraction returns `None`.
        let remaining = full.checked_sub(level)?.checked_div(period)?;
        let reset_after = Nanos::new(ahead.saturating_add(u64::from(rest > 0)));
        let decision = Decision::admit(self.capacity, remaining, reset_after);
        if is_refused {
            let wait = Nanos::new(new.checked_sub(full)?.div_ceil(amount.max(1)));
            let longest = request.longest_wait(max_wait);
            let refused = decision.refused(Some(wait.since(longest)));
            return (wait > longest).then_some(refused);
        }
        (*tat_ns, *drops) = (now_ns.saturating_add(ahead), rest);
        Some(decision)
    }
}

/// Returns the product if it is certain to fit in 64 bits.
const fn narrow_product(a: u64, b: u64) -> Option<u64> {
    if a.leading_zeros().saturating_add(b.leading_zeros()) >= u64::BITS {
        Some(a.wrapping_mul(b))
    } else {
        None
    }
}

#[cfg(test)]
mod narrow_tests {
    use proptest::prelude::*;

    use super::*;
    use crate::bounds::MAX_AMOUNT;
    use crate::time::Rate;

    fn number() -> impl Strategy<Value = u64> {
        prop_oneof![
            2 => 0_u64..12,
            2 => 0_u64..3_000_000_000,
            1 => (0_u32..64).prop_map(|bits| 1 << bits),
            1 => (0_u32..64).prop_map(|bits| u64::MAX >> bits),
            1 => any::<u64>(),
        ]
    }

    fn leak() -> impl Strategy<Value = Leak> {
        let amount = prop_oneof![1_u32..12, 1..=MAX_AMOUNT];
        let period = prop_oneof![Just(1_000_000_000_u64), 1_u64..1 << 50];
        let capacity = prop_oneof![1_u64..12, 1..=u64::from(MAX_AMOUNT)];
        (amount, period, capacity).prop_filter_map("numbers", |(amount, period, capacity)| {
            let rate = Rate::new(amount, Nanos::new(period))?;
            check(capacity, rate).ok()?;
            Some(Leak { capacity, rate })
        })
    }

    proptest! {
        #![proptest_config(ProptestConfig::with_cases(4_096))]

        /// Starts from states that decisions produce, and from arbitrary states.
        #[test]
        fn it_decides_as_in_128_bits(
            leak in leak(),
            start in number(),
            words in prop::option::of([number(), number()]),
            asks in prop::collection::vec((0_u64..14, number(), prop::option::of(number())), 1..12),
        ) {
            let mut now = Nanos::new(start);
            let mut wide = words.unwrap_or([0; 2]);
            for (cost, after, max_wait) in asks {
                now = now.saturating_add(Nanos::new(after));
                let max_wait = Nanos::new(max_wait.unwrap_or(0));
                let request = BucketRequest::new(cost, now);
                let mut narrow = wide;
                let before = wide;
                let expected = leak.decide_wide(&mut wide, &request, max_wait);
                if let Some(decision) = leak.decide_narrow(&mut narrow, &request, max_wait) {
                    prop_assert_eq!(decision, expected);
                    prop_assert_eq!(narrow, wide);
                } else {
                    prop_assert_eq!(narrow, before);
                }
            }
        }
    }

    #[test]
    fn products_are_whole_or_none() {
        let ones = (0..=64).map(|bits| u64::MAX.checked_shr(64 - bits).unwrap_or(0));
        for (a, b) in ones.clone().flat_map(|a| ones.clone().map(move |b| (a, b))) {
            for (a, b) in [(a, b), (a ^ a >> 1, b), (a ^ a >> 1, b ^ b >> 1)] {
                let found = narrow_product(a, b);
                let fits = a.checked_mul(b);
                assert!(found.is_none() || found == fits, "{a} * {b}");
                assert!(found.is_some() || fits.is_none_or(|fits| fits >> 62 > 0));
            }
        }
    }

    #[test]
    fn usual_rates_need_no_more_than_64_bits() {
        for (amount, seconds, capacity) in [(1, 1, 1), (100, 1, 1_000), (10_000, 60, 50_000)] {
            let rate = Rate::new(amount, Nanos::from_secs(seconds)).expect("valid");
            let leak = Leak { capacity, rate };
            let mut words = [0; 2];
            for cost in [1, 1.max(capacity / 2), capacity] {
                let request = BucketRequest::new(cost, Nanos::from_secs(1_000_000));
                let decision = leak.decide_narrow(&mut words, &request, Nanos::ZERO);
                assert!(decision.is_some(), "{cost} of {leak:?}");
            }
        }
    }
}
