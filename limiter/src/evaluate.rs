//! A rule set against one request.
//!
//! Rules are evaluated in file order and every matching one must admit; the first refusal ends it.
//! A rule in shadow mode decides on its own buckets and never affects the verdict.

use alloc::string::String;
use alloc::vec::Vec;

use crate::ask::Ask;
use crate::carry::{Carry, Past, Versions};
use crate::config::RuleEdit;
use crate::decision::Verdict;
use crate::limit::BucketDecision;
use crate::request::Request;
use crate::rule::key::Key;
use crate::rule::{Mode, OnError, Rule};
use crate::store::SharedData;
use crate::store::attempt::Take;
use crate::store::table::{GaveUp, StoreStats, Table};
use crate::time::Nanos;

/// A rule in force, with the limits its live buckets may still be in.
#[derive(Clone, Debug)]
pub struct ActiveRule {
    rule: Rule,
    versions: Versions,
    tag: u32,
}

impl ActiveRule {
    /// A rule whose earlier limits were `past`, oldest first.
    pub fn new(rule: Rule, past: Vec<Past>) -> Self {
        let versions = Versions::new(rule.limits.clone(), past);
        let tag = rule.tag();
        Self {
            rule,
            versions,
            tag,
        }
    }

    /// Puts `edit` in force from `at` on: live buckets are carried over when they are next touched.
    pub fn edit(&mut self, edit: RuleEdit, carry: Carry, at: Nanos) {
        if let Some(mode) = edit.mode {
            self.rule.mode = mode;
        }
        if let Some(limits) = edit.limits {
            self.rule.limits = limits.clone();
            self.versions.replace(limits, carry, at);
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

    /// Its tag in the store.
    pub const fn tag(&self) -> u32 {
        self.tag
    }
}

/// What one rule made of a request.
#[derive(Clone, Debug)]
pub struct RuleOutcome {
    /// The index of the rule in its set.
    pub rule: usize,
    /// The key of the request; `None` when it lacks a part.
    pub key: Option<String>,
    /// What it said.
    pub answer: Answer,
}

/// What a rule said.
#[derive(Clone, Debug)]
#[expect(
    clippy::large_enum_variant,
    reason = "most answers are decisions; a box would allocate"
)]
pub enum Answer {
    /// Its bucket decided; in shadow mode a refusal is only counted.
    Decided(BucketDecision),
    /// The request has no key, and the rule does not apply.
    Skipped,
    /// The request has no key, and is refused for it.
    KeyMissing,
    /// The store gave up; the rule's `on_error` holds.
    GaveUp(GaveUp),
}

/// What a rule set made of a request.
#[derive(Clone, Debug, Default)]
pub struct Outcome {
    /// Every rule that matched, in order, up to the one that refused.
    pub rules: Vec<RuleOutcome>,
    /// Whether the last of `rules` refused the request.
    pub refused: bool,
}

impl Outcome {
    /// What happens to the request. A rule in shadow mode says nothing.
    pub fn verdict(&self, rules: &[ActiveRule]) -> Verdict {
        if self.refused {
            Verdict::Refuse
        } else if self.wait(rules) > Nanos::ZERO {
            Verdict::Hold
        } else {
            Verdict::Admit
        }
    }

    /// When a request that is not refused may pass, if it has to wait: the latest instant of the
    /// rules that are enforced. It is on the clock of their buckets, which another worker may have
    /// moved on beyond this one's `now`.
    pub fn due(&self, rules: &[ActiveRule]) -> Option<Nanos> {
        let held = self
            .enforced(rules)
            .filter(|decision| decision.wait() > Nanos::ZERO);
        held.map(|decision| decision.at().saturating_add(decision.wait()))
            .max()
            .filter(|_| !self.refused)
    }

    /// The decisions of the rules that are enforced.
    fn enforced<'a>(&'a self, rules: &'a [ActiveRule]) -> impl Iterator<Item = &'a BucketDecision> {
        self.rules.iter().filter_map(|outcome| {
            let active = rules.get(outcome.rule)?;
            match &outcome.answer {
                Answer::Decided(decision) if active.rule.mode == Mode::Enforce => Some(decision),
                _ => None,
            }
        })
    }

    /// How long the request is held: the longest wait of the rules that are enforced; zero when it
    /// is refused.
    pub fn wait(&self, rules: &[ActiveRule]) -> Nanos {
        if self.refused {
            return Nanos::ZERO;
        }
        let waits = self.enforced(rules).map(BucketDecision::wait);
        waits.max().unwrap_or(Nanos::ZERO)
    }
}

/// One instant on both clocks.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Clock {
    /// On the process's monotonic clock.
    pub now: Nanos,
    /// On the wall clock, since the Unix epoch.
    pub wall: Nanos,
}

impl Clock {
    /// An instant on the monotonic clock, where the wall clock started together with it.
    pub const fn at(now: Nanos) -> Self {
        Self { now, wall: now }
    }
}

/// Evaluates `rules` for `request`, and takes its cost from every bucket that admits it.
pub fn evaluate(
    rules: &[ActiveRule],
    table: &Table,
    store: &mut dyn SharedData,
    request: &mut dyn Request,
    clock: Clock,
    stats: &mut StoreStats,
) -> Outcome {
    let mut outcome = Outcome {
        // Most requests match one rule; without this there would be room for four.
        rules: Vec::with_capacity(1),
        refused: false,
    };
    for (index, active) in rules.iter().enumerate() {
        let rule = &active.rule;
        if rule.mode == Mode::Off || !rule.matches.holds(request) {
            continue;
        }
        let (key, answer) = match rule.key_of(request, table.seed()) {
            Key::Skip => (None, Answer::Skipped),
            Key::Refuse => (None, Answer::KeyMissing),
            Key::Bucket(key) => {
                let take = Take {
                    versions: &active.versions,
                    rule_tag: active.tag,
                    key: &key,
                    ask: Ask {
                        cost: request.cost().unwrap_or_else(|| rule.cost.into()),
                        now: clock.now,
                        wall: clock.wall,
                        max_wait: request.max_wait(),
                    },
                };
                let taken = table.take(store, &take, stats);
                let answer = taken.map_or_else(Answer::GaveUp, Answer::Decided);
                (Some(key), answer)
            }
        };
        outcome.refused = rule.mode == Mode::Enforce && answer.refuses(rule.on_error);
        outcome.rules.push(RuleOutcome {
            rule: index,
            key,
            answer,
        });
        if outcome.refused {
            break;
        }
    }
    outcome
}

impl Answer {
    /// Whether the request is refused, were the rule enforced.
    pub fn refuses(&self, on_error: OnError) -> bool {
        match self {
            Self::Decided(decision) => decision.is_refused(),
            Self::Skipped => false,
            Self::KeyMissing => true,
            Self::GaveUp(_) => on_error == OnError::Refuse,
        }
    }
}
