//! Makes, drops and ends edits of one rule.

use std::borrow::Cow;

use loudou_limiter::{Carry, Nanos};
use loudou_rules::config::{self, MAX_OVERRIDES, Problem, RuleEdit};
use loudou_rules::rule::{KeyMap, Override, Rule};

use super::edit::{Author, Edit, EditTo, Ended, MAX_EDITED, Origin, OverrideEdit};
use super::part::Part;
use super::rule::RuleRecord;

/// Reason why an edit with valid fields is refused.
#[derive(Debug)]
pub(crate) enum NotAllowed {
    Wrong(Vec<Problem>),
    /// More than [`MAX_EDITED`] edited overrides, or more than [`MAX_OVERRIDES`] in total.
    TooManyOverrides,
}

impl RuleRecord {
    /// Checks an edited rule. It must not have too many overrides. Its overrides must fit its
    /// limits. If it is fleet-wide, a fleet must be able to share both. If it settles costs, both
    /// must allow that.
    pub(crate) fn check(&self) -> Result<(), NotAllowed> {
        let effective = self.effective();
        if !self.activate().scales_fit() {
            return Err(NotAllowed::Wrong(config::misfits(effective)));
        }
        let mut unfit = config::unshared(effective);
        unfit.extend(config::unsettled(effective));
        if !unfit.is_empty() {
            return Err(NotAllowed::Wrong(unfit));
        }
        let (edited, all) = (self.own.len(), effective.overrides.len());
        if edited <= MAX_EDITED && all <= MAX_OVERRIDES {
            Ok(())
        } else {
            Err(NotAllowed::TooManyOverrides)
        }
    }

    /// Returns the rule without edits and overrides that expire.
    pub(crate) fn lasting(&self) -> Cow<'_, Rule> {
        let ends = |who: &Origin| who.expires_at_ns.is_some();
        let mut own = self.own.iter();
        let none_ends =
            !self.edit.iter().any(|edit| ends(&edit.who)) && !own.any(|(_, own)| ends(&own.who));
        if none_ends {
            return Cow::Borrowed(self.effective());
        }
        let mut rule = Rule::clone(self.base.rule());
        let edit = self.edit.iter();
        for edit in edit.filter(|edit| !ends(&edit.who)) {
            edit.change.apply(&mut rule);
        }
        for (pattern, own) in self.own.iter().filter(|(_, own)| !ends(&own.who)) {
            rule.overrides.set(&pattern, Some(own.gives.clone()));
        }
        Cow::Owned(rule)
    }

    /// Applies `change` on top of an earlier edit. Parts equal to the base are not stored as an
    /// edit. Replacing all overrides drops the overrides that were edited individually.
    pub(crate) fn apply(&mut self, change: &RuleEdit, author: &Author, version: u32) {
        self.change((author.carry, author.at, version), |parts| {
            if change.overrides.is_some() {
                parts.own = Part::new(KeyMap::default());
            }
            let mut rule = parts.edited();
            change.apply(&mut rule);
            let all = RuleEdit {
                limits: Some(rule.limits),
                mode: Some(rule.mode),
                penalty: Some(rule.penalty),
                overrides: Some(rule.overrides),
            };
            let change = all.beyond(&parts.base);
            parts.edit = Part::new((!change.is_empty()).then(|| Edit {
                change,
                carry: author.carry,
                who: author.origin(),
            }));
        });
    }

    /// Drops the edit, so that the base applies again.
    pub(crate) fn drop_edit(&mut self, carry: Carry, at: Nanos, version: u32) {
        self.change((carry, at, version), |parts| parts.edit = Part::new(None));
    }

    /// Edits the override of a pattern. A value that the configuration already gives is not stored.
    /// A value that the rule's edit gives is stored, because that edit may end.
    pub(crate) fn set_override(
        &mut self,
        pattern: &str,
        gives: Override,
        author: &Author,
        version: u32,
    ) {
        let edit = self.edit.as_ref();
        let may_end = edit.is_some_and(|edit| edit.change.overrides.is_some());
        let is_so_anyway =
            !may_end && self.base.rule().overrides.of_pattern(pattern) == Some(&gives);
        let own = (!is_so_anyway).then(|| OverrideEdit {
            gives,
            who: author.origin(),
        });
        self.replace_override(pattern, own, author.at, version);
    }

    /// Drops the edited override of a pattern. Returns true if there was one.
    pub(crate) fn drop_override(&mut self, pattern: &str, at: Nanos, version: u32) -> bool {
        let was = self.own.of_pattern(pattern).is_some();
        self.replace_override(pattern, None, at, version);
        was
    }

    /// Returns the override of a pattern as it would be without the edited override.
    fn without_edit(&self, pattern: &str) -> Option<&Override> {
        let edit = self.edit.as_ref();
        let edited = edit.and_then(|edit| edit.change.overrides.as_ref());
        edited.unwrap_or(&self.base.overrides).of_pattern(pattern)
    }

    fn override_of(&self, pattern: &str) -> Option<&Override> {
        let own = self.own.of_pattern(pattern).map(|own| &own.gives);
        own.or_else(|| self.without_edit(pattern))
    }

    fn replace_override(
        &mut self,
        pattern: &str,
        own: Option<OverrideEdit>,
        at: Nanos,
        version: u32,
    ) {
        let before = self.override_of(pattern).cloned();
        self.parts_mut().own.set(pattern, own);
        if self.override_of(pattern) != before.as_ref() {
            let replaced = Vec::from([(pattern.to_owned(), before)]);
            self.note(|history| history.note_overrides(replaced, Carry::Keep, at, version));
        }
    }

    /// Returns the identity of the configuration's rule. It is a hash of the rule's text, so it is
    /// equal at every Envoy.
    pub(crate) fn base_id(&self) -> String {
        let hash = self.base.id().unwrap_or_default().hash;
        let [high, low] = [hash >> 64, hash].map(|half| u64::try_from(half & u128::from(u64::MAX)));
        format!("{:016x}{:016x}", high.unwrap_or(0), low.unwrap_or(0))
    }

    /// Returns true if the rule already has this edit.
    pub(crate) fn has(&self, to: &EditTo<'_>) -> bool {
        match to {
            EditTo::Rule(None) => self.edit.is_none(),
            EditTo::Rule(Some(edit)) => self.edit.as_ref().is_some_and(|old| edit.is_same(old)),
            EditTo::Override(pattern, None) => self.own.of_pattern(pattern).is_none(),
            EditTo::Override(pattern, Some(own)) => {
                let old = self.own.of_pattern(pattern);
                old.is_some_and(|old| own.is_same(old))
            }
        }
    }

    /// Applies an edit that was made at another Envoy, or the end of such an edit.
    pub(crate) fn put(&mut self, to: EditTo<'_>, at: Nanos, version: u32) {
        match to {
            EditTo::Override(pattern, own) => self.replace_override(pattern, own, at, version),
            EditTo::Rule(edit) => {
                let carry = edit.as_ref().or(self.edit.as_ref());
                let carry = carry.map(|edit| edit.carry).unwrap_or_default();
                self.change((carry, at, version), |parts| parts.edit = Part::new(edit));
            }
        }
    }

    /// Returns true if any part differs from the base.
    pub(crate) fn is_edited(&self) -> bool {
        self.edit.is_some() || !self.own.is_empty()
    }

    /// Returns the origins of the edits in force.
    pub(super) fn authors(&self) -> impl Iterator<Item = &Origin> {
        let edit = self.edit.iter().map(|edit| &edit.who);
        edit.chain(self.own.values().map(|own| &own.who))
    }

    /// Returns the edits with their end times. The pattern is `None` for the edit of the rule.
    pub(crate) fn ends(&self) -> Vec<(Option<String>, Option<u64>)> {
        let edit = self.edit.iter().map(|edit| (None, edit.who.expires_at_ns));
        let own = self.own.iter();
        let own = own.map(|(pattern, own)| (Some(pattern), own.who.expires_at_ns));
        edit.chain(own).collect()
    }

    /// Drops edits that expired by `now`, each at its own expiry time.
    pub(super) fn expire(&mut self, now: Nanos, version: u32) -> Ended {
        let mut ended = Ended {
            rule: self.base.name.clone(),
            ..Ended::default()
        };
        if now < self.next_expiry() {
            return ended;
        }
        while let Some((at, pattern)) = self.first_to_expire(now) {
            if let Some(pattern) = pattern {
                self.drop_override(&pattern, at, version);
                ended.keys.push(pattern);
            } else {
                let carry = self.edit.as_ref().map(|edit| edit.carry);
                self.drop_edit(carry.unwrap_or_default(), at, version);
                ended.edit = true;
            }
        }
        ended
    }

    /// Returns the time of the first edit that expired by `now`, and its pattern if it is an
    /// override.
    fn first_to_expire(&self, now: Nanos) -> Option<(Nanos, Option<String>)> {
        let own = self.own.iter();
        let own = own.filter_map(|(pattern, own)| Some((own.who.expired(now)?, Some(pattern))));
        let edit = self.edit.iter();
        let edit = edit.filter_map(|edit| Some((edit.who.expired(now)?, None)));
        edit.chain(own).min_by_key(|(at, _)| *at)
    }

    /// Returns all edits of the rule, for a configuration that ends them.
    pub(super) fn all_ended(&self) -> Option<Ended> {
        let ended = Ended {
            rule: self.base.name.clone(),
            edit: self.edit.is_some(),
            keys: self.own.iter().map(|(pattern, _)| pattern).collect(),
        };
        (!ended.is_empty()).then_some(ended)
    }
}
