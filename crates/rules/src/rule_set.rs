//! The rules of a file at work, and the index that finds those that may match.

use alloc::sync::Arc;
use alloc::vec::Vec;
use core::ops::Deref;

use loudou_limiter::{Carry, Nanos};

use crate::active_rule::ActiveRule;
use crate::config::{MAX_RULES, RuleEdit};
use crate::request::{Request, without_query};
use crate::rule::{Match, PathMatch, Test, parts};

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

// The rules of a set that may match a request, by its method, its path and its host.
//
// The index only excludes rules; the remaining candidates are evaluated in full. A request is looked up
// once for each kind of test that any rule has, whatever the number of rules.

/// Up to this number of rules, testing each is faster.
const FEW: usize = 4;
/// Bits of a word.
const WORD: usize = 64;

/// A set of rules, by their index. An index beyond all rules of a file is always in the set.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub(crate) struct Mask([u64; MAX_RULES / WORD]);

impl Mask {
    fn add(&mut self, rule: usize) {
        if let Some(word) = self.0.get_mut(rule / WORD) {
            *word |= bit(rule);
        }
    }

    /// The first rule of the set from an index on.
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

/// Rules by a text that they require of a request.
#[derive(Clone, Debug, Default)]
struct ByText {
    /// The rules that require no text.
    any: Mask,
    /// In order.
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

/// The index of a rule set.
#[derive(Clone, Debug, Default)]
pub(crate) struct Index {
    is_worth_it: bool,
    methods: ByText,
    hosts: ByText,
    /// By a whole path; rules that require none are in `prefixes`.
    paths: ByText,
    /// By the start of a path, which ends at the end of a segment.
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

    /// The rules that may match; `None` if none was excluded, because there are few.
    pub(crate) fn candidates(&self, request: &mut dyn Request) -> Option<Mask> {
        self.is_worth_it.then(|| self.look_up(request))
    }

    fn look_up(&self, request: &mut dyn Request) -> Mask {
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
        // A prefix ends before a slash, after one, or at the end of the path.
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

/// The common start of paths that fit `template`: up to the slash before its first `{`.
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
