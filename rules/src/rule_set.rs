//! The rules of a file at work, and the index that tells which may match.

use alloc::vec::Vec;
use core::ops::Deref;

use loudou_limiter::{Carry, Nanos};

use crate::active_rule::ActiveRule;
use crate::config::RuleEdit;
use crate::index::{Index, Mask};
use crate::request::Request;

/// The rules of a file at work, in its order.
#[derive(Clone, Debug, Default)]
pub struct RuleSet {
    rules: Vec<ActiveRule>,
    index: Index,
}

impl RuleSet {
    /// Puts an edit of the rule `name` in force from `at` on; whether there is one.
    pub fn edit(&mut self, name: &str, edit: &RuleEdit, carry: Carry, at: Nanos) -> bool {
        // An edit leaves the match alone, and so the index.
        let mut rules = self.rules.iter_mut();
        let Some(rule) = rules.find(|rule| rule.rule().name == name) else {
            return false;
        };
        rule.edit(edit, carry, at);
        true
    }

    /// The rules that may match.
    pub(crate) fn candidates(&self, request: &mut dyn Request) -> Mask {
        self.index.candidates(request)
    }
}

impl FromIterator<ActiveRule> for RuleSet {
    fn from_iter<I: IntoIterator<Item = ActiveRule>>(rules: I) -> Self {
        let rules: Vec<ActiveRule> = rules.into_iter().collect();
        let index = Index::new(rules.iter().map(|active| &active.rule().matches));
        Self { rules, index }
    }
}

impl Deref for RuleSet {
    type Target = [ActiveRule];

    fn deref(&self) -> &[ActiveRule] {
        &self.rules
    }
}
