//! A rule set against one request.
//!
//! Rules are evaluated in file order and every matching one must admit. When one refuses, what the
//! rules before it took is given back, and those behind it are not asked.
//!
//! A rule in shadow mode behaves as if it were the only one: it never affects the verdict, a refusal of
//! another rule gives nothing back to it, and it is asked behind one that refused or stops, too.
//!
//! An enforced rule with `stop` ends the search for the requests that it is for, whatever it says of
//! them: later enforced rules are for others.

use alloc::string::String;
use alloc::vec::Vec;

use loudou_limiter::ban::Ban;
use loudou_limiter::{Ask, BucketDecision, Clock, Nanos, Verdict};
use loudou_store::{Charge, GaveUp, Give, LiveRule, Receipt, SharedData, StoreStats, Table, Why};

use crate::active_rule::{ActiveRule, Grant};
use crate::request::Request;
use crate::rule::key::Key;
use crate::rule::{Mode, OnError, Price, Rule};
use crate::rule_set::RuleSet;

/// What one rule made of a request.
#[derive(Clone, Debug)]
pub struct RuleOutcome {
    /// The index of the rule in its set.
    pub rule: usize,
    /// The key of the request; `None` when it lacks a part.
    pub key: Option<String>,
    /// What it said.
    pub answer: Answer,
    /// What it asked for, where it came to that.
    pub price: Option<Price>,
    /// For giving back what it took; `None` when it took nothing, or was given it back.
    pub receipt: Option<Receipt>,
    /// It let the request in, but an enforced rule behind it refused: its answer counts for nothing.
    pub overruled: bool,
}

impl RuleOutcome {
    /// A rule that does not apply.
    const fn new(rule: usize) -> Self {
        Self {
            rule,
            key: None,
            answer: Answer::Skipped,
            price: None,
            receipt: None,
            overruled: false,
        }
    }
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
    /// Its key is banned.
    Banned(Ban),
    /// Its key has no limits.
    Unlimited,
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
    /// Every rule that was asked, in order.
    pub rules: Vec<RuleOutcome>,
    /// Which of `rules` refused the request.
    pub refused_by: Option<usize>,
    /// The index of the rule, in its set, after which no enforced one was evaluated.
    pub stopped_by: Option<usize>,
}

impl Outcome {
    /// Whether the request is refused.
    pub const fn is_refused(&self) -> bool {
        self.refused_by.is_some()
    }

    /// What the rule said that refused the request.
    pub fn refusal(&self) -> Option<&RuleOutcome> {
        self.rules.get(self.refused_by?)
    }

    /// What happens to the request. A rule in shadow mode says nothing.
    pub fn verdict(&self, rules: &[ActiveRule]) -> Verdict {
        if self.is_refused() {
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
            .filter(|_| !self.is_refused())
    }

    /// The decisions of the rules that are enforced.
    fn enforced<'a>(&'a self, rules: &'a [ActiveRule]) -> impl Iterator<Item = &'a BucketDecision> {
        self.rules.iter().filter_map(|outcome| {
            let active = rules.get(outcome.rule)?;
            match &outcome.answer {
                Answer::Decided(decision) if active.rule().mode == Mode::Enforce => Some(decision),
                _ => None,
            }
        })
    }

    /// The last of the rules has refused: the enforced ones before it are given back what they took.
    fn overrule(&mut self, rules: &[ActiveRule], give: &mut dyn FnMut(&Give<'_>), clock: Clock) {
        let Some((_, before)) = self.rules.split_last_mut() else {
            return;
        };
        self.refused_by = Some(before.len());
        for said in before {
            let Some(active) = rules.get(said.rule) else {
                continue;
            };
            if active.rule().mode != Mode::Enforce {
                continue;
            }
            said.overruled = !matches!(said.answer, Answer::Skipped);
            if let (Some(key), Some(receipt)) = (&said.key, said.receipt.take()) {
                give(&active.give(key, &receipt, Why::Refused, clock));
            }
        }
    }

    /// How long the request is held: the longest wait of the rules that are enforced; zero when it
    /// is refused.
    pub fn wait(&self, rules: &[ActiveRule]) -> Nanos {
        if self.is_refused() {
            return Nanos::ZERO;
        }
        let waits = self.enforced(rules).map(BucketDecision::wait);
        waits.max().unwrap_or(Nanos::ZERO)
    }
}

/// Evaluates `rules` for `request`, and takes its cost from every bucket if all of them admit it.
pub fn evaluate(
    rules: &RuleSet,
    table: &Table,
    store: &mut dyn SharedData,
    request: &mut dyn Request,
    clock: Clock,
    stats: &mut StoreStats,
) -> Outcome {
    let mut outcome = Outcome {
        // Most requests match one rule; without this there would be room for four.
        rules: Vec::with_capacity(1),
        refused_by: None,
        stopped_by: None,
    };
    let candidates = rules.candidates(request);
    for (index, active) in rules.iter().enumerate() {
        let rule = active.rule();
        let is_enforced = rule.mode == Mode::Enforce;
        if !candidates.has(index) || rule.mode == Mode::Off {
            continue;
        }
        if is_enforced && outcome.stopped_by.is_some() || !rule.matches.holds(request) {
            continue;
        }
        if !active.applies(table, store, request, clock.now) {
            continue;
        }
        let key = rule.key_of(request);
        let stops = rule.stop && is_enforced && !matches!(key, Key::Skip);
        if !is_enforced || !outcome.is_refused() {
            let mut said = RuleOutcome::new(index);
            match key {
                Key::Skip => {}
                Key::Refuse => said.answer = Answer::KeyMissing,
                Key::Bucket(key) => {
                    let price = price(rule, request);
                    let ask = Ask {
                        cost: price.cost,
                        now: clock.now,
                        wall: clock.wall,
                        max_wait: request.max_wait(),
                    };
                    (said.answer, said.receipt) = match active.grant(&key) {
                        Grant::Limits(limits) => {
                            let take = active.take_of(limits, &key, ask);
                            Answer::of(table.charge(store, &take, stats))
                        }
                        Grant::Unlimited => (unlimited(active, &key, table, store, ask.now), None),
                        Grant::Banned => (Answer::Banned(Ban::ENDLESS), None),
                    };
                    said.key = Some(key);
                    said.price = Some(price);
                }
            }
            let refuses = is_enforced && said.answer.refuses(rule.on_error);
            outcome.rules.push(said);
            if refuses {
                let mut give = |give: &Give<'_>| {
                    // What is lost is counted.
                    let _lost = table.give(store, give, stats);
                };
                outcome.overrule(rules, &mut give, clock);
            }
        }
        if stops {
            outcome.stopped_by = Some(index);
        }
    }
    outcome
}

/// The answer to a key without limits, which an operator may have banned all the same.
fn unlimited(
    rule: &ActiveRule,
    key: &str,
    table: &Table,
    store: &mut dyn SharedData,
    now: Nanos,
) -> Answer {
    match table.look(store, table.id(rule.tag(), key)) {
        Err(gave_up) => Answer::GaveUp(gave_up),
        Ok(slot) => {
            let ban = slot.and_then(|slot| slot.conduct.ban(now.max(slot.bucket.last)));
            ban.map_or(Answer::Unlimited, Answer::Banned)
        }
    }
}

/// What a rule asks of a request, unless the request says what it costs.
pub(crate) fn price(rule: &Rule, request: &mut dyn Request) -> Price {
    let is_odd = false;
    match request.cost() {
        Some(cost) => Price { cost, is_odd },
        None => rule.cost.price(request),
    }
}

impl Answer {
    fn of(charge: Result<Charge, GaveUp>) -> (Self, Option<Receipt>) {
        match charge {
            Ok(Charge { answer, receipt }) => {
                (answer.map_or_else(Self::Banned, Self::Decided), receipt)
            }
            Err(gave_up) => (Self::GaveUp(gave_up), None),
        }
    }

    /// Whether the request is refused, were the rule enforced.
    pub fn refuses(&self, on_error: OnError) -> bool {
        match self {
            Self::Decided(decision) => decision.is_refused(),
            Self::Skipped | Self::Unlimited => false,
            Self::KeyMissing | Self::Banned(_) => true,
            Self::GaveUp(_) => on_error == OnError::Refuse,
        }
    }
}
