//! The rules of a file at work, and the index that finds those that may match.

use alloc::sync::Arc;
use alloc::vec::Vec;
use core::ops::Deref;

use loudou_limiter::{Carry, Nanos};

use crate::active_rule::ActiveRule;
use crate::config::RuleEdit;
use crate::index::{Index, Mask};
use crate::request::Request;

/// The rules of a file at work, in its order. An outcome keeps the rules that it refers to.
#[derive(Clone, Debug, Default)]
pub struct RuleSet {
    rules: Vec<Arc<ActiveRule>>,
    index: Index,
}

impl RuleSet {
    /// Applies an edit of the rule `name` from `at`; returns whether the rule exists.
    pub fn edit(&mut self, name: &str, edit: &RuleEdit, carry: Carry, at: Nanos) -> bool {
        // An edit does not change the match, so the index stays valid.
        let mut rules = self.rules.iter_mut();
        let Some(rule) = rules.find(|rule| rule.rule().name == name) else {
            return false;
        };
        Arc::make_mut(rule).edit(edit, carry, at);
        true
    }

    /// Replaces rules by their places. The index stays unless the match of one has changed.
    pub fn replace(&mut self, changes: impl IntoIterator<Item = (usize, Arc<ActiveRule>)>) {
        let mut is_stale = false;
        for (place, new) in changes {
            if let Some(old) = self.rules.get_mut(place) {
                is_stale |= old.rule().matches != new.rule().matches;
                *old = new;
            }
        }
        if is_stale {
            self.index = Index::new(self.rules.iter().map(|active| &active.rule().matches));
        }
    }

    /// The rules that may match; `None` for all of them.
    pub(crate) fn candidates(&self, request: &mut dyn Request) -> Option<Mask> {
        self.index.candidates(request)
    }
}

impl<R: Into<Arc<ActiveRule>>> FromIterator<R> for RuleSet {
    fn from_iter<I: IntoIterator<Item = R>>(rules: I) -> Self {
        let rules: Vec<Arc<ActiveRule>> = rules.into_iter().map(Into::into).collect();
        let index = Index::new(rules.iter().map(|active| &active.rule().matches));
        Self { rules, index }
    }
}

impl Deref for RuleSet {
    type Target = [Arc<ActiveRule>];

    fn deref(&self) -> &[Arc<ActiveRule>] {
        &self.rules
    }
}
