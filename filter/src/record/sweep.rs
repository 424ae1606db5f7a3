//! Selects the rules that changed so often that a sweep must convert their buckets to the current
//! limits.

use std::rc::Rc;

use super::history::MAX_CHANGES;
use super::{Record, RuleRecord};

/// Number of changes of a rule at which a sweep starts to convert its buckets.
const MIN_SWEPT: usize = 32;

impl RuleRecord {
    /// Returns true if an edit must wait for a sweep.
    pub(crate) fn is_full(&self) -> bool {
        self.history.changes.len() >= MAX_CHANGES
    }
}

impl Record {
    /// Iterates over the rules whose buckets a sweep must convert.
    pub(crate) fn to_sweep(&self) -> impl Iterator<Item = &Rc<RuleRecord>> {
        self.all()
            .filter(|rule| rule.history.changes.len() >= MIN_SWEPT)
    }

    /// Forgets the changes of a rule up to `version`, which all its buckets have followed.
    pub(crate) fn forget(&mut self, rule_tag: u32, version: u32) {
        for rule in self.all_mut(|rule| rule.base.tag() == rule_tag) {
            rule.note(|history| history.forget(version));
        }
    }
}
