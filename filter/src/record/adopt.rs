//! Replaces the configuration in the record with a newly loaded configuration or, after a rollback,
//! with an earlier one.

use std::rc::Rc;

use loudou_limiter::{Carry, Nanos};
use loudou_rules::config::unshared;
use loudou_rules::rule::{KeyMap, Scope};

use super::base::{Base, Bases};
use super::part::Part;
use super::rule::Parts;
use super::{Ended, Record, RuleRecord};

/// Maximum time until all workers have switched to a new configuration.
const SETTLING_TIME: Nanos = Nanos::from_secs(1);
/// Maximum number of recent rollbacks. Once there have been this many rollbacks, further rollbacks
/// are ignored until one of them is no longer recent.
const MAX_ROLLBACKS: u32 = 16;
/// Period without a new configuration or rollback after which one rollback stops counting as
/// recent.
const ROLLBACK_RETENTION: Nanos = Nanos::from_secs(10);
/// Maximum number of removed rules in the record.
const MAX_GONE: usize = 64;

/// What happens to a rule's edits when its base changes.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
enum Edits {
    Retire,
    Keep,
}

/// Changes caused by adopting a configuration.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub(crate) struct Adopted {
    pub(crate) added: Vec<String>,
    pub(crate) removed: Vec<String>,
    pub(crate) changed: Vec<String>,
    /// Retired edits.
    pub(crate) retired: Vec<Ended>,
    /// Names of the rules that were dropped because only a later build can read them.
    pub(crate) unreadable: Vec<String>,
    /// Edits that were retired because the new base is fleet-wide and a fleet cannot share the
    /// edited limits.
    pub(crate) unshared: Vec<Ended>,
}

impl RuleRecord {
    /// Replaces the rule's base. Retires its edits if `edits` is [`Edits::Retire`].
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
    /// Returns true if `base` is not fleet-wide, or if a fleet could share the rule after its edits
    /// are applied to `base`.
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
    /// Adopts a configuration that was loaded at `since`. Returns `None` if it is already the
    /// current configuration. Also returns `None` if it is older than the current configuration,
    /// because it then belongs to a draining listener.
    pub(crate) fn adopt(&mut self, bases: &Bases, since: Nanos, now: Nanos) -> Option<Adopted> {
        let is_in_force = self.is_of(bases) && !self.later.has_moved();
        if is_in_force || since.get() < self.since_ns {
            return None;
        }
        self.rollbacks = 0;
        Some(self.apply_bases(bases, since, now, Edits::Retire))
    }

    /// Re-adopts an earlier configuration after a rollback. Edits remain in effect, because some
    /// may have been made after the rollback but before it was detected.
    pub(crate) fn roll_back(&mut self, bases: &Bases, now: Nanos) -> Option<Adopted> {
        if self.is_of(bases) || !self.may_roll_back(now) {
            return None;
        }
        self.rollbacks = self.rollbacks(now).saturating_add(1);
        Some(self.apply_bases(bases, now, now, Edits::Keep))
    }

    /// Returns true if a newer connection with a different configuration may be treated as a
    /// rollback. Such a connection is ignored while workers may still be switching to the current
    /// configuration, and after too many recent rollbacks. Otherwise, two listeners that have
    /// different rules and both accept connections would keep rolling each other back, and each
    /// rollback would change the record and add an event.
    fn may_roll_back(&self, now: Nanos) -> bool {
        let settled = Nanos::new(self.taken_ns).saturating_add(SETTLING_TIME);
        now >= settled && self.rollbacks(now) < MAX_ROLLBACKS
    }

    /// Returns the number of recent rollbacks since a new configuration was last adopted.
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
                // If the edits were kept, each Envoy would silently enforce the rule's limits on
                // its own.
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
        // All remaining trials end, because the configuration has changed or removed their rules.
        let (trials, mut old): (Vec<_>, Vec<_>) = old.into_iter().partition(|rule| rule.is_trial());
        let ended = trials.iter().filter_map(|trial| trial.all_ended());
        adopted.retired.extend(ended);
        adopted.removed = old.iter().map(|rule| rule.base.name.clone()).collect();
        self.gone.append(&mut old);
        if edits == Edits::Retire {
            adopted.retired.extend(self.retire_gone(note));
        }
        // A rollback keeps the edits to removed rules. They are retired when the rules are dropped
        // from the record.
        let surplus = self.gone.len().saturating_sub(MAX_GONE);
        let dropped = self.gone.drain(..surplus);
        let dropped = dropped.filter_map(|rule| rule.all_ended());
        adopted.retired.extend(dropped);
        self.since_ns = since.get();
        self.taken_ns = now.get();
        adopted
    }

    /// Retires the edits to removed rules.
    fn retire_gone(&mut self, note: (Carry, Nanos, u32)) -> Vec<Ended> {
        let edited = self.gone.iter_mut().filter(|rule| rule.is_edited());
        let retire = |rule: &mut Rc<RuleRecord>| {
            let ended = rule.all_ended();
            Rc::make_mut(rule).change(note, Parts::drop_edits);
            ended
        };
        edited.filter_map(retire).collect()
    }

    /// Takes the removed rule that uses the same buckets as `base`, including its change history,
    /// out of the list of removed rules.
    fn restore_removed(&mut self, base: &Base) -> Option<Rc<RuleRecord>> {
        let mut gone = self.gone.iter();
        let place = gone.position(|rule| rule.base.shares_buckets_with(base))?;
        Some(self.gone.remove(place))
    }
}
