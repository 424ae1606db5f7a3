//! Moves the record to another configuration. This is a newly loaded configuration, or an earlier
//! one after a rollback.

use std::rc::Rc;

use loudou_limiter::{Carry, Nanos};
use loudou_rules::config::unshared;
use loudou_rules::rule::{KeyMap, Scope};

use super::base::{Base, Bases};
use super::part::Part;
use super::rule::Parts;
use super::{Ended, Record, RuleRecord};

/// Time that all workers need to switch to a new configuration.
const SETTLING_TIME: Nanos = Nanos::from_secs(1);
/// Maximum number of recent rollbacks. Another rollback is possible only once an earlier one is
/// forgotten.
const MAX_ROLLBACKS: u32 = 16;
/// Time after which a rollback is forgotten.
const ROLLBACK_RETENTION: Nanos = Nanos::from_secs(10);
/// Maximum number of removed rules to remember.
const MAX_GONE: usize = 64;

/// Treatment of edits under another configuration.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
enum Edits {
    Retire,
    Keep,
}

/// Changes that the adoption of a configuration made.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub(crate) struct Adopted {
    pub(crate) added: Vec<String>,
    pub(crate) removed: Vec<String>,
    pub(crate) changed: Vec<String>,
    /// Retired edits.
    pub(crate) retired: Vec<Ended>,
    /// Names of dropped rules that only a later build can read.
    pub(crate) unreadable: Vec<String>,
    /// Edits that were retired because a fleet cannot share their limits, whereas the rule's base
    /// is fleet-wide.
    pub(crate) unshared: Vec<Ended>,
}

impl RuleRecord {
    /// Replaces the base unless it is equal.
    fn rebase(&mut self, base: &Part<Base>, note: (Carry, Nanos, u32), edits: Edits) {
        self.change(note, |parts| {
            parts.base = base.clone();
            if edits == Edits::Retire {
                parts.drop_edits();
            }
        });
    }
}

impl Parts {
    /// Returns true if a fleet can share the rule with its edits on another base, or if that base
    /// is not fleet-wide.
    fn can_share_on(&self, base: &Part<Base>) -> bool {
        let mut parts = self.clone();
        parts.base = base.clone();
        base.scope == Scope::Envoy || unshared(&parts.effective(None)).is_empty()
    }

    fn drop_edits(&mut self) {
        self.edit = Part::new(None);
        self.own = Part::new(KeyMap::default());
    }
}

impl Record {
    /// Adopts a configuration loaded at `since`. Returns `None` if it is already in force, or if it
    /// belongs to an earlier, draining listener.
    pub(crate) fn adopt(&mut self, bases: &Bases, since: Nanos, now: Nanos) -> Option<Adopted> {
        let is_in_force = self.is_of(bases) && !self.later.has_moved();
        if is_in_force || since.get() < self.since_ns {
            return None;
        }
        self.rollbacks = 0;
        Some(self.apply_bases(bases, since, now, Edits::Retire))
    }

    /// Adopts an earlier configuration again. The configuration was in use for some time before the
    /// rollback was noticed, so edits made in the meantime stay in force.
    pub(crate) fn roll_back(&mut self, bases: &Bases, now: Nanos) -> Option<Adopted> {
        if self.is_of(bases) || !self.may_roll_back(now) {
            return None;
        }
        self.rollbacks = self.rollbacks(now).saturating_add(1);
        Some(self.apply_bases(bases, now, now, Edits::Keep))
    }

    /// Returns true if a newer connection of another configuration means a rollback. It does not
    /// while workers still switch to this configuration, nor after many rollbacks until the first
    /// of them is forgotten. Otherwise two listeners with different rules that both accept
    /// connections would roll each other back forever, and each rollback costs a record change and
    /// an event.
    fn may_roll_back(&self, now: Nanos) -> bool {
        let settled = Nanos::new(self.taken_ns).saturating_add(SETTLING_TIME);
        now >= settled && self.rollbacks(now) < MAX_ROLLBACKS
    }

    /// Returns the number of rollbacks since the last new configuration that are not forgotten yet.
    pub(crate) fn rollbacks(&self, now: Nanos) -> u32 {
        let quiet = now.since(Nanos::new(self.taken_ns));
        let forgotten = quiet.get() / ROLLBACK_RETENTION.get();
        let forgotten = u32::try_from(forgotten).unwrap_or(u32::MAX);
        self.rollbacks.saturating_sub(forgotten)
    }

    fn apply_bases(&mut self, bases: &Bases, since: Nanos, now: Nanos, edits: Edits) -> Adopted {
        let version = self.next_version();
        let note = (Carry::default(), now, version);
        let mut adopted = Adopted {
            unreadable: self.later.end(),
            ..Adopted::default()
        };
        if edits == Edits::Retire {
            adopted.retired = self.retire_gone(note);
        }
        let mut old = core::mem::take(&mut self.rules);
        for base in &bases.rules {
            let place = old.iter().position(|rule| rule.base.name == base.name);
            let known = place.map(|place| old.remove(place));
            let is_same = known.as_ref().is_some_and(|rule| rule.base == *base);
            match &known {
                None => adopted.added.push(base.name.clone()),
                Some(rule) if rule.base == *base => {}
                Some(rule) => {
                    adopted.changed.push(base.name.clone());
                    if edits == Edits::Retire && rule.base.shares_buckets_with(base) {
                        adopted.retired.extend(rule.all_ended());
                    }
                }
            }
            let mut rule = match known {
                Some(rule) if rule.base.shares_buckets_with(base) => rule,
                other => {
                    self.gone.extend(other);
                    self.restore_removed(base)
                        .unwrap_or_else(|| Rc::new(RuleRecord::new(base.clone(), version)))
                }
            };
            if rule.base != *base {
                let mut edits = edits;
                // Such a rule would silently limit each Envoy separately.
                if edits == Edits::Keep && !rule.can_share_on(base) {
                    adopted.unshared.extend(rule.all_ended());
                    edits = Edits::Retire;
                }
                Rc::make_mut(&mut rule).rebase(base, note, edits);
            }
            let trial = old.iter().position(|other| other.tries(&rule));
            let trial = trial.filter(|_| is_same).map(|place| old.remove(place));
            self.rules.push(rule);
            self.rules.extend(trial);
        }
        // The configuration has changed or removed the rules of the remaining trials, so they end.
        let (trials, mut old): (Vec<_>, Vec<_>) = old.into_iter().partition(|rule| rule.is_trial());
        let ended = trials.iter().filter_map(|trial| trial.all_ended());
        adopted.retired.extend(ended);
        adopted.removed = old.iter().map(|rule| rule.base.name.clone()).collect();
        self.gone.append(&mut old);
        if edits == Edits::Retire {
            adopted.retired.extend(self.retire_gone(note));
        }
        // A rollback keeps the edits of removed rules. They are retired with the rules that are
        // forgotten.
        let surplus = self.gone.len().saturating_sub(MAX_GONE);
        let dropped = self.gone.drain(..surplus);
        let dropped = dropped.filter_map(|rule| rule.all_ended());
        adopted.retired.extend(dropped);
        self.since_ns = since.get();
        self.taken_ns = now.get();
        adopted
    }

    /// Retires the edits of removed rules.
    fn retire_gone(&mut self, note: (Carry, Nanos, u32)) -> Vec<Ended> {
        let edited = self.gone.iter_mut().filter(|rule| rule.is_edited());
        let retire = |rule: &mut Rc<RuleRecord>| {
            let ended = rule.all_ended();
            Rc::make_mut(rule).change(note, Parts::drop_edits);
            ended
        };
        edited.filter_map(retire).collect()
    }

    /// Restores a removed rule, with the changes that its buckets must still follow.
    fn restore_removed(&mut self, base: &Base) -> Option<Rc<RuleRecord>> {
        let mut gone = self.gone.iter();
        let place = gone.position(|rule| rule.base.shares_buckets_with(base))?;
        Some(self.gone.remove(place))
    }
}
