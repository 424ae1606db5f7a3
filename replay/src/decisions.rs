//! One decision per request, as JSON Lines.

use loudou_limiter::{Nanos, Verdict};
use serde::Serialize;

use super::engine::Reported;

/// The name of a verdict.
const fn word(verdict: Verdict) -> &'static str {
    match verdict {
        Verdict::Admit => "admit",
        Verdict::Hold => "hold",
        Verdict::Refuse => "refuse",
    }
}

#[derive(Serialize)]
struct DecisionLine<'a> {
    at_ns: u64,
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

/// Appends the line of a decision to `out`.
pub fn write(out: &mut Vec<u8>, at: Nanos, reported: &Reported<'_>) -> serde_json::Result<()> {
    let rule = reported.rule.as_ref();
    let limit = rule.and_then(|rule| rule.limit);
    let numbers = limit.map(|(_, decision)| decision);
    serde_json::to_writer(
        &mut *out,
        &DecisionLine {
            at_ns: at.get(),
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
