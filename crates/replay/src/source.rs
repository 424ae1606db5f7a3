//! Selects the client address of a request: the log's client column, or a header set by a trusted
//! proxy.

use std::borrow::Cow;
use std::net::IpAddr;

use loudou_rules::request::{Request as _, Sample, Text, bare_address};

/// Maximum N in `xff:N`.
const MOST_HOPS: usize = 100;

/// Source of a request's client address.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub enum ClientSource {
    /// The log's client column. If a request has no value there, the last address in
    /// `x-forwarded-for`.
    #[default]
    Auto,
    /// The log's client column.
    Remote,
    /// An address in `x-forwarded-for`, counted from the end. 1 is the last address.
    ForwardedFor(usize),
    /// The header with this name, in lower case.
    Header(String),
}

impl ClientSource {
    /// Parses `remote`, `xff`, `xff:N` or `header:NAME`.
    pub fn parse(text: &str) -> Result<Self, String> {
        let (kind, rest) = match text.split_once(':') {
            None => (text, None),
            Some((kind, rest)) => (kind, Some(rest)),
        };
        match (kind, rest) {
            ("remote", None) => Ok(Self::Remote),
            ("xff", None) => Ok(Self::ForwardedFor(1)),
            ("xff", Some(hops)) => {
                let hops = hops.parse().ok().filter(|n| (1..=MOST_HOPS).contains(n));
                hops.map(Self::ForwardedFor).ok_or_else(|| {
                    format!(
                        "expected a number from 1 (the last address) to {MOST_HOPS} after `xff:`"
                    )
                })
            }
            ("header", Some(name)) if is_header(name) => {
                Ok(Self::Header(name.to_ascii_lowercase()))
            }
            ("header", _) => Err("expected the name of a header: `header:true-client-ip`".into()),
            _ => Err("expected `remote`, `xff`, `xff:N` or `header:NAME`".into()),
        }
    }

    /// Returns the value of the command-line option, or `None` for [`Self::Auto`].
    pub fn words(&self) -> Option<String> {
        match self {
            Self::Auto => None,
            Self::Remote => Some("remote".into()),
            Self::ForwardedFor(1) => Some("xff".into()),
            Self::ForwardedFor(hops) => Some(format!("xff:{hops}")),
            Self::Header(name) => Some(format!("header:{name}")),
        }
    }

    /// Sets the client address of a request. Before this call, the client address is the value of
    /// the log's client column.
    pub(crate) fn apply(&self, request: &mut Sample<'_>) {
        match self {
            Self::Remote => {}
            Self::Auto => {
                if request.source.is_none() {
                    request.source = forwarded(request, 1);
                }
            }
            Self::ForwardedFor(hops) => request.source = forwarded(request, *hops),
            Self::Header(name) => {
                let value = request.header(name);
                let value = value.map(|value| bare_address(value.trim_ascii()).to_vec());
                request.source = value.filter(|value| !value.is_empty()).map(Cow::Owned);
            }
        }
    }
}

/// Returns true if `name` is a valid header name or pseudo-header name, such as `:authority`.
fn is_header(name: &str) -> bool {
    let name = name.strip_prefix(':').unwrap_or(name);
    let is_token = |b: u8| b.is_ascii_alphanumeric() || b"!#$%&'*+-.^_`|~".contains(&b);
    !name.is_empty() && name.bytes().all(is_token)
}

/// Returns the client address without its port. Returns `None` if `text` is empty or `-`, or if it
/// names a Unix socket or an internal Envoy listener, which have no IP address.
pub(crate) fn address(text: &[u8]) -> Option<&[u8]> {
    let has_none = [&b"unix:"[..], b"envoy://", b"@"];
    let has_none = has_none.iter().any(|start| text.starts_with(start));
    let is_known = !has_none && !matches!(text, b"" | b"-");
    is_known.then(|| bare_address(text))
}

/// Returns true if `text` is an IP address, with or without a port.
pub(crate) fn is_address(text: &[u8]) -> bool {
    let address = bare_address(text);
    let brackets = if text.starts_with(b"[") { 2 } else { 0 };
    let is_port = match text.get(address.len() + brackets..) {
        Some([]) => true,
        Some([b':', port @ ..]) => !port.is_empty() && port.iter().all(u8::is_ascii_digit),
        _ => false,
    };
    let mut parts = address.splitn(2, |b| *b == b'%');
    let (address, zone) = (parts.next().unwrap_or_default(), parts.next());
    let is_of_zone = |byte: &u8| byte.is_ascii_alphanumeric() || b"._-".contains(byte);
    let is_zone = zone.is_none_or(|zone| zone.iter().all(is_of_zone));
    // A textual IP address has at most 45 bytes.
    let text = Some(address).filter(|address| is_port && is_zone && address.len() <= 45);
    let text = text.and_then(|address| str::from_utf8(address).ok());
    text.is_some_and(|text| text.parse::<IpAddr>().is_ok())
}

/// Like [`address`], but for a string that may be owned.
pub(crate) fn address_of(text: Text<'_>) -> Option<Text<'_>> {
    match text {
        Cow::Borrowed(text) => address(text).map(Cow::Borrowed),
        Cow::Owned(text) => address(&text).map(|text| Cow::Owned(text.to_vec())),
    }
}

/// Returns the address at position `hops` from the end of `x-forwarded-for`, counted over all lines
/// of the header.
fn forwarded<'a>(request: &mut Sample<'a>, hops: usize) -> Option<Text<'a>> {
    let mut all = Vec::new();
    request.each_line("x-forwarded-for", &mut |line| {
        if !all.is_empty() {
            all.push(b',');
        }
        all.extend_from_slice(line);
    });
    let address = all.rsplit(|b| *b == b',').nth(hops.checked_sub(1)?)?;
    let address = bare_address(address.trim_ascii());
    (!address.is_empty()).then(|| Cow::Owned(address.to_vec()))
}

#[cfg(test)]
mod tests {
    use super::*;

    fn client(
        source: &str,
        column: Option<&'static str>,
        lines: &[&'static str],
    ) -> Option<String> {
        let headers = lines.iter();
        let mut request = Sample {
            source: column.map(|column| Cow::Borrowed(column.as_bytes())),
            headers: headers
                .map(|line| ("X-Forwarded-For".into(), Cow::Borrowed(line.as_bytes())))
                .collect(),
            ..Sample::default()
        };
        let source = if source.is_empty() {
            ClientSource::Auto
        } else {
            ClientSource::parse(source).expect(source)
        };
        source.apply(&mut request);
        let text = |text: Text<'_>| String::from_utf8(text.into_owned()).expect("UTF-8");
        request.source.map(text)
    }

    #[test]
    fn every_choice() {
        let lines = ["9.9.9.9, 10.0.0.7:80", " [2001:db8::1]:443 "];
        for (source, column, expected) in [
            ("", Some("1.1.1.1"), Some("1.1.1.1")),
            ("", None, Some("2001:db8::1")),
            ("remote", None, None),
            ("xff", Some("1.1.1.1"), Some("2001:db8::1")),
            ("xff:2", Some("1.1.1.1"), Some("10.0.0.7")),
            ("xff:3", Some("1.1.1.1"), Some("9.9.9.9")),
            ("xff:4", Some("1.1.1.1"), None),
            ("header:X-Real-IP", Some("1.1.1.1"), None),
        ] {
            let found = client(source, column, &lines);
            assert_eq!(found.as_deref(), expected, "{source}");
        }
        assert_eq!(client("xff", None, &["1.1.1.1, "]), None);
    }

    #[test]
    fn sockets_and_listeners_have_no_address() {
        for (text, expected) in [
            ("10.0.0.7:80", Some("10.0.0.7")),
            ("[::1]:80", Some("::1")),
            ("unix:", None),
            ("unix:///run/x.sock", None),
            ("envoy://internal_client_address/", None),
            ("@/run/x", None),
            ("-", None),
            ("", None),
        ] {
            assert_eq!(
                address(text.as_bytes()),
                expected.map(str::as_bytes),
                "{text}"
            );
        }
    }

    #[test]
    fn addresses() {
        for right in [
            "1.2.3.4",
            "1.2.3.4:80",
            "::1",
            "[::1]",
            "[::1]:80",
            "fe80::1%eth0.1",
            "[fe80::1%2]:80",
        ] {
            assert!(is_address(right.as_bytes()), "{right}");
        }
        for wrong in [
            "",
            "-",
            "1.2.3",
            "1.2.3.4:",
            "1.2.3.4:5.6.7.8",
            "[1.2.3.4",
            "[1.2.3.4]5.6.7.8",
            "[1.2.3.4]:",
            "[]",
            "[",
            "::1%(1.2.3.4)",
            "unix:",
        ] {
            assert!(!is_address(wrong.as_bytes()), "{wrong}");
        }
    }

    #[test]
    fn wrong_words() {
        for wrong in [
            "",
            "xff:0",
            "xff:x",
            "xff:101",
            "header",
            "header:",
            "header:a b",
            "header:a\n",
            "header::",
            "remote:1",
            "peer",
        ] {
            assert!(ClientSource::parse(wrong).is_err(), "{wrong}");
        }
        for right in ["remote", "xff", "xff:2", "header:true-client-ip"] {
            let source = ClientSource::parse(right).expect(right);
            assert_eq!(source.words().as_deref(), Some(right));
        }
    }
}
