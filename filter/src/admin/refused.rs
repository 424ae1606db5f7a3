//! Counts and logs API calls refused with 401 or 403, and throttles callers that try to guess
//! tokens.
//!
//! After too many wrong tokens, the response to a wrong token is 429 instead of 401. A correct
//! token is always accepted, so an attacker cannot lock out an operator. Since only responses to
//! wrong tokens change, each worker needs just one wrong-token count for all callers, rather than
//! memory for each caller.

use loudou_limiter::Nanos;

use super::answer::Failure;
use crate::escaped::{escaped, shown};
use crate::host::{Host, LogLevel};
use crate::metrics::{AdminMetrics, Registry};

/// Minimum interval between two log lines about refusals with the same status.
const LOGGED_EVERY: Nanos = Nanos::from_secs(1);
/// Number of wrong tokens in quick succession that are answered with 401 before the response
/// becomes 429.
const BURST: u64 = 10;
/// Interval after which one more wrong token is answered with 401 instead of 429.
const LOG_INTERVAL: Nanos = Nanos::from_secs(1);

/// Per-worker state for throttling refused API calls and their log lines.
#[derive(Debug, Default)]
pub(super) struct Refused {
    unauthorized: Lines,
    forbidden: Lines,
    /// Time at which the wrong-token count will have decayed to 0.
    wrong_until: Nanos,
}

/// Throttles the log lines about refusals with the same status.
#[derive(Debug, Default)]
struct Lines {
    /// Earliest time at which the next line may be logged.
    next_at: Nanos,
    left_out: u64,
}

impl Refused {
    /// Counts and logs the refusal of the current request. Returns the failure, or a 429 response
    /// if there have been too many wrong tokens.
    pub(super) fn note(
        &mut self,
        host: &dyn Host,
        (registry, share): (&mut Registry, &str),
        refused: Failure,
    ) -> Failure {
        let status = refused.status();
        let lines = match status {
            401 => &mut self.unauthorized,
            403 => &mut self.forbidden,
            _ => return refused,
        };
        let now = host.now();
        AdminMetrics::define(host, registry, share).refused(host, status);
        if now < lines.next_at {
            lines.left_out = lines.left_out.saturating_add(1);
        } else {
            host.log(LogLevel::Warn, &line(host, &refused, lines.left_out));
            lines.next_at = now.saturating_add(LOGGED_EVERY);
            lines.left_out = 0;
        }
        let has_token = host.request_header("authorization").is_some();
        match (status, has_token) {
            (401, true) => self.slow_down(refused, now),
            _ => refused,
        }
    }

    /// Returns the failure for a wrong token, or a 429 response if there have been too many of
    /// them.
    fn slow_down(&mut self, refused: Failure, now: Nanos) -> Failure {
        let from = self.wrong_until.max(now);
        let until = from.saturating_add(LOG_INTERVAL);
        let wait = until
            .since(now)
            .since(Nanos::new(LOG_INTERVAL.get().saturating_mul(BURST)));
        if wait == Nanos::ZERO {
            self.wrong_until = until;
            return refused;
        }
        let detail =
            "unknown token, and too many of them lately; a right one is never refused for that";
        Failure::new(429, "Too many wrong tokens", detail).retry_after(wait)
    }
}

/// Returns the log line for a refused request.
fn line(host: &dyn Host, refused: &Failure, left_out: u64) -> String {
    let text = |bytes: Option<Vec<u8>>| {
        let bytes = bytes.unwrap_or_default();
        shown(&String::from_utf8_lossy(&bytes))
    };
    let peer = text(host.property("source\0address"));
    let method = text(host.request_header(":method"));
    let path = text(host.request_header(":path"));
    let (status, why) = (refused.status(), escaped(refused.detail()));
    let others = match left_out {
        0 => String::new(),
        n => format!(" ({n} more since the last such line)"),
    };
    format!("admin: {status} for {peer}: {method} {path}: {why}{others}")
}
