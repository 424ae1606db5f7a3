//! The rules that all workers share: the rules of the plugin configuration, with edits on top.
//!
//! They are one record in shared data, changed by compare-and-swap. For each rule it contains the
//! rule of the configuration (the *base*), the edit if there is one, the overrides that were edited
//! individually, and the changes that live buckets have not followed yet. For a rule in the record,
//! every worker applies the record, even if the worker's configuration differs (see
//! [`Record::of_buckets`]).
//!
//! Each of these is a *part* with a separate text ([`part`]). A worker keeps the parts that it has
//! read ([`Records`]), so after a change it copies the bytes and parses only the changed parts. A
//! later build extends the format by optional parts ([`Later`]). A worker that finds another format
//! ([`crate::formats`]) does not change it, and applies its own configuration with separate
//! buckets.

use std::cell::OnceCell;
use std::rc::Rc;

use layout::{Stored, StoredRule, Texts};
use loudou_limiter::Nanos;
use loudou_rules::config::MAX_FILE_BYTES;
use loudou_rules::rule_set::RuleSet;
use loudou_store::StoreFailed;
use part::{Id, PARTS};
use serde_json::Value;

use crate::instance::Instance;

pub(crate) use adopt::Adopted;
pub(crate) use base::{Base, Bases};
pub(crate) use difference::describe;
pub(crate) use edit::{Author, Edit, EditTo, Ended, MAX_EDITED, Origin, OverrideEdit};
pub(crate) use editing::NotAllowed;
pub use records::RecordCaches;
pub(crate) use records::Records;
pub(crate) use rule::RuleRecord;
pub(crate) use trial::{MAX_TRIALS, untried};

mod adopt;
mod base;
mod difference;
mod edit;
mod editing;
mod history;
mod layout;
mod part;
mod read;
mod records;
mod rule;
mod sweep;
mod trial;
#[cfg(test)]
pub(crate) mod work;

/// Maximum size of a record after an edit, in bytes. Every worker copies the whole record after
/// each edit.
const MAX_RECORD: usize = 2 * MAX_FILE_BYTES;

/// The record.
#[derive(Clone, Debug, Default)]
pub(crate) struct Record {
    /// Process that created the record. It stays the same for the life of the record.
    pub(crate) instance: Instance,
    /// Generation, which every change increments.
    pub(crate) generation: u64,
    /// Load time of the configuration in force. A configuration with a later time replaces it.
    since_ns: u64,
    /// Time at which the configuration was adopted.
    taken_ns: u64,
    /// Number of rollbacks that still counted when the last configuration was adopted.
    rollbacks: u32,
    /// Rules in order of evaluation.
    pub(crate) rules: Vec<Rc<RuleRecord>>,
    /// Removed rules, latest last. Connections of an earlier configuration may still use them, and
    /// a later configuration may contain them again while their buckets live.
    gone: Vec<Rc<RuleRecord>>,
    /// Parts that only a later build can read.
    pub(crate) later: Later,
    /// The rules in force, in the form that decides requests. Built on first use.
    set: OnceCell<RuleSet>,
}

impl Record {
    /// Creates the record of a configuration without edits.
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

    /// Sets the process of the record.
    pub(crate) fn of(self, instance: Instance) -> Self {
        Self { instance, ..self }
    }

    /// Returns a copy to change. It shares all rules with this record.
    fn to_change(&self) -> Self {
        Self {
            set: OnceCell::new(),
            ..self.clone()
        }
    }

    /// Returns the record of a rule.
    pub(crate) fn rule(&self, name: &str) -> Option<&RuleRecord> {
        let found = self.rules.iter().find(|rule| rule.base.name == name);
        found.map(|rule| &**rule)
    }

    /// Returns the number of edited rules.
    pub(crate) fn edited(&self) -> u64 {
        self.rules.iter().fold(0, |count, rule| {
            count.saturating_add(rule.is_edited().into())
        })
    }

    /// Returns the record of a rule, to change it.
    pub(crate) fn rule_mut(&mut self, name: &str) -> Option<&mut RuleRecord> {
        let found = self.rules.iter_mut().find(|rule| rule.base.name == name);
        found.map(Rc::make_mut)
    }

    /// Iterates over the current and the removed rules.
    fn all(&self) -> impl Iterator<Item = &Rc<RuleRecord>> {
        self.rules.iter().chain(&self.gone)
    }

    /// Iterates over the current and the removed rules, to change them.
    fn every_mut(&mut self) -> impl Iterator<Item = &mut Rc<RuleRecord>> {
        self.rules.iter_mut().chain(&mut self.gone)
    }

    /// Iterates over selected rules, to change them. The other rules stay shared with the previous
    /// record.
    fn all_mut(
        &mut self,
        which: impl Fn(&RuleRecord) -> bool,
    ) -> impl Iterator<Item = &mut RuleRecord> {
        self.every_mut()
            .filter(move |rule| which(rule))
            .map(Rc::make_mut)
    }

    /// Returns the rules in force, in the form that decides requests.
    pub(crate) fn rule_set(&self) -> &RuleSet {
        let active = || self.rules.iter().map(|rule| rule.activate()).collect();
        self.set.get_or_init(active)
    }

    /// Returns the rule record whose buckets the rule at `place` of a configuration uses: the
    /// newest one with this name and key. If there is none, the rule has separate buckets.
    pub(crate) fn of_buckets(&self, place: usize, base: &Base) -> Option<&Rc<RuleRecord>> {
        // Rule names are unique, so if the rule at `place` has this name, no search is needed.
        let near = self.rules.get(place).into_iter();
        let mut all = near.chain(&self.rules).chain(self.gone.iter().rev());
        all.find(|rule| rule.base.shares_buckets_with(base))
    }

    /// Returns the version of the next change.
    pub(crate) fn next_version(&self) -> u32 {
        u32::try_from(self.generation.saturating_add(1)).unwrap_or(u32::MAX)
    }

    /// Returns the time at which the next edit expires.
    pub(crate) fn next_expiry(&self) -> Nanos {
        let expiries = self.all().map(|rule| rule.next_expiry());
        expiries.min().unwrap_or(Nanos::MAX)
    }

    /// Drops edits that expired by `now`.
    pub(crate) fn expire(&mut self, now: Nanos) -> Vec<Ended> {
        let version = self.next_version();
        let rules = self.all_mut(|rule| rule.next_expiry() <= now);
        let ended = rules.map(|rule| rule.expire(now, version));
        let ended = ended.filter(|ended| !ended.is_empty()).collect();
        self.end_trials();
        ended
    }

    /// Returns true if this is the record of exactly these rules. Another build may have serialized
    /// them differently.
    pub(crate) fn is_of(&self, bases: &Bases) -> bool {
        let mut configured = self.rules.iter().filter(|rule| !rule.is_trial());
        let mut new = bases.rules.iter();
        self.later.names().next().is_none()
            && new.all(|new| configured.next().is_some_and(|old| old.base == *new))
            && configured.next().is_none()
    }

    /// Returns true if the heads are equal and the parts are identical. Does not compare the
    /// values.
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

/// Reason why the record could not be read or changed.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) enum RecordError {
    /// No data role has written the record yet.
    Missing,
    /// The record has another format, or is damaged.
    Unreadable,
    /// A later build keeps the rules under another key.
    Moved,
    /// Another worker changed the record first in every try.
    Contended,
    /// A rule was changed faster than its buckets can be converted.
    TooOften,
    /// The record would have grown too large.
    TooLarge,
    /// The host returned a failure.
    Failed,
}

impl From<StoreFailed> for RecordError {
    fn from(_: StoreFailed) -> Self {
        Self::Failed
    }
}

// Record parts that only a later build of Loudou can read.
//
// Both builds share the record during an upgrade, and after an upgrade that was rolled back. A
// later build may use rule or edit fields that this build does not know. This build then leaves the
// rule out, preserves its texts, and uses the remaining record. For the unreadable rule it applies
// the rule of its own configuration.

/// Flag in the first byte that a later build appended. It means that the later build now keeps the
/// rules under another key, and has left this record to earlier builds. Edits to this record would
/// have no effect.
const MOVED: u8 = 1;

/// Record parts that only a later build can read.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub(crate) struct Later {
    /// Rules in their order.
    rules: Vec<Rc<LaterRule>>,
    /// State appended to the record. Its first byte holds flags.
    appended: Rc<[u8]>,
}

/// A rule.
#[derive(Clone, Debug, PartialEq, Eq)]
struct LaterRule {
    /// Position among the current rules, or among the removed rules.
    place: usize,
    is_gone: bool,
    name: String,
    parts: [(Id, Vec<u8>); PARTS],
}

impl Later {
    /// Keeps a rule that cannot be read. Returns false if the rule is damaged.
    fn keep(&mut self, (place, is_gone): (usize, bool), stored: &StoredRule<'_>) -> bool {
        if stored.iter().any(|part| Id::of(part.text) != part.id) {
            return false;
        }
        let [base, ..] = stored;
        let base: Option<Value> = serde_json::from_slice(base.text).ok();
        let name = base.as_ref().and_then(|base| base.get("name")?.as_str());
        self.rules.push(Rc::new(LaterRule {
            place,
            is_gone,
            name: name.unwrap_or("?").to_owned(),
            parts: stored.map(|part| (part.id, part.text.to_vec())),
        }));
        true
    }

    /// Returns the stored rules: the known rules, with the unreadable rules in their places.
    fn beside<'a>(&'a self, known: &'a [Texts<'_>], is_gone: bool) -> Vec<StoredRule<'a>> {
        let known = known.iter();
        let mut all: Vec<StoredRule<'a>> = known
            .map(|parts| parts.each_ref().map(|(id, text)| Stored { id: *id, text }))
            .collect();
        for rule in self.rules.iter().filter(|rule| rule.is_gone == is_gone) {
            let parts = rule.parts.each_ref();
            let parts = parts.map(|(id, text)| Stored { id: *id, text });
            all.insert(rule.place.min(all.len()), parts);
        }
        all
    }

    /// Returns the names of the rules in force whose stored text this build cannot read.
    pub(crate) fn names(&self) -> impl Iterator<Item = &str> {
        let rules = self.rules.iter().filter(|rule| !rule.is_gone);
        rules.map(|rule| rule.name.as_str())
    }

    /// Drops these parts, because a configuration of this build is adopted. Returns the names of
    /// the rules.
    fn end(&mut self) -> Vec<String> {
        let names = self.names().map(ToOwned::to_owned).collect();
        *self = Self::default();
        names
    }

    /// Returns true if a later build keeps the rules under another key.
    pub(crate) fn has_moved(&self) -> bool {
        let flags = self.appended.first();
        flags.is_some_and(|flags| flags & MOVED != 0)
    }
}

#[cfg(test)]
mod tests;
