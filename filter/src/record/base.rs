//! The configured rules, which the record stores as bases.

use std::ops::Deref;
use std::sync::Arc;

use loudou_rules::config::parse_rule;
use loudou_rules::rule::{Rule, RuleFile};

use super::part::{Part, Text};

/// A configured rule.
#[derive(Clone, Debug)]
pub(crate) struct Base {
    rule: Arc<Rule>,
    tag: u32,
}

impl Base {
    pub(super) fn new(rule: Rule) -> Self {
        Self {
            tag: rule.tag(),
            rule: Arc::new(rule),
        }
    }

    /// Returns a reference to the shared rule.
    pub(super) const fn rule(&self) -> &Arc<Rule> {
        &self.rule
    }

    /// Returns the rule's tag, which is only computed once.
    pub(crate) const fn tag(&self) -> u32 {
        self.tag
    }

    /// Returns true if both rules use the same buckets.
    pub(super) fn shares_buckets_with(&self, other: &Self) -> bool {
        self.tag == other.tag && self.rule.name == other.rule.name
    }
}

impl Deref for Base {
    type Target = Rule;

    fn deref(&self) -> &Rule {
        &self.rule
    }
}

impl PartialEq for Base {
    fn eq(&self, other: &Self) -> bool {
        self.rule == other.rule
    }
}

impl Eq for Base {}

impl Text for Base {
    fn write(&self) -> Vec<u8> {
        serde_json::to_vec(&*self.rule).unwrap_or_default()
    }

    fn read(text: &[u8]) -> Option<Self> {
        let rule = serde_json::from_slice(text).ok()?;
        Some(Self::new(parse_rule(&rule).ok()?))
    }
}

/// The rules in a configuration, in order.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub(crate) struct Bases {
    pub(crate) rules: Vec<Part<Base>>,
}

impl Bases {
    pub(crate) fn of(file: &RuleFile) -> Self {
        let rules = file.rules.iter().cloned();
        Self {
            rules: rules
                .map(|rule| Part::identified(Base::new(rule)))
                .collect(),
        }
    }
}
