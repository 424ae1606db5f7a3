//! Creates, drops and expires a rule's edits.

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
    /// The rule would have more than [`MAX_EDITED`] edited overrides, or more than
    /// [`MAX_OVERRIDES`] overrides in total.
    TooManyOverrides,
}

impl RuleRecord {
    /// Validates the rule after an edit. The overrides must be valid for the limits, and there must
    /// not be too many overrides. If the rule is fleet-wide or settles costs, its limits and
    /// overrides must support this.
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

    /// Returns the rule without temporary edits and overrides.
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

    /// Applies `change` on top of the existing edit. Fields that end up equal to the base are not
    /// stored in the edit. If `change` replaces all overrides, individually edited overrides are
    /// dropped.
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

    /// Drops the rule's edit, so that the base applies again.
    pub(crate) fn drop_edit(&mut self, carry: Carry, at: Nanos, version: u32) {
        self.change((carry, at, version), |parts| parts.edit = Part::new(None));
    }

    /// Sets a pattern's edited override. If the base already has the same override, no edited
    /// override is stored. However, if the rule's edit replaces the overrides, the edited override
    /// is always stored, because the rule's edit may end.
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

    /// Drops a pattern's edited override. Returns true if there was one.
    pub(crate) fn drop_override(&mut self, pattern: &str, at: Nanos, version: u32) -> bool {
        let was = self.own.of_pattern(pattern).is_some();
        self.replace_override(pattern, None, at, version);
        was
    }

    /// Returns the override that a pattern would have without its edited override.
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

    /// Returns the ID of the configured rule version. The ID is a hash of the encoded base, so it
    /// is the same on all Envoys with that version.
    pub(crate) fn base_id(&self) -> String {
        let hash = self.base.id().unwrap_or_default().hash;
        let [high, low] = [hash >> 64, hash].map(|half| u64::try_from(half & u128::from(u64::MAX)));
        format!("{:016x}{:016x}", high.unwrap_or(0), low.unwrap_or(0))
    }

    /// Returns true if the rule already has this edit or override.
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

    /// Applies a change that another Envoy made to an edit or override.
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

    /// Returns true if the rule has an edit or edited overrides.
    pub(crate) fn is_edited(&self) -> bool {
        self.edit.is_some() || !self.own.is_empty()
    }

    /// Returns the origins of the rule's edit and edited overrides.
    pub(super) fn authors(&self) -> impl Iterator<Item = &Origin> {
        let edit = self.edit.iter().map(|edit| &edit.who);
        edit.chain(self.own.values().map(|own| &own.who))
    }

    /// Returns the pattern and expiry time of the rule's edit and of each edited override. The
    /// pattern is `None` for the rule's edit.
    pub(crate) fn ends(&self) -> Vec<(Option<String>, Option<u64>)> {
        let edit = self.edit.iter().map(|edit| (None, edit.who.expires_at_ns));
        let own = self.own.iter();
        let own = own.map(|(pattern, own)| (Some(pattern), own.who.expires_at_ns));
        edit.chain(own).collect()
    }

    /// Drops the edits and overrides that have expired by `now`. Each drop takes effect at the
    /// edit's or override's expiry time, not at `now`.
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

    /// Finds the edit or override that expired first, up to `now`. Returns its expiry time and, for
    /// an override, its pattern.
    fn first_to_expire(&self, now: Nanos) -> Option<(Nanos, Option<String>)> {
        let own = self.own.iter();
        let own = own.filter_map(|(pattern, own)| Some((own.who.expired(now)?, Some(pattern))));
        let edit = self.edit.iter();
        let edit = edit.filter_map(|edit| Some((edit.who.expired(now)?, None)));
        edit.chain(own).min_by_key(|(at, _)| *at)
    }

    /// Returns an [`Ended`] that includes the rule's edit and all edited overrides. `None` if there
    /// are none.
    pub(super) fn all_ended(&self) -> Option<Ended> {
        let ended = Ended {
            rule: self.base.name.clone(),
            edit: self.edit.is_some(),
            keys: self.own.iter().map(|(pattern, _)| pattern).collect(),
        };
        (!ended.is_empty()).then_some(ended)
    }
}
