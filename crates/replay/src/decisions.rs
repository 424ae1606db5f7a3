//! Writes the decision on each request as a line of JSON (JSON Lines).

use std::borrow::Cow;

use loudou_limiter::{Nanos, Verdict};
use loudou_rules::request::Sample;
use serde::Serialize;

use super::engine::Reported;
use super::record::{LoggedRequest, Text};

/// A logged request and the decision on it.
#[derive(Clone, Copy, Debug)]
pub struct Decided<'a> {
    /// Name of the log file that contains the request, or `None` if there is only one file.
    pub file: Option<&'a str>,
    /// Line number in that file (1-based).
    pub line: u64,
    pub(crate) request: &'a LoggedRequest<'a>,
    /// Outcome of the request under the first rule file.
    pub reported: &'a Reported<'a>,
}

impl Decided<'_> {
    /// Returns the arrival time, on the clock of the trace.
    pub const fn at(&self) -> Nanos {
        self.request.at
    }

    /// Returns the time at which the request ended, if the log contains the request's duration.
    pub fn end(&self) -> Option<Nanos> {
        let duration = self.request.duration?;
        Some(self.request.at.saturating_add(duration))
    }

    /// Returns a copy of the request in the form that rules evaluate.
    pub fn sample(&self) -> Sample<'_> {
        self.request.request.clone()
    }
}

/// Returns the name of a verdict.
const fn word(verdict: Verdict) -> &'static str {
    match verdict {
        Verdict::Admit => "admit",
        Verdict::Hold => "hold",
        Verdict::Refuse => "refuse",
    }
}

#[derive(Serialize)]
struct DecisionLine<'a> {
    #[serde(skip_serializing_if = "Option::is_none")]
    file: Option<&'a str>,
    line: u64,
    at_ns: u64,
    method: Option<Cow<'a, str>>,
    path: Option<Cow<'a, str>>,
    verdict: &'static str,
    rule: Option<&'a str>,
    limit: Option<&'a str>,
    key: Option<&'a str>,
    capacity: Option<u64>,
    remaining: Option<u64>,
    wait_ns: Option<u64>,
    retry_after_ns: Option<u64>,
    reset_after_ns: Option<u64>,
}

/// Converts bytes from a request to a string. Invalid UTF-8 is replaced.
fn text<'a>(text: Option<&'a Text<'_>>) -> Option<Cow<'a, str>> {
    text.map(|text| String::from_utf8_lossy(text))
}

/// Appends a decision to `out` as one JSON line.
pub fn write(out: &mut Vec<u8>, decided: &Decided<'_>) -> serde_json::Result<()> {
    let Decided {
        request, reported, ..
    } = *decided;
    let rule = reported.rule.as_ref();
    let limit = rule.and_then(|rule| rule.limit);
    let numbers = limit.map(|(_, decision)| decision);
    serde_json::to_writer(
        &mut *out,
        &DecisionLine {
            file: decided.file,
            line: decided.line,
            at_ns: request.at.get(),
            method: text(request.request.method.as_ref()),
            path: text(request.request.path.as_ref()),
            verdict: word(reported.verdict),
            rule: rule.map(|rule| rule.name),
            limit: limit.map(|(name, _)| name),
            key: rule.and_then(|rule| rule.key),
            capacity: numbers.map(|numbers| numbers.capacity),
            remaining: numbers.map(|numbers| numbers.remaining),
            wait_ns: rule.map(|rule| rule.wait.get()),
            retry_after_ns: numbers
                .and_then(|numbers| numbers.retry_after)
                .or_else(|| rule?.banned_for)
                .map(Nanos::get),
            reset_after_ns: numbers.map(|numbers| numbers.reset_after.get()),
        },
    )?;
    out.push(b'\n');
    Ok(())
}
