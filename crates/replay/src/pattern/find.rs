//! Searches in a line.

use crate::verdict::decisions_length;

/// The most places at which decisions are looked for.
const MOST_PLACES: usize = 64;

/// The length of the common start of two texts.
pub(super) fn shared(one: &[u8], other: &[u8]) -> usize {
    one.iter().zip(other).take_while(|(a, b)| a == b).count()
}

/// The first `mark`, which is short.
pub(super) fn find(text: &[u8], mark: &[u8]) -> Option<usize> {
    let first = *mark.first()?;
    let mut from = 0;
    loop {
        let rest = text.get(from..)?;
        let found = memchr::memchr(first, rest)?;
        if rest.get(found..)?.starts_with(mark) {
            return Some(from + found);
        }
        from += found + 1;
    }
}

/// The first `mark`, which begins with a quote, that no backslash escapes.
pub(super) fn find_unescaped(text: &[u8], mark: &[u8]) -> Option<usize> {
    let mut from = 0;
    loop {
        let rest = text.get(from..)?;
        let found = memchr::memchr2(b'\\', b'"', rest)?;
        let here = rest.get(found..)?;
        if here.first() == Some(&b'\\') {
            from += found + 2;
        } else if here.starts_with(mark) {
            return Some(from + found);
        } else {
            from += found + 1;
        }
    }
}

/// The last `mark`; before decisions, which may contain it, the one before the longest list of them.
pub(super) fn rfind_decisions(text: &[u8], mark: &[u8]) -> Option<usize> {
    let places = memchr::memmem::rfind_iter(text, mark).take(MOST_PLACES);
    let lists = places.filter(|at| {
        let list = text.get(at + mark.len()..).unwrap_or_default();
        decisions_length(list) == Some(list.len())
    });
    lists.last().or_else(|| memchr::memmem::rfind(text, mark))
}

/// The end of `METHOD PATH PROTOCOL` before `mark`, where quotes are not escaped: the first one after a protocol.
///
/// A path with quotes may have `mark` in it. It has no blanks, as Envoy refuses them, so that the first protocol after
/// two blanks is the request's own, whatever the path and the columns after it imitate. Without any protocol, as in a
/// format of the user, it is the first `mark`.
pub(super) fn end_of_request(text: &[u8], mark: &[u8]) -> Option<usize> {
    let mut from = 0;
    while let Some(found) = text.get(from..).and_then(|rest| find(rest, mark)) {
        let end = from + found;
        if text.get(..end).is_some_and(ends_in_protocol) {
            return Some(end);
        }
        from = end + 1;
    }
    find(text, mark)
}

/// Whether this is two words or more and a protocol, `HTTP/1.1` or `-`.
fn ends_in_protocol(request: &[u8]) -> bool {
    let mut words = request.rsplitn(3, |byte| *byte == b' ');
    let (last, path, method) = (words.next(), words.next(), words.next());
    let is_protocol = |word: &[u8]| match word.strip_prefix(b"HTTP/") {
        Some(version) => {
            let is_version = |byte: &u8| byte.is_ascii_digit() || *byte == b'.';
            !version.is_empty() && version.iter().all(is_version)
        }
        None => word == b"-",
    };
    last.is_some_and(is_protocol) && path.is_some() && method.is_some()
}
