//! Defines the request values that rules read. In the filter, Envoy provides the values. A
//! [`Sample`] holds the values of a log line being replayed, or of a request to explain.

use alloc::borrow::Cow;
use alloc::string::String;
use alloc::vec::Vec;
use core::ops::Deref;

use crate::fleet::FleetView;
use crate::joined::joined;
use loudou_limiter::Nanos;

/// A request. The values are exactly as sent by the client or the network: they may contain
/// arbitrary bytes and have any length that Envoy allows.
pub trait Request {
    /// The method.
    fn method(&mut self) -> Option<Cow<'_, [u8]>>;
    /// The path, including its query if it has one.
    fn path(&mut self) -> Option<Cow<'_, [u8]>>;
    /// Returns the line of the header `name` (in lower case) that is selected by [`first_filled`].
    fn header(&mut self, name: &str) -> Option<Cow<'_, [u8]>>;
    /// Calls `see` for each line of the header `name`, in request order.
    fn each_line(&mut self, name: &str, see: &mut dyn FnMut(&[u8])) {
        if let Some(line) = self.header(name) {
            see(&line);
        }
    }
    /// The trusted client address, without the port.
    fn source(&mut self) -> Option<Cow<'_, [u8]>>;
    /// Name of the route.
    fn route(&mut self) -> Option<Cow<'_, [u8]>>;
    /// The identity from the client's certificate: its first URI or, if it has none, its first DNS
    /// name.
    fn client_cert(&mut self) -> Option<Cow<'_, [u8]>> {
        None
    }
    /// The value, as text, at a path in the dynamic metadata set by earlier filters. The path
    /// consists of the namespace and the keys below it. [`metadata`](crate::metadata) describes the
    /// format of the text. For a list, returns the first non-empty element.
    fn metadata(&mut self, _path: &[String]) -> Option<Cow<'_, [u8]>> {
        None
    }
    /// Calls `see` for each value at a path in the dynamic metadata: for each element of a list, or
    /// for a single value.
    fn each_metadata(&mut self, path: &[String], see: &mut dyn FnMut(&[u8])) {
        if let Some(value) = self.metadata(path) {
            see(&value);
        }
    }
    /// Name of the cluster to which Envoy is routing the request.
    fn cluster(&mut self) -> Option<Cow<'_, [u8]>> {
        None
    }

    /// A fixed cost that takes precedence over the rule's cost; `None` to use the rule's cost.
    fn cost(&mut self) -> Option<u64> {
        None
    }
    /// Returns true if the request may be held. Called only if a rule would hold the request.
    fn may_wait(&mut self) -> bool {
        true
    }
    /// Returns the time that the request has already waited, if it is being evaluated again.
    fn waited(&self) -> Nanos {
        Nanos::ZERO
    }
    /// A maximum wait that takes precedence over the limit's; `None` to use the limit's.
    fn max_wait(&mut self) -> Option<Nanos> {
        None
    }
    /// State of the fleet; `None` in replays and previews, where a single local bucket decides even
    /// if the rule is shared by many Envoys.
    fn fleet(&mut self) -> Option<FleetView> {
        None
    }
}

/// Bytes borrowed from a request, or their unescaped form.
pub type Text<'a> = Cow<'a, [u8]>;

/// A request that did not originate in Envoy, such as a log line or a hypothetical request.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub struct Sample<'a> {
    /// The method.
    pub method: Option<Text<'a>>,
    /// The path, including its query if it has one.
    pub path: Option<Text<'a>>,
    /// The host, including its port if it has one.
    pub host: Option<Text<'a>>,
    /// The trusted client address, without the port.
    pub source: Option<Text<'a>>,
    /// Name of the route.
    pub route: Option<Text<'a>>,
    /// Name of the cluster to which Envoy is routing the request.
    pub cluster: Option<Text<'a>>,
    /// Identity from the client's certificate.
    pub client_cert: Option<Text<'a>>,
    /// Header lines in request order. Names may be in any case.
    pub headers: Vec<(Cow<'a, str>, Text<'a>)>,
    /// True if `_` in header names stands for `-`.
    pub underscores: bool,
    /// Metadata values by dot-separated path. A metadata list is represented by one entry per
    /// element.
    pub metadata: Vec<(String, Text<'a>)>,
    /// A fixed cost that takes precedence over the rule's cost.
    pub cost: Option<u64>,
    /// A maximum wait that takes precedence over the limit's.
    pub max_wait: Option<Nanos>,
    /// State of the fleet; `None` in replays and previews, where a single local bucket decides even
    /// if the rule is shared by many Envoys.
    pub fleet: Option<FleetView>,
}

fn borrowed<'a>(text: Option<&'a Text<'_>>) -> Option<Text<'a>> {
    text.map(|text| Cow::Borrowed(&**text))
}

impl Sample<'_> {
    /// Returns the metadata values at a path. An object yields one empty value.
    fn at(&self, path: &str) -> impl Iterator<Item = &[u8]> {
        let values = self.metadata.iter().filter(move |(own, _)| own == path);
        let mut values = values.map(|(_, value)| &**value).peekable();
        let is_below = |own: &str| {
            own.strip_prefix(path)
                .is_some_and(|rest| rest.starts_with('.'))
        };
        let is_object =
            values.peek().is_none() && self.metadata.iter().any(|(own, _)| is_below(own));
        values.chain(is_object.then_some(&b""[..]))
    }
}

impl Request for Sample<'_> {
    fn method(&mut self) -> Option<Text<'_>> {
        borrowed(self.method.as_ref())
    }

    fn path(&mut self) -> Option<Text<'_>> {
        borrowed(self.path.as_ref())
    }

    fn header(&mut self, name: &str) -> Option<Text<'_>> {
        match name {
            ":method" => self.method(),
            ":path" => self.path(),
            ":authority" | "host" => borrowed(self.host.as_ref()),
            _ => {
                let headers = self.headers.iter();
                let lines = headers.filter(|(own, _)| is_same(own, name, self.underscores));
                first_filled(lines.map(|(_, line)| &**line)).map(Cow::Borrowed)
            }
        }
    }

    fn each_line(&mut self, name: &str, see: &mut dyn FnMut(&[u8])) {
        if matches!(name, ":method" | ":path" | ":authority" | "host") {
            if let Some(line) = self.header(name) {
                see(&line);
            }
            return;
        }
        for (own, line) in &self.headers {
            if is_same(own, name, self.underscores) {
                see(line);
            }
        }
    }

    fn source(&mut self) -> Option<Text<'_>> {
        borrowed(self.source.as_ref())
    }

    fn route(&mut self) -> Option<Text<'_>> {
        borrowed(self.route.as_ref())
    }

    fn cluster(&mut self) -> Option<Text<'_>> {
        borrowed(self.cluster.as_ref())
    }

    fn client_cert(&mut self) -> Option<Text<'_>> {
        borrowed(self.client_cert.as_ref())
    }

    fn metadata(&mut self, path: &[String]) -> Option<Text<'_>> {
        if self.metadata.is_empty() {
            return None;
        }
        let path = joined(path, ".");
        first_filled(self.at(&path)).map(Cow::Borrowed)
    }

    fn each_metadata(&mut self, path: &[String], see: &mut dyn FnMut(&[u8])) {
        if self.metadata.is_empty() {
            return;
        }
        self.at(&joined(path, ".")).for_each(see);
    }

    fn cost(&mut self) -> Option<u64> {
        self.cost
    }

    fn max_wait(&mut self) -> Option<Nanos> {
        self.max_wait
    }

    fn fleet(&mut self) -> Option<FleetView> {
        self.fleet
    }
}

/// Returns the value to use if several have the same name: the first non-empty one. If all are
/// empty, returns an empty value, which keys treat as missing.
pub fn first_filled<T: Deref<Target = [u8]>>(values: impl IntoIterator<Item = T>) -> Option<T> {
    let mut empty = None;
    for value in values {
        if !value.is_empty() {
            return Some(value);
        }
        empty = empty.or(Some(value));
    }
    empty
}

/// Returns true if `own`, a header name in a sample, refers to the header `name` (in lower case).
fn is_same(own: &str, name: &str, underscores: bool) -> bool {
    let plain = |byte: u8| match byte {
        b'_' if underscores => b'-',
        _ => byte.to_ascii_lowercase(),
    };
    own.len() == name.len() && own.bytes().map(plain).eq(name.bytes())
}

/// Returns the path without its query and fragment.
pub(crate) fn without_query(path: &[u8]) -> &[u8] {
    path.split(|b| *b == b'?' || *b == b'#')
        .next()
        .unwrap_or(path)
}

/// Returns `example.com:80` without the port. An IPv6 address keeps its brackets.
pub(crate) fn without_port(authority: &[u8]) -> &[u8] {
    let colon = authority.iter().rposition(|b| *b == b':');
    let parts = colon.and_then(|at| authority.split_at_checked(at));
    match parts {
        // A colon within brackets belongs to an IPv6 address.
        Some((host, port)) if !port.contains(&b']') => host,
        _ => authority,
    }
}

/// Returns `example.com.` without the trailing dot, which denotes the root domain.
pub(crate) fn without_root(host: &[u8]) -> &[u8] {
    match host.strip_suffix(b".") {
        Some(rest) if !rest.is_empty() => rest,
        _ => host,
    }
}

/// Returns the address in `1.2.3.4:567` or `[::1]:567`. An address without a port is left
/// unchanged.
pub fn bare_address(address: &[u8]) -> &[u8] {
    if let Some(inner) = address.strip_prefix(b"[") {
        return inner.split(|b| *b == b']').next().unwrap_or(inner);
    }
    let host = without_port(address);
    // More than one colon means an IPv6 address.
    if host.contains(&b':') { address } else { host }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn addresses_without_ports() {
        assert_eq!(bare_address(b"1.2.3.4:567"), b"1.2.3.4");
        assert_eq!(bare_address(b"1.2.3.4"), b"1.2.3.4");
        assert_eq!(bare_address(b"[2001:db8::1]:0"), b"2001:db8::1");
        assert_eq!(bare_address(b"2001:db8::1"), b"2001:db8::1");
        assert_eq!(bare_address(b"pipe"), b"pipe");
        assert_eq!(bare_address(b""), b"");
    }

    #[test]
    fn names_of_headers() {
        assert!(is_same("X-User-Id", "x-user-id", false));
        assert!(!is_same("x_user_id", "x-user-id", false));
        assert!(is_same("x_user_id", "x-user-id", true));
        assert!(!is_same("x_user_ids", "x-user-id", true));
    }

    #[test]
    fn metadata_is_found_by_its_whole_path() {
        let text = |text: &'static str| Cow::Borrowed(text.as_bytes());
        let mut sample = Sample {
            metadata: Vec::from([(String::from("ns.a.plan"), text("free"))]),
            ..Sample::default()
        };
        let path =
            |steps: &[&str]| -> Vec<String> { steps.iter().map(|s| String::from(*s)).collect() };
        assert_eq!(
            sample.metadata(&path(&["ns.a", "plan"])),
            Some(text("free"))
        );
        assert_eq!(
            sample.metadata(&path(&["ns", "a", "plan"])),
            Some(text("free"))
        );
        assert_eq!(
            sample.metadata(&path(&["ns.a"])),
            Some(text("")),
            "an object"
        );
        assert_eq!(sample.metadata(&path(&["n"])), None);
        assert_eq!(sample.metadata(&path(&["ns.a", "plans"])), None);
    }
}
