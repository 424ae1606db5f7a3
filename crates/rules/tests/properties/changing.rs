//! A rule whose limits and overrides change at random, and its buckets, which are converted late.

use loudou_limiter::{Bucket, Carry, Clock, Decimal, Limits, Nanos, convert};
use loudou_rules::config::{RuleEdit, parse_rule, scaled};
use loudou_rules::rule::{Override, Rule};
use loudou_rules::versions::History;
use proptest::prelude::*;
use serde_json::json;

use super::spec::{Spec, spec};

/// Keys of the requests. Each pattern matches some of them.
pub(super) const KEYS: [&str; 3] = ["aa", "ab", "b"];
const PATTERNS: [&str; 6] = ["aa", "ab", "a*", "aa*", "*", "b"];
const NAMES: [&str; 3] = ["x", "y", "z"];

/// Limits by name, as indices of [`NAMES`].
pub(super) type Named = Vec<(usize, Spec)>;

#[derive(Clone, Debug)]
pub(super) enum KeyGrant {
    Scale(u32),
    Limits(Named),
    Unlimited,
    Banned,
}

/// The changes of one edit.
#[derive(Clone, Debug)]
pub(super) struct Change {
    pub(super) limits: Option<Named>,
    /// New overrides by pattern, as indices of [`PATTERNS`].
    pub(super) overrides: Vec<(usize, Option<KeyGrant>)>,
    pub(super) carry: Carry,
}

pub(super) fn of_named(named: &Named) -> Limits {
    let limits = named.iter().map(|(name, spec)| spec.limit(NAMES[*name]));
    Limits::new(limits.collect()).expect("named apart")
}

/// One to three limits in any order.
pub(super) fn any_limits() -> impl Strategy<Value = Named> {
    let names = prop::sample::subsequence(vec![0, 1, 2], 1..=3).prop_shuffle();
    (names, [spec(), spec(), spec()])
        .prop_map(|(names, specs)| names.into_iter().zip(specs).collect())
}

/// The new values of one to three overrides.
pub(super) fn overrides(
    limits: impl Strategy<Value = Named> + 'static,
) -> impl Strategy<Value = Vec<(usize, Option<KeyGrant>)>> {
    let scale = prop::sample::select(vec![100_u32, 500, 999, 1_000, 1_500, 2_000, 10_000]);
    let own = prop_oneof![
        4 => scale.prop_map(KeyGrant::Scale),
        3 => limits.prop_map(KeyGrant::Limits),
        1 => Just(KeyGrant::Unlimited),
        1 => Just(KeyGrant::Banned),
    ];
    prop::collection::vec((0..PATTERNS.len(), prop::option::weighted(0.7, own)), 1..=3)
}

/// An edit of limits, of overrides, of both, or of neither.
pub(super) fn change() -> impl Strategy<Value = Change> {
    let carry = prop::sample::select(vec![
        Carry::Keep,
        Carry::Keep,
        Carry::Proportional,
        Carry::Proportional,
        Carry::Reset,
    ]);
    let overrides = prop_oneof![1 => Just(Vec::new()), 2 => overrides(any_limits())];
    (prop::option::of(any_limits()), overrides, carry).prop_map(|(limits, overrides, carry)| {
        Change {
            limits,
            overrides,
            carry,
        }
    })
}

/// A rule with its history, and how far the wall clock is ahead.
#[derive(Debug)]
pub(super) struct Changing {
    pub(super) rule: Rule,
    pub(super) history: History,
    pub(super) ahead: u64,
}

impl Changing {
    pub(super) fn new(limits: &Limits, ahead: u64) -> Self {
        let rule = json!({ "name": "r", "key": ["source"], "limits": limits });
        Self {
            rule: parse_rule(&rule).expect("valid"),
            history: History::default(),
            ahead,
        }
    }

    pub(super) fn clock(&self, now: u64) -> Clock {
        Clock {
            now: Nanos::new(now),
            wall: Nanos::new(now + self.ahead),
        }
    }

    pub(super) fn change(&mut self, change: &Change, now: u64) {
        let before = self.rule.clone();
        let mut overrides = before.overrides.clone();
        for (pattern, own) in &change.overrides {
            let own = own.as_ref().map(|own| match own {
                KeyGrant::Scale(scale) => Override::Scale(Decimal::from_thousandths(*scale)),
                KeyGrant::Limits(named) => Override::Limits(of_named(named)),
                KeyGrant::Unlimited => Override::Unlimited,
                KeyGrant::Banned => Override::Banned,
            });
            overrides.set(PATTERNS[*pattern], own);
        }
        let edit = RuleEdit {
            limits: change.limits.as_ref().map(of_named),
            overrides: Some(overrides),
            ..RuleEdit::default()
        };
        edit.apply(&mut self.rule);
        let version = self.history.version + 1;
        let note = (change.carry, Nanos::new(now), version);
        self.history.note(&before, &self.rule, note);
    }

    /// Returns the bucket of a key, converted to the version in force.
    pub(super) fn forward(&self, key: &str, bucket: &Bucket, version: u32, now: u64) -> Bucket {
        let limits = limits_of(&self.rule, key);
        let of = (key, &limits);
        let brought =
            self.history
                .bring_forward(&self.rule, of, (bucket, version), self.clock(now));
        brought.unwrap_or_else(|| bucket.clone())
    }
}

fn holds(pattern: &str, key: &str) -> bool {
    match pattern.split_once('*') {
        Some((beginning, _)) => key.starts_with(beginning),
        None => key == pattern,
    }
}

/// Returns the override of a key: the exact one, else the one with the longest prefix.
pub(super) fn own(rule: &Rule, key: &str) -> Option<Override> {
    let patterns = rule
        .overrides
        .iter()
        .filter(|(pattern, _)| holds(pattern, key));
    let rank = |pattern: &str| {
        if pattern == key {
            usize::MAX
        } else {
            pattern.len()
        }
    };
    let own = patterns.max_by_key(|(pattern, _)| rank(pattern));
    own.map(|(_, own)| own.clone())
}

/// The limits of a key's bucket.
pub(super) fn limits_of(rule: &Rule, key: &str) -> Limits {
    match own(rule, key) {
        Some(Override::Limits(limits)) => limits,
        Some(Override::Scale(scale)) => {
            scaled(&rule.limits, scale).unwrap_or_else(|| rule.limits.clone())
        }
        _ => rule.limits.clone(),
    }
}

/// Returns true if requests of a key use its bucket.
pub(super) fn has_bucket(rule: &Rule, key: &str) -> bool {
    !matches!(own(rule, key), Some(Override::Unlimited | Override::Banned))
}

/// Returns a key's bucket at the moment when `before` became `after`. The overrides change first,
/// which keeps the used amount, and then the limits.
pub(super) fn at_once(
    (before, after): (&Rule, &Rule),
    (key, bucket): (&str, &Bucket),
    carry: Carry,
    clock: Clock,
) -> Bucket {
    let mut between = before.clone();
    between.overrides.clone_from(&after.overrides);
    let resets = carry == Carry::Reset;
    let others = !before.overrides.iter().eq(after.overrides.iter());
    let [old, own, new] = [before, &between, after].map(|rule| limits_of(rule, key));
    let mut bucket = bucket.clone();
    for (from, to, carry, resets) in [
        (
            &old,
            &own,
            if resets { carry } else { Carry::Keep },
            resets && others,
        ),
        (&own, &new, carry, resets),
    ] {
        if from != to || resets {
            bucket = convert(from, to, carry, &bucket, clock);
        }
    }
    bucket
}
