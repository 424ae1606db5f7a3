//! One line of a trace or a log, in the form that rules match.

use loudou_limiter::{Carry, Nanos};
use loudou_rules::config::RuleEdit;
use loudou_rules::request::Sample;

pub(crate) use loudou_rules::request::Text;

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
}

/// An edit of a rule in the middle of a trace.
#[derive(Clone, Debug, PartialEq, Eq)]
pub(crate) struct TraceEdit {
    pub(crate) at: Nanos,
    pub(crate) rule: String,
    pub(crate) edit: RuleEdit,
    pub(crate) carry: Carry,
}

/// The last address of an `x-forwarded-for`: the only one that Envoy itself added.
pub(crate) fn last_address(forwarded_for: &[u8]) -> &[u8] {
    let last = forwarded_for.rsplit(|b| *b == b',').next();
    last.unwrap_or(forwarded_for).trim_ascii()
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn addresses() {
        assert_eq!(last_address(b"9.9.9.9, 10.0.0.7"), b"10.0.0.7");
        assert_eq!(last_address(b""), b"");
    }
}
