//! The rule record shared by all workers: the rules from the plugin configuration, and their edits.
//!
//! The record is a single value in shared data that is updated by compare-and-swap. For each rule,
//! the record contains the configured rule (the *base*), an optional edit, individually edited
//! overrides, and a history of changes that existing buckets have not been converted to yet. If a
//! rule is in the record, every worker applies the recorded version, even if its own configuration
//! differs (see [`Record::of_buckets`]).
//!
//! A rule's base, edit, overrides and history are its *parts*, which are encoded separately
//! ([`part`]). Workers cache the decoded parts ([`Records`]), so after a change they only have to
//! decode the changed parts. Later builds may extend the format with optional parts ([`Later`]). If
//! a worker finds a record in another format ([`crate::formats`]), it leaves the record unchanged
//! and applies its own configuration to separate buckets.

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
/// copies the entire record after each edit.
const MAX_RECORD: usize = 2 * MAX_FILE_BYTES;

/// The record.
#[derive(Clone, Debug, Default)]
pub(crate) struct Record {
    /// The Envoy process that created the record. Never changes.
    pub(crate) instance: Instance,
    /// Generation of the record, which is incremented by every rule change.
    pub(crate) generation: u64,
    /// Time at which the current configuration was loaded. Any configuration loaded later replaces
    /// it.
    since_ns: u64,
    /// Time at which the configuration was adopted.
    taken_ns: u64,
    /// Number of rollbacks that counted as recent when the current configuration was adopted.
    rollbacks: u32,
    /// Current rules and trials, in evaluation order.
    pub(crate) rules: Vec<Rc<RuleRecord>>,
    /// Removed rules, the most recently removed last. They are kept because connections with an
    /// earlier configuration may still use them, and because a later configuration may add them
    /// again while their buckets still exist.
    gone: Vec<Rc<RuleRecord>>,
    /// Parts that only a later build can read.
    pub(crate) later: Later,
    /// The compiled current rules. Initialized on first use.
    set: OnceCell<RuleSet>,
}

impl Record {
    /// Creates a record with a configuration's rules and no edits.
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

    /// Sets the Envoy process that created the record.
    pub(crate) fn of(self, instance: Instance) -> Self {
        Self { instance, ..self }
    }

    /// Returns a copy that can be modified. Rules are shared with this record until they are
    /// modified.
    fn to_change(&self) -> Self {
        Self {
            set: OnceCell::new(),
            ..self.clone()
        }
    }

    /// Returns the current rule with this name.
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

    /// Returns a mutable reference to the current rule with this name.
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

    /// Iterates mutably over the rules for which `which` returns true. The other rules remain
    /// shared with the record that this one was copied from.
    fn all_mut(
        &mut self,
        which: impl Fn(&RuleRecord) -> bool,
    ) -> impl Iterator<Item = &mut RuleRecord> {
        self.every_mut()
            .filter(move |rule| which(rule))
            .map(Rc::make_mut)
    }

    /// Returns the compiled current rules.
    pub(crate) fn rule_set(&self) -> &RuleSet {
        let active = || self.rules.iter().map(|rule| rule.activate()).collect();
        self.set.get_or_init(active)
    }

    /// Returns the rule whose buckets the configured rule `base` uses: the current rule with the
    /// same name and tag, or else the most recently removed one. If there is no such rule, `base`
    /// uses separate buckets. `place` is the index of `base` in the configuration.
    pub(crate) fn of_buckets(&self, place: usize, base: &Base) -> Option<&Rc<RuleRecord>> {
        // The rule at `place` is checked first, because most rules are at the same index in the
        // configuration and the record.
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

    /// Drops and returns all edits and overrides that have expired by `now`.
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

    /// Returns true if both records have equal heads and share all rules. The contents of the rules
    /// are not compared.
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
    /// No data role has created the record yet.
    Missing,
    /// The record has another format or is corrupt.
    Unreadable,
    /// A later build stores the rules under another key.
    Moved,
    /// Every attempt failed because of concurrent changes by other workers.
    Contended,
    /// The rule is being changed faster than its buckets can be converted.
    TooOften,
    /// The change would make the record too large.
    TooLarge,
    /// An access to shared data failed.
    Failed,
}

impl From<StoreFailed> for RecordError {
    fn from(_: StoreFailed) -> Self {
        Self::Failed
    }
}

// Record parts that only a later build of Loudou can read.
//
// Different builds use the same record during an upgrade and after a rolled-back upgrade. The later
// build may write rules or edits with fields that are unknown to this build. This build preserves
// such a rule's encoded parts and decodes the rest of the record. Instead of the unreadable rule,
// it applies the rule from its own configuration.

/// Flag in the first byte of the data appended by a later build. It means that the later build
/// stores the rules under another key and has left this record to earlier builds, so editing this
/// record would have no effect.
const MOVED: u8 = 1;

/// Record parts that only a later build can read.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub(crate) struct Later {
    /// Unreadable rules, in record order.
    rules: Vec<Rc<LaterRule>>,
    /// Data appended to the record by a later build. The first byte contains flags.
    appended: Rc<[u8]>,
}

/// An unreadable rule.
#[derive(Clone, Debug, PartialEq, Eq)]
struct LaterRule {
    /// Index in the list of current rules or, if `is_gone` is true, of removed rules.
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

    /// Returns all rules in storage order: the known rules, with the unreadable rules inserted at
    /// their positions.
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

    /// Returns the names of all current rules that this build cannot read.
    pub(crate) fn names(&self) -> impl Iterator<Item = &str> {
        let rules = self.rules.iter().filter(|rule| !rule.is_gone);
        rules.map(|rule| rule.name.as_str())
    }

    /// Drops all data that this build cannot read. Called when a configuration from this build is
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
