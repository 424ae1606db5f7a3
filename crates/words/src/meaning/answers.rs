//! Describes the responses to clients. Default settings are omitted.

use loudou_rules::rule::{GrpcStatus, RateLimitHeaders, Refuse, RefuseBody, Respond};

use super::list;

/// Describes the response sent for refused requests.
pub(super) fn refuse(refuse: &Refuse) -> Vec<String> {
    let mut notes = Vec::new();
    let usual = Refuse::default();
    let mut gets = Vec::new();
    if refuse.status != usual.status {
        gets.push(format!("status {}", refuse.status));
    }
    if let Some(status) = refuse.status_without_key {
        gets.push(format!("status {status} without a key"));
    }
    match &refuse.body {
        RefuseBody::Problem => {}
        RefuseBody::None => gets.push("no body".to_owned()),
        RefuseBody::Text { content_type, .. } => {
            gets.push(format!("a custom body ({content_type})"));
        }
    }
    let names = refuse.headers.iter().map(|(name, _)| name.as_str());
    let names: Vec<&str> = names.collect();
    match names.as_slice() {
        [] => {}
        [name] => gets.push(format!("the header {name}")),
        names => gets.push(format!("the headers {}", list(names, "and"))),
    }
    if !gets.is_empty() {
        notes.push(format!("refused requests get {}", list(&gets, "and")));
    }
    if refuse.grpc == GrpcStatus::Unavailable {
        notes.push("refused gRPC calls get the status unavailable".to_owned());
    }
    notes
}

/// Describes the rate limit headers, the `Retry-After` jitter, and the visibility of decisions.
pub(super) fn respond(respond: Respond) -> Vec<String> {
    const DRAFT: &str = "RateLimit and RateLimit-Policy";
    let headers = match respond.ratelimit_headers {
        RateLimitHeaders::Refused => None,
        RateLimitHeaders::Draft11 => Some(format!("responses carry {DRAFT}")),
        RateLimitHeaders::Legacy => Some("responses carry X-RateLimit headers".to_owned()),
        RateLimitHeaders::Both => Some(format!("responses carry {DRAFT}, and X-RateLimit headers")),
        RateLimitHeaders::Openai => Some("responses carry X-RateLimit-*-Tokens headers".to_owned()),
        RateLimitHeaders::None => Some("refusals carry only Retry-After".to_owned()),
    };
    let jitter = respond.retry_after_jitter;
    let jitter = (jitter.thousandths() > 0)
        .then(|| format!("Retry-After is longer than the wait by up to {jitter} times the wait"));
    let explains = respond
        .explain_header
        .then(|| "its decisions are visible to upstreams and access logs".to_owned());
    [headers, jitter, explains].into_iter().flatten().collect()
}
