//! Moves the record to another configuration: a newly loaded one, or one that was rolled back to.

use std::rc::Rc;

use loudou_limiter::{Carry, Nanos};
use loudou_rules::config::unshared;
use loudou_rules::rule::{KeyMap, Scope};

use super::base::{Base, Bases};
use super::part::Part;
use super::rule::Parts;
use super::{Ended, Record, RuleRecord};

/// The time in which workers switch to a new configuration.
const SETTLES_IN: Nanos = Nanos::from_secs(1);
/// The most rollbacks until a new configuration is loaded.
const MAX_ROLLBACKS: u32 = 16;
/// The most removed rules that are remembered.
const MAX_GONE: usize = 64;

/// The fate of edits under another configuration.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
enum Edits {
    Retire,
    Keep,
}

/// The changes that a configuration made when it was adopted.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub(crate) struct Adopted {
    pub(crate) added: Vec<String>,
    pub(crate) removed: Vec<String>,
    pub(crate) changed: Vec<String>,
    /// The edits that were retired.
    pub(crate) retired: Vec<Ended>,
    /// Those that were retired since a fleet cannot share their limits, which the rule's base asks for.
    pub(crate) unshared: Vec<Ended>,
}

impl RuleRecord {
    /// Replaces the base, unless it is the same.
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
    /// Whether a fleet can share the rule with its edits on another base, if that base asks for it.
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
    /// Adopts a configuration loaded at `since`. `None` if it is already in force, or if it is an older
    /// one of a draining listener.
    pub(crate) fn adopt(&mut self, bases: &Bases, since: Nanos, now: Nanos) -> Option<Adopted> {
        if self.is_of(bases) || since.get() < self.since_ns {
            return None;
        }
        self.rollbacks = 0;
        Some(self.put_on(bases, since, now, Edits::Retire))
    }

    /// Adopts a configuration again whose rules were in force before. It was in use for some time before
    /// that was noticed, so edits made meanwhile stay in force.
    pub(crate) fn roll_back(&mut self, bases: &Bases, now: Nanos) -> Option<Adopted> {
        if self.is_of(bases) || !self.may_roll_back(now) {
            return None;
        }
        self.rollbacks = self.rollbacks.saturating_add(1);
        Some(self.put_on(bases, now, now, Edits::Keep))
    }

    /// Whether a newer connection of another configuration means a rollback. It does not while the workers
    /// switch to this configuration, nor after too many rollbacks, since two listeners with different rules
    /// that both accept connections would roll each other back for ever.
    fn may_roll_back(&self, now: Nanos) -> bool {
        let settled = Nanos::new(self.taken_ns).saturating_add(SETTLES_IN);
        now >= settled && !self.rolls_back_no_more()
    }

    /// Whether there were too many rollbacks, so that further ones are not noticed.
    pub(crate) const fn rolls_back_no_more(&self) -> bool {
        self.rollbacks >= MAX_ROLLBACKS
    }

    /// The number of rollbacks since a new configuration was adopted.
    pub(crate) const fn rollbacks(&self) -> u32 {
        self.rollbacks
    }

    fn put_on(&mut self, bases: &Bases, since: Nanos, now: Nanos, edits: Edits) -> Adopted {
        let version = self.next_version();
        let note = (Carry::default(), now, version);
        let mut adopted = Adopted::default();
        if edits == Edits::Retire {
            adopted.retired = self.retire_gone(note);
        }
        let mut old = core::mem::take(&mut self.rules);
        for base in &bases.rules {
            let place = old.iter().position(|rule| rule.base.name == base.name);
            let known = place.map(|place| old.remove(place));
            match &known {
                None => adopted.added.push(base.name.clone()),
                Some(rule) if rule.base.is_same(base) => {}
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
                    self.come_back(base)
                        .unwrap_or_else(|| Rc::new(RuleRecord::new(base.clone(), version)))
                }
            };
            if !rule.base.is_same(base) {
                let mut edits = edits;
                // Such a rule would limit each Envoy alone, unnoticed.
                if edits == Edits::Keep && !rule.can_share_on(base) {
                    adopted.unshared.extend(rule.all_ended());
                    edits = Edits::Retire;
                }
                Rc::make_mut(&mut rule).rebase(base, note, edits);
            }
            self.rules.push(rule);
        }
        adopted.removed = old.iter().map(|rule| rule.base.name.clone()).collect();
        self.gone.append(&mut old);
        if edits == Edits::Retire {
            adopted.retired.extend(self.retire_gone(note));
        }
        // After a rollback, removed rules have their edits still.
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

    /// Takes a removed rule back, with the history of its buckets.
    fn come_back(&mut self, base: &Base) -> Option<Rc<RuleRecord>> {
        let mut gone = self.gone.iter();
        let place = gone.position(|rule| rule.base.shares_buckets_with(base))?;
        Some(self.gone.remove(place))
    }
}
