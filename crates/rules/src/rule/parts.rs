//! Extracts values that are embedded in other values of a request: query parameters, cookies, and
//! the host. Also finds key parts for which a request has more than one value.

use alloc::borrow::Cow;
use alloc::vec::Vec;

use super::pattern::Pattern;
use super::text::{MetadataTest, NamedTest, Test, Truth};
use super::{KeyPart, Rule};
use crate::hex;
use crate::request::{Request, first_filled, without_port, without_root};

/// Callback that receives a request value.
type See<'a> = &'a mut dyn FnMut(&[u8]);

/// Tests a header. The test passes if any of the header's lines passes it, so that one line cannot
/// hide another.
pub(super) fn header_holds(request: &mut dyn Request, header: &NamedTest) -> Truth {
    if let Test::Present(_) = header.test {
        return header.test.holds(request.header(&header.name).as_deref());
    }
    one_holds(&header.test, |see| request.each_line(&header.name, see))
}

/// Tests a value in the metadata. For a list, the test passes if any element does.
pub(super) fn metadata_holds(request: &mut dyn Request, metadata: &MetadataTest) -> Truth {
    if let Test::Present(_) = metadata.test {
        let value = request.metadata(&metadata.path);
        return metadata.test.holds(value.as_deref());
    }
    let each = |see: See<'_>| request.each_metadata(&metadata.path, see);
    one_holds(&metadata.test, each)
}

/// Tests the values that `each` yields, of which at least one must pass. The total time that a
/// regular expression takes for all values is bounded by the time that it takes for a single value
/// of the maximum size.
fn one_holds(test: &Test, each: impl FnOnce(See<'_>)) -> Truth {
    let most = test.pattern().map_or(usize::MAX, Pattern::longest);
    let mut left = most;
    let mut holds = Truth::No;
    each(&mut |value| {
        if holds == Truth::Yes {
            return;
        }
        // The first value is tested regardless of its length, because its beginning may be enough
        // to decide the test.
        let fits = left == most || value.len() < left;
        left = left.saturating_sub(value.len().saturating_add(1));
        let truth = if fits {
            test.holds(Some(value))
        } else {
            Truth::TooLong
        };
        if truth != Truth::No {
            holds = truth;
        }
    });
    holds
}

/// Returns all values that `each` yields, joined with commas for display.
pub(super) fn all_values(each: impl FnOnce(See<'_>)) -> Option<Vec<u8>> {
    let mut all: Option<Vec<u8>> = None;
    each(&mut |value| match &mut all {
        None => all = Some(value.to_vec()),
        Some(all) => {
            all.extend_from_slice(b", ");
            all.extend_from_slice(value);
        }
    });
    all
}

/// Returns the decoded value of a query parameter. If the parameter is repeated, [`first_filled`]
/// chooses the value. Unnecessary escapes do not change the decoded value, so a client cannot get a
/// different bucket by adding escapes.
pub(super) fn query<'a>(request: &'a mut dyn Request, name: &str) -> Option<Cow<'a, [u8]>> {
    map(request.path()?, |path| {
        first_filled(query_values(path, name))
    })
}

/// Returns all values of a query parameter, decoded and in order.
pub(super) fn query_values<'a>(path: &'a [u8], name: &str) -> impl Iterator<Item = Cow<'a, [u8]>> {
    let whole = path.split(|b| *b == b'#').next().unwrap_or(path);
    let query = cut(whole, b'?').map(|(_, query)| query);
    let pairs = query.into_iter().flat_map(|query| {
        let pairs = query.split(|b| *b == b'&');
        pairs.map(|pair| cut(pair, b'=').unwrap_or((pair, b"")))
    });
    let named = pairs.filter(|(own, _)| *decoded(own) == *name.as_bytes());
    named.map(|(_, value)| decoded(value))
}

/// Returns the value of a cookie, without the surrounding quotes. If the cookie is repeated,
/// [`first_filled`] chooses the value.
pub(super) fn cookie<'a>(request: &'a mut dyn Request, name: &str) -> Option<Cow<'a, [u8]>> {
    let own = |line: &[u8]| first_filled(cookie_values(line, name)).map(<[u8]>::to_vec);
    // Later lines are read only when needed, because reading them requires a host call.
    let mut found = own(&request.header("cookie")?);
    if found.as_ref().is_none_or(Vec::is_empty) {
        request.each_line("cookie", &mut |line| {
            if found.as_ref().is_none_or(Vec::is_empty) {
                found = own(line).or_else(|| found.take());
            }
        });
    }
    found.map(Cow::Owned)
}

/// Returns all values of a cookie in a header line, in order and without the surrounding quotes.
pub(super) fn cookie_values<'a>(line: &'a [u8], name: &str) -> impl Iterator<Item = &'a [u8]> {
    let pairs = line.split(|b| *b == b';');
    let pairs = pairs.filter_map(|pair| cut(pair, b'='));
    let named = pairs.filter(|(own, _)| own.trim_ascii() == name.as_bytes());
    named.map(|(_, value)| {
        let value = value.trim_ascii();
        let quoted = value.strip_prefix(b"\"");
        let quoted = quoted.and_then(|value| value.strip_suffix(b"\""));
        quoted.unwrap_or(value)
    })
}

/// Returns the requested host in lower case, without the port or the trailing dot of the root
/// domain.
pub(crate) fn host(request: &mut dyn Request) -> Option<Vec<u8>> {
    let authority = request.header(":authority")?;
    let host = without_root(without_port(&authority));
    Some(host.to_ascii_lowercase())
}

/// Extracts a part of a byte string. The part is borrowed if the byte string is.
fn map<'a>(
    text: Cow<'a, [u8]>,
    part: impl for<'t> Fn(&'t [u8]) -> Option<Cow<'t, [u8]>>,
) -> Option<Cow<'a, [u8]>> {
    match text {
        Cow::Borrowed(text) => part(text),
        Cow::Owned(text) => part(&text).map(|part| Cow::Owned(part.into_owned())),
    }
}

/// Splits a byte string at the first `mark`, dropping the mark.
fn cut(text: &[u8], mark: u8) -> Option<(&[u8], &[u8])> {
    let at = text.iter().position(|b| *b == mark)?;
    let (before, after) = text.split_at_checked(at)?;
    Some((before, after.get(1..)?))
}

/// Decodes escapes such as `%41`, and replaces `+` with a space. All other bytes are left
/// unchanged.
fn decoded(text: &[u8]) -> Cow<'_, [u8]> {
    hex::unescaped(text, b"%", |b| if b == b'+' { b' ' } else { b })
}

// Key parts that a request may repeat: header lines, cookies, query parameters, and metadata lists.
//
// The first non-empty value is used for the key, but an upstream may use a different one. A client
// could therefore get any number of buckets by repeating the header and changing its first value
// with each request. A rule with `on_ambiguous_key: refuse` refuses such requests.

impl Rule {
    /// Returns the index of the first key part with more than one value.
    pub fn first_ambiguous(&self, request: &mut dyn Request) -> Option<usize> {
        let mut parts = self.key.iter();
        parts.position(|part| part.is_ambiguous(request))
    }
}

impl KeyPart {
    /// Returns true if a request has more than one value for this part: several lines of a header,
    /// or different values of a cookie, a query parameter or a metadata list. Equal values are not
    /// ambiguous, because every upstream sees the same value. Equal header lines are ambiguous,
    /// because an upstream may join them.
    fn is_ambiguous(&self, request: &mut dyn Request) -> bool {
        let is_header = matches!(self, Self::Header(_));
        let mut first: Option<Vec<u8>> = None;
        let mut is_ambiguous = false;
        self.each_value(request, &mut |value| match &first {
            None => first = Some(value.to_vec()),
            Some(first) => is_ambiguous |= is_header || first != value,
        });
        is_ambiguous
    }

    /// Calls `see` for each non-empty value of this part, if it is one that requests may repeat.
    pub(super) fn each_value(&self, request: &mut dyn Request, see: &mut dyn FnMut(&[u8])) {
        let mut filled = |value: &[u8]| {
            if !value.is_empty() {
                see(value);
            }
        };
        match self {
            Self::Header(name) => request.each_line(name, &mut filled),
            Self::Cookie(name) => request.each_line("cookie", &mut |line| {
                cookie_values(line, name).for_each(&mut filled);
            }),
            Self::Metadata(path) => request.each_metadata(path, &mut filled),
            Self::Query(name) => {
                if let Some(path) = request.path() {
                    query_values(&path, name).for_each(|value| filled(&value));
                }
            }
            _ => {}
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn query_parameters() {
        let of = |path: &str| {
            let found = first_filled(query_values(path.as_bytes(), "user id"));
            found.map(Cow::into_owned)
        };
        for (path, value) in [
            ("/?user+id=alice", Some(&b"alice"[..])),
            ("/?user%20id=%61lice", Some(b"alice")),
            ("/?a&b=&user+id=a%3Db=c&user+id=second", Some(b"a=b=c")),
            ("/?user+id=&user+id&user+id=second", Some(b"second")),
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
