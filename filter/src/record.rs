//! The rules that all workers share: those of the plugin configuration, with edits on top.
//!
//! They are one record in shared data, changed by compare-and-swap. For each rule it contains the base from
//! the configuration, the edit if there is one, the overrides that were edited one by one, and the changes
//! that live buckets may still have to follow. It decides for every bucket of a rule that it knows,
//! whatever the configuration of the worker: see [`Record::of_buckets`]. This is format 3; a worker that
//! finds another format leaves it alone and limits by its own configuration, in separate buckets.

use loudou_limiter::{Carry, Nanos};
use loudou_rules::active_rule::ActiveRule;
use loudou_rules::config::MAX_FILE_BYTES;
use loudou_rules::rule::{KeyMap, Rule, RuleFile};
use loudou_rules::versions::History;
use loudou_store::swap::{Swapped, swap};
use loudou_store::{CAS_ABSENT, StoreFailed, Written};
use serde::Serialize;

use crate::host::{Host, HostStore};
use crate::instance::Instance;

mod adopt;
mod edit;
mod history;
mod read;

pub(crate) use adopt::Adopted;
pub(crate) use edit::{Author, Edit, Ended, MAX_EDITED, Origin, OverrideEdit};

const FORMAT: u8 = 3;
/// The largest record that an edit may make, in bytes. Every worker reads all of it after each edit.
const MAX_RECORD: usize = 2 * MAX_FILE_BYTES;

/// The record.
#[derive(Clone, Debug, PartialEq, Eq, Serialize)]
pub(crate) struct Record {
    format: u8,
    /// The process of the record. It never changes.
    pub(crate) instance: Instance,
    /// Raised by every change.
    pub(crate) generation: u64,
    /// When the configuration that is in force was loaded: a newer one wins.
    since_ns: u64,
    /// When it was adopted.
    taken_ns: u64,
    /// The number of rollbacks since a new configuration was adopted.
    rollbacks: u32,
    /// The rules in order of evaluation.
    pub(crate) rules: Vec<RuleRecord>,
    /// Removed rules, the latest last: connections of an earlier configuration may still be limited by them,
    /// and they may come back while their buckets live.
    #[serde(skip_serializing_if = "Vec::is_empty")]
    gone: Vec<RuleRecord>,
}

/// One rule.
#[derive(Clone, Debug, PartialEq, Eq, Serialize)]
pub(crate) struct RuleRecord {
    /// The rule of the plugin configuration.
    pub(crate) base: Rule,
    /// The edit that replaces parts of the base.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub(crate) edit: Option<Edit>,
    /// The edited overrides of single keys, on top of that.
    #[serde(skip_serializing_if = "KeyMap::is_empty")]
    pub(crate) own: KeyMap<OverrideEdit>,
    /// The changes that its buckets may still have to follow.
    #[serde(serialize_with = "history::serialize")]
    history: History,
}

impl RuleRecord {
    /// A rule that is added at `version`.
    fn new(base: Rule, version: u32) -> Self {
        Self {
            base,
            edit: None,
            own: KeyMap::default(),
            history: History::new(version),
        }
    }

    /// The rule in force, ready to decide.
    pub(crate) fn activate(&self) -> ActiveRule {
        ActiveRule::new(self.effective(), self.history.clone())
    }

    /// Whether it is the record of exactly this rule. Compares the JSON, since comparing rules field by
    /// field takes some KiB of code.
    pub(crate) fn is_of(&self, rule: &Rule) -> bool {
        let written = |rule: &Rule| serde_json::to_vec(rule).ok();
        written(&self.base) == written(rule)
    }

    /// Changes the rule, and notes the effect on its buckets.
    fn change(&mut self, note: (Carry, Nanos, u32), change: impl FnOnce(&mut Self)) {
        let before = self.effective();
        change(self);
        let after = self.effective();
        self.history.note(&before, &after, note);
        self.bound_history();
    }

    /// Whether it has the same buckets as `rule`.
    fn shares_buckets_with(&self, rule: &Rule) -> bool {
        self.base.name == rule.name && self.base.tag() == rule.tag()
    }
}

impl Record {
    /// The record of a configuration without edits.
    pub(crate) fn new(file: &RuleFile, since: Nanos) -> Self {
        let rules = file.rules.iter().cloned();
        Self {
            format: FORMAT,
            instance: Instance::default(),
            generation: 1,
            since_ns: since.get(),
            taken_ns: since.get(),
            rollbacks: 0,
            rules: rules.map(|rule| RuleRecord::new(rule, 1)).collect(),
            gone: Vec::new(),
        }
    }

    /// The same as the record of a process.
    pub(crate) fn of(self, instance: Instance) -> Self {
        Self { instance, ..self }
    }

    /// The record of a rule.
    pub(crate) fn rule(&self, name: &str) -> Option<&RuleRecord> {
        self.rules.iter().find(|rule| rule.base.name == name)
    }

    /// The record of a rule, to change it.
    pub(crate) fn rule_mut(&mut self, name: &str) -> Option<&mut RuleRecord> {
        self.rules.iter_mut().find(|rule| rule.base.name == name)
    }

    /// The record that decides for the buckets of `rule`, whatever its configuration: the newest rule of the
    /// same name with the same key. Without one, the rule has separate buckets.
    pub(crate) fn of_buckets(&self, rule: &Rule) -> Option<&RuleRecord> {
        let mut all = self.rules.iter().chain(self.gone.iter().rev());
        all.find(|record| record.shares_buckets_with(rule))
    }

    /// The version of the next change.
    pub(crate) fn next_version(&self) -> u32 {
        u32::try_from(self.generation.saturating_add(1)).unwrap_or(u32::MAX)
    }

    /// When the next edit expires.
    pub(crate) fn next_expiry(&self) -> Nanos {
        let all = self.rules.iter().chain(&self.gone);
        let authors = all.flat_map(RuleRecord::authors);
        let expiries = authors.filter_map(|who| who.expires_at_ns);
        expiries.min().map_or(Nanos::MAX, Nanos::new)
    }

    /// Drops edits that expired by `now`.
    pub(crate) fn expire(&mut self, now: Nanos) -> Vec<Ended> {
        let version = self.next_version();
        let rules = self.rules.iter_mut().chain(&mut self.gone);
        let ended = rules.map(|rule| rule.expire(now, version));
        ended.filter(|ended| !ended.is_empty()).collect()
    }

    /// Whether it is the record of exactly these rules.
    pub(crate) fn is_of(&self, file: &RuleFile) -> bool {
        let mut pairs = self.rules.iter().zip(&file.rules);
        self.rules.len() == file.rules.len() && pairs.all(|(old, new)| old.is_of(new))
    }
}

/// The reason why the record could not be read or changed.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) enum RecordError {
    /// No data role has written it yet.
    Missing,
    /// It has another format, or is damaged.
    Unreadable,
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

fn key(share: &str) -> Vec<u8> {
    [share.as_bytes(), b":rules"].concat()
}

/// Writes the record unless there is one; returns whether this call wrote it.
pub(crate) fn create(host: &dyn Host, share: &str, record: &Record) -> Result<bool, RecordError> {
    let bytes = serde_json::to_vec(record).map_err(|_never| RecordError::Unreadable)?;
    Ok(host.shared_set(&key(share), &bytes, CAS_ABSENT)? == Written::Done)
}

/// Changes the record. `change` returns whether it changed anything, and is called again on a fresh
/// record when another worker was faster. Each change raises the generation.
pub(crate) fn change<T>(
    host: &dyn Host,
    share: &str,
    mut change: impl FnMut(&mut Record) -> Option<T>,
) -> Result<(Record, Option<T>), RecordError> {
    let mut outcome = None;
    let record = change_within(host, share, usize::MAX, &mut |record| {
        outcome = change(record);
        record.generation = record.generation.saturating_add(outcome.is_some().into());
        outcome.is_some()
    })?;
    Ok((record, outcome))
}

/// Changes internal parts of the record: the generation stays the same.
pub(crate) fn tidy(
    host: &dyn Host,
    share: &str,
    change: &dyn Fn(&mut Record),
) -> Result<Record, RecordError> {
    change_within(host, share, usize::MAX, &mut |record| {
        change(record);
        true
    })
}

/// The same as [`change`] for an edit, which must not make the record too large.
pub(crate) fn edit(
    host: &dyn Host,
    share: &str,
    change: &mut dyn FnMut(&mut Record) -> bool,
) -> Result<Record, RecordError> {
    change_within(host, share, MAX_RECORD, &mut |record| {
        let changes = change(record);
        record.generation = record.generation.saturating_add(changes.into());
        changes
    })
}

fn change_within(
    host: &dyn Host,
    share: &str,
    most: usize,
    change: &mut dyn FnMut(&mut Record) -> bool,
) -> Result<Record, RecordError> {
    let mut outcome = Err(RecordError::Missing);
    let swapped = swap(&mut HostStore(host), &key(share), &mut |found| {
        let changed = changed(found, most, change);
        let (record, bytes) = match changed {
            Ok((record, bytes)) => (Ok(record), bytes),
            Err(error) => (Err(error), None),
        };
        outcome = record;
        bytes
    })?;
    if swapped == Swapped::Contended {
        return Err(RecordError::Contended);
    }
    outcome
}

/// The record in these bytes after a change, and its new bytes if they differ.
fn changed(
    found: Option<&[u8]>,
    most: usize,
    change: &mut dyn FnMut(&mut Record) -> bool,
) -> Result<(Record, Option<Vec<u8>>), RecordError> {
    let found = found.ok_or(RecordError::Missing)?;
    let mut record = Record::read(found).ok_or(RecordError::Unreadable)?;
    if !change(&mut record) {
        return Ok((record, None));
    }
    let bytes = serde_json::to_vec(&record).map_err(|_never| RecordError::Unreadable)?;
    if bytes.len() > most.max(found.len()) {
        return Err(RecordError::TooLarge);
    }
    Ok((record, Some(bytes)))
}

#[cfg(test)]
mod tests;
