//! Selects the rules whose histories have grown too long, which means that a sweep must convert
//! their buckets to the current limits.

use std::rc::Rc;

use super::history::MAX_CHANGES;
use super::{Record, RuleRecord};

/// Minimum number of changes in a rule's history for a sweep to convert the rule's buckets.
const MIN_SWEPT: usize = 32;

impl RuleRecord {
    /// Returns true if the history is full, in which case edits must wait for a sweep.
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

    /// Removes the changes up to `version` from a rule's history. All its buckets must have been
    /// converted to them.
    pub(crate) fn forget(&mut self, rule_tag: u32, version: u32) {
        for rule in self.all_mut(|rule| rule.base.tag() == rule_tag) {
            rule.note(|history| history.forget(version));
        }
    }
}
