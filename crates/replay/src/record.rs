//! A line of a trace or a log, in the form that rules match.

use loudou_limiter::{Carry, Nanos};
use loudou_rules::config::RuleEdit;
use loudou_rules::request::{Request as _, Sample};

pub(crate) use loudou_rules::request::Text;

use super::verdict::LogVerdict;

/// A trace that starts at or after this instant uses calendar time instead of counting from zero.
pub(crate) const FAR: Nanos = Nanos::from_secs(15 * 366 * 86_400);
/// Header with the length of the request body.
const LENGTH: &str = "content-length";

/// Content of a line.
#[derive(Clone, Debug, PartialEq, Eq)]
pub(crate) enum LogLine<'a> {
    Request(LoggedRequest<'a>),
    Edit(TraceEdit),
}

/// A request with its instant.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub(crate) struct LoggedRequest<'a> {
    /// Time of arrival, on the clock of the trace.
    pub(crate) at: Nanos,
    pub(crate) request: Sample<'a>,
    /// Time from arrival to end.
    pub(crate) duration: Option<Nanos>,
    /// Status of the answer.
    pub(crate) status: Option<u16>,
    /// Final cost of the request, for rules with `settle`.
    pub(crate) settled: Option<u64>,
    /// Verdict of the filter; `None` in a log without a column for it.
    pub(crate) verdict: Option<LogVerdict>,
    /// Number of received body bytes. Rules use it as the body's length. It is not encoded.
    pub(crate) received: Option<u64>,
}

impl LoggedRequest<'_> {
    /// Returns true for the start, and true for the end, if it is at a fraction of a second. A log
    /// has one of the two times.
    pub(crate) fn is_fine(&self) -> [bool; 2] {
        let end = self.at.saturating_add(self.duration.unwrap_or_default());
        [self.at, end].map(|at| !at.get().is_multiple_of(1_000_000_000))
    }

    /// Sets the length of the request body. Returns false if the log lacks it.
    pub(crate) fn take_length(&mut self) -> bool {
        let Some(received) = self.received.take() else {
            return false;
        };
        // A request without a body does not have this header.
        if received > 0 && self.request.header(LENGTH).is_none() {
            let value = received.to_string().into_bytes();
            self.request.headers.push((LENGTH.into(), value.into()));
        }
        true
    }
}

/// An edit of a rule in the middle of a trace.
#[derive(Clone, Debug, PartialEq, Eq)]
pub(crate) struct TraceEdit {
    pub(crate) at: Nanos,
    pub(crate) rule: String,
    pub(crate) edit: RuleEdit,
    pub(crate) carry: Carry,
}

/// A log line that is neither a request nor a mistake.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum OtherLine {
    /// A TCP connection, which Istio logs in the form of a request.
    Connection,
    /// A connection without a request. It ended early, or the client sent something else.
    NoRequest,
    /// Another message from the program that writes the log.
    Message,
}

impl OtherLine {
    /// All kinds, in the order of [`super::input::Intake::others`].
    pub const ALL: [Self; 3] = [Self::Connection, Self::NoRequest, Self::Message];

    /// Returns the name in documents.
    pub const fn name(self) -> &'static str {
        match self {
            Self::Connection => "tcp_connections",
            Self::NoRequest => "without_request",
            Self::Message => "messages",
        }
    }

    /// Returns the plural for use within a sentence.
    pub(crate) const fn title(self) -> &'static str {
        match self {
            Self::Connection => "TCP connections, not requests",
            Self::NoRequest => "connections without a request",
            Self::Message => "messages of the proxy",
        }
    }
}

/// Reason why a line is not a request.
#[derive(Clone, Debug, PartialEq, Eq)]
pub(crate) enum Unread {
    Other(OtherLine),
    /// The line cannot be read.
    Bad {
        message: String,
        /// Offset of the mistake in the line.
        at: usize,
        /// True if the line is valid except for its time.
        untimed: bool,
    },
}

impl Unread {
    /// Creates a mistake without an offset.
    pub(crate) fn bad(message: impl Into<String>) -> Self {
        Self::Bad {
            message: message.into(),
            at: 0,
            untimed: false,
        }
    }

    /// Creates the error for a request whose time is invalid.
    pub(crate) fn untimed(message: impl Into<String>) -> Self {
        Self::Bad {
            message: message.into(),
            at: 0,
            untimed: true,
        }
    }
}

impl From<String> for Unread {
    fn from(message: String) -> Self {
        Self::bad(message)
    }
}
