//! What clients see: rate-limit headers, and the answer to a refused request.

use loudou_api::ProblemAnswer;
use loudou_limiter::rule::Rule;
use loudou_limiter::{BucketDecision, Nanos};

use crate::host::Reply;

mod headers;
mod jitter;

pub(crate) use headers::RateLimitHeaders;

use headers::policy_name;
use jitter::jittered;

/// The status of refused requests.
const REFUSED: u16 = 429;
/// The problem type of the draft for an exhausted quota.
const QUOTA_EXCEEDED: &str = "https://iana.org/assignments/http-problem-types#quota-exceeded";

/// The answer to a request that a bucket refused at `now`.
pub(crate) fn over_limit(rule: &Rule, answer: &BucketDecision, now: Nanos) -> Reply {
    let mut headers = RateLimitHeaders::default();
    headers.add(rule, answer);
    let mut headers = headers.finish();
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
        })
        .map(|wait| jittered(wait, rule.respond.retry_after_jitter, now));
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
