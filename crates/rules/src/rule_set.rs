//! The current rules, and an index for finding the rules that may match a request.

use alloc::borrow::Cow;
use alloc::boxed::Box;
use alloc::sync::Arc;
use alloc::vec::Vec;
use core::ops::Deref;

use loudou_limiter::{
    Bucket, BucketRequest, Carry, Clock, Decimal, Limits, Nanos, Penalty, Plan, Taken,
};
use loudou_store::{Acquire, Age, LiveRule, Receipt, Release, ReleaseReason, SharedData, Table};

use crate::config::{MAX_RULES, RuleEdit, fits_scale, scaled};
use crate::numbers::{self, FoundNumbers};
use crate::request::{Request, without_query};
use crate::rule::{Match, Mode, Override, PathMatch, Rule, Test, parts};
use crate::versions::{Granted, History};

/// The current rules, in file order. The outcome of an evaluation shares ownership of its rules, so
/// that replaced rules stay alive for as long as an outcome refers to them.
#[derive(Clone, Debug, Default)]
pub struct RuleSet {
    rules: Vec<Arc<ActiveRule>>,
    index: Index,
}

impl RuleSet {
    /// Applies an edit to the rule `name`, effective at the instant `at`. Returns true if the rule
    /// exists.
    pub fn edit(&mut self, name: &str, edit: &RuleEdit, carry: Carry, at: Nanos) -> bool {
        // An edit does not change the match, so the index stays valid.
        let mut rules = self.rules.iter_mut();
        let Some(rule) = rules.find(|rule| rule.rule().name == name) else {
            return false;
        };
        Arc::make_mut(rule).edit(edit, carry, at);
        true
    }

    /// Replaces the rules at the given indices. Rebuilds the index only if a rule's match has
    /// changed.
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

    /// Returns the rules that may match, where `None` means all rules.
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

// An index of rules by the method, path and host that they require.
//
// The index only rules out candidates. The remaining candidates are evaluated in full. The number
// of lookups for a request depends on the kinds of tests in the rules, not on the number of rules.

/// Number of rules up to which testing each one is faster than using the index.
const FEW: usize = 4;
/// Number of bits in a word.
const WORD: usize = 64;

/// A set of rules, identified by their indices. Indices beyond the maximum number of rules are
/// always in the set.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub(crate) struct Mask([u64; MAX_RULES / WORD]);

impl Mask {
    fn add(&mut self, rule: usize) {
        if let Some(word) = self.0.get_mut(rule / WORD) {
            *word |= bit(rule);
        }
    }

    /// Returns the smallest index in the set that is not below `from`.
    pub(crate) fn next(&self, from: usize) -> usize {
        let mut at = from;
        while let Some(word) = self.0.get(at / WORD) {
            let bits = word & !bit(at).wrapping_sub(1);
            let first = at & !(WORD - 1);
            let behind = usize::try_from(bits.trailing_zeros()).unwrap_or(WORD);
            at = first.saturating_add(behind);
            if behind < WORD {
                break;
            }
        }
        at
    }

    fn or(&mut self, other: &Self) {
        for (word, other) in self.0.iter_mut().zip(other.0) {
            *word |= other;
        }
    }

    fn and(&mut self, other: &Self) {
        for (word, other) in self.0.iter_mut().zip(other.0) {
            *word &= other;
        }
    }
}

fn bit(rule: usize) -> u64 {
    let place = u32::try_from(rule % WORD).unwrap_or(0);
    1_u64.wrapping_shl(place)
}

/// Rules by a string that they require of a request, such as the method.
#[derive(Clone, Debug, Default)]
struct ByText {
    /// Rules that do not require a particular string.
    any: Mask,
    /// Strings, in order, with the rules that require them.
    texts: Vec<(Vec<u8>, Mask)>,
}

impl ByText {
    fn find(&self, text: &[u8]) -> Result<usize, usize> {
        self.texts
            .binary_search_by(|(own, _)| own.as_slice().cmp(text))
    }

    fn add(&mut self, text: &[u8], rule: usize) {
        let at = match self.find(text) {
            Ok(at) => at,
            Err(at) => {
                self.texts.insert(at, (text.to_vec(), Mask::default()));
                at
            }
        };
        if let Some((_, mask)) = self.texts.get_mut(at) {
            mask.add(rule);
        }
    }

    fn join(&self, text: &[u8], mask: &mut Mask) {
        if let Some((_, more)) = self.find(text).ok().and_then(|at| self.texts.get(at)) {
            mask.or(more);
        }
    }
}

/// Index of a rule set.
#[derive(Clone, Debug, Default)]
pub(crate) struct Index {
    is_worth_it: bool,
    methods: ByText,
    hosts: ByText,
    /// Rules by their exact path. Rules without an exact path are in `prefixes`.
    paths: ByText,
    /// Rules by a path prefix consisting of whole segments.
    prefixes: ByText,
    longest_prefix: usize,
}

impl Index {
    pub(crate) fn new<'a>(rules: impl Iterator<Item = &'a Match>) -> Self {
        let mut index = Self::default();
        let mut count: usize = 0;
        for (rule, matches) in rules.enumerate() {
            index.add(rule, matches);
            count = rule.saturating_add(1);
        }
        index.is_worth_it = count > FEW;
        index
    }

    fn add(&mut self, rule: usize, matches: &Match) {
        if matches.methods.is_empty() {
            self.methods.any.add(rule);
        }
        for method in &matches.methods {
            self.methods.add(method.as_bytes(), rule);
        }
        match &matches.host {
            Some(Test::Exact(host)) => self.hosts.add(host.as_bytes(), rule),
            _ => self.hosts.any.add(rule),
        }
        let prefix = match &matches.path {
            Some(PathMatch::Exact(path)) => return self.paths.add(path.as_bytes(), rule),
            Some(PathMatch::Prefix(prefix)) => prefix.as_bytes(),
            Some(PathMatch::Template(template)) => literal_prefix(template.as_bytes()),
            _ => return self.prefixes.any.add(rule),
        };
        self.longest_prefix = self.longest_prefix.max(prefix.len());
        self.prefixes.add(prefix, rule);
    }

    /// Returns the rules that may match, or `None` if there are too few rules for an index.
    pub(crate) fn candidates(&self, request: &mut dyn Request) -> Option<Mask> {
        self.is_worth_it.then(|| self.lookup(request))
    }

    fn lookup(&self, request: &mut dyn Request) -> Mask {
        let mut mask = self.by_path(request);
        if !self.methods.texts.is_empty() {
            let mut by_method = self.methods.any;
            if let Some(method) = request.method() {
                self.methods.join(&method, &mut by_method);
            }
            mask.and(&by_method);
        }
        if !self.hosts.texts.is_empty() {
            let mut by_host = self.hosts.any;
            if let Some(host) = parts::host(request) {
                self.hosts.join(&host, &mut by_host);
            }
            mask.and(&by_host);
        }
        mask
    }

    fn by_path(&self, request: &mut dyn Request) -> Mask {
        let mut mask = self.prefixes.any;
        if self.paths.texts.is_empty() && self.prefixes.texts.is_empty() {
            return mask;
        }
        let Some(path) = request.path() else {
            return mask;
        };
        let path = without_query(&path);
        self.paths.join(path, &mut mask);
        if self.prefixes.texts.is_empty() {
            return mask;
        }
        // A prefix ends just before a slash, just after a slash, or at the end of the path.
        let slashes = path.iter().enumerate().filter(|(_, b)| **b == b'/');
        let ends = slashes.flat_map(|(at, _)| [at, at.saturating_add(1)]);
        for end in ends.take_while(|end| *end <= self.longest_prefix) {
            if let Some(start) = path.get(..end) {
                self.prefixes.join(start, &mut mask);
            }
        }
        self.prefixes.join(path, &mut mask);
        mask
    }
}

/// Returns the common prefix of all paths that match `template`, which ends with the slash before
/// the first `{`.
fn literal_prefix(template: &[u8]) -> &[u8] {
    let brace = template.iter().position(|b| *b == b'{');
    brace.and_then(|at| template.get(..at)).unwrap_or(template)
}

#[cfg(test)]
mod index_tests {
    use super::*;

    #[test]
    fn the_next_rule_is_the_first_of_the_set_from_there_on() {
        let sets: [&[usize]; 6] = [
            &[],
            &[0],
            &[255],
            &[1, 2, 63, 64, 127, 128, 200],
            &[63, 191],
            &[64, 65, 66],
        ];
        for rules in sets {
            let mut mask = Mask::default();
            for rule in rules {
                mask.add(*rule);
            }
            for from in 0..=MAX_RULES {
                let next = rules.iter().find(|rule| **rule >= from);
                assert_eq!(
                    mask.next(from),
                    *next.unwrap_or(&MAX_RULES),
                    "{rules:?}, {from}"
                );
            }
        }
        assert_eq!(
            Mask::default().next(MAX_RULES + 9),
            MAX_RULES + 9,
            "always in the set"
        );
    }
}

// A rule in force, and its keys' limits in each version.

/// A rule in force, with the changes that may still have to be applied to its live buckets.
#[derive(Clone, Debug)]
#[expect(clippy::struct_excessive_bools, reason = "independent facts")]
pub struct ActiveRule {
    rule: Arc<Rule>,
    history: Arc<History>,
    /// The scaled limits, shared with the replaced rule if the limits and overrides are unchanged.
    scales: Arc<Scales>,
    bans_keys: bool,
    reads_wall: bool,
    matches_all: bool,
    /// True if requests carry numbers for the limits, or did so before a change in the history.
    is_sourced: bool,
    tag: u32,
}

/// The rule's limits, scaled by each distinct scale in its overrides, in ascending order of scale.
/// Keys with the same scale share their scaled limits.
#[derive(Debug, Default)]
struct Scales(Vec<(Decimal, Limits)>);

/// Limits for a request that supplies some of their numbers.
#[derive(Clone, Debug)]
pub(crate) struct Sourced {
    pub(crate) limits: Box<Limits>,
    pub(crate) found: Vec<FoundNumbers>,
}

/// The effect of a rule on a key.
#[derive(Clone, Copy, Debug)]
pub enum Grant<'a> {
    /// The key has a bucket with these limits.
    Limits(&'a Limits),
    /// Every request is admitted.
    Unlimited,
    /// No request is admitted.
    Banned,
}

impl ActiveRule {
    /// Creates an active rule with the given history.
    pub fn new(rule: impl Into<Arc<Rule>>, history: impl Into<Arc<History>>) -> Self {
        Self::build(rule.into(), history.into(), None, None)
    }

    /// Returns the active rule after a change to the limits, overrides or history. Shares unchanged
    /// parts with `self`.
    #[must_use]
    pub fn replaced_by(&self, rule: Arc<Rule>, history: Arc<History>) -> Self {
        Self::build(rule, history, Some(self), None)
    }

    /// Creates an active rule that shares its buckets only with rules whose fields are all equal.
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
            is_sourced: rule.limits.is_template() || history.limits().any(Limits::is_template),
            rule,
            history,
            scales,
            bans_keys,
            reads_wall,
        }
    }

    /// Applies `edit`, effective at the instant `at`. Live buckets are converted when they are next
    /// accessed.
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

    /// Returns the rule as a shared pointer.
    pub fn shared_rule(&self) -> &Arc<Rule> {
        &self.rule
    }

    /// Returns true if the rule's limits can be scaled by all scales in its overrides.
    pub fn scales_fit(&self) -> bool {
        let is_template = self.rule.limits.is_template();
        let mut all = self.rule.overrides.values();
        all.all(|own| match own {
            Override::Scale(scale) if is_template => fits_scale(&self.rule.limits, *scale),
            Override::Scale(scale) => self.scales.get(*scale).is_some(),
            _ => true,
        })
    }

    /// Returns true if requests carry numbers for the limits, or did so before a change that may
    /// still have to be applied to live buckets. If so, each bucket has its own limits.
    pub const fn is_sourced(&self) -> bool {
        self.is_sourced
    }

    /// Returns the limits that apply to a request with this key, and the numbers that the request carries. Returns
    /// `None` if requests supply none of the numbers of the key's limits.
    #[inline(never)]
    pub(crate) fn sourced(&self, key: &str, request: &mut dyn Request) -> Option<Sourced> {
        if !self.rule.limits.is_template() {
            return None;
        }
        let granted = Granted::of(&self.rule, key);
        let found = numbers::find(granted.template()?, request);
        let limits = granted.limits(&numbers::stored(&found)).into_owned();
        Some(Sourced {
            limits: Box::new(limits),
            found,
        })
    }

    /// Returns the rule's effect on a key.
    pub fn grant(&self, key: &str) -> Grant<'_> {
        match self.rule.overrides.get(key) {
            None => Grant::Limits(&self.rule.limits),
            Some(Override::Limits(limits)) => Grant::Limits(limits),
            // The scaled limits exist, because an edit whose limits cannot be scaled has already
            // been rejected.
            Some(Override::Scale(scale)) => {
                Grant::Limits(self.scales.get(*scale).unwrap_or(&self.rule.limits))
            }
            Some(Override::Unlimited) => Grant::Unlimited,
            Some(Override::Banned) => Grant::Banned,
        }
    }

    /// Returns the limits for a request with this key, or the rule's limits if the request has no
    /// key.
    pub fn limits_for(&self, key: Option<&str>) -> &Limits {
        key.map_or(&self.rule.limits, |key| self.limits_of(key))
    }

    /// Returns true if an override bans any key.
    pub const fn bans_keys(&self) -> bool {
        self.bans_keys
    }

    /// Returns true if any key's limits need the wall clock, or did so before an edit.
    pub const fn reads_wall(&self) -> bool {
        self.reads_wall
    }

    /// Returns true if the rule has neither `match` nor `when`, and therefore matches every
    /// request.
    pub const fn matches_all(&self) -> bool {
        self.matches_all
    }

    /// Creates an [`Acquire`], which takes a request's cost from the bucket of `key`.
    pub fn acquire<'a>(&'a self, key: &'a str, request: BucketRequest) -> Acquire<'a> {
        self.acquire_of(self.limits_of(key), key, request)
    }

    /// Creates an [`Acquire`], which takes a request's cost from the bucket of `key` with these
    /// limits.
    pub(crate) const fn acquire_of<'a>(
        &'a self,
        limits: &'a Limits,
        key: &'a str,
        request: BucketRequest,
    ) -> Acquire<'a> {
        Acquire {
            rule: self,
            limits,
            key,
            request,
            lease: None,
        }
    }

    /// Creates a [`Release`], which returns the cost that a request took from the bucket of `key`.
    pub const fn release<'a>(
        &'a self,
        key: &'a str,
        receipt: &'a Receipt,
        reason: ReleaseReason,
        clock: Clock,
    ) -> Release<'a> {
        Release {
            rule: self,
            key,
            receipt,
            reason,
            clock,
        }
    }

    /// Reschedules a waiting request that would have passed this rule at `due`, and converts its
    /// `receipt` to the rule's current version. Returns `None` if nothing has changed for the
    /// request.
    pub fn plan(
        &self,
        key: &str,
        (receipt, due): (&mut Receipt, Nanos),
        clock: Clock,
    ) -> Option<Plan> {
        let granted = match self.grant(key) {
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
        let own = self.is_sourced.then(|| {
            let found = (receipt.taken().before(), receipt.version());
            self.history.limits_in(&self.rule, key, found)
        });
        let limits = own.as_deref().unwrap_or(granted);
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

    /// Returns true if the rule's `when` applies to a request that the rule matches. `when` also
    /// applies if the store cannot be read. Reading the bucket then fails as well, so the rule's
    /// `on_error` decides.
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

/// Returns true if any of the rule's overrides bans a key.
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

    /// Returns the limits of a key's bucket. An unlimited or banned key keeps its bucket under the
    /// rule's limits.
    fn limits_of(&self, key: &str) -> &Limits {
        match self.grant(key) {
            Grant::Limits(limits) => limits,
            Grant::Unlimited | Grant::Banned => &self.rule.limits,
        }
    }

    fn limits_in(&self, key: &str, bucket: Option<(&Bucket, u32)>) -> Cow<'_, Limits> {
        match bucket {
            _ if !self.is_sourced => Cow::Borrowed(self.limits_of(key)),
            None => Granted::of(&self.rule, key).limits(&[]),
            Some(bucket) => self.history.limits_in(&self.rule, key, bucket),
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

    fn charges_at_end(&self) -> bool {
        self.rule.cost.settlement().is_some()
    }
}

impl Scales {
    /// Computes the scaled limits of a rule. Reuses the limits in `known`, which must have been
    /// derived from equal limits.
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
