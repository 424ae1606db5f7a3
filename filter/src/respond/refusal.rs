//! Creates the response to a refused request.

use std::borrow::Cow;
use std::mem;

use loudou_limiter::{Ban, BucketDecision, Clock, Nanos};
use loudou_rules::evaluate::{Answer, RuleOutcome};
use loudou_rules::joined::joined;
use loudou_rules::patience::NotHeld;
use loudou_rules::rule::{RefuseBody, Rule};

use super::grpc;
use super::headers::{RateLimitHeaders, policy_name};
use super::text::{Digits, push, push_json, text};
use super::wait::Wait;
use crate::host::{Headers, Host, Reply};

/// Initial capacity for a problem document, in bytes. Large enough for most documents.
const PROBLEM_ROOM: usize = 320;
/// Start of a problem document, including type and title, up to the status value. The first three
/// types are defined in the IETF draft and registered with IANA. Other types are used for requests
/// without a usable key or with a value that is too long, because such requests do not exceed a
/// quota.
const QUOTA_EXCEEDED: &str = concat!(
    r#"{"type":"https://iana.org/assignments/http-problem-types#quota-exceeded","#,
    r#""title":"Quota exceeded","status":"#
);
const ABNORMAL_USAGE: &str = concat!(
    r#"{"type":"https://iana.org/assignments/http-problem-types#abnormal-usage-detected","#,
    r#""title":"Abnormal usage detected","status":"#
);

const REDUCED_CAPACITY: &str = concat!(
    r#"{"type":"https://iana.org/assignments/http-problem-types#temporary-reduced-capacity","#,
    r#""title":"Temporary reduced capacity","status":"#
);
const KEY_MISSING: &str = concat!(
    r#"{"type":"tag:loudou,2026:key-missing","#,
    r#""title":"Rate-limit key missing","status":"#
);
const KEY_AMBIGUOUS: &str = concat!(
    r#"{"type":"tag:loudou,2026:key-ambiguous","#,
    r#""title":"Rate-limit key ambiguous","status":"#
);
const VALUE_TOO_LONG: &str = concat!(
    r#"{"type":"tag:loudou,2026:value-too-long","#,
    r#""title":"Value too long","status":"#
);

/// Cause of a refusal, and the content of the response.
pub(crate) struct Refusal<'a> {
    rule: &'a Rule,
    /// Start of the problem document, including type and title.
    problem: &'static str,
    /// Cause of the refusal, for Envoy's response code details.
    cause: &'static str,
    violated: Vec<String>,
    detail: String,
    headers: Headers,
    wait: Wait,
    status: u16,
}

impl<'a> Refusal<'a> {
    /// Creates the refusal from the outcome of a rule that refused the request.
    pub(crate) fn new(outcome: &'a RuleOutcome, clock: Clock) -> Self {
        let rule = outcome.active.rule();
        match &outcome.answer {
            Answer::Decided(decision) => Self::over_limit(outcome, decision, clock),
            Answer::Banned(ban) => Self::banned(rule, *ban, clock.now),
            Answer::KeyMissing | Answer::Skipped | Answer::Unlimited => Self::key_missing(rule),
            Answer::ValueTooLong => Self::value_too_long(rule),
            Answer::KeyAmbiguous => Self::key_ambiguous(rule),
            Answer::GaveUp(_) => Self::store_gave_up(rule),
            Answer::Outage => Self::outage(rule),
        }
    }

    fn over_limit(outcome: &'a RuleOutcome, answer: &BucketDecision, clock: Clock) -> Self {
        let (rule, limits) = (outcome.active.rule(), outcome.limits());
        let mut headers = RateLimitHeaders::default();
        headers.add(outcome, answer, clock.wall);
        let mut headers = headers.finish();
        let refusing = || {
            let both = limits.iter().zip(answer.decisions());
            both.filter(|(_, decision)| decision.is_refused())
        };
        let violated: Vec<String> = refusing()
            .map(|(limit, _)| policy_name(rule, limit))
            .collect();
        let wait = Wait::of(refusing()).longer_by(rule.respond.retry_after_jitter, clock.now);
        headers.extend(wait.header());
        let mut detail = text(&["over the limit of ", &joined(&violated, " and "), ": "]);
        match wait {
            Wait::For(_) if outcome.not_held == Some(NotHeld::Deadline) => {
                detail.push_str("the required wait exceeds the deadline");
            }
            Wait::For(wait) => {
                let secs = Digits::of(wait.secs_ceil());
                push(&mut detail, &["try again in ", secs.as_str(), " s"]);
            }
            Wait::Unknown => detail.push_str("try again after other requests end"),
            Wait::Never => detail.push_str("its cost is above the limit's capacity"),
        }
        Self {
            rule,
            problem: QUOTA_EXCEEDED,
            cause: outcome.not_held.map_or("over_limit", NotHeld::name),
            detail,
            violated,
            headers,
            wait,
            status: rule.refuse.status,
        }
    }

    /// Creates the refusal for a request whose key is banned.
    pub(crate) fn banned(rule: &'a Rule, ban: Ban, now: Nanos) -> Self {
        let wait = ban.lasts(now).map_or(Wait::Never, Wait::For);
        let wait = wait.longer_by(rule.respond.retry_after_jitter, now);
        let mut detail = text(&["banned by rule ", &rule.name, " "]);
        match wait {
            Wait::For(wait) => {
                let secs = Digits::of(wait.secs_ceil());
                push(&mut detail, &["for ", secs.as_str(), " s"]);
            }
            Wait::Unknown | Wait::Never => detail.push_str("until further notice"),
        }
        let mut refusal = Self::without_bucket(rule, (ABNORMAL_USAGE, "banned"), detail, wait);
        refusal.headers.extend(wait.header());
        refusal
    }

    /// Creates the refusal for a request without a key, for rules that refuse such requests.
    pub(crate) fn key_missing(rule: &'a Rule) -> Self {
        let name = &rule.name;
        let detail = text(&["the request has no key for rule ", name]);
        let mut refusal =
            Self::without_bucket(rule, (KEY_MISSING, "key_missing"), detail, Wait::Never);
        if let Some(status) = rule.refuse.status_without_key {
            refusal.status = status;
        }
        refusal
    }

    /// Creates the refusal for a request with a value that is too long to be matched, for rules
    /// that refuse such requests.
    pub(crate) fn value_too_long(rule: &'a Rule) -> Self {
        let name = &rule.name;
        let detail = text(&["the request has a value that is too long for rule ", name]);
        let kind = (VALUE_TOO_LONG, "value_too_long");
        Self::without_bucket(rule, kind, detail, Wait::Never)
    }

    /// Creates the refusal for a request with several values for one part of the key, for rules
    /// that refuse such requests.
    pub(crate) fn key_ambiguous(rule: &'a Rule) -> Self {
        let name = &rule.name;
        let detail = text(&["the request has several values for the key of rule ", name]);
        let kind = (KEY_AMBIGUOUS, "key_ambiguous");
        Self::without_bucket(rule, kind, detail, Wait::Never)
    }

    /// Creates the refusal for a request that could not be decided because of a store failure, for
    /// rules whose `on_error` is `refuse`.
    pub(crate) fn store_gave_up(rule: &'a Rule) -> Self {
        let name = &rule.name;
        let detail = text(&[
            "rule ",
            name,
            " could not be evaluated and refuses on error; try again",
        ]);
        let kind = (REDUCED_CAPACITY, "store_gave_up");
        Self::without_bucket(rule, kind, detail, Wait::Unknown)
    }

    /// Creates the refusal for a request during an engine outage, for fleets whose `on_outage` is
    /// `refuse`.
    pub(crate) fn outage(rule: &'a Rule) -> Self {
        let name = &rule.name;
        let detail = text(&[
            "the fleet's limit of rule ",
            name,
            " cannot be asked for; try again",
        ]);
        let kind = (REDUCED_CAPACITY, "fleet_outage");
        Self::without_bucket(rule, kind, detail, Wait::Unknown)
    }

    fn without_bucket(
        rule: &'a Rule,
        (problem, cause): (&'static str, &'static str),
        detail: String,
        wait: Wait,
    ) -> Self {
        Self {
            rule,
            problem,
            cause,
            violated: vec![rule.name.clone()],
            detail,
            headers: Vec::new(),
            wait,
            status: rule.refuse.status,
        }
    }

    /// Converts the refusal to an HTTP or gRPC response to the current request.
    pub(crate) fn reply(mut self, host: &dyn Host) -> Reply {
        let refuse = &self.rule.refuse;
        let first = self.violated.first().map_or("", String::as_str);
        let details = text(&["loudou_", self.cause, "{", first, "}"]);
        let is_call = grpc::is_call(host);
        let status = self.status;
        let mut headers = mem::take(&mut self.headers);
        let more = refuse.headers.iter();
        headers.extend(more.map(|(name, value)| (Cow::from(name.clone()), value.clone())));
        let (body, content_type) = if is_call {
            self.grpc_headers(&mut headers);
            (self.message().into(), None)
        } else {
            self.body()
        };
        headers.extend(content_type.map(|kind| ("content-type".into(), kind)));
        Reply {
            status,
            details,
            headers,
            body,
            grpc_status: is_call.then(|| refuse.grpc.code()),
        }
    }

    /// Returns the response body and its content type.
    fn body(self) -> (Vec<u8>, Option<String>) {
        match &self.rule.refuse.body {
            RefuseBody::Problem => (self.problem(), Some("application/problem+json".to_owned())),
            RefuseBody::None => (Vec::new(), None),
            RefuseBody::Text { text, content_type } => {
                (text.clone().into_bytes(), Some(content_type.clone()))
            }
        }
    }

    /// Returns a [`ProblemAnswer`](loudou_api::ProblemAnswer) as JSON.
    fn problem(self) -> Vec<u8> {
        let status = Digits::of(self.status.into());
        let mut body = String::with_capacity(PROBLEM_ROOM);
        push(&mut body, &[self.problem, status.as_str(), ",\"detail\":"]);
        push_json(&mut body, &self.detail);
        for (index, policy) in self.violated.iter().enumerate() {
            let before = if index == 0 {
                ",\"violated-policies\":["
            } else {
                ","
            };
            body.push_str(before);
            push_json(&mut body, policy);
        }
        body.push_str(if self.violated.is_empty() {
            "}\n"
        } else {
            "]}\n"
        });
        body.into()
    }

    /// Returns the gRPC status message. Empty if the rule is configured to send no body.
    fn message(&self) -> &str {
        match self.rule.refuse.body {
            RefuseBody::None => "",
            RefuseBody::Problem | RefuseBody::Text { .. } => &self.detail,
        }
    }

    fn grpc_headers(&self, headers: &mut Headers) {
        let details = grpc::details(self.rule.refuse.grpc.code(), self.message(), self.wait);
        headers.push(("grpc-status-details-bin".into(), details));
        let pushback = grpc::pushback(self.wait);
        headers.extend(pushback.map(|ms| ("grpc-retry-pushback-ms".into(), ms)));
    }
}
