//! The rate-limit headers of responses.
//!
//! They follow draft-ietf-httpapi-ratelimit-headers-11. A limit is the policy `<rule>.<limit>` with
//! its capacity as the quota `q`. The window `w` is the time in which its rate yields that quota, or
//! the length of the calendar's present window.
//! `t` is the time until more of the quota is available than now, for admitted and refused requests
//! alike. It is absent if it depends on the end of other requests. The legacy headers are
//! `X-RateLimit-*` for the tightest limit, with `t` as their reset, in seconds from now. The clients of
//! `OpenAI` read such headers with `-tokens` at the end of their names, and a reset with a unit.
//!
//! Parsers of draft 7 first look for `limit=`, `remaining=` and `reset=` in any `RateLimit` header,
//! and then for the legacy headers. With `both`, the item of the tightest limit also has these
//! parameters, which other parsers ignore.

use loudou_limiter::{BucketDecision, Decision, Limit, Limits, Nanos};
use loudou_rules::evaluate::{Answer, Outcome, RuleOutcome};
use loudou_rules::rule::{RateLimitHeaders as Wanted, Rule};

use super::text::{Digits, after_others, push, text};
use crate::host::Headers;

pub(super) fn policy_name(rule: &Rule, limit: &Limit) -> String {
    text(&[&rule.name, ".", limit.name()])
}

/// Appends a rule's `RateLimit-Policy` items at a time of the wall clock, an item for each limit.
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

/// Appends the `RateLimit` item of a decision, for the reported limit.
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

/// Returns the time until more tokens are available. For a fleet-wide limit, only refusals know it.
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

/// Returns the response headers of a request that was admitted at a time of the wall clock.
pub(crate) fn of_admitted(outcome: &Outcome, wall: Nanos) -> Headers {
    let mut headers = RateLimitHeaders::default();
    for one in &outcome.rules {
        if let (true, Answer::Decided(decision)) = (one.is_enforced(), &one.answer) {
            headers.add(one, decision, wall);
        }
    }
    headers.finish()
}

/// Collects the headers of a response, either from all rules that admitted the request or from the
/// rule that refused it.
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
    /// True if the headers have the names and the form that the clients of `OpenAI` read.
    is_openai: bool,
    /// End of its item in the states. 0 if it has none.
    end: usize,
}

impl<'a> RateLimitHeaders<'a> {
    /// Adds the headers of a rule's decision at a time of the wall clock, if its configuration asks
    /// for headers.
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
