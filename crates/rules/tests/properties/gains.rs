//! No sequence of edits gives anything away.

use std::collections::BTreeMap;

use loudou_limiter::algorithm::Algorithm;
use loudou_limiter::bounds::{MAX_DRAIN, MAX_REMEMBERED};
use loudou_limiter::{Bucket, Carry, Clock, Limit, Limits, Nanos, convert};
use proptest::prelude::*;

use super::changing::{Change, Changing, KEYS, Named, has_bucket, limits_of, of_named, overrides};
use super::config;
use super::spec::{Kind, Spec, spec_of};

/// Algorithms that give back over time. The length of a burst never changes: stored permits stay
/// stored, so a shorter burst does not know how much was missing in a longer one.
pub(super) fn rated() -> impl Strategy<Value = Spec> {
    let rated = spec_of(|kind| kind != Kind::InFlight);
    rated.prop_map(|spec| match spec.kind {
        Kind::Bursty => Spec::new(Kind::Bursty, 1, 3, 6_000_000, 9),
        _ => spec,
    })
}

/// Two limits, with equal names in every edit. There is no burst, because a scale changes its
/// length.
fn both() -> impl Strategy<Value = Named> {
    let names = Just(vec![0, 1]).prop_shuffle();
    let level = || spec_of(|kind| !matches!(kind, Kind::InFlight | Kind::Bursty));
    (names, [level(), level()]).prop_map(|(names, specs)| names.into_iter().zip(specs).collect())
}

fn one() -> impl Strategy<Value = Named> {
    rated().prop_map(|spec| vec![(0, spec)])
}

/// Maximum number of requests of cost 1 that pass at one instant.
pub(super) fn most_at_once(limit: &Limit) -> u64 {
    match limit.algorithm() {
        Algorithm::LeakyQueue(_) => {
            let fields = serde_json::to_value(limit).expect("numbers");
            let [capacity, immediate] = ["capacity", "immediate"].map(|name| fields[name].as_u64());
            capacity.min(immediate).expect("both") + 1
        }
        other => other.capacity(),
    }
}

/// Requests that pass at one instant, and the maximum number by each limit.
#[derive(Debug, Default)]
struct Passed {
    sum: u64,
    most: BTreeMap<String, u64>,
    /// Number of requests that pass at once or later.
    admitted: u64,
    /// True if the debt ever exceeded the maximum that is remembered. Then there is no bound.
    may_be_forgotten: bool,
}

impl Passed {
    /// The numbers in force.
    fn may(&mut self, limits: &Limits) {
        for limit in limits {
            let most = self.most.entry(limit.name().to_string()).or_default();
            *most = most_at_once(limit).max(*most);
        }
    }

    /// Number of requests.
    fn ask(&mut self, limits: &Limits, bucket: &mut Bucket, requests: u64, now: u64) {
        for _ in 0..requests {
            let answer = limits.decide(bucket, 1, Nanos::new(now));
            let passes = !answer.is_refused() && answer.wait() == Nanos::ZERO;
            self.sum += u64::from(passes);
            self.admitted += u64::from(!answer.is_refused());
        }
    }

    /// A bucket has these numbers, or such as take up to `slowed` times as long.
    fn owe(&mut self, limits: &Limits, slowed: u128) {
        self.may_be_forgotten |= limits.iter().any(|limit| {
            let Some(rate) = limit.algorithm().rate() else {
                return false;
            };
            let remembered = match limit.algorithm() {
                Algorithm::SmoothBursty(_) | Algorithm::SmoothWarmup(_) => MAX_DRAIN,
                _ => MAX_REMEMBERED,
            };
            let units = u128::from(self.admitted + MOST_AT_FIRST) * slowed;
            units * u128::from(rate.period().get())
                > u128::from(remembered.get()) * u128::from(rate.amount())
        });
    }

    fn is_bounded(&self) -> bool {
        self.may_be_forgotten || self.most.values().all(|most| self.sum <= *most)
    }
}

/// Maximum amount used of a new bucket.
const MOST_AT_FIRST: u64 = 4;
/// By the smallest scale of an override.
const SLOWED: u128 = 10;

fn asks() -> impl Strategy<Value = u64> {
    prop_oneof![Just(0), 1..=4_u64, Just(30)]
}

proptest! {
    #![proptest_config(config(512))]

    /// In units, the amount admitted at one instant never exceeds what the largest numbers allow,
    /// including overrides, as long as no debt exceeds the maximum that is remembered.
    #[test]
    fn keep_gives_nothing_away(
        first in both(), now in 0..=1_u64 << 60,
        edits in prop::collection::vec(
            (prop::option::of(both()), prop_oneof![Just(Vec::new()), overrides(both())], 0..KEYS.len(), asks()),
            1..30,
        ),
    ) {
        let first = of_named(&first);
        let mut rule = Changing::new(&first, 0);
        let mut buckets: [(Bucket, u32); 3] = std::array::from_fn(|_| (first.start(Nanos::new(now)), 0));
        let mut passed: [Passed; 3] = std::array::from_fn(|_| Passed::default());
        let all_may = |passed: &mut [Passed; 3], rule: &Changing| {
            for (passed, key) in passed.iter_mut().zip(KEYS) {
                passed.may(&limits_of(&rule.rule, key));
            }
        };
        let all_owe = |passed: &mut [Passed; 3], rule: &Changing| {
            for (passed, key) in passed.iter_mut().zip(KEYS) {
                passed.owe(&limits_of(&rule.rule, key), 1);
                passed.owe(&rule.rule.limits, SLOWED);
            }
        };
        all_may(&mut passed, &rule);
        for (limits, overrides, index, requests) in edits {
            let change = Change { limits, overrides, carry: Carry::Keep };
            rule.change(&change, now);
            all_may(&mut passed, &rule);
            all_owe(&mut passed, &rule);
            let key = KEYS[index];
            if !has_bucket(&rule.rule, key) {
                continue;
            }
            let (bucket, version) = &mut buckets[index];
            *bucket = rule.forward(key, bucket, *version, now);
            *version = rule.history.version;
            passed[index].ask(&limits_of(&rule.rule, key), bucket, requests, now);
            all_owe(&mut passed, &rule);
            prop_assert!(passed[index].is_bounded(), "{key}: {:?}", passed[index]);
        }
    }

    /// In proportion, too.
    #[test]
    fn no_carry_gives_anything_away(
        first in one(), now in 0..=1_u64 << 60,
        carry in prop::sample::select(vec![Carry::Keep, Carry::Proportional]),
        edits in prop::collection::vec((one(), asks()), 1..40),
    ) {
        prop_assert!(converted(carry, &first, &edits, now).is_bounded());
    }

    /// Nor do bursts of any length among themselves.
    #[test]
    fn bursts_give_nothing_away(
        first in burst(), edits in prop::collection::vec((burst(), asks()), 1..40),
        carry in prop::sample::select(vec![Carry::Keep, Carry::Proportional]),
        now in 0..=1_u64 << 60,
    ) {
        prop_assert!(converted(carry, &first, &edits, now).is_bounded());
    }
}

fn burst() -> impl Strategy<Value = Named> {
    let bursty = |spec: Spec| Spec::new(Kind::Bursty, 1, spec.amount, spec.period, spec.seed);
    rated().prop_map(move |spec| vec![(0, bursty(spec))])
}

/// Returns the requests that pass before each edit, if there is no other edit.
fn converted(carry: Carry, first: &Named, edits: &[(Named, u64)], now: u64) -> Passed {
    let mut limits = of_named(first);
    let mut bucket = limits.start(Nanos::new(now));
    let mut passed = Passed::default();
    for (edit, requests) in edits {
        passed.may(&limits);
        passed.ask(&limits, &mut bucket, *requests, now);
        let new = of_named(edit);
        passed.owe(&limits, 1);
        passed.owe(&new, 1);
        bucket = convert(&limits, &new, carry, &bucket, Clock::at(Nanos::new(now)));
        limits = new;
    }
    passed
}
