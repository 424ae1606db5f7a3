//! Evaluates a rule set against one request.
//!
//! Rules are evaluated in file order, and every matching rule must admit the request. If a rule
//! refuses the request, the cost already charged under earlier rules is returned to their buckets,
//! and later rules are skipped.
//!
//! A rule in shadow mode behaves as if it were the only rule, and never affects the verdict. The
//! cost charged under it is not returned, even if another rule refuses the request. A rule in
//! shadow mode is evaluated even after another rule has refused the request or ended the
//! evaluation.
//!
//! An enforced rule with `stop` ends the evaluation of every request that it matches, even if it
//! admits the request. Later enforced rules do not apply to these requests.

use alloc::boxed::Box;
use alloc::string::String;
use alloc::sync::Arc;
use alloc::vec::Vec;

use loudou_limiter::ban::Ban;
use loudou_limiter::{BucketDecision, BucketRequest, Clock, Limits, Nanos, Verdict};
use loudou_store::{
    Attempt, BucketId, Charge, GaveUp, Leased, LiveRule, Receipt, Release, ReleaseReason,
    SharedData, StoreStats, Table,
};

use crate::fleet::FleetView;
use crate::numbers::FoundNumbers;
use crate::patience::{NotHeld, patience};
use crate::request::Request;
use crate::rule::key::Key;
use crate::rule::{Mode, OnError, OnOutage, Price, Reach, Rule};
use crate::rule_set::RuleSet;
use crate::rule_set::{ActiveRule, Grant};

/// Outcome of a single rule for a request.
#[derive(Clone, Debug)]
pub struct RuleOutcome {
    /// Index of the rule in its rule set.
    pub rule: usize,
    /// The rule at the time of the evaluation.
    pub active: Arc<ActiveRule>,
    /// Key of the request; `None` if the request has no key.
    pub key: Option<String>,
    /// Address of the key's bucket.
    pub id: Option<BucketId>,
    /// The rule's verdict.
    pub answer: Answer,
    /// Price of the request, if the bucket was evaluated.
    pub price: Option<Price>,
    /// Receipt for returning the cost. `None` if nothing was taken, or if the cost has already been
    /// returned.
    pub receipt: Option<Receipt>,
    /// Effect on the key's lease, if the limits are shared by all Envoys.
    pub leased: Option<Leased>,
    /// The limits on which the decision was based, if they differ from the rule's limits for the
    /// key: limits with numbers from the request, or this Envoy's share of the limits.
    own: Option<Box<Limits>>,
    /// True if a number that requests supply was missing, invalid or out of range, and was
    /// therefore replaced.
    pub odd_numbers: bool,
    /// If the request has to wait, the maximum time it may be held.
    pub patience: Nanos,
    /// If the request was refused because it would have had to wait, the reason it was not held.
    pub not_held: Option<NotHeld>,
    /// True if the rule admitted the request, but a later enforced rule refused it. In that case,
    /// the rule's answer has no effect.
    pub overruled: bool,
}

impl RuleOutcome {
    /// Creates the outcome of a rule that does not apply.
    const fn new(rule: usize, active: Arc<ActiveRule>) -> Self {
        Self {
            rule,
            active,
            key: None,
            id: None,
            answer: Answer::Skipped,
            price: None,
            receipt: None,
            leased: None,
            own: None,
            odd_numbers: false,
            patience: Nanos::MAX,
            not_held: None,
            overruled: false,
        }
    }

    /// Charges the bucket of the request's key.
    fn charge(
        &mut self,
        key: String,
        (table, store): (&Table, &mut dyn SharedData),
        request: &mut dyn Request,
        clock: Clock,
        stats: &mut StoreStats,
    ) {
        let active = &*self.active;
        let price = price(active.rule(), request);
        let id = table.id(active.tag(), &key);
        let bucket_request = BucketRequest {
            cost: price.cost,
            now: clock.now,
            wall: clock.wall,
            max_wait: request.max_wait(),
            patience: Nanos::MAX,
            needs_more_after: active.rule().respond.ratelimit_headers.needs_more_after(),
            is_queued: false,
        };
        if active.is_sourced()
            && let Some(sourced) = active.sourced(&key, request)
        {
            self.own = Some(sourced.limits);
            self.odd_numbers = sourced.found.iter().any(FoundNumbers::is_odd);
        }
        (self.answer, self.receipt) = match active.grant(&key) {
            Grant::Limits(limits) => {
                let limits = self.own.as_deref().unwrap_or(limits);
                let fleet = request.fleet();
                let terms = fleet.and_then(|fleet| fleet.terms(active.rule(), limits));
                let mut acquire = active.acquire_of(limits, &key, bucket_request);
                acquire.lease = fleet
                    .zip(terms.as_ref())
                    .map(|(fleet, terms)| fleet.by(active.rule().mode, terms));
                let attempt = Attempt::at(table, id, acquire);
                let held = (&mut self.not_held, &mut self.patience);
                let charge = take_patiently(attempt, store, request, held, stats);
                self.leased = charge.as_ref().ok().and_then(|charge| charge.leased);
                if let (Some(fleet), true) = (fleet, self.leased.is_some_and(Leased::is_local))
                    && let Some(part) = fleet.part(limits)
                {
                    self.own = Some(Box::new(part));
                }
                Answer::of(charge, fleet)
            }
            Grant::Unlimited => (unlimited(table, store, id, bucket_request.now), None),
            Grant::Banned => (Answer::Banned(Ban::ENDLESS), None),
        };
        self.key = Some(key);
        self.id = Some(id);
        self.price = Some(price);
    }

    /// Returns true if the rule meets the conditions of [`Outcome::is_plain`].
    fn is_plain(&self) -> bool {
        match &self.answer {
            Answer::Decided(decision) => {
                decision.verdict() == Verdict::Admit
                    && self.leased.is_none()
                    && !self.limits().holds_until_end()
                    && self.active.rule().cost.settlement().is_none()
            }
            _ => false,
        }
    }

    /// Returns true if the rule is enforced and can therefore refuse requests.
    pub fn is_enforced(&self) -> bool {
        self.active.rule().mode == Mode::Enforce
    }

    /// Returns true if the request would be refused if the rule were enforced.
    pub fn refuses(&self) -> bool {
        self.answer.refuses(self.active.rule().on_error)
    }

    /// Returns true if the request has to wait for its key's lease.
    pub fn waits_for_lease(&self) -> bool {
        self.is_enforced() && self.leased.is_some_and(Leased::waits)
    }

    /// Returns the limits on which the decision was based: the key's limits with the numbers from
    /// the request, or this Envoy's share of the key's limits. Without a key, returns the rule's
    /// limits.
    pub fn limits(&self) -> &Limits {
        match &self.own {
            Some(own) => own,
            None => self.active.limits_for(self.key.as_deref()),
        }
    }
}

/// Outcome of a rule set for a request.
#[derive(Clone, Debug, Default)]
pub struct Outcome {
    /// Outcomes of all the evaluated rules, in file order.
    pub rules: Vec<RuleOutcome>,
    /// Index in `rules` of the rule that refused the request.
    pub refused_by: Option<usize>,
    /// Index in the rule set of the rule whose `stop` ended the evaluation of enforced rules.
    pub stopped_by: Option<usize>,
    /// True if the request waits for tokens for its key under the last rule. In that case nothing
    /// was taken, and the request must be evaluated again once the tokens have arrived.
    pub is_pending: bool,
}

impl Outcome {
    /// Returns true if the request is refused.
    pub const fn is_refused(&self) -> bool {
        self.refused_by.is_some()
    }

    /// Returns the outcome of the rule that refused the request.
    pub fn refusal(&self) -> Option<&RuleOutcome> {
        self.rules.get(self.refused_by?)
    }

    /// Returns the verdict on the request. Ignores rules in shadow mode.
    pub fn verdict(&self) -> Verdict {
        if self.is_refused() {
            Verdict::Refuse
        } else if self.wait() > Nanos::ZERO {
            Verdict::Hold
        } else {
            Verdict::Admit
        }
    }

    /// If an admitted request has to wait, returns the instant from which all enforced rules let it
    /// pass. The instant is measured on the buckets' clock, which another worker may have advanced
    /// past this worker's `now`.
    pub fn due(&self) -> Option<Nanos> {
        let held = self
            .enforced()
            .filter(|decision| decision.wait() > Nanos::ZERO);
        held.map(|decision| decision.at().saturating_add(decision.wait()))
            .max()
            .filter(|_| !self.is_refused())
    }

    /// Returns the decisions of the enforced rules.
    fn enforced(&self) -> impl Iterator<Item = &BucketDecision> {
        self.rules
            .iter()
            .filter_map(|outcome| match &outcome.answer {
                Answer::Decided(decision) if outcome.is_enforced() => Some(decision),
                _ => None,
            })
    }

    /// Returns true if every rule admits the request immediately from a local bucket, and the cost
    /// does not change when the request ends. The caller then only needs to count the request.
    pub fn is_plain(&self) -> bool {
        self.rules.iter().all(RuleOutcome::is_plain)
    }

    /// Returns the cost to the buckets of all rules, because the request will be evaluated again
    /// when the tokens for the last rule arrive.
    fn postpone(&mut self, release: &mut dyn FnMut(&Release<'_>), clock: Clock) {
        self.is_pending = true;
        for one in &mut self.rules {
            if let (Some(key), Some(receipt)) = (&one.key, one.receipt.take()) {
                release(
                    &one.active
                        .release(key, &receipt, ReleaseReason::Refused, clock),
                );
            }
        }
    }

    /// Inserts a rule's outcome in file order, and returns its index.
    fn add(&mut self, one: RuleOutcome) -> usize {
        let last = self.rules.last();
        if last.is_none_or(|last| last.rule < one.rule) {
            self.rules.push(one);
            return self.rules.len().saturating_sub(1);
        }
        // Rules in shadow mode may be evaluated after later rules.
        let place = self.rules.partition_point(|other| other.rule < one.rule);
        self.refused_by = self
            .refused_by
            .map(|by| by.saturating_add((place <= by).into()));
        self.rules.insert(place, one);
        place
    }

    /// Returns the cost to the buckets of the earlier enforced rules, because the last rule refused
    /// the request.
    fn overrule(&mut self, release: &mut dyn FnMut(&Release<'_>), clock: Clock) {
        let Some((_, before)) = self.rules.split_last_mut() else {
            return;
        };
        self.refused_by = Some(before.len());
        for rule_outcome in before {
            if !rule_outcome.is_enforced() {
                continue;
            }
            rule_outcome.overruled = !matches!(rule_outcome.answer, Answer::Skipped);
            if let (Some(key), Some(receipt)) = (&rule_outcome.key, rule_outcome.receipt.take()) {
                release(
                    &rule_outcome
                        .active
                        .release(key, &receipt, ReleaseReason::Refused, clock),
                );
            }
        }
    }

    /// Returns how long the request is held: the longest wait of any enforced rule, or zero if the
    /// request is refused.
    pub fn wait(&self) -> Nanos {
        if self.is_refused() {
            return Nanos::ZERO;
        }
        let waits = self.enforced().map(BucketDecision::wait);
        waits.max().unwrap_or(Nanos::ZERO)
    }
}

/// Evaluates `rules` for `request`. If all rules admit the request, its cost is taken from every
/// bucket.
pub fn evaluate(
    rules: &RuleSet,
    table: &Table,
    store: &mut dyn SharedData,
    request: &mut dyn Request,
    clock: Clock,
    stats: &mut StoreStats,
) -> Outcome {
    let outcome = Outcome {
        // Most requests match a single rule, but the first push to an empty `Vec` would allocate
        // space for four.
        rules: Vec::with_capacity(1),
        refused_by: None,
        stopped_by: None,
        is_pending: false,
    };
    let candidates = rules.candidates(request);
    let next = |from: usize| candidates.as_ref().map_or(from, |those| those.next(from));
    // A request that waits for a lease is evaluated again, but a refusal in shadow mode, once
    // counted, cannot be undone. Rules in shadow mode are therefore evaluated last, once no other
    // rule makes the request wait. The order of rules in shadow mode does not matter, because their
    // outcomes do not depend on other rules.
    let puts_off = request.fleet().is_some();
    let mut run = Run {
        outcome,
        table,
        store,
        request,
        clock,
        stats,
    };
    let mut is_left = false;
    let mut index = next(0);
    while let Some(active) = rules.get(index) {
        match active.rule().mode {
            Mode::Off => {}
            Mode::Shadow if puts_off => is_left = true,
            Mode::Shadow | Mode::Enforce => run.evaluate(index, active),
        }
        if run.outcome.is_pending {
            return run.outcome;
        }
        index = next(index.saturating_add(1));
    }
    index = if is_left { next(0) } else { rules.len() };
    while let Some(active) = rules.get(index) {
        if active.rule().mode == Mode::Shadow {
            run.evaluate(index, active);
        }
        index = next(index.saturating_add(1));
    }
    run.outcome
}

/// Decides on the request and charges its cost. If the request would have to wait, first checks
/// whether it may wait, and for how long. If it may not wait long enough, sets `not_held` to the
/// reason.
fn take_patiently(
    mut attempt: Attempt<'_>,
    store: &mut dyn SharedData,
    request: &mut dyn Request,
    (not_held, most): (&mut Option<NotHeld>, &mut Nanos),
    stats: &mut StoreStats,
) -> Result<Charge, GaveUp> {
    if let Some(charge) = attempt.decide_in_place(store) {
        return Ok(charge);
    }
    let (mut asked, mut may_wait) = (None, None);
    loop {
        attempt.read(store)?;
        let wait = attempt.wait();
        if attempt.waits_for_lease() {
            // A wait for a lease never exceeds the timeout of a relay call, so the request's
            // deadline is not checked.
            if !*may_wait.get_or_insert_with(|| request.may_wait()) {
                *not_held = Some(NotHeld::Full);
                attempt.shorten(Nanos::ZERO);
                attempt.read(store)?;
            }
        } else if wait > Nanos::ZERO {
            let (patience, reason) = *asked.get_or_insert_with(|| patience(request));
            *most = patience;
            if wait > patience {
                *not_held = Some(reason);
                attempt.shorten(patience);
                attempt.read(store)?;
            }
        }
        if let Some(outcome) = attempt.write(store, stats) {
            // Another worker may have returned units in the meantime.
            let took = |charge: &Charge| charge.receipt.is_some();
            if outcome.as_ref().map_or(true, took) {
                *not_held = None;
            }
            return outcome;
        }
    }
}

/// Returns the answer for a key without limits, which may nevertheless have been banned by an
/// operator.
fn unlimited(table: &Table, store: &mut dyn SharedData, id: BucketId, now: Nanos) -> Answer {
    match table.ban_of(store, id, now) {
        Err(gave_up) => Answer::GaveUp(gave_up),
        Ok(ban) => ban.map_or(Answer::Unlimited, Answer::Banned),
    }
}

/// Returns the request's fixed cost if it has one, and its price under the rule otherwise.
pub(crate) fn price(rule: &Rule, request: &mut dyn Request) -> Price {
    let is_invalid = false;
    match request.cost() {
        Some(cost) => Price { cost, is_invalid },
        None => rule.cost.price(request),
    }
}

/// A rule's answer.
#[derive(Clone, Debug)]
pub enum Answer {
    /// The bucket decided on the request. In shadow mode, a refusal is only counted.
    Decided(BucketDecision),
    /// The key is banned.
    Banned(Ban),
    /// The key has no limits.
    Unlimited,
    /// The request has no key, so the rule does not apply.
    Skipped,
    /// The request is refused because it has no key.
    KeyMissing,
    /// The request is refused because a value is too long for the rule's match to test.
    ValueTooLong,
    /// The request is refused because it has several values for a part of its key.
    KeyAmbiguous,
    /// The fleet's engine is unreachable, and requests are refused until it becomes reachable
    /// again.
    Outage,
    /// The store failed, so the rule's `on_error` applies.
    GaveUp(GaveUp),
}

impl Answer {
    /// Returns the reason for refusing a request that has no bucket.
    fn without_key(reach: Reach) -> Self {
        match reach {
            Reach::Refuse => Self::ValueTooLong,
            Reach::Yes | Reach::No => Self::KeyMissing,
        }
    }

    fn of(charge: Result<Charge, GaveUp>, fleet: Option<FleetView>) -> (Self, Option<Receipt>) {
        let charge = match charge {
            Ok(charge) => charge,
            Err(gave_up) => return (Self::GaveUp(gave_up), None),
        };
        let is_local = charge.leased.is_some_and(Leased::is_local);
        match (fleet.map(|fleet| fleet.on_outage), charge.answer) {
            (Some(OnOutage::Refuse), Ok(_)) if is_local => (Self::Outage, None),
            (Some(OnOutage::Admit), Ok(_)) if is_local => (Self::Unlimited, None),
            (_, answer) => {
                let answer = answer.map_or_else(Self::Banned, Self::Decided);
                (answer, charge.receipt)
            }
        }
    }

    /// Returns true if the request would be refused if the rule were enforced.
    pub fn refuses(&self, on_error: OnError) -> bool {
        match self {
            Self::Decided(decision) => decision.is_refused(),
            Self::Skipped | Self::Unlimited => false,
            Self::KeyMissing
            | Self::KeyAmbiguous
            | Self::ValueTooLong
            | Self::Outage
            | Self::Banned(_) => true,
            Self::GaveUp(_) => on_error == OnError::Refuse,
        }
    }
}

/// An evaluation in progress.
struct Run<'a> {
    outcome: Outcome,
    table: &'a Table,
    store: &'a mut dyn SharedData,
    request: &'a mut dyn Request,
    clock: Clock,
    stats: &'a mut StoreStats,
}

impl Run<'_> {
    /// Evaluates a rule that may match, unless an earlier enforced rule has refused the request or
    /// ended the evaluation.
    fn evaluate(&mut self, index: usize, active: &Arc<ActiveRule>) {
        let rule = active.rule();
        let is_enforced = rule.mode == Mode::Enforce;
        if is_enforced && self.outcome.stopped_by.is_some() {
            return;
        }
        let mut reach = Reach::Yes;
        if !active.matches_all() {
            reach = rule.reach(self.request);
            if reach == Reach::No {
                return;
            }
            if !active.applies(self.table, self.store, self.request, self.clock.now) {
                return;
            }
        }
        let key = match reach {
            Reach::Refuse => Key::Refuse,
            Reach::Yes | Reach::No => rule.key_of(self.request),
        };
        let stops = rule.stop && is_enforced && !matches!(key, Key::Skip);
        if !is_enforced || !self.outcome.is_refused() {
            let place = self
                .outcome
                .add(RuleOutcome::new(index, Arc::clone(active)));
            self.decide(place, reach, key);
        }
        if stops {
            self.outcome.stopped_by = Some(index);
        }
    }

    /// Decides on a request with this key, and updates the outcome at index `place`. The outcome is
    /// updated in place, because it is large and expensive to move.
    fn decide(&mut self, place: usize, reach: Reach, key: Key) {
        let Some(one) = self.outcome.rules.get_mut(place) else {
            return;
        };
        match key {
            Key::Skip => {}
            Key::Refuse => one.answer = Answer::without_key(reach),
            Key::Ambiguous => one.answer = Answer::KeyAmbiguous,
            Key::Bucket(key) => {
                let of: (_, &mut dyn SharedData) = (self.table, &mut *self.store);
                one.charge(key, of, self.request, self.clock, self.stats);
            }
        }
        let refuses = one.is_enforced() && one.refuses();
        let waits = one.waits_for_lease();
        if !refuses && !waits {
            return;
        }
        let mut release = |release: &Release<'_>| {
            // The table itself counts lost returns.
            let _lost = self.table.release(self.store, release, self.stats);
        };
        if waits {
            self.outcome.postpone(&mut release, self.clock);
        } else if refuses {
            self.outcome.overrule(&mut release, self.clock);
        }
    }
}
