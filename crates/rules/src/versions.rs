//! Tracks the versions of a rule's limits, and converts buckets from one version to the next.
//!
//! A bucket contains the number of the version under which it was last written. When it is next
//! accessed, each later change to the rule's limits and the key's overrides is applied to it, as of
//! the time of that change. The level is therefore the same as if all buckets had been converted
//! immediately.

use alloc::borrow::Cow;
use alloc::string::String;
use alloc::sync::Arc;
use alloc::vec::Vec;

use loudou_limiter::{Bucket, Carry, Clock, Limits, Nanos, Numbers, Source, Taken, convert};
use loudou_store::Age;

use crate::config::scaled;
use crate::rule::{Override, Rule, holds};

/// A change to the limits of a rule's buckets.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Change {
    /// Version after the change. The change has yet to be applied to buckets of earlier versions.
    pub version: u32,
    /// Time of the change.
    pub at: Nanos,
    /// How to treat the buckets' levels.
    pub carry: Carry,
    /// The part of the rule that was replaced.
    pub before: Before,
}

/// The part of a rule that a change replaced.
#[derive(Clone, Debug, PartialEq, Eq)]
pub enum Before {
    /// The rule's limits.
    Limits(Limits),
    /// The replaced overrides; `None` for a pattern that had no override.
    Overrides(Arc<[(String, Option<Override>)]>),
    /// Nothing was replaced; only the levels were reset.
    Same,
}

/// Changes to a rule that may still have to be applied to live buckets, oldest first.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub struct History {
    /// Version from which all changes are known.
    pub since: u32,
    /// Current version.
    pub version: u32,
    /// Changes from `since` to `version`.
    pub changes: Vec<Change>,
}

impl History {
    /// Creates the history of a rule, starting at `version`.
    pub const fn new(version: u32) -> Self {
        Self {
            since: version,
            version,
            changes: Vec::new(),
        }
    }

    /// Records the change from `before` to `after` at the instant `at`, which creates `version`.
    /// Returns true if the change affects any bucket. A change to the overrides keeps the used
    /// amount, unless `carry` is `reset`.
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

    /// Records a change to some overrides at the instant `at`, which creates `version`.
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

    /// Returns all limits replaced by the changes.
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

    /// Forgets the changes up to `version`, because no bucket needs them any longer.
    pub fn forget(&mut self, version: u32) {
        let version = version.min(self.version);
        self.since = self.since.max(version);
        self.changes.retain(|change| change.version > version);
    }

    /// Compares the version of a bucket with the current version.
    pub fn age(&self, version: u32) -> Age {
        match version.cmp(&self.version) {
            core::cmp::Ordering::Less => Age::Older,
            core::cmp::Ordering::Equal => Age::Current,
            core::cmp::Ordering::Greater => Age::Newer,
        }
    }

    /// Converts the bucket of `key` from `version` to the current version, in which the bucket has
    /// `limits`. Returns `None` if the bucket does not change. A bucket with an unknown version is
    /// replaced with a new one.
    pub fn bring_forward(
        &self,
        rule: &Rule,
        (key, limits): (&str, &Limits),
        (bucket, version): (&Bucket, u32),
        clock: Clock,
    ) -> Option<Bucket> {
        if version > self.version || version == self.version && limits.numbers().is_empty() {
            return None;
        }
        if version < self.since {
            return Some(limits.start_at(clock.moved_to(clock.now.max(bucket.last))));
        }
        let mut brought: Option<Bucket> = None;
        for step in self.conversions(rule, (key, limits), (bucket, version)) {
            let clock = step.at.map_or(clock, |at| clock.moved_to(at));
            let bucket = brought.as_ref().unwrap_or(bucket);
            brought = Some(convert(&step.old, &step.new, step.carry, bucket, clock));
        }
        brought
    }

    /// Converts the amount that a waiting request took from the bucket of `key` at `version`, just
    /// as [`History::bring_forward`] converts the bucket. Also returns the limits that the key had
    /// in that version. Returns `None` if nothing changes for the request, or if the version is no
    /// longer known.
    pub fn bring_taken_forward<'a>(
        &'a self,
        rule: &'a Rule,
        (key, limits): (&str, &'a Limits),
        (taken, version): (&Taken, u32),
        clock: Clock,
    ) -> Option<(Taken, Cow<'a, Limits>)> {
        let is_current = version == self.version && limits.numbers().is_empty();
        if version > self.version || version < self.since || is_current {
            return None;
        }
        let mut moved: Option<Taken> = None;
        let mut steps = self.conversions(rule, (key, limits), (taken.before(), version));
        for step in &steps {
            let clock = step.at.map_or(clock, |at| clock.moved_to(at));
            let taken = moved.as_ref().unwrap_or(taken);
            moved = Some(taken.converted(&step.old, &step.new, step.carry, clock));
        }
        let first = steps.drain(..).next()?;
        Some((moved?, first.old))
    }

    /// Returns the limits that the bucket of `key` has in the current version, with the numbers
    /// stored in the bucket. `version` is the version of the bucket.
    pub(crate) fn limits_in<'a>(
        &'a self,
        rule: &'a Rule,
        key: &str,
        (bucket, version): (&Bucket, u32),
    ) -> Cow<'a, Limits> {
        let granted = Granted::of(rule, key);
        if version < self.since {
            return granted.limits(&[]);
        }
        let stages = self.stages(rule, (key, granted), (bucket, version));
        let last = stages.into_iter().next_back();
        last.map_or(Cow::Borrowed(&rule.limits), |stage| stage.limits)
    }

    /// Returns the conversions that take a bucket of `key` from `version` to `limits`, oldest
    /// first.
    fn conversions<'a>(
        &'a self,
        rule: &'a Rule,
        (key, limits): (&str, &'a Limits),
        of: (&Bucket, u32),
    ) -> Vec<Conversion<'a>> {
        // Without per-request numbers, `limits` are already the key's limits in the current
        // version.
        let granted = if limits.numbers().is_empty() {
            Granted::fixed(limits)
        } else {
            Granted::of(rule, key)
        };
        let mut stages = self.stages(rule, (key, granted), of).into_iter();
        let mut conversions = Vec::with_capacity(stages.len());
        let Some(mut before) = stages.next() else {
            return conversions;
        };
        for after in stages {
            let new = after.limits.clone();
            let Stage {
                limits: old,
                change,
            } = core::mem::replace(&mut before, after);
            let (carry, at) = change.map_or((Carry::Keep, None), |change| {
                (change.carry, Some(change.at))
            });
            conversions.push(Conversion {
                old,
                new,
                carry,
                at,
            });
        }
        if before.limits.numbers() != limits.numbers() {
            conversions.push(Conversion {
                old: before.limits,
                new: Cow::Borrowed(limits),
                carry: Carry::Keep,
                at: None,
            });
        }
        conversions
    }

    /// Returns the limits that a bucket of `key` has had since `version`, oldest first, with the
    /// numbers stored in the bucket. `granted` is the source of the key's limits in the current
    /// version.
    fn stages<'a>(
        &'a self,
        rule: &'a Rule,
        (key, granted): (&str, Granted<'a>),
        (bucket, version): (&Bucket, u32),
    ) -> Vec<Stage<'a>> {
        let mut steps = self.steps(rule, (key, granted.clone()), version);
        steps.reverse();
        let mut numbers: Option<(Granted<'_>, Numbers)> = None;
        let all = steps
            .into_iter()
            .map(|(granted, change)| (granted, Some(change)));
        let all = all.chain([(granted, None)]);
        let stage = |(granted, change): (Granted<'a>, Option<&'a Change>)| {
            let own = match numbers.take() {
                None => granted.numbers_in(bucket),
                Some((before, numbers)) => granted.numbers_from(&before, numbers),
            };
            let limits = granted.limits(&own);
            numbers = Some((granted, own));
            Stage { limits, change }
        };
        all.map(stage).collect()
    }

    /// Returns the changes since `version` that affect `key`, newest first, with the limits and the
    /// override before each change.
    fn steps<'a>(
        &'a self,
        rule: &'a Rule,
        (key, granted): (&str, Granted<'a>),
        version: u32,
    ) -> Vec<(Granted<'a>, &'a Change)> {
        let mut own: Vec<(String, Override)> = rule
            .overrides
            .all_of(key)
            .map(|(pattern, gives)| (pattern, gives.clone()))
            .collect();
        let mut of_rule = &rule.limits;
        let mut after = granted;
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
            let before = Granted::by(&own, of_rule);
            if !before.is_same(&after) || change.carry == Carry::Reset {
                steps.push((before.clone(), change));
            }
            after = before;
        }
        steps
    }
}

/// A bucket's limits, and the change that replaced them; `None` for the current limits.
struct Stage<'a> {
    limits: Cow<'a, Limits>,
    change: Option<&'a Change>,
}

/// A conversion of a bucket.
struct Conversion<'a> {
    old: Cow<'a, Limits>,
    new: Cow<'a, Limits>,
    carry: Carry,
    /// Time of the edit. `None` for a change in the numbers that requests carry, which takes effect
    /// with the next request.
    at: Option<Nanos>,
}

/// Source of a key's limits: the rule's limits and any override for the key.
#[derive(Clone)]
pub(crate) struct Granted<'a> {
    rule: &'a Limits,
    gives: Option<Override>,
    /// The limits, unless requests carry numbers for them.
    fixed: Option<Cow<'a, Limits>>,
}

impl<'a> Granted<'a> {
    /// Returns the source of a key's limits under a rule.
    pub(crate) fn of(rule: &'a Rule, key: &str) -> Self {
        Self::new(&rule.limits, rule.overrides.get(key).cloned())
    }

    /// Returns the source of a key's limits under these overrides. An exact override takes
    /// precedence over prefixes, and a longer prefix over a shorter one.
    fn by(own: &[(String, Override)], rule: &'a Limits) -> Self {
        let rank = |pattern: &str| (!pattern.ends_with('*'), pattern.len());
        let first = own.iter().max_by_key(|(pattern, _)| rank(pattern));
        Self::new(rule, first.map(|(_, gives)| gives.clone()))
    }

    /// Returns a source that always yields these limits, regardless of the numbers that requests
    /// carry.
    const fn fixed(limits: &'a Limits) -> Self {
        Self {
            rule: limits,
            gives: None,
            fixed: Some(Cow::Borrowed(limits)),
        }
    }

    fn new(rule: &'a Limits, gives: Option<Override>) -> Self {
        let is_own = matches!(gives, Some(Override::Limits(_)));
        let is_fixed = is_own || !rule.is_template();
        let fixed = is_fixed.then(|| match &gives {
            None => Cow::Borrowed(rule),
            Some(gives) => limits_of(gives, rule),
        });
        Self { rule, gives, fixed }
    }

    /// Returns the template of the key's limits, if requests carry numbers for them.
    pub(crate) fn template(&self) -> Option<&'a Limits> {
        self.fixed.is_none().then_some(self.rule)
    }

    /// Returns the key's limits for a request that carries these numbers.
    pub(crate) fn limits(&self, numbers: &[u64]) -> Cow<'a, Limits> {
        if let Some(fixed) = &self.fixed {
            return fixed.clone();
        }
        let rule = self.rule.with(numbers);
        match &self.gives {
            None => rule,
            Some(gives) => Cow::Owned(limits_of(gives, &rule).into_owned()),
        }
    }

    /// Returns the numbers stored in a bucket of the key.
    fn numbers_in(&self, bucket: &Bucket) -> Numbers {
        let template = self.template();
        template.map_or_else(Numbers::new, |template| template.numbers_in(bucket))
    }

    /// Returns a bucket's numbers after a change from `before`, under which it had `numbers`. The
    /// numbers are kept if the same limits have the same sources. Otherwise, the defaults apply
    /// until the next request.
    fn numbers_from(&self, before: &Self, numbers: Numbers) -> Numbers {
        let sources = |granted: &Self| -> Vec<_> {
            let limits = granted.template().into_iter().flatten();
            let sourced = limits.filter_map(|limit| Some((limit.name(), limit.sources()?)));
            let path = |source: &'a Option<Source>| source.as_ref().map(|source| &source.metadata);
            sourced
                .map(|(name, of)| (name, path(&of.capacity), path(&of.amount)))
                .collect()
        };
        match self.template() {
            Some(_) if sources(self) == sources(before) => numbers,
            template => template.map_or_else(Numbers::new, |template| template.numbers().into()),
        }
    }

    fn is_same(&self, other: &Self) -> bool {
        match (&self.fixed, &other.fixed) {
            (Some(own), Some(other)) => own == other,
            (None, None) => self.gives == other.gives && self.rule == other.rule,
            _ => false,
        }
    }
}

/// Returns the overrides in `before` that `after` changes or removes, sorted by pattern, as
/// required by the filter's record. `None` stands for patterns that are new in `after`.
fn replaced_overrides(before: &Rule, after: &Rule) -> Vec<(String, Option<Override>)> {
    // `changed_since` returns two sorted runs, so most insertions happen at the end.
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

/// Returns the limits of a bucket with this override, under a rule with the limits `rule`. An
/// unlimited or banned key keeps its bucket under the rule's limits.
pub(crate) fn limits_of<'a>(gives: &Override, rule: &'a Limits) -> Cow<'a, Limits> {
    match gives {
        Override::Limits(limits) => Cow::Owned(limits.clone()),
        // Scaling succeeds, because an edit whose limits cannot be scaled has already been
        // rejected.
        Override::Scale(scale) => scaled(rule, *scale).map_or(Cow::Borrowed(rule), Cow::Owned),
        Override::Unlimited | Override::Banned => Cow::Borrowed(rule),
    }
}
