//! The rules whose buckets have to be brought forward, because they changed often.

use std::rc::Rc;

use super::history::MAX_CHANGES;
use super::{Record, RuleRecord};

/// The number of changes from which a sweep brings the buckets of a rule forward.
const SWEPT_FROM: usize = 32;

impl RuleRecord {
    /// Whether an edit has to wait for a sweep.
    pub(crate) fn is_full(&self) -> bool {
        self.history.changes.len() >= MAX_CHANGES
    }
}

impl Record {
    /// The rules whose buckets a sweep has to bring forward.
    pub(crate) fn to_sweep(&self) -> impl Iterator<Item = &Rc<RuleRecord>> {
        self.all()
            .filter(|rule| rule.history.changes.len() >= SWEPT_FROM)
    }

    /// Forgets the changes of a rule up to `version`, which all of its buckets have followed.
    pub(crate) fn forget(&mut self, rule_tag: u32, version: u32) {
        for rule in self.all_mut(|rule| rule.base.tag() == rule_tag) {
            rule.note(|history| history.forget(version));
        }
    }
}
