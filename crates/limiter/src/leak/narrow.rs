//! The decision of a leak in 64 bits, where these hold all numbers on the way, as they do for all but extreme rates.
//! It is a fifth of the code of the decision in 128 bits, which wasm has no instructions for.

use super::Leak;
use crate::ask::Ask;
use crate::decision::Decision;
use crate::time::Nanos;

impl Leak {
    /// Admits or refuses; `None`, without a change, for a request that may have to wait, for one that costs
    /// nothing or can never pass, and where a number may need more than 64 bits.
    pub(super) fn decide_narrow(
        self,
        words: &mut [u64],
        ask: &Ask,
        max_wait: Nanos,
    ) -> Option<Decision> {
        let (amount, period) = (u64::from(self.rate.amount()), self.rate.period().get());
        let [tat_ns, drops] = words else { return None };
        let full = product(self.capacity, period)?;
        let now_ns = ask.now.get();
        let old = match tat_ns.checked_sub(now_ns) {
            None => 0,
            Some(ahead) => product(ahead, amount)?.checked_add(*drops)?,
        };
        if ask.cost == 0 || ask.cost > self.capacity {
            return None;
        }
        let new = old.checked_add(product(ask.cost, period)?)?;
        let is_refused = new > full;
        let level = if is_refused { old } else { new };
        // A rate is never zero.
        let (ahead, rest) = (level.checked_div(amount)?, level.checked_rem(amount)?);
        // Above a capacity that shrank, or with requests that wait, the level is higher than full.
        let remaining = full.checked_sub(level)?.checked_div(period)?;
        let reset_after = Nanos::new(ahead.saturating_add(u64::from(rest > 0)));
        let decision = Decision::admit(self.capacity, remaining, reset_after);
        if is_refused {
            let wait = Nanos::new(new.checked_sub(full)?.div_ceil(amount.max(1)));
            let longest = ask.longest_wait(max_wait);
            let refused = decision.refused(Some(wait.since(longest)));
            return (wait > longest).then_some(refused);
        }
        (*tat_ns, *drops) = (now_ns.saturating_add(ahead), rest);
        Some(decision)
    }
}

/// The product, if it certainly fits.
const fn product(a: u64, b: u64) -> Option<u64> {
    if a.leading_zeros().saturating_add(b.leading_zeros()) >= u64::BITS {
        Some(a.wrapping_mul(b))
    } else {
        None
    }
}

#[cfg(test)]
mod tests {
    use proptest::prelude::*;

    use super::*;
    use crate::bounds::MAX_AMOUNT;
    use crate::rate::Rate;

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
            super::super::check(capacity, rate).ok()?;
            Some(Leak { capacity, rate })
        })
    }

    proptest! {
        #![proptest_config(ProptestConfig::with_cases(4_096))]

        /// From states that decisions leave, and from any others.
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
                let ask = Ask::new(cost, now);
                let mut narrow = wide;
                let before = wide;
                let expected = leak.decide_wide(&mut wide, &ask, max_wait);
                if let Some(decision) = leak.decide_narrow(&mut narrow, &ask, max_wait) {
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
                let found = product(a, b);
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
                let ask = Ask::new(cost, Nanos::from_secs(1_000_000));
                let decision = leak.decide_narrow(&mut words, &ask, Nanos::ZERO);
                assert!(decision.is_some(), "{cost} of {leak:?}");
            }
        }
    }
}
