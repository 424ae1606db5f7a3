//! Explains, rule by rule, how a rule set would decide on a request, without charging its cost.
//!
//! The verdict is computed by [`evaluate`] itself, running on an [`Overlay`] of the store. Further
//! details, such as the failing part of a match or the bucket's state, are read afterwards.

use alloc::borrow::Cow;
use alloc::string::String;
use alloc::vec::Vec;

use loudou_limiter::ban::Ban;
use loudou_limiter::{BucketRequest, Clock, Decision, Limits, NeedsMoreAfter};
use loudou_store::overlay::Overlay;
use loudou_store::page::Slot;
use loudou_store::{LiveRule, Outage, SharedData, StoreStats, Table};

use crate::evaluate::{Answer, Outcome, evaluate, price};
use crate::level::Level;
use crate::numbers::FoundNumbers;
use crate::patience::patience;
use crate::request::Request;
use crate::rule::key::{Key, NoKey};
use crate::rule::{Failing, Missing, Mode, Price, Reach, Repeated};
use crate::rule_set::RuleSet;
use crate::rule_set::{ActiveRule, Grant, Sourced};

/// Hypothetical outcome of a rule set for a request, with reasons.
#[derive(Clone, Debug)]
pub struct Explanation {
    /// Outcome of [`evaluate`]. The receipts in the outcome are invalid, because no cost was
    /// actually charged.
    pub outcome: Outcome,
    /// Explanations for all rules, in rule set order.
    pub rules: Vec<RuleExplained>,
}

/// Explanation of a single rule's outcome for a request.
#[derive(Clone, Debug)]
pub struct RuleExplained {
    /// Part of the match that prevents the rule from applying; `None` if the rule applies.
    pub failing: Option<Failing>,
    /// If the rule applies, the part of the match whose value is too long to be tested.
    pub too_long: Option<Failing>,
    /// Reason why the rule was evaluated or skipped.
    pub standing: Standing,
    /// First key part that is missing from the request.
    pub missing: Option<Missing>,
    /// First key part that occurs more than once in the request.
    pub repeated: Option<Repeated>,
    /// Key of a request that matches, if it has one.
    pub key: Option<String>,
    /// Price of the request, if it has a key.
    pub price: Option<Price>,
    /// Numbers that the request carries for the key's limits.
    pub numbers: Vec<FoundNumbers>,
    /// The rule's effect on this key.
    pub allowance: Allowance,
    /// The key's bucket. `None` if the bucket cannot be read, or if no limits apply to the key.
    pub bucket: Option<BucketExplained>,
}

/// The effect of a rule on a key.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub enum Allowance {
    /// Requests within the limits are admitted.
    #[default]
    Limits,
    /// Every request is admitted.
    Unlimited,
    /// All requests are refused until this ban ends.
    Banned(Ban),
}

/// Reason why a rule was evaluated or skipped.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Standing {
    /// The rule is evaluated. The rule's outcome has this index in [`Outcome::rules`].
    Asked(usize),
    /// The rule is off.
    Off,
    /// The rule does not match.
    NotFor,
    /// The rule matches, but its `when` does not apply, because the upstream is not failing.
    NotNow,
    /// The rule is enforced, but the earlier rule with this index ended the evaluation.
    BehindStop(usize),
    /// The rule is skipped, because the earlier rule with this index refused the request.
    BehindRefusal(usize),
}

/// State of a bucket before a request, and its answer to the request.
#[derive(Clone, Debug)]
pub struct BucketExplained {
    /// The limits in the bucket's order.
    pub limits: Vec<LimitExplained>,
    /// Index of the limit that refuses the request or is closest to refusing it.
    pub reported: usize,
    /// The limits in effect: the key's limits, or this Envoy's share of them.
    pub of: Limits,
    /// Fallback that replaces the lease during an outage. `None` if the lease is used, or if the
    /// rule has no lease.
    pub outage: Option<Outage>,
}

/// State of a limit before a request, and its answer to the request.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct LimitExplained {
    /// Capacity currently in use, in cost units, rounded up.
    pub used: u64,
    /// Current state.
    pub now: Decision,
    /// Answer to the request. For a skipped rule, the answer that the limit would have given.
    pub answer: Decision,
}

/// Explains how `rules` would decide on `request`.
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
    let mut explainer = Explainer {
        table,
        store: &mut overlay,
        request,
        clock,
        outcome: &outcome,
    };
    let each = rules.iter().enumerate();
    let each = each.map(|(index, active)| explainer.rule(index, active));
    Explanation {
        rules: each.collect(),
        outcome,
    }
}

/// Inputs of an explanation.
struct Explainer<'a, 'b> {
    table: &'a Table,
    store: &'a mut Overlay<'b>,
    request: &'a mut dyn Request,
    clock: Clock,
    outcome: &'a Outcome,
}

impl Explainer<'_, '_> {
    fn rule(&mut self, index: usize, active: &ActiveRule) -> RuleExplained {
        let rule = active.rule();
        let part = rule.matches.explain(self.request);
        let reach = rule.reach(self.request);
        let (too_long, failing) = match reach {
            Reach::No => (None, part),
            Reach::Yes | Reach::Refuse => (part, None),
        };
        let standing = self.standing(index, active, failing.is_some());
        let mut explained = RuleExplained {
            failing,
            too_long,
            standing,
            missing: None,
            repeated: None,
            key: None,
            price: None,
            numbers: Vec::new(),
            allowance: Allowance::Limits,
            bucket: None,
        };
        if reach != Reach::Yes {
            return explained;
        }
        if let Err(NoKey::Missing(missing)) = rule.find_key(self.request) {
            explained.missing = Some(rule.missing(missing));
        }
        explained.repeated = rule.repeated(self.request);
        if let Key::Bucket(key) = rule.key_of(self.request) {
            let price = price(rule, self.request);
            let id = self.table.id(active.tag(), &key);
            let read = self.table.get(self.store, id).ok();
            let slot = read.as_ref().and_then(Option::as_ref);
            explained.allowance = self.allowance(active, &key, slot, standing);
            let sourced = active.sourced(&key, self.request);
            if let Some(sourced) = &sourced {
                explained.numbers.clone_from(&sourced.found);
            }
            if let (Some(_), Grant::Limits(_)) = (&read, active.grant(&key)) {
                let fleet = self.request.fleet();
                let level = match sourced {
                    None => Level::of(active, &key, slot, self.clock, fleet),
                    Some(Sourced { limits, .. }) => {
                        Level::under(Cow::Owned(*limits), active, (&key, slot), self.clock, fleet)
                    }
                };
                // A request that reserves nothing is nevertheless admitted only if a unit is
                // available.
                let needed = if active.charges_at_end() {
                    price.cost.max(1)
                } else {
                    price.cost
                };
                explained.bucket = Some(self.bucket(&level, needed, standing));
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
        let evaluated = self.outcome.rules.iter();
        if let Some(place) = evaluated.clone().position(|outcome| outcome.rule == index) {
            return Standing::Asked(place);
        }
        let stopped_by = self.outcome.stopped_by.filter(|by| *by < index);
        let refused_by = self.outcome.refusal().map(|outcome| outcome.rule);
        match (active.rule().mode, stopped_by, refused_by) {
            (Mode::Off, ..) => Standing::Off,
            _ if is_for_others => Standing::NotFor,
            _ if !self.applies(active) => Standing::NotNow,
            (_, Some(by), _) => Standing::BehindStop(by),
            (_, None, Some(by)) => Standing::BehindRefusal(by),
            // The rule was not skipped because of an earlier rule, so its `when` does not apply.
            (_, None, None) => Standing::NotNow,
        }
    }

    /// Returns the rule's effect during the evaluation. For a skipped rule, returns the effect that
    /// it would have had.
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
            slot.ban_history.ban(now.max(slot.bucket.last))
        };
        match (self.answer_of(standing), active.grant(key)) {
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

    /// Returns the bucket with the answer that it gave during the evaluation. If the rule was
    /// skipped, returns the bucket with the answer that it would have given.
    fn bucket(&mut self, level: &Level<'_>, cost: u64, standing: Standing) -> BucketExplained {
        let Clock { now, wall } = self.clock;
        let bucket_request = BucketRequest {
            cost,
            now,
            wall,
            max_wait: self.request.max_wait(),
            patience: patience(self.request).0,
            needs_more_after: NeedsMoreAfter::Never,
            is_queued: false,
        };
        let state = level.answer(&BucketRequest {
            cost: 0,
            ..bucket_request
        });
        let answer = match self.answer_of(standing) {
            Some(Answer::Decided(decision)) => decision.clone(),
            _ => level.answer(&bucket_request),
        };
        let used = level.used(&state, now).into_iter();
        let limits = used.zip(state.decisions().zip(answer.decisions()));
        let limits = limits.map(|(used, (now, answer))| LimitExplained {
            used,
            now: *now,
            answer: *answer,
        });
        BucketExplained {
            limits: limits.collect(),
            reported: answer.reported_index(),
            outage: level.outage(),
            of: level.limits().clone(),
        }
    }

    /// Returns the rule's answer, if the rule was evaluated.
    fn answer_of(&self, standing: Standing) -> Option<&Answer> {
        let Standing::Asked(place) = standing else {
            return None;
        };
        Some(&self.outcome.rules.get(place)?.answer)
    }
}
