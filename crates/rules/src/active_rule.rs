//! A rule at work: its limits through time, for each of its keys.

use alloc::sync::Arc;
use alloc::vec::Vec;

use loudou_limiter::{Ask, Bucket, Carry, Clock, Decimal, Limits, Nanos, Penalty, Plan, Taken};
use loudou_store::{Age, Give, LiveRule, Receipt, SharedData, Table, Take, Why};

use crate::config::{RuleEdit, scaled};
use crate::request::Request;
use crate::rule::{Match, Mode, Override, Rule};
use crate::versions::History;

/// A rule in force, with the changes that its live buckets may still need.
#[derive(Clone, Debug)]
pub struct ActiveRule {
    rule: Arc<Rule>,
    history: Arc<History>,
    /// Shared with the rule that it replaces, if the limits are the same.
    scales: Arc<Scales>,
    bans_keys: bool,
    reads_wall: bool,
    matches_all: bool,
    tag: u32,
}

/// The rule's limits by each scale among its overrides, in the order of the scales: many keys have the same.
#[derive(Debug, Default)]
struct Scales(Vec<(Decimal, Limits)>);

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
    pub fn new(rule: impl Into<Arc<Rule>>, history: impl Into<Arc<History>>) -> Self {
        Self::build(rule.into(), history.into(), None, None)
    }

    /// The same rule after a change of its limits, overrides or history. What they have in common is shared.
    #[must_use]
    pub fn replaced_by(&self, rule: Arc<Rule>, history: Arc<History>) -> Self {
        Self::build(rule, history, Some(self), None)
    }

    /// A rule that shares its buckets only with rules equal to it in every field.
    pub fn alone(rule: Rule) -> Self {
        let tag = rule.whole_tag();
        Self::build(Arc::new(rule), Arc::default(), None, Some(tag))
    }

    fn build(
        rule: Arc<Rule>,
        history: Arc<History>,
        before: Option<&Self>,
        tag: Option<u32>,
    ) -> Self {
        let same_limits = before.filter(|before| before.rule.limits == rule.limits);
        let known = same_limits.map(|before| &before.scales);
        let same_overrides =
            same_limits.filter(|before| before.rule.overrides.is_same(&rule.overrides));
        let scales = same_overrides.map_or_else(
            || Arc::new(Scales::of(&rule, known)),
            |before| Arc::clone(&before.scales),
        );
        let bans_keys = same_overrides.map_or_else(|| ban_any(&rule), |before| before.bans_keys);
        let mut all = rule.overrides.values().filter_map(|own| match own {
            Override::Limits(limits) => Some(limits),
            _ => None,
        });
        let reads_wall = rule.limits.reads_wall()
            || all.any(Limits::reads_wall)
            || history.limits().any(Limits::reads_wall);
        let same_key =
            before.filter(|before| before.rule.name == rule.name && before.rule.key == rule.key);
        let tag = tag.or_else(|| Some(same_key?.tag));
        Self {
            tag: tag.unwrap_or_else(|| rule.tag()),
            matches_all: rule.matches == Match::default() && rule.when.is_none(),
            rule,
            history,
            scales,
            bans_keys,
            reads_wall,
        }
    }

    /// Applies `edit` from `at`: live buckets are converted when they are next touched.
    pub fn edit(&mut self, edit: &RuleEdit, carry: Carry, at: Nanos) {
        let mut rule = Rule::clone(&self.rule);
        edit.apply(&mut rule);
        let mut history = History::clone(&self.history);
        let version = history.version.saturating_add(1);
        history.note(&self.rule, &rule, (carry, at, version));
        *self = self.replaced_by(Arc::new(rule), Arc::new(history));
    }

    /// The rule.
    pub fn rule(&self) -> &Rule {
        &self.rule
    }

    /// The rule, to keep it.
    pub fn shared_rule(&self) -> &Arc<Rule> {
        &self.rule
    }

    /// Whether the rule's limits can be scaled by all of its overrides; else the override gives the limits.
    pub fn scales_fit(&self) -> bool {
        let mut all = self.rule.overrides.values();
        all.all(|own| match own {
            Override::Scale(scale) => self.scales.get(*scale).is_some(),
            _ => true,
        })
    }

    /// The grant for a key.
    pub fn grant(&self, key: &str) -> Grant<'_> {
        match self.rule.overrides.get(key) {
            None => Grant::Limits(&self.rule.limits),
            Some(Override::Limits(limits)) => Grant::Limits(limits),
            // An edit whose limits cannot be scaled is rejected earlier.
            Some(Override::Scale(scale)) => {
                Grant::Limits(self.scales.get(*scale).unwrap_or(&self.rule.limits))
            }
            Some(Override::Unlimited) => Grant::Unlimited,
            Some(Override::Banned) => Grant::Banned,
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
    pub const fn reads_wall(&self) -> bool {
        self.reads_wall
    }

    /// Whether the rule matches every request, whatever its upstream does.
    pub const fn matches_all(&self) -> bool {
        self.matches_all
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
            lease: None,
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

    /// Plans a request anew that waits to pass at `due` by this rule, whose `receipt` comes to the rule's version.
    /// `None` if nothing has changed for it.
    pub fn plan(
        &self,
        key: &str,
        (receipt, due): (&mut Receipt, Nanos),
        clock: Clock,
    ) -> Option<Plan> {
        let limits = match self.grant(key) {
            _ if self.rule.mode != Mode::Enforce => return Some(Plan::At(due.min(clock.now))),
            Grant::Unlimited => return Some(Plan::At(due.min(clock.now))),
            Grant::Banned => return Some(Plan::Again),
            Grant::Limits(limits) => limits,
        };
        let version = self.history.version;
        if receipt.is_leased() || receipt.version() >= version {
            return None;
        }
        let of = (receipt.taken(), receipt.version());
        let moved = self
            .history
            .bring_taken_forward(&self.rule, (key, limits), of, clock);
        let plan = moved
            .as_ref()
            .map(|(taken, old)| limits.plan(old, taken, due));
        let taken = moved.map(|(taken, _)| taken);
        receipt.bring_forward(version, taken);
        plan
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

    fn bring_taken_forward(
        &self,
        of: (&str, &Limits),
        taken: (&Taken, u32),
        clock: Clock,
    ) -> Option<Taken> {
        let moved = self
            .history
            .bring_taken_forward(&self.rule, of, taken, clock)?;
        Some(moved.0)
    }

    fn penalty(&self) -> Option<&Penalty> {
        self.rule.penalty.as_ref()
    }
}

impl Scales {
    /// Those of a rule; `known` are of the same limits.
    fn of(rule: &Rule, known: Option<&Arc<Self>>) -> Self {
        let mut scales = Self::default();
        for own in rule.overrides.values() {
            let Override::Scale(scale) = own else {
                continue;
            };
            if let Err(place) = scales.place(*scale) {
                let known = known.and_then(|known| known.get(*scale)).cloned();
                if let Some(limits) = known.or_else(|| scaled(&rule.limits, *scale)) {
                    scales.0.insert(place, (*scale, limits));
                }
            }
        }
        scales
    }

    fn place(&self, scale: Decimal) -> Result<usize, usize> {
        let number = scale.thousandths();
        self.0
            .binary_search_by(|(other, _)| other.thousandths().cmp(&number))
    }

    fn get(&self, scale: Decimal) -> Option<&Limits> {
        let (_, limits) = self.0.get(self.place(scale).ok()?)?;
        Some(limits)
    }
}
