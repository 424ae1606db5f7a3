//! One line of a trace or a log, as rules see it.

use std::borrow::Cow;

use loudou_limiter::config::RuleEdit;
use loudou_limiter::request::Request;
use loudou_limiter::{Carry, Nanos};

/// Bytes of a line, or what they were escaped for.
pub(crate) type Text<'a> = Cow<'a, [u8]>;

/// What a line says.
#[derive(Clone, Debug, PartialEq, Eq)]
pub(crate) enum Line<'a> {
    Request(Record<'a>),
    Set(Set),
}

/// A request.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub(crate) struct Record<'a> {
    /// When it came, on the clock of its trace.
    pub(crate) at: Nanos,
    pub(crate) method: Option<Text<'a>>,
    pub(crate) path: Option<Text<'a>>,
    pub(crate) host: Option<Text<'a>>,
    pub(crate) source: Option<Text<'a>>,
    pub(crate) route: Option<Text<'a>>,
    pub(crate) headers: Vec<(Cow<'a, str>, Text<'a>)>,
    /// Whether `_` stands for `-` in the names of headers.
    pub(crate) underscores: bool,
    pub(crate) cost: Option<u64>,
    pub(crate) max_wait: Option<Nanos>,
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

impl Request for Record<'_> {
    fn method(&mut self) -> Option<Cow<'_, [u8]>> {
        self.method.as_deref().map(Cow::Borrowed)
    }

    fn path(&mut self) -> Option<Cow<'_, [u8]>> {
        self.path.as_deref().map(Cow::Borrowed)
    }

    fn header(&mut self, name: &str) -> Option<Cow<'_, [u8]>> {
        match name {
            ":method" => self.method(),
            ":path" => self.path(),
            ":authority" | "host" => self.host.as_deref().map(Cow::Borrowed),
            _ => {
                let mut headers = self.headers.iter();
                let found = headers.find(|(own, _)| same(own, name, self.underscores));
                found.map(|(_, value)| Cow::Borrowed(&**value))
            }
        }
    }

    fn source(&mut self) -> Option<Cow<'_, [u8]>> {
        self.source.as_deref().map(Cow::Borrowed)
    }

    fn route(&mut self) -> Option<Cow<'_, [u8]>> {
        self.route.as_deref().map(Cow::Borrowed)
    }

    fn cost(&mut self) -> Option<u64> {
        self.cost
    }

    fn max_wait(&mut self) -> Option<Nanos> {
        self.max_wait
    }
}

/// Whether a line calls the header `name` (in lower case) `own`.
fn same(own: &str, name: &str, underscores: bool) -> bool {
    let plain = |byte: u8| match byte {
        b'_' if underscores => b'-',
        _ => byte.to_ascii_lowercase(),
    };
    own.len() == name.len() && own.bytes().map(plain).eq(name.bytes())
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
    fn names_of_headers() {
        assert!(same("X-User-Id", "x-user-id", false));
        assert!(!same("x_user_id", "x-user-id", false));
        assert!(same("x_user_id", "x-user-id", true));
        assert!(!same("x_user_ids", "x-user-id", true));
    }

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
