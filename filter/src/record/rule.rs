//! A rule in the record, which consists of its parts and the effective rule derived from them.

use std::cell::{OnceCell, RefCell};
use std::ops::Deref;
use std::sync::Arc;

use loudou_limiter::{Carry, Nanos};
use loudou_rules::rule::{KeyMap, Rule};
use loudou_rules::rule_set::ActiveRule;
use loudou_rules::versions::History;

use super::base::Base;
use super::history::bound;
use super::part::{Id, PARTS, Part};
use super::{Edit, OverrideEdit};

/// A rule's parts.
#[derive(Clone, Debug, PartialEq, Eq)]
pub(crate) struct Parts {
    /// The rule from the plugin configuration.
    pub(crate) base: Part<Base>,
    /// The edit, which replaces fields in the base.
    pub(crate) edit: Part<Option<Edit>>,
    /// Individually edited overrides, which apply on top of `base` and `edit`.
    pub(crate) own: Part<KeyMap<OverrideEdit>>,
    /// Changes that some of the rule's buckets may not have been converted to yet.
    pub(crate) history: Part<History>,
}

/// A rule in the record. Values derived from its parts are computed on first use and cached until a
/// part changes.
#[derive(Clone, Debug)]
pub(crate) struct RuleRecord {
    parts: Parts,
    derived: Derived,
}

#[derive(Clone, Debug, Default)]
struct Derived {
    rule: OnceCell<Arc<Rule>>,
    active: OnceCell<Arc<ActiveRule>>,
    next_expiry: OnceCell<Nanos>,
    /// Parts and compiled rule before the last change. Everything that has not changed is reused
    /// when the new rule is built.
    before: RefCell<Option<(Parts, Arc<ActiveRule>)>>,
}

impl Parts {
    /// Returns the effective rule, with the edit and overrides applied.
    pub(super) fn effective(&self, before: Option<&(Self, Arc<ActiveRule>)>) -> Arc<Rule> {
        if self.edit.is_none() && self.own.is_empty() {
            return Arc::clone(self.base.rule());
        }
        let mut rule = self.edited();
        match before.filter(|(before, _)| self.has_overrides_of(before)) {
            Some((_, active)) => rule.overrides = active.rule().overrides.clone(),
            None => {
                for (pattern, own) in self.own.iter() {
                    rule.overrides.set(&pattern, Some(own.gives.clone()));
                }
            }
        }
        Arc::new(rule)
    }

    /// Returns the rule with its edit applied, but without individually edited overrides.
    pub(super) fn edited(&self) -> Rule {
        let mut rule = Rule::clone(self.base.rule());
        if let Some(edit) = self.edit.as_ref() {
            edit.change.apply(&mut rule);
        }
        rule
    }

    /// Returns the approximate JSON size of the effective rule, in bytes. For edited rules, this is
    /// an overestimate, because it is the total size of the base, edit and overrides.
    pub(crate) fn bytes(&self) -> usize {
        let ids = [self.base.id(), self.edit.id(), self.own.id()];
        let bytes = ids.iter().flatten().map(|id| id.bytes);
        let bytes = bytes.fold(0_u32, u32::saturating_add);
        usize::try_from(bytes).unwrap_or(usize::MAX)
    }

    /// Returns true if all parts have IDs.
    pub(super) fn is_identified(&self) -> bool {
        let ids = [
            self.base.id(),
            self.edit.id(),
            self.own.id(),
            self.history.id(),
        ];
        ids.iter().all(Option::is_some)
    }

    /// Returns true if [`Part::is_same`], which does not compare values, returns true for all
    /// parts.
    pub(super) fn is_same(&self, other: &Self) -> bool {
        self.base.is_same(&other.base)
            && self.edit.is_same(&other.edit)
            && self.own.is_same(&other.own)
            && self.history.is_same(&other.history)
    }

    /// Returns true if the effective overrides are known to be equal. May return false even if they
    /// are equal.
    fn has_overrides_of(&self, other: &Self) -> bool {
        let of_edit = |parts: &Self| {
            let edit = parts.edit.as_ref();
            edit.and_then(|edit| edit.change.overrides.clone())
        };
        self.base.is_same(&other.base)
            && self.own.is_same(&other.own)
            && of_edit(self) == of_edit(other)
    }
}

impl RuleRecord {
    /// Creates the record of a rule that was added at `version`.
    pub(super) fn new(base: Part<Base>, version: u32) -> Self {
        Self::of(Parts {
            base,
            edit: Part::new(None),
            own: Part::new(KeyMap::default()),
            history: Part::new(History::new(version)),
        })
    }

    pub(super) fn of(parts: Parts) -> Self {
        Self {
            parts,
            derived: Derived::default(),
        }
    }

    /// Returns the rule with new parts. Derived values are reused where possible.
    pub(super) fn replaced_by(&self, parts: Parts) -> Self {
        let mut new = self.clone();
        *new.parts_mut() = parts;
        new
    }

    /// Sets the IDs of all parts after they have been encoded. Derived values remain valid.
    pub(super) const fn identify(&mut self, [base, edit, own, history]: [Id; PARTS]) {
        self.parts.base.identify(base);
        self.parts.edit.identify(edit);
        self.parts.own.identify(own);
        self.parts.history.identify(history);
    }

    /// Returns the parts for modification. Discards values derived from them.
    pub(super) fn parts_mut(&mut self) -> &mut Parts {
        let active = self.derived.active.take();
        if let Some(active) = active {
            *self.derived.before.get_mut() = Some((self.parts.clone(), active));
        }
        self.derived.rule.take();
        self.derived.next_expiry.take();
        &mut self.parts
    }

    /// Returns the effective rule, with the edit and overrides applied.
    pub(crate) fn effective(&self) -> &Rule {
        self.rule_in_force()
    }

    fn rule_in_force(&self) -> &Arc<Rule> {
        let effective = || self.parts.effective(self.derived.before.borrow().as_ref());
        self.derived.rule.get_or_init(effective)
    }

    /// Returns the effective rule, compiled for decisions.
    pub(crate) fn activate(&self) -> Arc<ActiveRule> {
        Arc::clone(self.derived.active.get_or_init(|| {
            #[cfg(test)]
            super::work::activated();
            let rule = Arc::clone(self.rule_in_force());
            let history = Arc::clone(self.parts.history.shared());
            let before = self.derived.before.take();
            Arc::new(match before {
                Some((_, before)) => before.replaced_by(rule, history),
                None => ActiveRule::new(rule, history),
            })
        }))
    }

    /// Changes the rule and adds the change to the history, so that buckets are converted.
    pub(super) fn change(&mut self, note: (Carry, Nanos, u32), change: impl FnOnce(&mut Parts)) {
        // The current effective rule is compiled before the change, so that the new rule can share
        // its unchanged parts.
        self.activate();
        let before = Arc::clone(self.rule_in_force());
        change(self.parts_mut());
        let after = Arc::clone(self.rule_in_force());
        self.note(|history| {
            history.note(&before, &after, note);
        });
    }

    /// Changes the history. The effective rule stays the same, but its buckets are converted
    /// differently.
    pub(super) fn note(&mut self, note: impl FnOnce(&mut History)) {
        let rule = self.derived.rule.take();
        let history = &mut *self.parts_mut().history;
        note(history);
        bound(history);
        self.derived.rule = rule.map_or_else(OnceCell::new, OnceCell::from);
    }

    /// Returns the time at which the rule's next edit or edited override expires.
    pub(super) fn next_expiry(&self) -> Nanos {
        *self.derived.next_expiry.get_or_init(|| {
            let expiries = self.authors().filter_map(|who| who.expires_at_ns);
            expiries.min().map_or(Nanos::MAX, Nanos::new)
        })
    }
}

impl Deref for RuleRecord {
    type Target = Parts;

    fn deref(&self) -> &Parts {
        &self.parts
    }
}

impl PartialEq for RuleRecord {
    fn eq(&self, other: &Self) -> bool {
        self.parts == other.parts
    }
}

impl Eq for RuleRecord {}
