//! One line of a trace or a log, in the form that rules match.

use loudou_limiter::{Carry, Nanos};
use loudou_rules::config::RuleEdit;
use loudou_rules::request::{Request as _, Sample};

pub(crate) use loudou_rules::request::Text;

use super::verdict::LogVerdict;

/// A trace that starts at or after this instant is of the calendar, and no longer counts from its own zero.
pub(crate) const FAR: Nanos = Nanos::from_secs(15 * 366 * 86_400);
/// The header with the length of a request's body.
const LENGTH: &str = "content-length";

/// The content of a line.
#[derive(Clone, Debug, PartialEq, Eq)]
pub(crate) enum LogLine<'a> {
    Request(LoggedRequest<'a>),
    Edit(TraceEdit),
}

/// A request with its instant.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub(crate) struct LoggedRequest<'a> {
    /// Its arrival, on the clock of its trace.
    pub(crate) at: Nanos,
    pub(crate) request: Sample<'a>,
    /// The time from its arrival to its end.
    pub(crate) duration: Option<Nanos>,
    /// The status of its answer.
    pub(crate) status: Option<u16>,
    /// The filter's verdict; `None` in a log without a column for it.
    pub(crate) verdict: Option<LogVerdict>,
    /// The bytes of its body that were received. They are its length for the rules, and not encoded.
    pub(crate) received: Option<u64>,
}

impl LoggedRequest<'_> {
    /// Whether its start and its end are at other times than whole seconds, one of which its log has.
    pub(crate) fn is_fine(&self) -> [bool; 2] {
        let end = self.at.saturating_add(self.duration.unwrap_or_default());
        [self.at, end].map(|at| !at.get().is_multiple_of(1_000_000_000))
    }

    /// Gives the request the length of its body; whether the log has it.
    pub(crate) fn take_length(&mut self) -> bool {
        let Some(received) = self.received.take() else {
            return false;
        };
        // A request without a body has no such header.
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

/// A line of a log that is no request, and no mistake.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum OtherLine {
    /// A TCP connection, which Istio logs in the form of a request.
    Connection,
    /// A connection without a request: it ended before, or sent something else.
    NoRequest,
    /// A line of the same program about something else.
    Message,
}

impl OtherLine {
    /// All of them, in the order of [`super::input::Intake::others`].
    pub const ALL: [Self; 3] = [Self::Connection, Self::NoRequest, Self::Message];

    /// Its name in documents.
    pub const fn name(self) -> &'static str {
        match self {
            Self::Connection => "tcp_connections",
            Self::NoRequest => "without_request",
            Self::Message => "messages",
        }
    }

    /// Several of them, within a sentence.
    pub(crate) const fn title(self) -> &'static str {
        match self {
            Self::Connection => "TCP connections, not requests",
            Self::NoRequest => "connections without a request",
            Self::Message => "messages of the proxy",
        }
    }
}

/// The reason why a line is not a request.
#[derive(Clone, Debug, PartialEq, Eq)]
pub(crate) enum Unread {
    Other(OtherLine),
    /// Not readable.
    Bad {
        message: String,
        /// The offset of the mistake in the line.
        at: usize,
        /// Whether only its time could not be read.
        untimed: bool,
    },
}

impl Unread {
    /// A mistake without a place of its own.
    pub(crate) fn bad(message: impl Into<String>) -> Self {
        Self::Bad {
            message: message.into(),
            at: 0,
            untimed: false,
        }
    }

    /// A request whose time cannot be read.
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
