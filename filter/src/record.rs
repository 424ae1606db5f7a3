//! The rules as all workers share them: the plugin configuration's, and the edits on top.
//!
//! One record in shared data, changed by compare-and-swap. It holds, per rule, its base from the
//! configuration, the edit if there is one, and the limits that live buckets may still be in. Format
//! 1; a worker that meets another format leaves it alone and goes by its own configuration.

use loudou_limiter::carry::{MAX_PAST, Past};
use loudou_limiter::config::RuleEdit;
use loudou_limiter::evaluate::ActiveRule;
use loudou_limiter::rule::{Mode, Rule, RuleFile};
use loudou_limiter::store::{CAS_ABSENT, Cas, StoreFailed, Written};
use loudou_limiter::{Carry, Limits, Nanos};
use serde::Serialize;

use crate::host::Host;

mod read;

const FORMAT: u8 = 1;
/// How often a conflicting change is tried again.
const MAX_TRIES: usize = 16;

/// The record.
#[derive(Clone, Debug, PartialEq, Eq, Serialize)]
pub(crate) struct Record {
    format: u8,
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
    #[serde(skip_serializing_if = "Vec::is_empty")]
    past: Vec<PastRecord>,
}

/// An edit that is in force.
#[derive(Clone, Debug, PartialEq, Eq, Serialize)]
pub(crate) struct Edit {
    #[serde(skip_serializing_if = "Option::is_none")]
    limits: Option<Limits>,
    #[serde(skip_serializing_if = "Option::is_none")]
    mode: Option<Mode>,
    /// What becomes of levels, when it starts and when it runs out.
    carry: Carry,
    /// The name of the token.
    pub(crate) by: String,
    /// The reason that was given.
    pub(crate) reason: String,
    pub(crate) at_ns: u64,
    pub(crate) at_unix_ms: u64,
    #[serde(skip_serializing_if = "Option::is_none")]
    pub(crate) expires_at_ns: Option<u64>,
}

#[derive(Clone, Debug, PartialEq, Eq, Serialize)]
struct PastRecord {
    limits: Limits,
    carry: Carry,
    until_ns: u64,
}

/// Who makes an edit, when, and how.
#[derive(Clone, Debug)]
pub(crate) struct Author {
    pub(crate) by: String,
    pub(crate) reason: String,
    pub(crate) carry: Carry,
    pub(crate) at: Nanos,
    pub(crate) at_unix_ms: u64,
    pub(crate) expires_after: Option<Nanos>,
}

/// What taking up a configuration changed.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub(crate) struct TakenUp {
    pub(crate) added: Vec<String>,
    pub(crate) removed: Vec<String>,
    pub(crate) changed: Vec<String>,
    /// Rules whose edit was retired.
    pub(crate) retired: Vec<String>,
}

impl RuleRecord {
    const fn new(base: Rule) -> Self {
        Self {
            base,
            edit: None,
            past: Vec::new(),
        }
    }

    /// The rule in force.
    pub(crate) fn effective(&self) -> Rule {
        let mut rule = self.base.clone();
        if let Some(edit) = &self.edit {
            rule.limits = edit.limits.clone().unwrap_or(rule.limits);
            rule.mode = edit.mode.unwrap_or(rule.mode);
        }
        rule
    }

    /// The rule in force, ready to decide.
    pub(crate) fn activate(&self) -> ActiveRule {
        ActiveRule::new(self.effective(), self.past())
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

    /// Puts `edit` in force on top of an earlier one. Parts that are as in the base are no edit.
    pub(crate) fn apply(&mut self, edit: RuleEdit, author: &Author) {
        let old = self.effective();
        let limits = edit.limits.unwrap_or_else(|| old.limits.clone());
        let mode = edit.mode.unwrap_or(old.mode);
        let limits = Some(limits).filter(|limits| *limits != self.base.limits);
        let mode = Some(mode).filter(|mode| *mode != self.base.mode);
        self.edit = (limits.is_some() || mode.is_some()).then(|| Edit {
            limits,
            mode,
            carry: author.carry,
            by: author.by.clone(),
            reason: author.reason.clone(),
            at_ns: author.at.get(),
            at_unix_ms: author.at_unix_ms,
            expires_at_ns: author
                .expires_after
                .map(|span| author.at.saturating_add(span).get()),
        });
        self.remember(old.limits, author.carry, author.at);
    }

    /// Goes back to the base.
    pub(crate) fn drop_edit(&mut self, carry: Carry, at: Nanos) {
        let old = self.effective();
        self.edit = None;
        self.remember(old.limits, carry, at);
    }

    fn expire(&mut self, now: Nanos) -> bool {
        let Some(edit) = &self.edit else { return false };
        let Some(at) = edit.expires_at_ns.filter(|at| *at <= now.get()) else {
            return false;
        };
        self.drop_edit(edit.carry, Nanos::new(at));
        true
    }

    /// The same rule under a new configuration, which retires an edit if it changes the rule.
    fn reconfigured(&self, base: &Rule, now: Nanos) -> Self {
        if self.base == *base {
            return self.clone();
        }
        let mut next = Self {
            base: base.clone(),
            edit: None,
            past: self.past.clone(),
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
            generation: 1,
            since_ns: since.get(),
            rules,
        }
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
        let expiries = self
            .rules
            .iter()
            .filter_map(|rule| rule.edit.as_ref()?.expires_at_ns);
        expiries.min().map_or(Nanos::MAX, Nanos::new)
    }

    /// Drops the edits that ran out by `now`; the names of their rules.
    pub(crate) fn expire(&mut self, now: Nanos) -> Vec<String> {
        let mut expired = Vec::new();
        for rule in &mut self.rules {
            if rule.expire(now) {
                expired.push(rule.base.name.clone());
            }
        }
        expired
    }

    /// Takes up a configuration loaded at `since`. `None` when it is the one in force, or an older
    /// one of a listener that drains.
    pub(crate) fn take_up(&mut self, file: &RuleFile, since: Nanos, now: Nanos) -> Option<TakenUp> {
        let same = self
            .rules
            .iter()
            .map(|rule| &rule.base)
            .eq(file.rules.iter());
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
            if old.base != *base {
                taken.changed.push(base.name.clone());
            }
            if old.edit.is_some() && next.edit.is_none() {
                taken.retired.push(base.name.clone());
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

/// Reads the record and its version.
pub(crate) fn load(host: &dyn Host, share: &str) -> Result<(Record, Cas), RecordError> {
    let mut bytes = Vec::new();
    let cas = host
        .shared_get(&key(share), &mut bytes)?
        .ok_or(RecordError::Missing)?;
    let record = Record::read(&bytes).ok_or(RecordError::Unreadable)?;
    Ok((record, cas))
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
    for _ in 0..MAX_TRIES {
        let (mut record, cas) = load(host, share)?;
        let Some(outcome) = change(&mut record) else {
            return Ok((record, None));
        };
        record.generation = record.generation.saturating_add(1);
        let bytes = serde_json::to_vec(&record).map_err(|_never| RecordError::Unreadable)?;
        if host.shared_set(&key(share), &bytes, cas)? == Written::Done {
            return Ok((record, Some(outcome)));
        }
    }
    Err(RecordError::Contended)
}

#[cfg(test)]
mod tests;
