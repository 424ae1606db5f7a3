//! The running rules, parsed to describe them and to estimate their memory. Patterns take a while to
//! compile, so the rules are parsed only when they are first needed.

use std::sync::OnceLock;

use loudou_api::{RuleView, Status};
use loudou_rules::config::parse_rule;
use loudou_rules::rule::{Rule, RuleFile, StoreSettings, Version};
use loudou_rules::size;

/// The rules, parsed when they are first needed.
#[derive(Clone, Debug, Default)]
pub(crate) struct Running(OnceLock<Option<RuleFile>>);

/// Estimated size of the memory that all workers share, in bytes.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) struct Estimate {
    /// Size with the buckets that are in use now.
    pub(crate) now: u64,
    /// Size with every bucket in use and with keys of maximum length.
    pub(crate) most: u64,
}

impl Running {
    /// Returns the estimate for these rules. `None` if there are no rules, or if this version of
    /// the app cannot read a rule.
    pub(crate) fn estimate(&self, rules: &[RuleView], status: &Status) -> Option<Estimate> {
        let file = self.file(rules, status)?;
        Some(Estimate {
            now: size::in_use(file, status.store.used),
            most: size::memory(file).most,
        })
    }

    /// Returns one rule of the list, if this version of the app can read all rules.
    pub(crate) fn rule(&self, rules: &[RuleView], status: &Status, name: &str) -> Option<&Rule> {
        let mut rules = self.file(rules, status)?.rules.iter();
        rules.find(|rule| rule.name.as_str() == name)
    }

    fn file(&self, rules: &[RuleView], status: &Status) -> Option<&RuleFile> {
        self.0.get_or_init(|| parsed(rules, status)).as_ref()
    }
}

fn parsed(rules: &[RuleView], status: &Status) -> Option<RuleFile> {
    let parsed = rules.iter().map(|rule| parse_rule(&rule.rule).ok());
    let rules: Vec<_> = parsed.collect::<Option<_>>()?;
    let store = StoreSettings {
        buckets: u32::try_from(status.store.buckets).ok()?,
        ..StoreSettings::default()
    };
    (!rules.is_empty()).then_some(RuleFile {
        version: Version,
        store,
        fleet: None,
        rules,
    })
}
