//! The rate-limit headers of responses.
//!
//! They follow draft-ietf-httpapi-ratelimit-headers-11. A limit is the policy `<rule>.<limit>` with
//! its capacity as the quota `q`; the window `w` is the time in which its rate gives that many units.
//! The legacy headers are `X-RateLimit-*` of the tightest limit, with the reset in seconds from now.

use loudou_limiter::{BucketDecision, Decision, Limit, Limits, Nanos};
use loudou_rules::evaluate::{Answer, Outcome, RuleOutcome};
use loudou_rules::joined::joined;
use loudou_rules::rule::Rule;

use super::text::{Digits, text};
use crate::host::Headers;

pub(super) fn policy_name(rule: &Rule, limit: &Limit) -> String {
    text(&[&rule.name, ".", limit.name()])
}

fn digits(number: u64) -> String {
    Digits::of(number).as_str().to_owned()
}

/// The `RateLimit-Policy` of a rule: every limit.
fn policies(rule: &Rule, limits: &Limits) -> String {
    let policy = |limit: &Limit| {
        let (quota, window) = (limit.algorithm().capacity(), limit.algorithm().quota_time());
        let (quota, name) = (Digits::of(quota), policy_name(rule, limit));
        let policy = ["\"", &name, "\";q=", quota.as_str()];
        match window.map(|time| Digits::of(time.secs_ceil().max(1))) {
            None => text(&policy),
            Some(window) => text(&[&text(&policy), ";w=", window.as_str()]),
        }
    };
    joined(&limits.iter().map(policy).collect::<Vec<_>>(), ", ")
}

/// The `RateLimit` of a decision: the reported limit.
fn state(rule: &Rule, limits: &Limits, answer: &BucketDecision) -> Option<String> {
    let (limit, decision) = reported(limits, answer)?;
    let name = policy_name(rule, limit);
    let remaining = Digits::of(decision.remaining);
    let state = ["\"", &name, "\";r=", remaining.as_str()];
    Some(match until(decision).map(|t| Digits::of(t.secs_ceil())) {
        None => text(&state),
        Some(until) => text(&[&text(&state), ";t=", until.as_str()]),
    })
}

/// The time until a refused request would be admitted, if ever; for an admitted one, the time until the
/// limit is full again.
const fn until(decision: &Decision) -> Option<Nanos> {
    if decision.is_refused() {
        decision.retry_after
    } else {
        Some(decision.reset_after)
    }
}

pub(super) fn reported<'a>(
    limits: &'a Limits,
    answer: &'a BucketDecision,
) -> Option<(&'a Limit, &'a Decision)> {
    Some((
        limits.iter().nth(answer.reported_index())?,
        answer.reported()?,
    ))
}

/// The headers of the response to an admitted request.
pub(crate) fn of_admitted(outcome: &Outcome) -> Headers {
    let mut headers = RateLimitHeaders::default();
    for one in &outcome.rules {
        if let (true, Answer::Decided(decision)) = (one.is_enforced(), &one.answer) {
            headers.add(one, decision);
        }
    }
    headers.finish()
}

/// Collects the headers of a response: from all rules that admitted it, or from the one that refused it.
#[derive(Debug, Default)]
pub(super) struct RateLimitHeaders<'a> {
    policies: Vec<String>,
    states: Vec<String>,
    tightest: Option<&'a Decision>,
}

impl<'a> RateLimitHeaders<'a> {
    /// Adds the decision of a rule, if the rule is configured to show it.
    pub(super) fn add(&mut self, outcome: &RuleOutcome, answer: &'a BucketDecision) {
        let rule = outcome.active.rule();
        let wanted = rule.respond.ratelimit_headers;
        if wanted.draft11(answer.is_refused()) {
            let limits = outcome.limits();
            self.policies.push(policies(rule, limits));
            self.states.extend(state(rule, limits, answer));
        }
        if wanted.legacy()
            && let Some(decision) = answer.reported()
            && self
                .tightest
                .is_none_or(|other| decision.is_tighter_than(other))
        {
            self.tightest = Some(decision);
        }
    }

    pub(super) fn finish(self) -> Headers {
        let mut headers = Vec::new();
        if !self.policies.is_empty() {
            headers.push(("ratelimit-policy", joined(&self.policies, ", ")));
            headers.push(("ratelimit", joined(&self.states, ", ")));
        }
        if let Some(decision) = self.tightest {
            headers.push(("x-ratelimit-limit", digits(decision.capacity)));
            headers.push(("x-ratelimit-remaining", digits(decision.remaining)));
            let reset = until(decision).map(|t| ("x-ratelimit-reset", digits(t.secs_ceil())));
            headers.extend(reset);
        }
        headers
    }
}
