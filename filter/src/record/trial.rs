//! Trials, which evaluate new limits for a rule in shadow mode while the rule keeps its current
//! limits.
//!
//! A trial is a rule that only exists in the record. A trial's base is a copy of the original rule
//! made at the start of the trial, but in shadow mode and with the suffix
//! [`TRIAL`](loudou_rules::rule::TRIAL) appended to its name. The trial's edit contains the limits
//! to try out. In the record, a trial directly follows its rule. A trial ends together with its
//! edit: when the edit expires, when it is deleted with `DELETE`, or when a configuration changes
//! the rule.

use std::rc::Rc;

use loudou_rules::config::{Path, Problem, RuleEdit};
use loudou_rules::rule::tried;

use super::base::Base;
use super::part::Part;
use super::{Record, RuleRecord};

/// Maximum number of concurrent trials. This limits the cost of trials, because every request that matches a rule with
/// a trial is evaluated a second time.
pub(crate) const MAX_TRIALS: usize = 16;

impl RuleRecord {
    /// Returns true if the rule is a trial.
    pub(crate) fn is_trial(&self) -> bool {
        tried(&self.base.name).is_some()
    }

    /// Returns true if the rule is a trial of `other`. The keys are also compared, because a draining configuration may
    /// still have a rule with the same name but different keys.
    pub(super) fn tries(&self, other: &Self) -> bool {
        tried(&self.base.name) == Some(&other.base.name) && self.base.key == other.base.key
    }
}

impl Record {
    /// If `name` is the name of a trial that does not exist yet and its rule exists, adds the trial
    /// without an edit. Returns false if there are already [`MAX_TRIALS`] trials.
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

    /// Removes all trials that have no edit.
    pub(crate) fn end_trials(&mut self) {
        self.rules
            .retain(|rule| !rule.is_trial() || rule.edit.is_some());
    }

    /// Returns a rule's trial, if there is one.
    pub(crate) fn trial_of(&self, rule: &RuleRecord) -> Option<&Rc<RuleRecord>> {
        self.rules.iter().find(|other| other.tries(rule))
    }
}

/// Returns a problem for each field of an edit except `limits`, because only limits can be tried
/// out.
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
