//! What a rule set would make of a request, and why, rule by rule. Nothing is taken.
//!
//! The verdict is that of [`evaluate`] itself, over an [`Overlay`] of the store. What is told besides
//! (the part of a match that does not hold, the bucket as it is) is read afterwards.

use alloc::string::String;
use alloc::vec::Vec;

use loudou_limiter::ban::Ban;
use loudou_limiter::{Ask, Clock, Decision};
use loudou_store::overlay::Overlay;
use loudou_store::page::Slot;
use loudou_store::{LiveRule, SharedData, StoreStats, Table};

use crate::active_rule::{ActiveRule, Grant};
use crate::evaluate::{Answer, Outcome, evaluate, price};
use crate::request::Request;
use crate::rule::key::Key;
use crate::rule::{Failing, Missing, Mode, Price};
use crate::rule_set::RuleSet;

/// What a rule set would make of a request.
#[derive(Clone, Debug)]
pub struct Explanation {
    /// What [`evaluate`] says. Its receipts are worth nothing: nothing was taken.
    pub outcome: Outcome,
    /// One for each rule of the set, in its order.
    pub rules: Vec<RuleExplained>,
}

/// What one rule has to do with a request.
#[derive(Clone, Debug)]
pub struct RuleExplained {
    /// The first part of its match that does not hold; `None` when it is for this request.
    pub failing: Option<Failing>,
    /// What it comes to.
    pub standing: Standing,
    /// The first part of its key that the request lacks.
    pub missing: Option<Missing>,
    /// The key of a request that it is for, if it has one.
    pub key: Option<String>,
    /// What it asks for, if it has a key.
    pub price: Option<Price>,
    /// What that key gets.
    pub allowance: Allowance,
    /// The bucket of that key; `None` where it cannot be read, and where no limits count.
    pub bucket: Option<BucketExplained>,
}

/// What a key gets from a rule.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub enum Allowance {
    /// What its limits say.
    #[default]
    Limits,
    /// Whatever it asks for.
    Unlimited,
    /// Nothing, as long as that ban lasts.
    Banned(Ban),
}

/// What a rule comes to.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Standing {
    /// It is asked; its answer is the one at this place in [`Outcome::rules`].
    Asked(usize),
    /// It is not evaluated.
    Off,
    /// It is for other requests.
    NotFor,
    /// It is for this request, but by its `when` not now: the upstream does not fail.
    NotNow,
    /// It is enforced, and the rule of this index ends the search before it.
    BehindStop(usize),
    /// The rule of this index has refused before.
    BehindRefusal(usize),
}

/// A bucket before a request comes, and what it says of it.
#[derive(Clone, Debug)]
pub struct BucketExplained {
    /// In the order of the limits.
    pub limits: Vec<LimitExplained>,
    /// The index of the limit that refuses or is nearest to it.
    pub reported: usize,
}

/// A limit before a request comes, and what it says of it.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct LimitExplained {
    /// What is taken now, in cost units, rounded up.
    pub used: u64,
    /// How it stands now.
    pub now: Decision,
    /// What it says of the request; of a rule that is not asked, what it would say.
    pub answer: Decision,
}

/// Explains what `rules` would make of `request`.
pub fn explain(
    rules: &RuleSet,
    table: &Table,
    store: &mut dyn SharedData,
    request: &mut dyn Request,
    clock: Clock,
) -> Explanation {
    let mut overlay = Overlay::new(store);
    let mut stats = StoreStats::default();
    let outcome = evaluate(rules, table, &mut overlay, request, clock, &mut stats);
    overlay.undo();
    let mut look = Look {
        table,
        store: &mut overlay,
        request,
        clock,
        outcome: &outcome,
    };
    let explained = rules.iter().enumerate();
    let explained = explained.map(|(index, active)| look.rule(index, active));
    Explanation {
        rules: explained.collect(),
        outcome,
    }
}

/// All that a rule is explained from.
struct Look<'a, 'b> {
    table: &'a Table,
    store: &'a mut Overlay<'b>,
    request: &'a mut dyn Request,
    clock: Clock,
    outcome: &'a Outcome,
}

impl Look<'_, '_> {
    fn rule(&mut self, index: usize, active: &ActiveRule) -> RuleExplained {
        let rule = active.rule();
        let failing = rule.matches.explain(self.request);
        let standing = self.standing(index, active, failing.is_some());
        let mut explained = RuleExplained {
            failing,
            standing,
            missing: None,
            key: None,
            price: None,
            allowance: Allowance::Limits,
            bucket: None,
        };
        if explained.failing.is_some() {
            return explained;
        }
        if let Err(missing) = rule.key_or_missing(self.request) {
            explained.missing = Some(rule.missing(missing));
        }
        if let Key::Bucket(key) = rule.key_of(self.request) {
            let price = price(rule, self.request);
            let id = self.table.id(active.tag(), &key);
            let read = self.table.look(self.store, id).ok();
            let slot = read.as_ref().and_then(Option::as_ref);
            explained.allowance = self.allowance(active, &key, slot, standing);
            if let (Some(_), Grant::Limits(_)) = (&read, active.grant(&key)) {
                explained.bucket = Some(self.bucket(active, &key, slot, price, standing));
            }
            explained.price = Some(price);
            explained.key = Some(key);
        }
        explained
    }

    fn applies(&mut self, active: &ActiveRule) -> bool {
        active.applies(self.table, self.store, self.request, self.clock.now)
    }

    fn standing(&mut self, index: usize, active: &ActiveRule, is_for_others: bool) -> Standing {
        let asked = self.outcome.rules.iter();
        if let Some(place) = asked.clone().position(|said| said.rule == index) {
            return Standing::Asked(place);
        }
        let stopped_by = self.outcome.stopped_by.filter(|by| *by < index);
        let refused_by = self.outcome.refusal().map(|said| said.rule);
        match (active.rule().mode, stopped_by, refused_by) {
            (Mode::Off, ..) => Standing::Off,
            _ if is_for_others => Standing::NotFor,
            _ if !self.applies(active) => Standing::NotNow,
            (_, Some(by), _) => Standing::BehindStop(by),
            (_, None, Some(by)) => Standing::BehindRefusal(by),
            // Nothing else keeps `evaluate` from asking a rule.
            (_, None, None) => Standing::NotNow,
        }
    }

    /// What it was just heard to grant, or else would.
    fn allowance(
        &self,
        active: &ActiveRule,
        key: &str,
        slot: Option<&Slot>,
        standing: Standing,
    ) -> Allowance {
        let now = self.clock.now;
        let ban = || {
            let slot = slot?;
            slot.conduct.ban(now.max(slot.bucket.last))
        };
        match (self.heard(standing), active.grant(key)) {
            (Some(Answer::Banned(ban)), _) => Allowance::Banned(*ban),
            (Some(Answer::Unlimited), _) => Allowance::Unlimited,
            (Some(_), _) => Allowance::Limits,
            (None, Grant::Banned) => Allowance::Banned(Ban::ENDLESS),
            (None, grant) => match (ban(), grant) {
                (Some(ban), _) => Allowance::Banned(ban),
                (None, Grant::Unlimited) => Allowance::Unlimited,
                (None, _) => Allowance::Limits,
            },
        }
    }

    /// The bucket as it is, with what it was just heard to say, or else would say.
    fn bucket(
        &mut self,
        active: &ActiveRule,
        key: &str,
        slot: Option<&Slot>,
        price: Price,
        standing: Standing,
    ) -> BucketExplained {
        let Clock { now, wall } = self.clock;
        let limits = active.limits_of(key);
        let bucket = match slot {
            Some(slot) => active.bucket_of(key, slot, self.clock),
            None => limits.start(now),
        };
        let ask = Ask {
            cost: price.cost,
            now,
            wall,
            max_wait: self.request.max_wait(),
        };
        let level = limits.answer(&mut bucket.clone(), &Ask { cost: 0, ..ask });
        let answer = match self.heard(standing) {
            Some(Answer::Decided(decision)) => *decision,
            _ => limits.answer(&mut bucket.clone(), &ask),
        };
        let used = limits.used(&bucket, now).into_iter();
        let limits = used.zip(level.decisions().zip(answer.decisions()));
        let limits = limits.map(|(used, (level, answer))| LimitExplained {
            used,
            now: *level,
            answer: *answer,
        });
        BucketExplained {
            limits: limits.collect(),
            reported: answer.reported_index(),
        }
    }

    /// The answer of a rule that was asked.
    fn heard(&self, standing: Standing) -> Option<&Answer> {
        let Standing::Asked(place) = standing else {
            return None;
        };
        Some(&self.outcome.rules.get(place)?.answer)
    }
}
