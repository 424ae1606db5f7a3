//! The rate-limit headers of responses.
//!
//! They follow draft-ietf-httpapi-ratelimit-headers-11. A limit is the policy `<rule>.<limit>` with
//! its capacity as the quota `q`; the window `w` is the time in which its rate gives that many units.
//! The legacy headers are `X-RateLimit-*` of the tightest limit, with the reset in seconds from now.

use loudou_limiter::{BucketDecision, Decision, Limit, Limits, Nanos};
use loudou_rules::evaluate::{Answer, Outcome, RuleOutcome};
use loudou_rules::rule::Rule;

use super::text::{Digits, after_others, push, text};
use crate::host::Headers;

pub(super) fn policy_name(rule: &Rule, limit: &Limit) -> String {
    text(&[&rule.name, ".", limit.name()])
}

fn digits(number: u64) -> String {
    Digits::of(number).as_str().to_owned()
}

/// Adds the `RateLimit-Policy` of a rule: every limit.
fn push_policies(list: &mut String, rule: &Rule, limits: &Limits) {
    for limit in limits {
        let algorithm = limit.algorithm();
        let quota = Digits::of(algorithm.capacity());
        let out = after_others(list, ", ");
        push(
            out,
            &["\"", &rule.name, ".", limit.name(), "\";q=", quota.as_str()],
        );
        if let Some(window) = algorithm.quota_time() {
            let window = Digits::of(window.secs_ceil().max(1));
            push(out, &[";w=", window.as_str()]);
        }
    }
}

/// Adds the `RateLimit` of a decision: the reported limit.
fn push_state(list: &mut String, rule: &Rule, limits: &Limits, answer: &BucketDecision) {
    let Some((limit, decision)) = reported(limits, answer) else {
        return;
    };
    let remaining = Digits::of(decision.remaining);
    let out = after_others(list, ", ");
    push(
        out,
        &[
            "\"",
            &rule.name,
            ".",
            limit.name(),
            "\";r=",
            remaining.as_str(),
        ],
    );
    if let Some(until) = until(decision) {
        let until = Digits::of(until.secs_ceil());
        push(out, &[";t=", until.as_str()]);
    }
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
    policies: String,
    states: String,
    tightest: Option<&'a Decision>,
}

impl<'a> RateLimitHeaders<'a> {
    /// Adds the decision of a rule, if the rule is configured to show it.
    pub(super) fn add(&mut self, outcome: &RuleOutcome, answer: &'a BucketDecision) {
        let rule = outcome.active.rule();
        let wanted = rule.respond.ratelimit_headers;
        if wanted.draft11(answer.is_refused()) {
            let limits = outcome.limits();
            push_policies(&mut self.policies, rule, limits);
            push_state(&mut self.states, rule, limits, answer);
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
            headers.push(("ratelimit-policy".into(), self.policies));
            headers.push(("ratelimit".into(), self.states));
        }
        if let Some(decision) = self.tightest {
            headers.push(("x-ratelimit-limit".into(), digits(decision.capacity)));
            headers.push(("x-ratelimit-remaining".into(), digits(decision.remaining)));
            let reset = until(decision).map(|t| digits(t.secs_ceil()));
            headers.extend(reset.map(|reset| ("x-ratelimit-reset".into(), reset)));
        }
        headers
    }
}
