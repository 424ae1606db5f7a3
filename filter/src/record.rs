//! The rules that all workers share: those of the plugin configuration, with edits on top.
//!
//! They are one record in shared data, changed by compare-and-swap. For each rule it contains the base from
//! the configuration, the edit if there is one, the overrides that were edited one by one, and the changes
//! that live buckets may still have to follow. It decides for every bucket of a rule that it knows,
//! whatever the configuration of the worker: see [`Record::of_buckets`].
//!
//! Each of these is a part with a text of its own ([`part`]). A worker keeps the parts that it has read
//! ([`Records`]), so a change costs it what was changed, and the copy of the bytes. A later build
//! extends the format by optional parts ([`later`]); a worker that finds another format ([`crate::formats`])
//! leaves it alone and limits by its own configuration, in separate buckets.

use std::cell::OnceCell;
use std::rc::Rc;

use loudou_limiter::Nanos;
use loudou_rules::config::MAX_FILE_BYTES;
use loudou_rules::rule_set::RuleSet;
use loudou_store::StoreFailed;

use crate::instance::Instance;

mod adopt;
mod base;
mod edit;
mod editing;
mod history;
mod later;
mod layout;
mod part;
mod read;
mod records;
mod rule;
mod sweep;
#[cfg(test)]
pub(crate) mod work;

pub(crate) use adopt::Adopted;
pub(crate) use base::{Base, Bases};
pub(crate) use edit::{Author, Edit, EditTo, Ended, MAX_EDITED, Origin, OverrideEdit};
pub(crate) use later::Later;
pub(crate) use records::Records;
pub use records::Shelves;
pub(crate) use rule::RuleRecord;

/// The largest record that an edit may make, in bytes. Every worker copies all of it after each edit.
const MAX_RECORD: usize = 2 * MAX_FILE_BYTES;

/// The record.
#[derive(Clone, Debug, Default)]
pub(crate) struct Record {
    /// The process of the record. It never changes.
    pub(crate) instance: Instance,
    /// Raised by every change.
    pub(crate) generation: u64,
    /// When the configuration that is in force was loaded: a newer one wins.
    since_ns: u64,
    /// When it was adopted.
    taken_ns: u64,
    /// The number of rollbacks that were not forgotten when the last configuration was adopted.
    rollbacks: u32,
    /// The rules in order of evaluation.
    pub(crate) rules: Vec<Rc<RuleRecord>>,
    /// Removed rules, the latest last: connections of an earlier configuration may still be limited by them,
    /// and they may come back while their buckets live.
    gone: Vec<Rc<RuleRecord>>,
    /// What only a later build can read.
    pub(crate) later: Later,
    /// The rules at work.
    set: OnceCell<RuleSet>,
}

impl Record {
    /// The record of a configuration without edits.
    pub(crate) fn new(bases: &Bases, since: Nanos) -> Self {
        let rules = bases.rules.iter().cloned();
        Self {
            generation: 1,
            since_ns: since.get(),
            taken_ns: since.get(),
            rules: rules
                .map(|base| Rc::new(RuleRecord::new(base, 1)))
                .collect(),
            ..Self::default()
        }
    }

    /// The same as the record of a process.
    pub(crate) fn of(self, instance: Instance) -> Self {
        Self { instance, ..self }
    }

    /// A copy to change, which shares all rules with this one.
    fn to_change(&self) -> Self {
        Self {
            set: OnceCell::new(),
            ..self.clone()
        }
    }

    /// The record of a rule.
    pub(crate) fn rule(&self, name: &str) -> Option<&RuleRecord> {
        let found = self.rules.iter().find(|rule| rule.base.name == name);
        found.map(|rule| &**rule)
    }

    /// The number of rules that are edited.
    pub(crate) fn edited(&self) -> u64 {
        self.rules.iter().fold(0, |count, rule| {
            count.saturating_add(rule.is_edited().into())
        })
    }

    /// The record of a rule, to change it.
    pub(crate) fn rule_mut(&mut self, name: &str) -> Option<&mut RuleRecord> {
        let found = self.rules.iter_mut().find(|rule| rule.base.name == name);
        found.map(Rc::make_mut)
    }

    /// The rules, and those that were removed.
    fn all(&self) -> impl Iterator<Item = &Rc<RuleRecord>> {
        self.rules.iter().chain(&self.gone)
    }

    /// The same, to change them.
    fn every_mut(&mut self) -> impl Iterator<Item = &mut Rc<RuleRecord>> {
        self.rules.iter_mut().chain(&mut self.gone)
    }

    /// Some of these, to change them. The others stay shared.
    fn all_mut(
        &mut self,
        which: impl Fn(&RuleRecord) -> bool,
    ) -> impl Iterator<Item = &mut RuleRecord> {
        self.every_mut()
            .filter(move |rule| which(rule))
            .map(Rc::make_mut)
    }

    /// The rules at work.
    pub(crate) fn rule_set(&self) -> &RuleSet {
        let active = || self.rules.iter().map(|rule| rule.activate()).collect();
        self.set.get_or_init(active)
    }

    /// The record that decides for the buckets of a rule at this place of a configuration, whichever that
    /// is: the newest rule of the same name with the same key. Without one, the rule has separate buckets.
    pub(crate) fn of_buckets(&self, place: usize, base: &Base) -> Option<&Rc<RuleRecord>> {
        // No two rules have one name, so the first guess is right if it fits.
        let near = self.rules.get(place).into_iter();
        let mut all = near.chain(&self.rules).chain(self.gone.iter().rev());
        all.find(|rule| rule.base.shares_buckets_with(base))
    }

    /// The version of the next change.
    pub(crate) fn next_version(&self) -> u32 {
        u32::try_from(self.generation.saturating_add(1)).unwrap_or(u32::MAX)
    }

    /// When the next edit expires.
    pub(crate) fn next_expiry(&self) -> Nanos {
        let expiries = self.all().map(|rule| rule.next_expiry());
        expiries.min().unwrap_or(Nanos::MAX)
    }

    /// Drops edits that expired by `now`.
    pub(crate) fn expire(&mut self, now: Nanos) -> Vec<Ended> {
        let version = self.next_version();
        let rules = self.all_mut(|rule| rule.next_expiry() <= now);
        let ended = rules.map(|rule| rule.expire(now, version));
        ended.filter(|ended| !ended.is_empty()).collect()
    }

    /// Whether it is the record of exactly these rules. Another build may have written them in other words.
    pub(crate) fn is_of(&self, bases: &Bases) -> bool {
        let mut pairs = self.rules.iter().zip(&bases.rules);
        self.rules.len() == bases.rules.len()
            && self.later.names().next().is_none()
            && pairs.all(|(old, new)| old.base == *new)
    }

    /// Whether both have the same head and the same parts, without looking at their values.
    fn is_same(&self, other: &Self) -> bool {
        let head = |record: &Self| {
            let numbers = [record.generation, record.since_ns, record.taken_ns];
            let counts = [record.rules.len(), record.gone.len()];
            (numbers, record.rollbacks, counts)
        };
        let mut pairs = self.all().zip(other.all());
        self.instance == other.instance
            && self.later == other.later
            && head(self) == head(other)
            && pairs.all(|(one, other)| Rc::ptr_eq(one, other))
    }
}

#[cfg(test)]
impl PartialEq for Record {
    fn eq(&self, other: &Self) -> bool {
        layout::write(self, None) == layout::write(other, None)
    }
}

/// The reason why the record could not be read or changed.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) enum RecordError {
    /// No data role has written it yet.
    Missing,
    /// It has another format, or is damaged.
    Unreadable,
    /// A later build keeps the rules elsewhere.
    Moved,
    /// Other workers were faster too often.
    Contended,
    /// A rule was changed faster than its buckets can be brought forward.
    TooOften,
    /// It would have grown too large.
    TooLarge,
    /// The host failed.
    Failed,
}

impl From<StoreFailed> for RecordError {
    fn from(_: StoreFailed) -> Self {
        Self::Failed
    }
}

#[cfg(test)]
mod tests;
