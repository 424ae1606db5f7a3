//! What upstreams and access logs are told of a decision.
//!
//! ```text
//! x-loudou-decision: <rule>;<limit>;<verdict>[, …]
//! wasm.loudou:       <rule>;<limit>;<verdict>;<wait>;<key>[, …]
//! ```
//! The wait is that of a held request, or until a refused one may come back, in milliseconds; the
//! key is its fingerprint. What there is not is `-`.

use loudou_limiter::{BucketDecision, Nanos, Verdict, fingerprint};
use loudou_rules::active_rule::ActiveRule;
use loudou_rules::evaluate::{Answer, RuleOutcome};
use loudou_rules::rule::Mode;

use super::headers::reported;

/// The request header with the decisions.
pub(crate) const DECISION: &str = "x-loudou-decision";
/// The response header with the wait of a held request.
pub(crate) const WAIT_MS: &str = "x-loudou-wait-ms";
/// The property with the decisions, in access logs `%FILTER_STATE(wasm.loudou:PLAIN)%`.
pub(crate) const PROPERTY: &str = "loudou";

/// `<rule>;<limit>;<verdict>`.
pub(crate) fn decision(active: &ActiveRule, outcome: &RuleOutcome) -> String {
    let rule = active.rule();
    let decided = decided(outcome);
    let limits = active.limits_for(outcome.key.as_deref());
    let limit = decided.and_then(|decision| reported(limits, decision));
    let limit = limit.map_or("-", |(limit, _)| limit.name());
    let shadow = if rule.mode == Mode::Enforce {
        ""
    } else {
        "shadow_"
    };
    let verdict = match (&outcome.answer, decided.map(BucketDecision::verdict)) {
        (Answer::Skipped, _) => "skip",
        (Answer::Banned(_), _) => "ban",
        (_, Some(Verdict::Hold)) => "hold",
        (answer, _) if answer.refuses(rule.on_error) => "refuse",
        _ => "admit",
    };
    format!("{};{limit};{shadow}{verdict}", rule.name)
}

/// The same, and `;<wait>;<key>`.
pub(crate) fn for_log(active: &ActiveRule, outcome: &RuleOutcome, now: Nanos) -> String {
    let wait = match &outcome.answer {
        Answer::Decided(decision) if decision.is_refused() => retry_after(decision),
        Answer::Decided(decision) => Some(decision.wait()),
        Answer::Banned(ban) => ban.lasts(now),
        Answer::Unlimited | Answer::Skipped | Answer::KeyMissing | Answer::GaveUp(_) => None,
    };
    let wait = wait.map_or_else(|| "-".to_owned(), |wait| wait.millis_ceil().to_string());
    let key = outcome.key.as_deref().map(fingerprint);
    let key = key.map_or_else(|| "-".to_owned(), |key| format!("{key:016x}"));
    format!("{};{wait};{key}", decision(active, outcome))
}

const fn decided(outcome: &RuleOutcome) -> Option<&BucketDecision> {
    match &outcome.answer {
        Answer::Decided(decision) => Some(decision),
        _ => None,
    }
}

/// Until the slowest of the limits that refused is ready, if ever.
fn retry_after(decision: &BucketDecision) -> Option<Nanos> {
    let refusing = decision.decisions().filter(|one| one.is_refused());
    refusing
        .map(|one| one.retry_after)
        .try_fold(Nanos::ZERO, |longest, wait| {
            wait.map(|wait| longest.max(wait))
        })
}
