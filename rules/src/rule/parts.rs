//! The parts of a request that the client packs into others: query parameters, cookies, the host.

use alloc::borrow::Cow;
use alloc::vec::Vec;

use crate::hex;
use crate::request::{Request, without_port};

/// The first value of a query parameter, decoded. A letter that is escaped without need gives the same
/// value, and so the same bucket.
pub(super) fn query<'a>(request: &'a mut dyn Request, name: &str) -> Option<Cow<'a, [u8]>> {
    map(request.path()?, |path| query_of(path, name))
}

fn query_of<'a>(path: &'a [u8], name: &str) -> Option<Cow<'a, [u8]>> {
    let whole = path.split(|b| *b == b'#').next()?;
    let (_, query) = cut(whole, b'?')?;
    let mut pairs = query
        .split(|b| *b == b'&')
        .map(|pair| cut(pair, b'=').unwrap_or((pair, b"")));
    let found = pairs.find(|(own, _)| *decoded(own) == *name.as_bytes());
    found.map(|(_, value)| decoded(value))
}

/// The first value of a cookie, without the quotes around it.
pub(super) fn cookie<'a>(request: &'a mut dyn Request, name: &str) -> Option<Cow<'a, [u8]>> {
    map(request.header("cookie")?, |header| {
        let mut pairs = header
            .split(|b| *b == b';')
            .filter_map(|pair| cut(pair, b'='));
        let (_, value) = pairs.find(|(own, _)| own.trim_ascii() == name.as_bytes())?;
        let value = value.trim_ascii();
        let quoted = value
            .strip_prefix(b"\"")
            .and_then(|v| v.strip_suffix(b"\""));
        Some(Cow::Borrowed(quoted.unwrap_or(value)))
    })
}

/// The requested host: without the port, in lower case, without the trailing dot of the root.
pub(crate) fn host(request: &mut dyn Request) -> Option<Vec<u8>> {
    let authority = request.header(":authority")?;
    let host = without_port(&authority);
    let host = host.strip_suffix(b".").unwrap_or(host);
    Some(host.to_ascii_lowercase())
}

/// A part of a text that may be borrowed.
fn map<'a>(
    text: Cow<'a, [u8]>,
    part: impl for<'t> Fn(&'t [u8]) -> Option<Cow<'t, [u8]>>,
) -> Option<Cow<'a, [u8]>> {
    match text {
        Cow::Borrowed(text) => part(text),
        Cow::Owned(text) => part(&text).map(|part| Cow::Owned(part.into_owned())),
    }
}

/// The parts before and after the first `mark`.
fn cut(text: &[u8], mark: u8) -> Option<(&[u8], &[u8])> {
    let at = text.iter().position(|b| *b == mark)?;
    let (before, after) = text.split_at_checked(at)?;
    Some((before, after.get(1..)?))
}

/// `%41` as `A` and `+` as a space; anything else stays unchanged.
fn decoded(text: &[u8]) -> Cow<'_, [u8]> {
    hex::unescaped(text, b"%", |b| if b == b'+' { b' ' } else { b })
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn query_parameters() {
        let of = |path: &str| query_of(path.as_bytes(), "user id").map(Cow::into_owned);
        for (path, value) in [
            ("/?user+id=alice", Some(&b"alice"[..])),
            ("/?user%20id=%61lice", Some(b"alice")),
            ("/?a&b=&user+id=a%3Db=c&user+id=second", Some(b"a=b=c")),
            ("/?user+id", Some(b"")),
            ("/?user+id=", Some(b"")),
            ("/?user+id=%ff%00", Some(b"\xff\0")),
            ("/?user+id=%", Some(b"%")),
            ("/?user+id=%4", Some(b"%4")),
            ("/?user+id=%zz%%41", Some(b"%zz%A")),
            ("/?user+id=a?b", Some(b"a?b")),
            ("/?user+id=a#user+id=b", Some(b"a")),
            ("/#?user+id=a", None),
            ("/?userid=a", None),
            ("/?=a&&&==", None),
            ("/", None),
            ("", None),
        ] {
            assert_eq!(of(path).as_deref(), value, "{path}");
        }
    }

    #[test]
    fn ports_go_and_addresses_stay() {
        for (authority, host) in [
            ("example.com:80", "example.com"),
            ("example.com", "example.com"),
            ("[::1]:80", "[::1]"),
            ("[::1]", "[::1]"),
            (":80", ""),
            ("", ""),
        ] {
            assert_eq!(without_port(authority.as_bytes()), host.as_bytes());
        }
    }
}
