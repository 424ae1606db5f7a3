//! A rule at work: its limits through time, for each of its keys.

use alloc::vec::Vec;

use crate::ask::Ask;
use crate::carry::{Carry, Past, Versions};
use crate::config::{RuleEdit, scaled};
use crate::limit::Limits;
use crate::request::Request;
use crate::rule::{KeyMap, Override, Rule};
use crate::store::SharedData;
use crate::store::attempt::Take;
use crate::store::release::{Give, Receipt, Why};
use crate::store::table::Table;
use crate::time::Nanos;

/// A rule in force, with the limits its live buckets may still be in.
#[derive(Clone, Debug)]
pub struct ActiveRule {
    rule: Rule,
    versions: Versions,
    overrides: KeyMap<Own>,
    tag: u32,
}

/// What a key gets that has an override.
#[derive(Clone, Debug)]
enum Own {
    Limits(Versions),
    Unlimited,
    Banned,
}

/// What a key gets.
#[derive(Clone, Copy, Debug)]
pub enum Grant<'a> {
    /// A bucket of these limits.
    Limits(&'a Versions),
    /// Whatever it asks for.
    Unlimited,
    /// Nothing.
    Banned,
}

impl ActiveRule {
    /// A rule whose earlier limits were `past`, oldest first.
    pub fn new(rule: Rule, past: Vec<Past>) -> Self {
        let versions = Versions::new(rule.limits.clone(), past);
        let overrides = rule.overrides.map(|own| Own::new(own, &rule, &versions));
        let tag = rule.tag();
        Self {
            rule,
            versions,
            overrides,
            tag,
        }
    }

    /// Puts `edit` in force from `at` on: live buckets are carried over when they are next touched.
    pub fn edit(&mut self, edit: RuleEdit, carry: Carry, at: Nanos) {
        edit.apply(&mut self.rule);
        let regrants = edit.limits.is_some() || edit.overrides.is_some();
        if let Some(limits) = edit.limits {
            self.versions.replace(limits, carry, at);
        }
        if regrants {
            let (rule, versions) = (&self.rule, &self.versions);
            self.overrides = rule.overrides.map(|own| Own::new(own, rule, versions));
        }
    }

    /// The rule.
    pub const fn rule(&self) -> &Rule {
        &self.rule
    }

    /// Its limits through time.
    pub const fn versions(&self) -> &Versions {
        &self.versions
    }

    /// What a key gets.
    pub fn grant(&self, key: &str) -> Grant<'_> {
        match self.overrides.get(key) {
            None => Grant::Limits(&self.versions),
            Some(Own::Limits(versions)) => Grant::Limits(versions),
            Some(Own::Unlimited) => Grant::Unlimited,
            Some(Own::Banned) => Grant::Banned,
        }
    }

    /// The limits through time of a key's bucket. One that is unlimited or banned keeps what it had.
    pub fn versions_of(&self, key: &str) -> &Versions {
        match self.grant(key) {
            Grant::Limits(versions) => versions,
            Grant::Unlimited | Grant::Banned => &self.versions,
        }
    }

    /// The limits of a key's bucket; the rule's own without a key.
    pub fn limits_of(&self, key: Option<&str>) -> &Limits {
        let versions = key.map_or(&self.versions, |key| self.versions_of(key));
        versions.current()
    }

    /// Whether the limits of any key need to know the wall clock.
    pub fn reads_wall(&self) -> bool {
        self.any_limits(Limits::reads_wall)
    }

    fn any_limits(&self, test: impl Fn(&Limits) -> bool) -> bool {
        let own = self.overrides.values().filter_map(|own| match own {
            Own::Limits(versions) => Some(versions),
            Own::Unlimited | Own::Banned => None,
        });
        own.chain([&self.versions])
            .any(|versions| test(versions.current()))
    }

    /// A request to its bucket `key`.
    pub fn take<'a>(&'a self, key: &'a str, ask: Ask) -> Take<'a> {
        self.take_of(self.versions_of(key), key, ask)
    }

    /// A request to its bucket `key`, which has these limits.
    pub(crate) const fn take_of<'a>(
        &'a self,
        versions: &'a Versions,
        key: &'a str,
        ask: Ask,
    ) -> Take<'a> {
        Take {
            versions,
            rule_tag: self.tag,
            penalty: self.rule.penalty.as_ref(),
            key,
            ask,
        }
    }

    /// The return of what a request took from its bucket `key`.
    pub fn give<'a>(
        &'a self,
        key: &'a str,
        receipt: &'a Receipt,
        why: Why,
        now: Nanos,
    ) -> Give<'a> {
        Give {
            versions: self.versions_of(key),
            rule_tag: self.tag,
            key,
            receipt,
            why,
            now,
        }
    }

    /// Whether it applies to a request that it matches, by its `when`. If nobody can tell, it does: the
    /// store that failed then fails its bucket, too.
    pub fn applies(
        &self,
        table: &Table,
        store: &mut dyn SharedData,
        request: &mut dyn Request,
        now: Nanos,
    ) -> bool {
        let Some(when) = &self.rule.when else {
            return true;
        };
        let cluster = request.cluster();
        cluster.is_some_and(|cluster| table.fails(store, when, &cluster, now).unwrap_or(true))
    }

    /// Its tag in the store.
    pub const fn tag(&self) -> u32 {
        self.tag
    }
}

impl Own {
    fn new(own: &Override, rule: &Rule, versions: &Versions) -> Self {
        let limits = match own {
            Override::Unlimited => return Self::Unlimited,
            Override::Banned => return Self::Banned,
            Override::Limits(limits) => limits.clone(),
            // An edit whose limits cannot be scaled is refused before it gets here.
            Override::Scale(scale) => {
                scaled(&rule.limits, *scale).unwrap_or_else(|| rule.limits.clone())
            }
        };
        Self::Limits(versions.under(limits))
    }
}
