//! What clients see: `RateLimit` headers, and the answer to a refused request.
//!
//! Headers follow draft-ietf-httpapi-ratelimit-headers-11. A limit is the policy `<rule>.<limit>`
//! with its capacity as the quota `q`, and as the window `w` the time in which all of it comes back.

use loudou_api::ProblemAnswer;
use loudou_limiter::rule::Rule;
use loudou_limiter::{BucketDecision, Decision, Limit, Nanos};

use crate::host::Reply;

/// The status of refused requests.
const REFUSED: u16 = 429;
/// The problem type of the draft for an exhausted quota.
const QUOTA_EXCEEDED: &str = "https://iana.org/assignments/http-problem-types#quota-exceeded";

fn policy_name(rule: &Rule, limit: &Limit) -> String {
    format!("{}.{}", rule.name, limit.name())
}

/// The `RateLimit-Policy` of a rule: every limit.
fn policies(rule: &Rule) -> String {
    let policy = |limit: &Limit| {
        let (quota, window) = (limit.algorithm().capacity(), limit.algorithm().drain_time());
        format!(
            "\"{}\";q={quota};w={}",
            policy_name(rule, limit),
            window.secs_ceil().max(1)
        )
    };
    rule.limits
        .iter()
        .map(policy)
        .collect::<Vec<_>>()
        .join(", ")
}

/// The `RateLimit` of a decision: the reported limit.
fn state(rule: &Rule, answer: &BucketDecision) -> Option<String> {
    let (limit, decision) = reported(rule, answer)?;
    let name = policy_name(rule, limit);
    let until = if decision.is_refused() {
        decision.retry_after
    } else {
        Some(decision.reset_after)
    };
    let until = until
        .map(|t| format!(";t={}", t.secs_ceil()))
        .unwrap_or_default();
    Some(format!("\"{name}\";r={}{until}", decision.remaining))
}

fn reported<'a>(rule: &'a Rule, answer: &'a BucketDecision) -> Option<(&'a Limit, &'a Decision)> {
    Some((
        rule.limits.iter().nth(answer.reported_index())?,
        answer.reported()?,
    ))
}

/// Collects the headers of an admitted response.
#[derive(Debug, Default)]
pub(crate) struct AdmittedHeaders {
    policies: Vec<String>,
    states: Vec<String>,
}

impl AdmittedHeaders {
    pub(crate) fn add(&mut self, rule: &Rule, answer: &BucketDecision) {
        self.policies.push(policies(rule));
        self.states.extend(state(rule, answer));
    }

    pub(crate) fn finish(self) -> Vec<(&'static str, String)> {
        if self.policies.is_empty() {
            return Vec::new();
        }
        vec![
            ("ratelimit-policy", self.policies.join(", ")),
            ("ratelimit", self.states.join(", ")),
        ]
    }
}

/// The answer to a request that a bucket refused.
pub(crate) fn over_limit(rule: &Rule, answer: &BucketDecision) -> Reply {
    let mut headers = vec![("ratelimit-policy", policies(rule))];
    headers.extend(state(rule, answer).map(|state| ("ratelimit", state)));
    let refusing = || {
        let both = rule.limits.iter().zip(answer.decisions());
        both.filter(|(_, decision)| decision.is_refused())
    };
    let violated: Vec<String> = refusing()
        .map(|(limit, _)| policy_name(rule, limit))
        .collect();
    // Admitted only when the slowest of them is ready.
    let wait: Option<Nanos> = refusing()
        .map(|(_, decision)| decision.retry_after)
        .try_fold(Nanos::ZERO, |longest, wait| {
            wait.map(|wait| longest.max(wait))
        });
    if let Some(wait) = wait {
        headers.push(("retry-after", wait.secs_ceil().to_string()));
    }
    let wait = wait.map_or_else(
        || "it asks for more than the limit ever holds".to_owned(),
        |wait| format!("try again in {} s", wait.secs_ceil()),
    );
    let detail = format!("over the limit of {}: {wait}", violated.join(" and "));
    let first = violated.first().cloned().unwrap_or_default();
    problem(
        &format!("loudou_over_limit{{{first}}}"),
        headers,
        detail,
        violated,
    )
}

/// The answer to a request without a key, where the rule refuses those.
pub(crate) fn key_missing(rule: &Rule) -> Reply {
    let name = &rule.name;
    let detail = format!("the request lacks what rule {name} tells users apart by");
    problem(
        &format!("loudou_key_missing{{{name}}}"),
        Vec::new(),
        detail,
        vec![name.clone()],
    )
}

/// The answer where the store gave up and the rule refuses then.
pub(crate) fn store_gave_up(rule: &Rule) -> Reply {
    let name = &rule.name;
    let detail = format!("rule {name} could not be decided and refuses then; try again");
    problem(
        &format!("loudou_store_gave_up{{{name}}}"),
        Vec::new(),
        detail,
        vec![name.clone()],
    )
}

fn problem(
    details: &str,
    mut headers: Vec<(&'static str, String)>,
    detail: String,
    violated_policies: Vec<String>,
) -> Reply {
    headers.push(("content-type", "application/problem+json".to_owned()));
    let body = ProblemAnswer {
        kind: QUOTA_EXCEEDED.to_owned(),
        title: "Quota exceeded".to_owned(),
        status: REFUSED,
        detail,
        violated_policies,
        ..ProblemAnswer::default()
    };
    let mut body = serde_json::to_vec(&body).unwrap_or_default();
    body.push(b'\n');
    Reply {
        status: REFUSED,
        details: details.to_owned(),
        headers,
        body,
    }
}
