//! Reports decisions to upstreams and access logs.
//!
//! ```text
//! x-loudou-decision: <rule>;<limit>;<verdict>[, …]
//! wasm.loudou:       <rule>;<limit>;<verdict>;<wait>;<key>[, …]
//! ```
//!
//! The wait, in milliseconds, is how long a request is held, or how long a client should wait
//! before retrying a refused request. The key is represented by its fingerprint. Missing parts are
//! written as `-`.

use loudou_limiter::{BucketDecision, Nanos, Verdict, fingerprint};
use loudou_rules::evaluate::{Answer, Outcome, RuleOutcome};
use loudou_rules::rule::Mode;

use super::headers::reported;
use super::text::{Digits, after_others, push};
use crate::host::{Header, Host};

/// Name of the request header that contains the decisions.
const DECISION: &str = "x-loudou-decision";
/// Name of the response header that contains a held request's wait.
const WAIT_MS: &str = "x-loudou-wait-ms";
/// Name of the property that contains the decisions. Access log formats can include it as
/// `%FILTER_STATE(wasm.loudou:PLAIN)%`.
const PROPERTY: &str = "loudou";

/// Reports the decisions of rules with `explain_header` to the upstream and access logs, and the
/// wait to the client. If the client sent a request header with the same name, it is replaced.
pub(crate) fn explain(
    host: &dyn Host,
    outcome: &Outcome,
    now: Nanos,
    due: Nanos,
) -> Option<Header> {
    let explains = |one: &&RuleOutcome| one.active.rule().respond.explain_header;
    let explained: Vec<&RuleOutcome> = outcome.rules.iter().filter(explains).collect();
    if explained.is_empty() {
        no_decision(host);
        return None;
    }
    let mut decisions = String::new();
    for one in &explained {
        push_decision(after_others(&mut decisions, ", "), one);
    }
    host.set_request_header(DECISION, &decisions);
    log(host, explained, now);
    let wait = Some(due.since(now)).filter(|wait| *wait > Nanos::ZERO)?;
    Some((WAIT_MS.into(), wait.millis_ceil().to_string()))
}

/// Reports to the upstream that no rule with `explain_header` made a decision about the request.
pub(crate) fn no_decision(host: &dyn Host) {
    host.set_request_header(DECISION, "none");
}

/// Reports the decisions of these rules to access logs.
pub(crate) fn log<'a>(
    host: &dyn Host,
    outcomes: impl IntoIterator<Item = &'a RuleOutcome>,
    now: Nanos,
) {
    let mut lines = String::new();
    for outcome in outcomes {
        push_for_log(after_others(&mut lines, ", "), outcome, now);
    }
    host.set_property(PROPERTY, &lines);
}

/// Appends `<rule>;<limit>;<verdict>`.
fn push_decision(out: &mut String, outcome: &RuleOutcome) {
    let rule = outcome.active.rule();
    let decided = decided(outcome);
    let limit = decided.and_then(|decision| reported(outcome.limits(), decision));
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
        _ if outcome.refuses() => "refuse",
        _ => "admit",
    };
    push(out, &[&rule.name, ";", limit, ";", shadow, verdict]);
}

/// Appends `<rule>;<limit>;<verdict>;<wait>;<key>`.
fn push_for_log(out: &mut String, outcome: &RuleOutcome, now: Nanos) {
    let wait = match &outcome.answer {
        Answer::Decided(decision) if decision.is_refused() => retry_after(decision),
        Answer::Decided(decision) => Some(decision.wait()),
        Answer::Banned(ban) => ban.lasts(now),
        Answer::Unlimited
        | Answer::Skipped
        | Answer::KeyMissing
        | Answer::ValueTooLong
        | Answer::KeyAmbiguous
        | Answer::Outage
        | Answer::GaveUp(_) => None,
    };
    let wait = wait.map(|wait| Digits::of(wait.millis_ceil()));
    let wait = wait.as_ref().map_or("-", Digits::as_str);
    push_decision(out, outcome);
    push(out, &[";", wait, ";"]);
    match outcome.key.as_deref().map(fingerprint) {
        Some(key) => push_hexadecimal(out, key),
        None => out.push('-'),
    }
}

/// Appends a number as 16 hexadecimal digits.
fn push_hexadecimal(out: &mut String, number: u64) {
    let mut digits = [0; 16];
    let mut rest = number;
    for digit in digits.iter_mut().rev() {
        let low = u8::try_from(rest & 15).unwrap_or(0);
        let first = if low < 10 { b'0' } else { b'a' - 10 };
        *digit = first.saturating_add(low);
        rest >>= 4;
    }
    out.push_str(str::from_utf8(&digits).unwrap_or_default());
}

const fn decided(outcome: &RuleOutcome) -> Option<&BucketDecision> {
    match &outcome.answer {
        Answer::Decided(decision) => Some(decision),
        _ => None,
    }
}

/// Returns the longest retry delay among the limits that refused the request. `None` if one of
/// these limits has no known retry delay.
fn retry_after(decision: &BucketDecision) -> Option<Nanos> {
    let refusing = decision.decisions().filter(|one| one.is_refused());
    refusing
        .map(|one| one.retry_after)
        .try_fold(Nanos::ZERO, |longest, wait| {
            wait.map(|wait| longest.max(wait))
        })
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn fingerprints_have_sixteen_digits() {
        for number in [0, 9, 0xa0, 0x0123_4567_89ab_cdef, u64::MAX] {
            let mut out = String::new();
            push_hexadecimal(&mut out, number);
            assert_eq!(out, format!("{number:016x}"));
        }
    }
}
