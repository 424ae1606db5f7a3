//! Trials: limits that run in shadow mode beside the rule that they may replace.
//!
//! A trial is a rule that exists only in the record. Its base is a copy of the rule that was in
//! force when the trial began, in shadow mode and with a separate name
//! ([`TRIAL`](loudou_rules::rule::TRIAL)). Its edit has the limits that are tried. In the record it
//! comes right after its rule. It exists as long as its edit, which ends when it expires, with
//! `DELETE`, or when a configuration changes the rule.

use std::rc::Rc;

use loudou_rules::config::{Path, Problem, RuleEdit};
use loudou_rules::rule::tried;

use super::base::Base;
use super::part::Part;
use super::{Record, RuleRecord};

/// Maximum number of trials at a time. Each request of a tried rule is evaluated once more for its trial.
pub(crate) const MAX_TRIALS: usize = 16;

impl RuleRecord {
    /// Returns true if the rule is a trial.
    pub(crate) fn is_trial(&self) -> bool {
        tried(&self.base.name).is_some()
    }

    /// Returns true if the rule is the trial of `other`. A draining configuration may still have another rule of
    /// that name, with other keys.
    pub(super) fn tries(&self, other: &Self) -> bool {
        tried(&self.base.name) == Some(&other.base.name) && self.base.key == other.base.key
    }
}

impl Record {
    /// Adds a trial without an edit if `name` is the name of a trial and its rule exists. Returns
    /// false if there are [`MAX_TRIALS`] trials already.
    pub(crate) fn start_trial(&mut self, name: &str) -> bool {
        let place = |name: &str| self.rules.iter().position(|rule| rule.base.name == name);
        let of_rule = tried(name).filter(|name| tried(name).is_none());
        let Some(at) = of_rule.and_then(place) else {
            return true;
        };
        if place(name).is_some() {
            return true;
        }
        if self.rules.iter().filter(|rule| rule.is_trial()).count() >= MAX_TRIALS {
            return false;
        }
        let version = self.next_version();
        if let Some(rule) = self.rules.get(at) {
            let base = Part::identified(Base::new(rule.effective().trial()));
            let trial = Rc::new(RuleRecord::new(base, version));
            self.rules.insert(at.saturating_add(1), trial);
        }
        true
    }

    /// Removes the trials without an edit.
    pub(crate) fn end_trials(&mut self) {
        self.rules
            .retain(|rule| !rule.is_trial() || rule.edit.is_some());
    }

    /// Returns the trial of a rule.
    pub(crate) fn trial_of(&self, rule: &RuleRecord) -> Option<&Rc<RuleRecord>> {
        self.rules.iter().find(|other| other.tries(rule))
    }
}

/// Returns a problem for each part of an edit other than its limits, because a trial can only try
/// limits.
pub(crate) fn untried(edit: &RuleEdit) -> Vec<Problem> {
    let parts = [
        ("mode", edit.mode.is_some()),
        ("penalty", edit.penalty.is_some()),
        ("overrides", edit.overrides.is_some()),
    ];
    let wrong = parts.into_iter().filter(|(_, is_there)| *is_there);
    let problem = |(name, _)| {
        let at = Path::root().field(name);
        Problem::error(at, &name.into(), "a trial tries limits only").allowed("limits")
    };
    wrong.map(problem).collect()
}
