//! Calls that are refused for lack of access: counted, logged, and slowed down when tokens are
//! guessed.
//!
//! A correct token is never refused because of other callers' wrong tokens, even if there are many.
//! Only the response to a wrong token changes. So no attacker can lock out an operator, and each
//! worker needs only one number, the sum of wrong tokens, instead of memory for each caller.

use loudou_limiter::Nanos;

use super::answer::Failure;
use crate::escaped::{escaped, shown};
use crate::host::{Host, LogLevel};
use crate::metrics::{AdminMetrics, Registry};

/// Interval between two log lines about refusals of one kind.
const LOGGED_EVERY: Nanos = Nanos::from_secs(1);
/// Number of wrong tokens in quick succession that are answered with 401 before the response
/// becomes 429.
const BURST: u64 = 10;
/// Time after which one more wrong token is answered with 401.
const LOG_INTERVAL: Nanos = Nanos::from_secs(1);

/// Refused calls of one worker.
#[derive(Debug, Default)]
pub(super) struct Refused {
    unauthorized: Lines,
    forbidden: Lines,
    /// Time at which the sum of wrong tokens is back at 0.
    wrong_until: Nanos,
}

/// Log lines about refusals of one kind.
#[derive(Debug, Default)]
struct Lines {
    /// Earliest time of the next line.
    next_at: Nanos,
    left_out: u64,
}

impl Refused {
    /// Counts and logs a refusal of the current request. Returns the response.
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

    /// Returns the response to a wrong token: 429 if there were too many.
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

/// Returns the log line about a refused request.
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
