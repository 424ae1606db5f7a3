//! The limits of a rule through time, and the conversions of its buckets.
//!
//! A bucket has the number of the version that wrote it. When it is next touched, it is converted
//! through every later change that concerns its key, each at the instant of that change: changes of the
//! rule's limits, and of the overrides of that key. So a late touch gives the level that an immediate
//! conversion of all buckets would have given, for keys with overrides, too.

use alloc::borrow::Cow;
use alloc::string::String;
use alloc::sync::Arc;
use alloc::vec::Vec;

use loudou_limiter::{Bucket, Carry, Clock, Limits, Nanos, Taken, convert};
use loudou_store::Age;

use crate::config::scaled;
use crate::rule::{Override, Rule, holds};

/// A change of the limits of a rule's buckets.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Change {
    /// The version after the change: buckets of an earlier version still need it.
    pub version: u32,
    /// The instant of the change.
    pub at: Nanos,
    /// The treatment of levels.
    pub carry: Carry,
    /// The replaced part.
    pub before: Before,
}

/// The part of a rule that a change replaced.
#[derive(Clone, Debug, PartialEq, Eq)]
pub enum Before {
    /// Its limits.
    Limits(Limits),
    /// Some of the overrides; `None` for a key without one.
    Overrides(Arc<[(String, Option<Override>)]>),
    /// Nothing: only the levels were reset.
    Same,
}

/// The changes of a rule that live buckets may still need, oldest first.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub struct History {
    /// The oldest version since which all changes are known.
    pub since: u32,
    /// The version in force.
    pub version: u32,
    /// The changes from `since` to `version`.
    pub changes: Vec<Change>,
}

impl History {
    /// A rule that begins with `version`.
    pub const fn new(version: u32) -> Self {
        Self {
            since: version,
            version,
            changes: Vec::new(),
        }
    }

    /// Records that `before` became `after` at the instant `at`, which makes `version`; returns whether that
    /// concerns any bucket. A change of overrides keeps the used amount, unless `carry` is `reset`.
    pub fn note(
        &mut self,
        before: &Rule,
        after: &Rule,
        (carry, at, version): (Carry, Nanos, u32),
    ) -> bool {
        let known = self.changes.len();
        let resets = carry == Carry::Reset;
        let overrides = replaced_overrides(before, after);
        if !overrides.is_empty() {
            let carry = if resets { carry } else { Carry::Keep };
            self.note_overrides(overrides, carry, at, version);
        }
        if before.limits != after.limits {
            let before = Before::Limits(before.limits.clone());
            self.push(before, carry, at, version);
        } else if resets {
            self.push(Before::Same, carry, at, version);
        }
        self.changes.len() > known
    }

    /// Records at the instant `at` that some overrides have changed, which makes `version`.
    pub fn note_overrides(
        &mut self,
        replaced: Vec<(String, Option<Override>)>,
        carry: Carry,
        at: Nanos,
        version: u32,
    ) {
        self.push(Before::Overrides(replaced.into()), carry, at, version);
    }

    fn push(&mut self, before: Before, carry: Carry, at: Nanos, version: u32) {
        self.version = version;
        self.changes.push(Change {
            version,
            at,
            carry,
            before,
        });
    }

    /// The limits that were in force before.
    pub(crate) fn limits(&self) -> impl Iterator<Item = &Limits> {
        self.changes.iter().flat_map(|change| {
            let (of_rule, overrides) = match &change.before {
                Before::Limits(limits) => (Some(limits), &[][..]),
                Before::Overrides(replaced) => (None, &**replaced),
                Before::Same => (None, &[][..]),
            };
            let of_keys = overrides.iter().filter_map(|(_, gives)| match gives {
                Some(Override::Limits(limits)) => Some(limits),
                _ => None,
            });
            of_rule.into_iter().chain(of_keys)
        })
    }

    /// Forgets the changes up to `version`, which no bucket needs any more.
    pub fn forget(&mut self, version: u32) {
        let version = version.min(self.version);
        self.since = self.since.max(version);
        self.changes.retain(|change| change.version > version);
    }

    /// How a bucket of `version` is related to the version in force.
    pub fn age(&self, version: u32) -> Age {
        match version.cmp(&self.version) {
            core::cmp::Ordering::Less => Age::Older,
            core::cmp::Ordering::Equal => Age::Current,
            core::cmp::Ordering::Greater => Age::Newer,
        }
    }

    /// Converts the bucket of `key` from `version` to the one in force, in which it has `limits`; `None` if it
    /// does not change. A bucket of an unknown version becomes new.
    pub fn bring_forward(
        &self,
        rule: &Rule,
        (key, limits): (&str, &Limits),
        (bucket, version): (&Bucket, u32),
        clock: Clock,
    ) -> Option<Bucket> {
        if version >= self.version {
            return None;
        }
        if version < self.since {
            return Some(limits.start_at(clock.moved_to(clock.now.max(bucket.last))));
        }
        let steps = self.steps(rule, (key, limits), version);
        let mut brought: Option<Bucket> = None;
        let mut rest = steps.iter().rev();
        while let Some((old, change)) = rest.next() {
            let next = rest.clone().next();
            let new = next.map_or(limits, |(limits, _)| limits);
            let bucket = brought.as_ref().unwrap_or(bucket);
            let clock = clock.moved_to(change.at);
            brought = Some(convert(old, new, change.carry, bucket, clock));
        }
        brought
    }

    /// Converts what a waiting request took from the bucket of `key` at `version`, as
    /// [`History::bring_forward`] converts the bucket, and the limits that the key had at that version; `None`
    /// if nothing changes for it, or if the version is not known any more.
    pub fn bring_taken_forward<'a>(
        &'a self,
        rule: &'a Rule,
        (key, limits): (&str, &'a Limits),
        (taken, version): (&Taken, u32),
        clock: Clock,
    ) -> Option<(Taken, Cow<'a, Limits>)> {
        if version >= self.version || version < self.since {
            return None;
        }
        let mut steps = self.steps(rule, (key, limits), version);
        let mut moved: Option<Taken> = None;
        for (place, (old, change)) in steps.iter().enumerate().rev() {
            let next = place.checked_sub(1).and_then(|next| steps.get(next));
            let new = next.map_or(limits, |(limits, _)| limits);
            let taken = moved.as_ref().unwrap_or(taken);
            let clock = clock.moved_to(change.at);
            moved = Some(taken.converted(old, new, change.carry, clock));
        }
        let (first, _) = steps.pop()?;
        Some((moved?, first))
    }

    /// The changes since `version` that concern `key`, newest first, with the limits that it had before.
    fn steps<'a>(
        &'a self,
        rule: &'a Rule,
        (key, limits): (&str, &'a Limits),
        version: u32,
    ) -> Vec<(Cow<'a, Limits>, &'a Change)> {
        let mut own: Vec<(String, Override)> = rule
            .overrides
            .all_of(key)
            .map(|(pattern, gives)| (pattern, gives.clone()))
            .collect();
        let mut of_rule = &rule.limits;
        let mut after = Cow::Borrowed(limits);
        let mut steps = Vec::new();
        let changes = self.changes.iter().rev();
        for change in changes.take_while(|change| change.version > version) {
            match &change.before {
                Before::Limits(limits) => of_rule = limits,
                Before::Overrides(replaced) => {
                    let replaced = replaced.iter().filter(|(pattern, _)| holds(pattern, key));
                    for (pattern, gives) in replaced {
                        own.retain(|(other, _)| other != pattern);
                        own.extend(gives.clone().map(|gives| (pattern.clone(), gives)));
                    }
                }
                Before::Same => {}
            }
            let before = limits_by(&own, of_rule);
            if before != after || change.carry == Carry::Reset {
                steps.push((before.clone(), change));
            }
            after = before;
        }
        steps
    }
}

/// The overrides of `before` that `after` lacks or changes, in the order of their patterns, which is that of
/// the record; `None` for keys that are new in `after`.
fn replaced_overrides(before: &Rule, after: &Rule) -> Vec<(String, Option<Override>)> {
    // Runs that are in order already.
    let mut patterns: Vec<String> = Vec::new();
    for pattern in after.overrides.changed_since(&before.overrides) {
        if let Err(place) = patterns.binary_search(&pattern) {
            patterns.insert(place, pattern);
        }
    }
    let before = |pattern: String| {
        let gives = before.overrides.of_pattern(&pattern).cloned();
        (pattern, gives)
    };
    patterns.into_iter().map(before).collect()
}

/// The limits of a key with these overrides: an exact one takes precedence, then the longest prefix.
fn limits_by<'a>(own: &[(String, Override)], rule: &'a Limits) -> Cow<'a, Limits> {
    let rank = |pattern: &str| (!pattern.ends_with('*'), pattern.len());
    let first = own.iter().max_by_key(|(pattern, _)| rank(pattern));
    match first {
        Some((_, gives)) => limits_of(gives, rule),
        None => Cow::Borrowed(rule),
    }
}

/// The limits that an override gives to a bucket of a rule with these limits. A key that is unlimited or
/// banned keeps its bucket, under the rule's limits.
pub(crate) fn limits_of<'a>(gives: &Override, rule: &'a Limits) -> Cow<'a, Limits> {
    match gives {
        Override::Limits(limits) => Cow::Owned(limits.clone()),
        // An edit whose limits cannot be scaled is rejected earlier.
        Override::Scale(scale) => scaled(rule, *scale).map_or(Cow::Borrowed(rule), Cow::Owned),
        Override::Unlimited | Override::Banned => Cow::Borrowed(rule),
    }
}
