//! The rate-limit headers of responses.
//!
//! They follow draft-ietf-httpapi-ratelimit-headers-11. A limit is the policy `<rule>.<limit>` with
//! its capacity as the quota `q`, and as the window `w` the time in which its rate gives that. The
//! legacy ones are `X-RateLimit-*` of the tightest limit, with the reset in seconds from now.

use loudou_limiter::{BucketDecision, Decision, Limit, Limits, Nanos};
use loudou_rules::rule::Rule;

use crate::data::Headers;

pub(super) fn policy_name(rule: &Rule, limit: &Limit) -> String {
    format!("{}.{}", rule.name, limit.name())
}

/// The `RateLimit-Policy` of a rule: every limit.
fn policies(rule: &Rule, limits: &Limits) -> String {
    let policy = |limit: &Limit| {
        let (quota, window) = (limit.algorithm().capacity(), limit.algorithm().quota_time());
        let window = window.map(|time| format!(";w={}", time.secs_ceil().max(1)));
        format!(
            "\"{}\";q={quota}{}",
            policy_name(rule, limit),
            window.unwrap_or_default()
        )
    };
    limits.iter().map(policy).collect::<Vec<_>>().join(", ")
}

/// The `RateLimit` of a decision: the reported limit.
fn state(rule: &Rule, limits: &Limits, answer: &BucketDecision) -> Option<String> {
    let (limit, decision) = reported(limits, answer)?;
    let name = policy_name(rule, limit);
    let until = until(decision)
        .map(|t| format!(";t={}", t.secs_ceil()))
        .unwrap_or_default();
    Some(format!("\"{name}\";r={}{until}", decision.remaining))
}

/// The time to come back: when refused, that at which the same is admitted, if ever; else that at
/// which the bucket is as good as new.
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

/// Collects the headers of a response: of all rules that admitted, or of the one that refused.
#[derive(Debug, Default)]
pub(crate) struct RateLimitHeaders<'a> {
    policies: Vec<String>,
    states: Vec<String>,
    tightest: Option<&'a Decision>,
}

impl<'a> RateLimitHeaders<'a> {
    /// Adds what a rule says by these limits, as far as it asks for that.
    pub(crate) fn add(&mut self, rule: &Rule, limits: &Limits, answer: &'a BucketDecision) {
        let wanted = rule.respond.ratelimit_headers;
        if wanted.draft11(answer.is_refused()) {
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

    pub(crate) fn finish(self) -> Headers {
        let mut headers = Vec::new();
        if !self.policies.is_empty() {
            headers.push(("ratelimit-policy", self.policies.join(", ")));
            headers.push(("ratelimit", self.states.join(", ")));
        }
        if let Some(decision) = self.tightest {
            headers.push(("x-ratelimit-limit", decision.capacity.to_string()));
            headers.push(("x-ratelimit-remaining", decision.remaining.to_string()));
            let reset = until(decision).map(|t| ("x-ratelimit-reset", t.secs_ceil().to_string()));
            headers.extend(reset);
        }
        headers
    }
}
