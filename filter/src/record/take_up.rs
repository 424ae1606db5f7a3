//! Putting the record on another configuration: one that is loaded, or one that is rolled back to.

use loudou_limiter::{Carry, Nanos};
use loudou_rules::rule::{KeyMap, Rule, RuleFile};

use super::{Ended, Record, RuleRecord};

/// How long the workers may take to go over to a new configuration.
const SETTLES_IN: Nanos = Nanos::from_secs(1);
/// How often the configuration in force may change without a new one.
const MAX_ROLLBACKS: u32 = 16;
/// How many rules are remembered that the configuration has no more.
const MAX_GONE: usize = 64;

/// What becomes of edits under another configuration.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
enum Edits {
    Retire,
    Keep,
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
    /// Puts it on another base, unless it is on that.
    fn rebase(&mut self, base: &Rule, note: (Carry, Nanos, u32), edits: Edits) {
        if self.is_of(base) {
            return;
        }
        self.change(note, |rule| {
            rule.base.clone_from(base);
            if edits == Edits::Retire {
                rule.drop_edits();
            }
        });
    }

    fn drop_edits(&mut self) {
        self.edit = None;
        self.own = KeyMap::default();
    }
}

impl Record {
    /// Takes up a configuration loaded at `since`. `None` when it is the one in force, or an older
    /// one of a listener that drains.
    pub(crate) fn take_up(&mut self, file: &RuleFile, since: Nanos, now: Nanos) -> Option<TakenUp> {
        if self.is_of(file) || since.get() < self.since_ns {
            return None;
        }
        self.rollbacks = 0;
        Some(self.put_on(file, since, now, Edits::Retire))
    }

    /// Takes up a configuration again whose rules were in force before. It was in use for some time before
    /// that was noticed, so what was edited meanwhile stays in force.
    pub(crate) fn roll_back(&mut self, file: &RuleFile, now: Nanos) -> Option<TakenUp> {
        if self.is_of(file) || !self.may_roll_back(now) {
            return None;
        }
        self.rollbacks = self.rollbacks.saturating_add(1);
        Some(self.put_on(file, now, now, Edits::Keep))
    }

    /// Whether a connection that another configuration has accepted after those of this one tells of a
    /// rollback: not while the workers go over to this one, and not for ever, as two listeners would have
    /// it whose rules differ and that both accept connections.
    fn may_roll_back(&self, now: Nanos) -> bool {
        let settled = Nanos::new(self.taken_ns).saturating_add(SETTLES_IN);
        now >= settled && !self.rolls_back_no_more()
    }

    /// Whether rollbacks have been so many that further ones are not noticed.
    pub(crate) const fn rolls_back_no_more(&self) -> bool {
        self.rollbacks >= MAX_ROLLBACKS
    }

    fn put_on(&mut self, file: &RuleFile, since: Nanos, now: Nanos, edits: Edits) -> TakenUp {
        let version = self.next_version();
        let note = (Carry::default(), now, version);
        let mut taken = TakenUp::default();
        if edits == Edits::Retire {
            taken.retired = self.retire_gone(note);
        }
        let mut old = core::mem::take(&mut self.rules);
        for base in &file.rules {
            let place = old.iter().position(|rule| rule.base.name == base.name);
            let known = place.map(|place| old.remove(place));
            match &known {
                None => taken.added.push(base.name.clone()),
                Some(rule) if rule.is_of(base) => {}
                Some(rule) => {
                    taken.changed.push(base.name.clone());
                    if edits == Edits::Retire && rule.shares_buckets_with(base) {
                        taken.retired.extend(rule.all_ended());
                    }
                }
            }
            let mut rule = match known {
                Some(rule) if rule.shares_buckets_with(base) => rule,
                other => {
                    self.gone.extend(other);
                    self.come_back(base)
                        .unwrap_or_else(|| RuleRecord::new(base.clone(), version))
                }
            };
            rule.rebase(base, note, edits);
            self.rules.push(rule);
        }
        taken.removed = old.iter().map(|rule| rule.base.name.clone()).collect();
        self.gone.append(&mut old);
        if edits == Edits::Retire {
            taken.retired.extend(self.retire_gone(note));
        }
        let surplus = self.gone.len().saturating_sub(MAX_GONE);
        self.gone.drain(..surplus);
        self.since_ns = since.get();
        self.taken_ns = now.get();
        taken
    }

    /// Retires what was edited of rules that are gone.
    fn retire_gone(&mut self, note: (Carry, Nanos, u32)) -> Vec<Ended> {
        let edited = self.gone.iter_mut().filter(|rule| rule.is_edited());
        let retire = |rule: &mut RuleRecord| {
            let ended = rule.all_ended();
            rule.change(note, RuleRecord::drop_edits);
            ended
        };
        edited.filter_map(retire).collect()
    }

    /// A rule that was gone, with what its buckets have gone through.
    fn come_back(&mut self, base: &Rule) -> Option<RuleRecord> {
        let mut gone = self.gone.iter();
        let place = gone.position(|rule| rule.shares_buckets_with(base))?;
        Some(self.gone.remove(place))
    }
}
