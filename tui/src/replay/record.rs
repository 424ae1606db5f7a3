//! One line of a trace or a log, as rules see it.

use loudou_limiter::{Carry, Nanos};
use loudou_rules::config::RuleEdit;
use loudou_rules::request::Sample;

pub(crate) use loudou_rules::request::Text;

/// What a line says.
#[derive(Clone, Debug, PartialEq, Eq)]
pub(crate) enum Line<'a> {
    Request(Record<'a>),
    Set(Set),
}

/// A request, and when it was.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub(crate) struct Record<'a> {
    /// When it came, on the clock of its trace.
    pub(crate) at: Nanos,
    pub(crate) request: Sample<'a>,
    /// How long it was under way.
    pub(crate) duration: Option<Nanos>,
}

/// An edit of a rule in mid-trace.
#[derive(Clone, Debug, PartialEq, Eq)]
pub(crate) struct Set {
    pub(crate) at: Nanos,
    pub(crate) rule: String,
    pub(crate) edit: RuleEdit,
    pub(crate) carry: Carry,
}

/// The address in `1.2.3.4:567` or `[::1]:567`; one without a port is as it is.
pub(crate) fn without_port(address: &[u8]) -> &[u8] {
    if let Some(inner) = address.strip_prefix(b"[") {
        return inner.split(|b| *b == b']').next().unwrap_or(inner);
    }
    let mut parts = address.split(|b| *b == b':');
    match (parts.next(), parts.next(), parts.next()) {
        (Some(host), Some(_port), None) => host,
        _ => address,
    }
}

/// The last address of an `x-forwarded-for`: the one that Envoy itself vouches for.
pub(crate) fn last_address(forwarded_for: &[u8]) -> &[u8] {
    let last = forwarded_for.rsplit(|b| *b == b',').next();
    last.unwrap_or(forwarded_for).trim_ascii()
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn addresses() {
        assert_eq!(without_port(b"1.2.3.4:567"), b"1.2.3.4");
        assert_eq!(without_port(b"1.2.3.4"), b"1.2.3.4");
        assert_eq!(without_port(b"[2001:db8::1]:0"), b"2001:db8::1");
        assert_eq!(without_port(b"2001:db8::1"), b"2001:db8::1");
        assert_eq!(without_port(b""), b"");
        assert_eq!(last_address(b"9.9.9.9, 10.0.0.7"), b"10.0.0.7");
        assert_eq!(last_address(b""), b"");
    }
}
