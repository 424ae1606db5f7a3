//! The rules that all workers share: those of the plugin configuration, with edits on top.
//!
//! They are one record in shared data, changed by compare-and-swap. For each rule it contains the base from
//! the configuration, the edit if there is one, the overrides that were edited one by one, and the changes
//! that live buckets may still have to follow. It decides for every bucket of a rule that it knows,
//! whatever the configuration of the worker: see [`Record::of_buckets`].
//!
//! Each of these is a part with a text of its own ([`part`]). A worker keeps the parts that it has read
//! ([`Records`]), so a change costs it what was changed, and the copy of the bytes. A later build
//! extends the format by optional parts ([`Later`]); a worker that finds another format ([`crate::formats`])
//! leaves it alone and limits by its own configuration, in separate buckets.

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
pub(crate) use records::Records;
pub use records::Shelves;
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
        let ended = ended.filter(|ended| !ended.is_empty()).collect();
        self.end_trials();
        ended
    }

    /// Whether it is the record of exactly these rules. Another build may have written them in other words.
    pub(crate) fn is_of(&self, bases: &Bases) -> bool {
        let mut configured = self.rules.iter().filter(|rule| !rule.is_trial());
        let mut new = bases.rules.iter();
        self.later.names().next().is_none()
            && new.all(|new| configured.next().is_some_and(|old| old.base == *new))
            && configured.next().is_none()
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

// The parts of the record that only a later build of Loudou can read, while both run in one Envoy.
//
// During an upgrade, and after one that is taken back, builds share the record. A later build may use a field
// of rules or edits that this one does not know. This build then leaves out the rule, keeps its texts as they
// are, and goes by the rest of the record; its own rule of that name decides alone.

/// In the first byte that a later build appended: it keeps the rules under another key now, and has left this
/// record for the builds before it. Edits of it would not be in force.
const MOVED: u8 = 1;

/// What only a later build can read.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub(crate) struct Later {
    /// The rules, in their order.
    rules: Vec<Rc<LaterRule>>,
    /// State that is appended to the record. The first byte has flags.
    appended: Rc<[u8]>,
}

/// A rule.
#[derive(Clone, Debug, PartialEq, Eq)]
struct LaterRule {
    /// Its place among the rules, or among the removed ones.
    place: usize,
    is_gone: bool,
    name: String,
    parts: [(Id, Vec<u8>); PARTS],
}

impl Later {
    /// Keeps a rule that cannot be read; returns false if it is damaged.
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

    /// The stored rules: the known ones, with these in between.
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

    /// The names of the rules in force.
    pub(crate) fn names(&self) -> impl Iterator<Item = &str> {
        let rules = self.rules.iter().filter(|rule| !rule.is_gone);
        rules.map(|rule| rule.name.as_str())
    }

    /// Drops all of it, since a configuration of this build takes over; returns the names of the rules.
    fn end(&mut self) -> Vec<String> {
        let names = self.names().map(ToOwned::to_owned).collect();
        *self = Self::default();
        names
    }

    /// Whether a later build keeps the rules elsewhere.
    pub(crate) fn has_moved(&self) -> bool {
        let flags = self.appended.first();
        flags.is_some_and(|flags| flags & MOVED != 0)
    }
}

#[cfg(test)]
mod tests;
