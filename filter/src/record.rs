//! The rule record, which all workers share: the rules in the plugin configuration, and their
//! edits.
//!
//! The record is one value in shared data, which is changed by compare-and-swap. For each rule, the
//! record contains the rule in the configuration (the *base*), an optional edit, individually
//! edited overrides, and a history of changes that existing buckets have not been converted to yet.
//! If a rule is in the record, every worker applies the version in the record, even if the worker's
//! own configuration differs (see [`Record::of_buckets`]).
//!
//! The base, edit, overrides and history of a rule are its *parts*, which are encoded separately
//! ([`part`]). A worker caches the decoded parts ([`Records`]), so after a change it parses only
//! the changed parts. Later builds may extend the format with optional parts ([`Later`]). If a
//! worker finds a record in another format ([`crate::formats`]), it leaves the record unchanged,
//! and applies its own configuration with separate buckets.

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

/// Maximum size of the record after an edit, in bytes. The size is limited because every worker
/// copies the whole record after each edit.
const MAX_RECORD: usize = 2 * MAX_FILE_BYTES;

/// The record.
#[derive(Clone, Debug, Default)]
pub(crate) struct Record {
    /// Envoy process that created the record. Never changes.
    pub(crate) instance: Instance,
    /// Generation of the record, which every change of the rules increments.
    pub(crate) generation: u64,
    /// Time at which the configuration in force was loaded. A configuration with a later load time
    /// replaces it.
    since_ns: u64,
    /// Time at which the configuration was adopted.
    taken_ns: u64,
    /// Number of rollbacks that counted as recent when the configuration in force was adopted.
    rollbacks: u32,
    /// Current rules and trials, in the order of evaluation.
    pub(crate) rules: Vec<Rc<RuleRecord>>,
    /// Removed rules, with the most recently removed rule last. Removed rules are kept because
    /// connections of an earlier configuration may still use them, and because a later
    /// configuration may add them again while their buckets still exist.
    gone: Vec<Rc<RuleRecord>>,
    /// Parts that only a later build can read.
    pub(crate) later: Later,
    /// The compiled rules in force. Initialized on first use.
    set: OnceCell<RuleSet>,
}

impl Record {
    /// Creates a record with the rules in a configuration and without edits.
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

    /// Sets the Envoy process that has created the record.
    pub(crate) fn of(self, instance: Instance) -> Self {
        Self { instance, ..self }
    }

    /// Returns a copy that can be modified. The copy shares all rules with this record until they
    /// are modified.
    fn to_change(&self) -> Self {
        Self {
            set: OnceCell::new(),
            ..self.clone()
        }
    }

    /// Returns the record of the current rule with this name.
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

    /// Returns a mutable reference to the record of the current rule with this name.
    pub(crate) fn rule_mut(&mut self, name: &str) -> Option<&mut RuleRecord> {
        let found = self.rules.iter_mut().find(|rule| rule.base.name == name);
        found.map(Rc::make_mut)
    }

    /// Iterates over all current and removed rules.
    fn all(&self) -> impl Iterator<Item = &Rc<RuleRecord>> {
        self.rules.iter().chain(&self.gone)
    }

    /// Iterates mutably over all current and removed rules.
    fn every_mut(&mut self) -> impl Iterator<Item = &mut Rc<RuleRecord>> {
        self.rules.iter_mut().chain(&mut self.gone)
    }

    /// Iterates mutably over the rules for which `which` returns true. Other rules stay shared with
    /// the record that this record was copied from.
    fn all_mut(
        &mut self,
        which: impl Fn(&RuleRecord) -> bool,
    ) -> impl Iterator<Item = &mut RuleRecord> {
        self.every_mut()
            .filter(move |rule| which(rule))
            .map(Rc::make_mut)
    }

    /// Returns the compiled rules in force.
    pub(crate) fn rule_set(&self) -> &RuleSet {
        let active = || self.rules.iter().map(|rule| rule.activate()).collect();
        self.set.get_or_init(active)
    }

    /// Returns the record of the rule whose buckets the configured rule `base` uses: a current rule
    /// with the same name and tag, or else the most recently removed one. If there is no such rule,
    /// `base` has separate buckets. `place` is the index of `base` in the configuration.
    pub(crate) fn of_buckets(&self, place: usize, base: &Base) -> Option<&Rc<RuleRecord>> {
        // The rule at `place` is checked first, because most rules have the same position in the
        // configuration and in the record.
        let near = self.rules.get(place).into_iter();
        let mut all = near.chain(&self.rules).chain(self.gone.iter().rev());
        all.find(|rule| rule.base.shares_buckets_with(base))
    }

    /// Returns the rule version that the next change will have.
    pub(crate) fn next_version(&self) -> u32 {
        u32::try_from(self.generation.saturating_add(1)).unwrap_or(u32::MAX)
    }

    /// Returns the time at which the next edit or override expires.
    pub(crate) fn next_expiry(&self) -> Nanos {
        let expiries = self.all().map(|rule| rule.next_expiry());
        expiries.min().unwrap_or(Nanos::MAX)
    }

    /// Drops all edits and overrides that have expired by `now`, and returns them.
    pub(crate) fn expire(&mut self, now: Nanos) -> Vec<Ended> {
        let version = self.next_version();
        let rules = self.all_mut(|rule| rule.next_expiry() <= now);
        let ended = rules.map(|rule| rule.expire(now, version));
        let ended = ended.filter(|ended| !ended.is_empty()).collect();
        self.end_trials();
        ended
    }

    /// Returns true if the configured rules in the record are exactly the rules in `bases`.
    /// Compares decoded rules, because another build may have serialized them differently.
    pub(crate) fn is_of(&self, bases: &Bases) -> bool {
        let mut configured = self.rules.iter().filter(|rule| !rule.is_trial());
        let mut new = bases.rules.iter();
        self.later.names().next().is_none()
            && new.all(|new| configured.next().is_some_and(|old| old.base == *new))
            && configured.next().is_none()
    }

    /// Returns true if the heads of both records are equal and the records share all rules. Does
    /// not compare the contents of rules.
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

/// Reason for which the record could not be read or changed.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) enum RecordError {
    /// No data role has created the record yet.
    Missing,
    /// The record has another format or is corrupt.
    Unreadable,
    /// A later build stores the rules under another key.
    Moved,
    /// Concurrent changes by other workers made every attempt fail.
    Contended,
    /// The rule was changed faster than its buckets could be converted.
    TooOften,
    /// The change would make the record too large.
    TooLarge,
    /// Shared data failed.
    Failed,
}

impl From<StoreFailed> for RecordError {
    fn from(_: StoreFailed) -> Self {
        Self::Failed
    }
}

// Record parts that only a later build of Loudou can read.
//
// Two builds share the record during an upgrade, and after an upgrade that was rolled back. The
// later build may write rules or edits with fields that this build does not know. This build
// preserves the encoded parts of such a rule and decodes the rest of the record. Instead of the
// unreadable rule, this build applies the rule in its own configuration.

/// Flag in the first byte of the data that a later build has appended to the record. The flag means
/// that the later build stores the rules under another key and has left this record to earlier
/// builds, so edits of this record would have no effect.
const MOVED: u8 = 1;

/// Record parts that only a later build can read.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub(crate) struct Later {
    /// Unreadable rules, in the order of the record.
    rules: Vec<Rc<LaterRule>>,
    /// Data that a later build has appended to the record. The first byte of the data contains
    /// flags.
    appended: Rc<[u8]>,
}

/// An unreadable rule.
#[derive(Clone, Debug, PartialEq, Eq)]
struct LaterRule {
    /// Index among the current rules or, if `is_gone` is true, among the removed rules.
    place: usize,
    is_gone: bool,
    name: String,
    parts: [(Id, Vec<u8>); PARTS],
}

impl Later {
    /// Preserves a rule that this build cannot read. Returns false if the rule is corrupt.
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

    /// Returns all rules in the order in which they are stored: the known rules, with the
    /// unreadable rules inserted at their positions.
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

    /// Returns the names of the current rules that this build cannot read.
    pub(crate) fn names(&self) -> impl Iterator<Item = &str> {
        let rules = self.rules.iter().filter(|rule| !rule.is_gone);
        rules.map(|rule| rule.name.as_str())
    }

    /// Drops all data that this build cannot read, because a configuration of this build is
    /// adopted. Returns the names of the dropped rules.
    fn end(&mut self) -> Vec<String> {
        let names = self.names().map(ToOwned::to_owned).collect();
        *self = Self::default();
        names
    }

    /// Returns true if a later build stores the rules under another key.
    pub(crate) fn has_moved(&self) -> bool {
        let flags = self.appended.first();
        flags.is_some_and(|flags| flags & MOVED != 0)
    }
}

#[cfg(test)]
mod tests;
