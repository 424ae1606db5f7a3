//! Creates the rate-limit headers for responses.
//!
//! The headers follow draft-ietf-httpapi-ratelimit-headers-11. Each limit is a policy named `<rule>.<limit>`, with the
//! limit's capacity as the quota `q`. The window `w` is the time needed to refill the quota at the limit's rate, or the
//! length of the current calendar window. For both admitted and refused requests, `t` is the time until more of the
//! quota becomes available. `t` is omitted if that depends on when other requests end. The legacy headers
//! `X-RateLimit-*` describe the tightest limit, and their reset is `t` in seconds from now. In the format for `OpenAI`
//! clients, these header names end in `-tokens`, and the reset has a unit.
//!
//! Parsers for draft 7 first look for `limit=`, `remaining=` and `reset=` in any `RateLimit` header, and then for the
//! legacy headers. If a rule sends `both` kinds of headers, the tightest limit's item also includes these three
//! parameters. Parsers for later drafts ignore unknown parameters.

use loudou_limiter::{BucketDecision, Decision, Limit, Limits, Nanos};
use loudou_rules::evaluate::{Answer, Outcome, RuleOutcome};
use loudou_rules::rule::{RateLimitHeaders as Wanted, Rule};

use super::text::{Digits, after_others, push, text};
use crate::host::Headers;

pub(super) fn policy_name(rule: &Rule, limit: &Limit) -> String {
    text(&[&rule.name, ".", limit.name()])
}

/// Appends a `RateLimit-Policy` item for each limit of a rule. `wall` is the current wall-clock time.
fn push_policies(list: &mut String, rule: &Rule, limits: &Limits, wall: Nanos) {
    for limit in limits {
        let algorithm = limit.algorithm();
        let quota = Digits::of(algorithm.capacity());
        let out = after_others(list, ", ");
        push(
            out,
            &["\"", &rule.name, ".", limit.name(), "\";q=", quota.as_str()],
        );
        if let Some(window) = algorithm.quota_time(wall) {
            let window = Digits::of(window.secs_ceil().max(1));
            push(out, &[";w=", window.as_str()]);
        }
    }
}

/// Appends a `RateLimit` item for the limit reported by the decision.
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
    if let Some(until) = until(answer, decision) {
        let until = Digits::of(until.secs_ceil());
        push(out, &[";t=", until.as_str()]);
    }
}

/// Returns the time until more tokens are available. For a fleet-wide limit, the time is only known if the request was
/// refused.
fn until(answer: &BucketDecision, decision: &Decision) -> Option<Nanos> {
    answer.more_after().or(decision.retry_after)
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

/// Returns the rate-limit headers for an admitted request. `wall` is the current wall-clock time.
pub(crate) fn of_admitted(outcome: &Outcome, wall: Nanos) -> Headers {
    let mut headers = RateLimitHeaders::default();
    for one in &outcome.rules {
        if let (true, Answer::Decided(decision)) = (one.is_enforced(), &one.answer) {
            headers.add(one, decision, wall);
        }
    }
    headers.finish()
}

/// Builds the rate-limit headers of a response, either from all rules that admitted the request or from the rule that
/// refused it.
#[derive(Debug, Default)]
pub(super) struct RateLimitHeaders<'a> {
    policies: String,
    states: String,
    tightest: Option<Tightest<'a>>,
}

/// The limit that the legacy headers describe.
#[derive(Debug)]
struct Tightest<'a> {
    decision: &'a Decision,
    until: Option<Nanos>,
    /// True if the headers must use the names and format that `OpenAI` clients expect.
    is_openai: bool,
    /// Where the limit's `RateLimit` item ends in `states`. 0 if the draft 7 parameters must not be added.
    end: usize,
}

impl<'a> RateLimitHeaders<'a> {
    /// Adds the headers for a rule's decision, if the rule is configured to send them. `wall` is the current wall-clock
    /// time.
    pub(super) fn add(&mut self, outcome: &RuleOutcome, answer: &'a BucketDecision, wall: Nanos) {
        let rule = outcome.active.rule();
        let wanted = rule.respond.ratelimit_headers;
        if wanted.draft11(answer.is_refused()) {
            let limits = outcome.limits();
            push_policies(&mut self.policies, rule, limits, wall);
            push_state(&mut self.states, rule, limits, answer);
        }
        if wanted.legacy()
            && let Some(decision) = answer.reported()
            && self
                .tightest
                .as_ref()
                .is_none_or(|other| decision.is_tighter_than(other.decision))
        {
            let is_both = wanted.draft11(false);
            self.tightest = Some(Tightest {
                decision,
                until: until(answer, decision),
                is_openai: wanted == Wanted::Openai,
                end: if is_both { self.states.len() } else { 0 },
            });
        }
    }

    pub(super) fn finish(mut self) -> Headers {
        let mut headers = Vec::new();
        if let Some(tightest) = self.tightest {
            let mut comment = String::new();
            let (suffix, unit) = if tightest.is_openai {
                ("-tokens", "s")
            } else {
                ("", "")
            };
            for (name, number, unit) in [
                ("limit", Some(tightest.decision.capacity), ""),
                ("remaining", Some(tightest.decision.remaining), ""),
                ("reset", tightest.until.map(Nanos::secs_ceil), unit),
            ] {
                let Some(number) = number else { continue };
                let number = Digits::of(number);
                push(&mut comment, &[";", name, "=", number.as_str()]);
                let name = text(&["x-ratelimit-", name, suffix]);
                headers.push((name.into(), text(&[number.as_str(), unit])));
            }
            if let Some((item, others)) = self.states.split_at_checked(tightest.end)
                && !item.is_empty()
            {
                self.states = text(&[item, &comment, others]);
            }
        }
        if !self.policies.is_empty() {
            headers.push(("ratelimit-policy".into(), self.policies));
            headers.push(("ratelimit".into(), self.states));
        }
        headers
    }
}
