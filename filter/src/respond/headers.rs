//! The rate-limit headers of responses.
//!
//! They follow draft-ietf-httpapi-ratelimit-headers-11. A limit is the policy `<rule>.<limit>` with
//! its capacity as the quota `q`; the window `w` is the time in which its rate gives that many units.
//! `t` is the time until more of the quota is there than is left now, for admitted and refused requests alike; it is
//! absent where that depends on the end of other requests. The legacy headers are `X-RateLimit-*` of the tightest
//! limit, with the same time as reset, in seconds from now.
//!
//! Parsers of draft 7 look into any `RateLimit` header for `limit=`, `remaining=` and `reset=` before they look for the
//! legacy headers. With `both`, the item of the tightest limit has these, too: to others they are comments.

use loudou_limiter::{BucketDecision, Decision, Limit, Limits, Nanos};
use loudou_rules::evaluate::{Answer, Outcome, RuleOutcome};
use loudou_rules::rule::Rule;

use super::text::{Digits, after_others, push, text};
use crate::host::Headers;

pub(super) fn policy_name(rule: &Rule, limit: &Limit) -> String {
    text(&[&rule.name, ".", limit.name()])
}

/// The length of the prefix of the legacy headers.
const PREFIX: usize = "x-ratelimit-".len();

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
    if let Some(until) = until(answer, decision) {
        let until = Digits::of(until.secs_ceil());
        push(out, &[";t=", until.as_str()]);
    }
}

/// The time until more is there. Of a limit that a fleet shares, only refusals know it.
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
    tightest: Option<Tightest<'a>>,
}

/// The limit of the legacy headers.
#[derive(Debug)]
struct Tightest<'a> {
    decision: &'a Decision,
    until: Option<Nanos>,
    /// The end of its item in the states; 0 if it has none.
    end: usize,
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
                .as_ref()
                .is_none_or(|other| decision.is_tighter_than(other.decision))
        {
            let is_both = wanted.draft11(false);
            self.tightest = Some(Tightest {
                decision,
                until: until(answer, decision),
                end: if is_both { self.states.len() } else { 0 },
            });
        }
    }

    pub(super) fn finish(mut self) -> Headers {
        let mut headers = Vec::new();
        if let Some(tightest) = self.tightest {
            let mut comment = String::new();
            for (name, number) in [
                ("x-ratelimit-limit", Some(tightest.decision.capacity)),
                ("x-ratelimit-remaining", Some(tightest.decision.remaining)),
                ("x-ratelimit-reset", tightest.until.map(Nanos::secs_ceil)),
            ] {
                let Some(number) = number else { continue };
                let number = Digits::of(number);
                let short = name.get(PREFIX..).unwrap_or_default();
                push(&mut comment, &[";", short, "=", number.as_str()]);
                headers.push((name.into(), number.as_str().to_owned()));
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
