//! The rules as all workers share them: the plugin configuration's, and the edits on top.
//!
//! One record in shared data, changed by compare-and-swap. It holds, per rule, its base from the
//! configuration, the edit if there is one, the overrides that were edited one by one, and the limits
//! that live buckets may still be in. Format 2; a worker that meets another format leaves it alone and
//! goes by its own configuration.

use loudou_limiter::carry::{MAX_PAST, Past};
use loudou_limiter::config::MAX_FILE_BYTES;
use loudou_limiter::evaluate::ActiveRule;
use loudou_limiter::rule::{KeyMap, Rule, RuleFile};
use loudou_limiter::store::{CAS_ABSENT, Cas, StoreFailed, Written};
use loudou_limiter::{Carry, Limits, Nanos};
use serde::Serialize;

use crate::host::Host;
use crate::instance::Instance;

mod edit;
mod read;

pub(crate) use edit::{Author, Edit, Ended, MAX_EDITED, OwnEdit, Who};

const FORMAT: u8 = 2;
/// How large edits may make it, in bytes. Every worker reads all of it after each edit.
const MAX_RECORD: usize = 2 * MAX_FILE_BYTES;
/// How often a conflicting change is tried again.
const MAX_TRIES: usize = 16;

/// The record.
#[derive(Clone, Debug, PartialEq, Eq, Serialize)]
pub(crate) struct Record {
    format: u8,
    /// The process that it belongs to. It never changes.
    pub(crate) instance: Instance,
    /// Raised by every change.
    pub(crate) generation: u64,
    /// When the configuration that is in force was loaded: a newer one wins.
    since_ns: u64,
    /// The rules in order of evaluation.
    pub(crate) rules: Vec<RuleRecord>,
}

/// One rule.
#[derive(Clone, Debug, PartialEq, Eq, Serialize)]
pub(crate) struct RuleRecord {
    /// The rule of the plugin configuration.
    pub(crate) base: Rule,
    /// What replaces parts of it.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub(crate) edit: Option<Edit>,
    /// What was edited of single keys, on top of that.
    #[serde(skip_serializing_if = "KeyMap::is_empty")]
    pub(crate) own: KeyMap<OwnEdit>,
    #[serde(skip_serializing_if = "Vec::is_empty")]
    past: Vec<PastRecord>,
}

#[derive(Clone, Debug, PartialEq, Eq, Serialize)]
struct PastRecord {
    limits: Limits,
    carry: Carry,
    until_ns: u64,
}

/// What taking up a configuration changed.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub(crate) struct TakenUp {
    pub(crate) added: Vec<String>,
    pub(crate) removed: Vec<String>,
    pub(crate) changed: Vec<String>,
    /// What was retired.
    pub(crate) retired: Vec<Ended>,
}

impl RuleRecord {
    fn new(base: Rule) -> Self {
        Self {
            base,
            edit: None,
            own: KeyMap::default(),
            past: Vec::new(),
        }
    }

    /// The rule in force, ready to decide.
    pub(crate) fn activate(&self) -> ActiveRule {
        ActiveRule::new(self.effective(), self.past())
    }

    /// Whether it is the record of exactly this rule. By what it has of it: to compare rules field by field
    /// is some KiB of code.
    pub(crate) fn is_of(&self, rule: &Rule) -> bool {
        let written = |rule: &Rule| serde_json::to_vec(rule).ok();
        written(&self.base) == written(rule)
    }

    fn past(&self) -> Vec<Past> {
        let past = |past: &PastRecord| Past {
            limits: past.limits.clone(),
            carry: past.carry,
            until: Nanos::new(past.until_ns),
        };
        self.past.iter().map(past).collect()
    }

    /// Remembers that `old` limits ended at `until`, if the rule has others now.
    fn remember(&mut self, old: Limits, carry: Carry, until: Nanos) {
        if old == self.effective().limits {
            return;
        }
        self.past.push(PastRecord {
            limits: old,
            carry,
            until_ns: until.get(),
        });
        let surplus = self.past.len().saturating_sub(MAX_PAST);
        self.past.drain(..surplus);
    }

    /// The same rule under a new configuration, which retires its edits if it changes the rule.
    fn reconfigured(&self, base: &Rule, now: Nanos) -> Self {
        if self.is_of(base) {
            return self.clone();
        }
        let mut next = Self {
            past: self.past.clone(),
            ..Self::new(base.clone())
        };
        next.remember(self.effective().limits, Carry::default(), now);
        next
    }
}

impl Record {
    /// The record of a configuration nobody has edited.
    pub(crate) fn new(file: &RuleFile, since: Nanos) -> Self {
        let rules = file.rules.iter().cloned().map(RuleRecord::new).collect();
        Self {
            format: FORMAT,
            instance: Instance::default(),
            generation: 1,
            since_ns: since.get(),
            rules,
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

    /// When the next edit runs out.
    pub(crate) fn next_expiry(&self) -> Nanos {
        let authors = self.rules.iter().flat_map(RuleRecord::authors);
        let expiries = authors.filter_map(|who| who.expires_at_ns);
        expiries.min().map_or(Nanos::MAX, Nanos::new)
    }

    /// Drops what ran out by `now`.
    pub(crate) fn expire(&mut self, now: Nanos) -> Vec<Ended> {
        let ended = self.rules.iter_mut().map(|rule| rule.expire(now));
        ended.filter(|ended| !ended.is_empty()).collect()
    }

    /// Takes up a configuration loaded at `since`. `None` when it is the one in force, or an older
    /// one of a listener that drains.
    pub(crate) fn take_up(&mut self, file: &RuleFile, since: Nanos, now: Nanos) -> Option<TakenUp> {
        let pairs = self.rules.iter().zip(&file.rules);
        let same = self.rules.len() == file.rules.len()
            && pairs.into_iter().all(|(old, new)| old.is_of(new));
        if same || since.get() < self.since_ns {
            return None;
        }
        let mut taken = TakenUp::default();
        let mut rules = Vec::with_capacity(file.rules.len());
        for base in &file.rules {
            let Some(old) = self.rule(&base.name) else {
                taken.added.push(base.name.clone());
                rules.push(RuleRecord::new(base.clone()));
                continue;
            };
            let next = old.reconfigured(base, now);
            if !old.is_of(base) {
                taken.changed.push(base.name.clone());
                taken
                    .retired
                    .extend(Some(old.all_ended()).filter(|ended| !ended.is_empty()));
            }
            rules.push(next);
        }
        let kept = |rule: &&RuleRecord| file.rules.iter().all(|new| new.name != rule.base.name);
        taken.removed = self
            .rules
            .iter()
            .filter(kept)
            .map(|rule| rule.base.name.clone())
            .collect();
        self.rules = rules;
        self.since_ns = since.get();
        Some(taken)
    }
}

/// Why the record could not be read or changed.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) enum RecordError {
    /// No data role has written it yet.
    Missing,
    /// It has another format, or is damaged.
    Unreadable,
    /// Others were faster, too often.
    Contended,
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

/// Reads the record, its version and its length.
fn load(host: &dyn Host, share: &str) -> Result<(Record, Cas, usize), RecordError> {
    let mut bytes = Vec::new();
    let cas = host
        .shared_get(&key(share), &mut bytes)?
        .ok_or(RecordError::Missing)?;
    let record = Record::read(&bytes).ok_or(RecordError::Unreadable)?;
    Ok((record, cas, bytes.len()))
}

/// Writes a record that nobody else has written yet; whether it was this call.
pub(crate) fn create(host: &dyn Host, share: &str, record: &Record) -> Result<bool, RecordError> {
    let bytes = serde_json::to_vec(record).map_err(|_never| RecordError::Unreadable)?;
    Ok(host.shared_set(&key(share), &bytes, CAS_ABSENT)? == Written::Done)
}

/// Changes the record. `change` says whether it changed anything, and is called again on a fresh
/// record when another worker was faster. The generation is raised with it.
pub(crate) fn change<T>(
    host: &dyn Host,
    share: &str,
    mut change: impl FnMut(&mut Record) -> Option<T>,
) -> Result<(Record, Option<T>), RecordError> {
    let mut outcome = None;
    let record = change_within(host, share, usize::MAX, &mut |record| {
        outcome = change(record);
        outcome.is_some()
    })?;
    Ok((record, outcome))
}

/// The same for an edit, which must not make it too large.
pub(crate) fn edit(
    host: &dyn Host,
    share: &str,
    change: &mut dyn FnMut(&mut Record) -> bool,
) -> Result<Record, RecordError> {
    change_within(host, share, MAX_RECORD, change)
}

fn change_within(
    host: &dyn Host,
    share: &str,
    most: usize,
    change: &mut dyn FnMut(&mut Record) -> bool,
) -> Result<Record, RecordError> {
    for _ in 0..MAX_TRIES {
        let (mut record, cas, length) = load(host, share)?;
        if !change(&mut record) {
            return Ok(record);
        }
        record.generation = record.generation.saturating_add(1);
        let bytes = serde_json::to_vec(&record).map_err(|_never| RecordError::Unreadable)?;
        if bytes.len() > most.max(length) {
            return Err(RecordError::TooLarge);
        }
        if host.shared_set(&key(share), &bytes, cas)? == Written::Done {
            return Ok(record);
        }
    }
    Err(RecordError::Contended)
}

#[cfg(test)]
mod tests;
