//! Lines of a trace or log, in the form that rules evaluate.

use loudou_limiter::{Carry, Nanos};
use loudou_rules::config::RuleEdit;
use loudou_rules::request::{Request as _, Sample};

pub(crate) use loudou_rules::request::Text;

use super::verdict::LogVerdict;

/// If a trace starts at or after this time, its timestamps are calendar times. A trace that starts
/// earlier counts time from zero.
pub(crate) const FAR: Nanos = Nanos::from_secs(15 * 366 * 86_400);
/// Header that contains the length of the request body.
const LENGTH: &str = "content-length";

/// Content of a valid line.
#[derive(Clone, Debug, PartialEq, Eq)]
pub(crate) enum LogLine<'a> {
    Request(LoggedRequest<'a>),
    Edit(TraceEdit),
}

/// A request with its time and what the log says about its outcome.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub(crate) struct LoggedRequest<'a> {
    /// Arrival time, on the clock of the trace.
    pub(crate) at: Nanos,
    pub(crate) request: Sample<'a>,
    /// Time from the arrival to the end of the request.
    pub(crate) duration: Option<Nanos>,
    /// Response status.
    pub(crate) status: Option<u16>,
    /// Final cost of the request, for rules with `settle`.
    pub(crate) settled: Option<u64>,
    /// Verdict of the filter, or `None` if the log has no column for it.
    pub(crate) verdict: Option<LogVerdict>,
    /// Number of body bytes received. [`Self::take_length`] converts it to a `content-length`
    /// header before the request is encoded.
    pub(crate) received: Option<u64>,
}

impl LoggedRequest<'_> {
    /// Returns two flags: whether the start time, and whether the end time, is not a whole second.
    /// A log records either time, but not both.
    pub(crate) fn is_fine(&self) -> [bool; 2] {
        let end = self.at.saturating_add(self.duration.unwrap_or_default());
        [self.at, end].map(|at| !at.get().is_multiple_of(1_000_000_000))
    }

    /// Adds the length of the request body as a `content-length` header. Returns false if the log
    /// does not contain the length.
    pub(crate) fn take_length(&mut self) -> bool {
        let Some(received) = self.received.take() else {
            return false;
        };
        // A request without a body needs no `content-length` header.
        if received > 0 && self.request.header(LENGTH).is_none() {
            let value = received.to_string().into_bytes();
            self.request.headers.push((LENGTH.into(), value.into()));
        }
        true
    }
}

/// A change to a rule in the course of a trace.
#[derive(Clone, Debug, PartialEq, Eq)]
pub(crate) struct TraceEdit {
    pub(crate) at: Nanos,
    pub(crate) rule: String,
    pub(crate) edit: RuleEdit,
    pub(crate) carry: Carry,
}

/// Kind of valid log line that is not a request.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum OtherLine {
    /// A TCP connection, which Istio logs in the same format as a request.
    Connection,
    /// A connection without a valid request, because it was closed early or the client sent
    /// something else.
    NoRequest,
    /// Any other message from the program that wrote the log.
    Message,
}

impl OtherLine {
    /// All kinds, in the order in which [`super::input::Intake::others`] counts them.
    pub const ALL: [Self; 3] = [Self::Connection, Self::NoRequest, Self::Message];

    /// Returns the name used in the JSON output.
    pub const fn name(self) -> &'static str {
        match self {
            Self::Connection => "tcp_connections",
            Self::NoRequest => "without_request",
            Self::Message => "messages",
        }
    }

    /// Returns a plural description for use in messages.
    pub(crate) const fn title(self) -> &'static str {
        match self {
            Self::Connection => "TCP connections, not requests",
            Self::NoRequest => "connections without a request",
            Self::Message => "messages of the proxy",
        }
    }
}

/// Reason why a line yields no request or edit.
#[derive(Clone, Debug, PartialEq, Eq)]
pub(crate) enum Unread {
    Other(OtherLine),
    /// The line cannot be parsed.
    Bad {
        message: String,
        /// Offset of the error in the line.
        at: usize,
        /// True if the line is valid except for its timestamp.
        untimed: bool,
    },
}

impl Unread {
    /// Creates an error without an offset.
    pub(crate) fn bad(message: impl Into<String>) -> Self {
        Self::Bad {
            message: message.into(),
            at: 0,
            untimed: false,
        }
    }

    /// Creates the error for a request whose timestamp is missing or invalid.
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
