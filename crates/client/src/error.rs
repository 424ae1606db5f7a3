//! API call errors, with suggested remedies.

use std::error::Error;
use std::fmt;
use std::time::Duration;

use loudou_api::{ProblemAnswer, RuleProblem, RuleView};

use loudou_words::text::{escape, humanise, meant};

/// Reason why a call did not return a usable response.
#[derive(Clone, Debug, PartialEq, Eq)]
pub enum ClientError {
    /// The connection failed.
    Unreachable {
        /// The address of the admin listener.
        url: String,
        /// The operating system's error message.
        cause: String,
    },
    /// The TLS handshake failed, so the server cannot be trusted.
    Untrusted {
        /// The address of the admin listener.
        url: String,
        /// The reason, with a suggested remedy.
        cause: String,
    },
    /// No complete response arrived before the timeout.
    TimedOut {
        /// The address of the admin listener.
        url: String,
        /// The timeout.
        after: Duration,
        /// True if the request had a body.
        had_body: bool,
    },
    /// The filter rejected the request and gave a reason.
    Problem {
        /// The HTTP status.
        status: u16,
        /// The problem document.
        problem: Box<ProblemAnswer>,
    },
    /// The response is not in the API's format, so it probably did not come from the filter.
    Unexpected {
        /// The address of the admin listener.
        url: String,
        /// A description of the response.
        what: String,
    },
    /// Envoy restarted between two calls, so the responses came from different processes.
    Restarted {
        /// The address of the admin listener.
        url: String,
    },
    /// The address or the token cannot be used.
    BadTarget {
        /// The problem, and the correct form of the address or token.
        why: String,
    },
}

impl ClientError {
    /// Returns the HTTP status with which the filter rejected the request, if it did.
    pub const fn status(&self) -> Option<u16> {
        match self {
            Self::Problem { status, .. } => Some(*status),
            _ => None,
        }
    }

    /// Returns true if the server may have performed the request despite the error.
    pub const fn is_in_doubt(&self) -> bool {
        matches!(self, Self::TimedOut { .. } | Self::Unexpected { .. })
    }

    /// Returns the problem document with which the filter rejected the request, if any.
    pub fn problem(&self) -> Option<&ProblemAnswer> {
        match self {
            Self::Problem { problem, .. } => Some(problem),
            _ => None,
        }
    }

    /// Returns the current rule, if the filter rejected the request because of a stale or missing
    /// `If-Match`.
    pub fn current(&self) -> Option<&RuleView> {
        self.problem()?.current.as_ref()
    }
}

/// Hint for calls with a body, which hang if the listener does not forward bodies to the filter.
const NO_BODY: &str = ". The request had a body: does the filter of this listener have \
                       `allow_on_headers_stop_iteration: true`?";

impl Error for ClientError {}

impl fmt::Display for ClientError {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        match self {
            Self::Unreachable { url, cause } => write!(
                f,
                "cannot reach {}: {}; is Envoy running, and is this its admin listener for Loudou? \
                 (--url or LOUDOU_URL)",
                escape(url),
                escape(cause)
            ),
            Self::Untrusted { url, cause } => {
                write!(f, "no TLS connection to {}: {}", escape(url), escape(cause))
            }
            Self::TimedOut {
                url,
                after,
                had_body,
            } => {
                let after = humanise(u64::try_from(after.as_nanos()).unwrap_or(u64::MAX));
                let url = escape(url);
                write!(
                    f,
                    "no complete answer from {url} within {after}; try again, or with a longer --timeout"
                )?;
                f.write_str(if *had_body { NO_BODY } else { "" })
            }
            Self::Problem { status, problem } => refused(f, *status, problem),
            Self::Unexpected { url, what } => write!(
                f,
                "unexpected answer from {}: {}; is this the listener with Loudou's admin role?",
                escape(url),
                escape(what)
            ),
            Self::Restarted { url } => {
                write!(
                    f,
                    "Envoy at {} restarted in the meantime; try again",
                    escape(url)
                )
            }
            Self::BadTarget { why } => write!(f, "{}", escape(why)),
        }
    }
}

fn refused(f: &mut fmt::Formatter<'_>, status: u16, problem: &ProblemAnswer) -> fmt::Result {
    write!(f, "{status} {}", escape(&problem.title))?;
    if !problem.detail.is_empty() {
        write!(f, ": {}", escape(&problem.detail))?;
    }
    let todo = match status {
        401 if !problem.detail.contains("LOUDOU_TOKEN") => {
            "; give a token in LOUDOU_TOKEN or --token-file"
        }
        403 => "; use a token with more access",
        412 => "; read the rule again before you change it",
        _ => "",
    };
    f.write_str(todo)?;
    for problem in &problem.problems {
        write!(f, "\n  {}", problem_line(problem))?;
    }
    Ok(())
}

/// Formats a problem as one line, like [`loudou_rules::config::Problem`].
pub fn problem_line(problem: &RuleProblem) -> String {
    let mut line = format!("{}: ", escape(&problem.path));
    if !problem.value.is_empty() {
        line.push_str(&escape(&problem.value));
        line.push_str(": ");
    }
    line.push_str(&problem_text(problem));
    line
}

/// Formats a problem without its path and value, for forms that already show them.
pub fn problem_text(problem: &RuleProblem) -> String {
    let mut line = escape(&problem.message).into_owned();
    if let Some(allowed) = &problem.allowed {
        line.push_str("; allowed: ");
        line.push_str(&escape(allowed));
    }
    line.push_str(&meant(problem.suggestion.as_ref()));
    line
}
