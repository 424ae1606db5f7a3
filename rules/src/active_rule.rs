//! A rule at work: its limits through time, for each of its keys.

use loudou_limiter::{Ask, Bucket, Carry, Clock, Limits, Nanos, Penalty};
use loudou_store::{Age, Give, LiveRule, Receipt, SharedData, Table, Take, Why};

use crate::config::RuleEdit;
use crate::request::Request;
use crate::rule::{KeyMap, Override, Rule};
use crate::versions::{History, limits_of};

/// A rule in force, with the changes that its live buckets may still need.
#[derive(Clone, Debug)]
pub struct ActiveRule {
    rule: Rule,
    history: History,
    overrides: KeyMap<KeyOverride>,
    bans_keys: bool,
    tag: u32,
}

/// The override of a key, with its limits worked out.
#[derive(Clone, Debug)]
enum KeyOverride {
    Limits(Limits),
    Unlimited,
    Banned,
}

/// The grant for a key.
#[derive(Clone, Copy, Debug)]
pub enum Grant<'a> {
    /// A bucket of these limits.
    Limits(&'a Limits),
    /// Every request is admitted.
    Unlimited,
    /// No request is admitted.
    Banned,
}

impl ActiveRule {
    /// A rule with its history.
    pub fn new(rule: Rule, history: History) -> Self {
        let overrides = rule.overrides.map(|given| KeyOverride::new(given, &rule));
        let tag = rule.tag();
        Self {
            bans_keys: ban_any(&rule),
            rule,
            history,
            overrides,
            tag,
        }
    }

    /// A rule that shares its buckets only with rules equal to it in every field.
    pub fn alone(rule: Rule) -> Self {
        let tag = rule.whole_tag();
        Self {
            tag,
            ..Self::new(rule, History::default())
        }
    }

    /// Applies `edit` from `at`: live buckets are converted when they are next touched.
    pub fn edit(&mut self, edit: &RuleEdit, carry: Carry, at: Nanos) {
        let before = self.rule.clone();
        edit.apply(&mut self.rule);
        let version = self.history.version.saturating_add(1);
        let note = (carry, at, version);
        if self.history.note(&before, &self.rule, note) {
            let rule = &self.rule;
            self.overrides = rule.overrides.map(|given| KeyOverride::new(given, rule));
            self.bans_keys = ban_any(rule);
        }
    }

    /// The rule.
    pub const fn rule(&self) -> &Rule {
        &self.rule
    }

    /// The grant for a key.
    pub fn grant(&self, key: &str) -> Grant<'_> {
        match self.overrides.get(key) {
            None => Grant::Limits(&self.rule.limits),
            Some(KeyOverride::Limits(limits)) => Grant::Limits(limits),
            Some(KeyOverride::Unlimited) => Grant::Unlimited,
            Some(KeyOverride::Banned) => Grant::Banned,
        }
    }

    /// The grant for a request that may have no key: without one, the rule's limits.
    pub fn limits_for(&self, key: Option<&str>) -> &Limits {
        key.map_or(&self.rule.limits, |key| self.limits_of(key))
    }

    /// Whether an override bans any key.
    pub const fn bans_keys(&self) -> bool {
        self.bans_keys
    }

    /// Whether the limits of any key need the wall clock, or needed it before an edit.
    pub fn reads_wall(&self) -> bool {
        let own = self.overrides.values().filter_map(|own| match own {
            KeyOverride::Limits(limits) => Some(limits),
            KeyOverride::Unlimited | KeyOverride::Banned => None,
        });
        let all = own.chain([&self.rule.limits]).chain(self.history.limits());
        all.into_iter().any(Limits::reads_wall)
    }

    /// A request to the rule's bucket `key`.
    pub fn take<'a>(&'a self, key: &'a str, ask: Ask) -> Take<'a> {
        self.take_of(self.limits_of(key), key, ask)
    }

    /// A request to the rule's bucket `key`, which has these limits.
    pub(crate) const fn take_of<'a>(
        &'a self,
        limits: &'a Limits,
        key: &'a str,
        ask: Ask,
    ) -> Take<'a> {
        Take {
            rule: self,
            limits,
            key,
            ask,
        }
    }

    /// The return of the cost that a request took from the rule's bucket `key`.
    pub const fn give<'a>(
        &'a self,
        key: &'a str,
        receipt: &'a Receipt,
        why: Why,
        clock: Clock,
    ) -> Give<'a> {
        Give {
            rule: self,
            key,
            receipt,
            why,
            clock,
        }
    }

    /// Whether the rule's `when` applies to a request that the rule matches. If the store cannot be read, it
    /// applies: the store then fails for the bucket, too.
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
}

/// Whether an override of the rule bans any key.
fn ban_any(rule: &Rule) -> bool {
    let mut overrides = rule.overrides.values();
    overrides.any(|own| matches!(own, Override::Banned))
}

impl LiveRule for ActiveRule {
    fn tag(&self) -> u32 {
        self.tag
    }

    fn version(&self) -> u32 {
        self.history.version
    }

    fn age(&self, version: u32) -> Age {
        self.history.age(version)
    }

    /// The limits of an override. A key that is unlimited or banned keeps its bucket.
    fn limits_of(&self, key: &str) -> &Limits {
        match self.grant(key) {
            Grant::Limits(limits) => limits,
            Grant::Unlimited | Grant::Banned => &self.rule.limits,
        }
    }

    fn bring_forward(
        &self,
        of: (&str, &Limits),
        bucket: (&Bucket, u32),
        clock: Clock,
    ) -> Option<Bucket> {
        self.history.bring_forward(&self.rule, of, bucket, clock)
    }

    fn penalty(&self) -> Option<&Penalty> {
        self.rule.penalty.as_ref()
    }
}

impl KeyOverride {
    fn new(gives: &Override, rule: &Rule) -> Self {
        match gives {
            Override::Unlimited => Self::Unlimited,
            Override::Banned => Self::Banned,
            Override::Limits(_) | Override::Scale(_) => {
                Self::Limits(limits_of(gives, &rule.limits).into_owned())
            }
        }
    }
}
