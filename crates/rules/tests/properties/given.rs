//! No sequence of edits gives more than the largest capacity, plus the amount that the rates in
//! force give over time.

use loudou_limiter::{Carry, Limit, Nanos};
use proptest::prelude::*;

use super::changing::{Change, Changing, KEYS, Named, has_bucket, limits_of, of_named, overrides};
use super::config;
use super::spec::{Kind, Spec};

/// The periods divide this number, including the periods of scaled rates.
const PARTS: u64 = 60_000;

/// Numbers whose rates have a common denominator.
fn leaks(kinds: Vec<Kind>) -> impl Strategy<Value = Named> {
    let kind = prop::sample::select(kinds);
    let period = prop::sample::select(vec![1_u64, 2, 3, 4, 5, 6, 10, 12, 15, 20, 30, 60]);
    (kind, 1..=12_u64, 1..=7_u32, period, 0..100_u64).prop_map(
        |(kind, capacity, amount, period, seed)| {
            vec![(0, Spec::new(kind, capacity, amount, period, seed))]
        },
    )
}

/// Returns the amount that comes back between two instants, in [`PARTS`] of a unit.
fn gives(limit: &Limit, from: u64, to: u64) -> u64 {
    let rate = limit.algorithm().rate().expect("one");
    let (amount, period) = (u64::from(rate.amount()), rate.period().get());
    let fields = serde_json::to_value(limit).expect("numbers");
    if fields["refill"] == "interval" {
        (to / period - from / period) * amount * PARTS
    } else {
        (to - from) * amount * (PARTS / period)
    }
}

type Edit = (
    u64,
    Option<Named>,
    Vec<(usize, Option<super::changing::KeyGrant>)>,
    usize,
    u64,
);

fn edits(limits: impl Fn() -> BoxedStrategy<Named>) -> impl Strategy<Value = Vec<Edit>> {
    let asks = prop_oneof![Just(0), 1..=4_u64, Just(30)];
    let pause = prop_oneof![2 => Just(0), 3 => 0..=40_u64, 1 => 0..=500_u64];
    let own = prop_oneof![Just(Vec::new()), overrides(limits())];
    prop::collection::vec(
        (pause, prop::option::of(limits()), own, 0..KEYS.len(), asks),
        1..40,
    )
}

/// Checks rates by the amounts that they gave in each segment between edits. `window` is an
/// additional amount for each begun window.
fn check(first: &Named, edits: Vec<Edit>, window: Option<u64>) -> Result<(), TestCaseError> {
    let first = of_named(first);
    let start = 1_000_000;
    let mut rule = Changing::new(&first, 0);
    let new = first.start(Nanos::new(start));
    let mut buckets: [_; 3] = std::array::from_fn(|_| (new.clone(), 0));
    let (mut most, mut given, mut sums) = ([0_u64; 3], [0_u64; 3], [0_u64; 3]);
    let mut now = start;
    for (pause, limits, overrides, index, requests) in edits {
        for (key, given) in KEYS.iter().zip(&mut given) {
            let limits = limits_of(&rule.rule, key);
            *given += gives(limits.iter().next().expect("one"), now, now + pause);
        }
        now += pause;
        let carry = Carry::Keep;
        rule.change(
            &Change {
                limits,
                overrides,
                carry,
            },
            now,
        );
        for (key, most) in KEYS.iter().zip(&mut most) {
            let limits = limits_of(&rule.rule, key);
            *most = (*most).max(limits.iter().next().expect("one").algorithm().capacity());
        }
        let key = KEYS[index];
        if !has_bucket(&rule.rule, key) {
            continue;
        }
        let limits = limits_of(&rule.rule, key);
        let (bucket, version) = &mut buckets[index];
        *bucket = rule.forward(key, bucket, *version, now);
        *version = rule.history.version;
        let passes =
            (0..requests).filter(|_| !limits.decide(bucket, 1, Nanos::new(now)).is_refused());
        sums[index] += u64::try_from(passes.count()).expect("few");
        let may = match window {
            Some(window) => most[index] * ((now - start).div_ceil(window) + 1) * PARTS,
            None => most[index] * PARTS + given[index],
        };
        prop_assert!(
            sums[index] * PARTS <= may,
            "{key}: {} of {may} parts",
            sums[index]
        );
    }
    Ok(())
}

const RATES: [Kind; 3] = [Kind::Funnel, Kind::Greedy, Kind::Interval];
const WINDOWS: [Kind; 6] = [
    Kind::FixedFirst,
    Kind::FixedClock,
    Kind::SlidingWindow,
    Kind::Log,
    Kind::StrictLog,
    Kind::Counter,
];

fn rates() -> BoxedStrategy<Named> {
    leaks(RATES.to_vec()).boxed()
}

/// Of one length, so that it is known how many there may have been.
fn windows() -> BoxedStrategy<Named> {
    let of_one_length = |mut named: Named| {
        for (_, spec) in &mut named {
            *spec = Spec::new(spec.kind, spec.capacity, 1, 60, spec.seed);
        }
        named
    };
    leaks(WINDOWS.to_vec()).prop_map(of_one_length).boxed()
}

proptest! {
    #![proptest_config(config(512))]

    #[test]
    fn rates_give_what_they_give(first in rates(), edits in edits(rates)) {
        check(&first, edits, None)?;
    }

    #[test]
    fn windows_give_what_they_give(first in windows(), edits in edits(windows)) {
        check(&first, edits, Some(60))?;
    }
}
