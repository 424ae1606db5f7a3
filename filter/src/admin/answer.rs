//! Admin API responses. Successful calls return JSON; failed calls return a problem document.

use std::borrow::Cow;

use loudou_api::{ProblemAnswer, RuleProblem};
use loudou_limiter::Nanos;
use loudou_rules::config::{Problem, RuleEdit};
use loudou_rules::rule::Rule;
use loudou_store::GaveUp;
use serde::Serialize;

use crate::host::Reply;
use crate::record::{Record, RecordError};

/// Maximum number of request body problems that a response lists.
const MAX_PROBLEMS: usize = 64;
/// Maximum total size, in bytes, of the strings in all listed problems.
const MAX_PROBLEM_BYTES: usize = 16 * 1024;
/// Maximum length of a problem's path, in characters. Without this limit, the field names in the
/// path could be as long as the request body.
const MAX_PLACE: usize = 256;

/// A failed call.
#[derive(Debug)]
pub(crate) struct Failure {
    problem: Box<ProblemAnswer<Rule, RuleEdit>>,
    allow: Option<String>,
}

impl Failure {
    pub(super) fn new(status: u16, title: &str, detail: impl Into<Cow<'static, str>>) -> Self {
        let problem = ProblemAnswer {
            kind: "about:blank".to_owned(),
            title: title.to_owned(),
            status,
            detail: detail.into().into_owned(),
            ..ProblemAnswer::default()
        };
        Self {
            problem: Box::new(problem),
            allow: None,
        }
    }

    /// Creates a 400 response.
    pub(super) fn bad(detail: impl Into<Cow<'static, str>>) -> Self {
        Self::new(400, "Bad request", detail)
    }

    /// Creates a 400 response for an invalid request body. `what` describes what a valid body looks
    /// like. The response lists as many of the `problems` as fit, and gives the number of the rest.
    pub(super) fn wrong_body(what: &str, problems: &[Problem]) -> Self {
        let mut failure = Self::bad(format!("the body is not {what}; see `problems`"));
        let mut room = MAX_PROBLEM_BYTES;
        for problem in problems.iter().take(MAX_PROBLEMS) {
            let mut problem = RuleProblem::from(problem);
            shorten(&mut problem.path);
            let RuleProblem { path, value, .. } = &problem;
            let texts = [Some(path), Some(value), Some(&problem.message)];
            let more = [problem.allowed.as_ref(), problem.suggestion.as_ref()];
            let texts = texts.into_iter().chain(more).flatten().map(String::len);
            room = room.saturating_sub(texts.fold(0, usize::saturating_add));
            if room == 0 {
                break;
            }
            failure.problem.problems.push(problem);
        }
        let shown = failure.problem.problems.len();
        failure.problem.problems_left_out = problems.len().saturating_sub(shown);
        failure
    }

    /// Creates a 405 response that lists the methods the path accepts.
    pub(super) fn not_allowed(detail: String, allow: String) -> Self {
        Self {
            allow: Some(allow),
            ..Self::new(405, "Method not allowed", detail)
        }
    }

    /// Adds the time the caller should wait before retrying.
    pub(super) fn retry_after(self, wait: Nanos) -> Self {
        let mut failure = self;
        failure.problem.retry_after_ns = Some(wait.get());
        failure
    }

    pub(super) fn status(&self) -> u16 {
        self.problem.status
    }

    pub(super) fn detail(&self) -> &str {
        &self.problem.detail
    }

    /// Adds the current rule, so that the caller can see which changes its request would have
    /// overwritten.
    pub(super) fn with_current(mut self, rule: loudou_api::RuleView<Rule, RuleEdit>) -> Self {
        self.problem.current = Some(rule);
        self
    }

    /// Creates a 429 response for a bucket search that exceeds the worker's search budget.
    pub(super) fn later(wait: Nanos) -> Self {
        let detail = "searches of buckets may take a tenth of a worker's time, and this worker's share is \
                      used up; wait as long as `retry_after_ns`, or `wait_ns` of an answer, before the next \
                      call";
        Self::new(429, "Too many searches", detail).retry_after(wait)
    }

    /// Converts the failure to an HTTP response.
    pub(super) fn reply(self) -> Reply {
        let status = self.problem.status;
        let mut headers = vec![("content-type", "application/problem+json".to_owned())];
        if status == 401 {
            headers.push(("www-authenticate", "Bearer realm=\"loudou\"".to_owned()));
        }
        headers.extend(self.allow.map(|allow| ("allow", allow)));
        let wait = self.problem.retry_after_ns;
        let seconds = wait.map(|ns| ns.div_ceil(1_000_000_000).to_string());
        headers.extend(seconds.map(|seconds| ("retry-after", seconds)));
        reply(status, headers, json(&self.problem))
    }
}

impl From<RecordError> for Failure {
    fn from(error: RecordError) -> Self {
        if error == RecordError::TooLarge {
            let detail = "the rules with all edits would be too large: drop edits, or move them into \
                          the configuration";
            return Self::new(409, "Too many edits", detail);
        }
        if error == RecordError::Moved {
            let detail = "a later version of Loudou keeps the rules, and an edit here would not be in force: use \
                          the admin API of that version";
            return Self::new(409, "Another version", detail);
        }
        let detail = match error {
            RecordError::Missing => {
                "no rules yet: no data listener of this namespace has started; do its vm_id and its \
                 store.namespace match?"
            }
            RecordError::Unreadable => "another version of Loudou wrote the rules in shared data",
            RecordError::Contended => "too many concurrent edits; try again",
            RecordError::TooOften => {
                "this rule was edited faster than its buckets can follow; try again in a few seconds"
            }
            RecordError::Failed | RecordError::TooLarge | RecordError::Moved => FAILED,
        };
        Self::new(503, "Not available", detail)
    }
}

impl From<GaveUp> for Failure {
    fn from(gave_up: GaveUp) -> Self {
        let detail = match gave_up {
            GaveUp::Conflicts => "the bucket is too busy; try again",
            GaveUp::Failed => FAILED,
            GaveUp::UnknownPage => "another version of Loudou wrote the bucket",
            GaveUp::Outdated => "the rule has just changed; try again",
            GaveUp::PageFull => {
                "the store is full: every bucket that could be evicted is banned by an operator or has requests \
                 in flight; lift bans that are not needed, or raise store.buckets"
            }
        };
        Self::new(503, "Not available", detail)
    }
}

const FAILED: &str = "Envoy's shared data failed";

fn shorten(text: &mut String) {
    if let Some((end, _)) = text.char_indices().nth(MAX_PLACE) {
        text.truncate(end);
        text.push('…');
    }
}

pub(super) fn ok(body: &impl Serialize) -> Reply {
    whole(None, json(body))
}

/// Creates a 200 response with this `ETag`.
pub(super) fn ok_with(etag: String, body: &impl Serialize) -> Reply {
    whole(Some(etag), json(body))
}

/// Creates a 200 response with an already serialized body.
pub(super) fn ok_json(body: Vec<u8>) -> Reply {
    whole(None, body)
}

/// Creates a 200 response whose `ETag` identifies the Envoy process and the rule generation.
pub(super) fn ok_at(record: &Record, body: &impl Serialize) -> Reply {
    whole(Some(record.instance.etag(record.generation)), json(body))
}

/// Like [`ok_at`], but with an already serialized body.
pub(super) fn ok_bytes_at(record: &Record, body: Vec<u8>) -> Reply {
    whole(Some(record.instance.etag(record.generation)), body)
}

fn whole(etag: Option<String>, body: Vec<u8>) -> Reply {
    let mut headers = vec![("content-type", "application/json".to_owned())];
    headers.extend(etag.map(|etag| ("etag", etag)));
    reply(200, headers, body)
}

fn json(body: &impl Serialize) -> Vec<u8> {
    serde_json::to_vec(body).unwrap_or_default()
}

fn reply(status: u16, headers: Vec<(&'static str, String)>, mut body: Vec<u8>) -> Reply {
    let headers = headers
        .into_iter()
        .chain([("cache-control", "no-store".to_owned())]);
    body.push(b'\n');
    Reply {
        status,
        details: "loudou_admin".to_owned(),
        headers: headers.map(|(name, value)| (name.into(), value)).collect(),
        body,
        grpc_status: None,
    }
}
