//! What clients get besides a yes or a no, in words; nothing of what goes without saying.

use loudou_rules::rule::{GrpcStatus, RateLimitHeaders, Refuse, RefuseBody, Respond};

use super::list;

/// What refused clients get.
pub(super) fn refuse(refuse: &Refuse) -> Vec<String> {
    let mut notes = Vec::new();
    let usual = Refuse::default();
    let mut gets = Vec::new();
    if refuse.status != usual.status {
        gets.push(format!("status {}", refuse.status));
    }
    match &refuse.body {
        RefuseBody::Problem => {}
        RefuseBody::None => gets.push("no body".to_owned()),
        RefuseBody::Text { content_type, .. } => {
            gets.push(format!("a text of their own ({content_type})"));
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
        notes.push("refused gRPC calls get unavailable".to_owned());
    }
    notes
}

/// What all responses carry, and who is told what was decided.
pub(super) fn respond(respond: Respond) -> Vec<String> {
    const DRAFT: &str = "RateLimit and RateLimit-Policy";
    let headers = match respond.ratelimit_headers {
        RateLimitHeaders::Refused => None,
        RateLimitHeaders::Draft11 => Some(format!("responses carry {DRAFT}")),
        RateLimitHeaders::Legacy => Some("responses carry X-RateLimit headers".to_owned()),
        RateLimitHeaders::Both => Some(format!("responses carry {DRAFT}, and X-RateLimit headers")),
        RateLimitHeaders::None => Some("refusals carry Retry-After alone".to_owned()),
    };
    let jitter = respond.retry_after_jitter;
    let jitter = (jitter.thousandths() > 0)
        .then(|| format!("Retry-After is up to {jitter} times the wait longer than that"));
    let explains = respond
        .explain_header
        .then(|| "upstreams and access logs are told what it decides".to_owned());
    [headers, jitter, explains].into_iter().flatten().collect()
}
