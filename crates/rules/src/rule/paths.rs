//! Normalizes paths, so that spellings that upstreams usually treat as the same path produce the
//! same key.
//!
//! Within each segment, escapes of letters, digits, `-`, `.`, `_` and `~` are decoded (RFC 3986,
//! 6.2.2.2). Lower-case digits in other escapes are converted to upper case, and parameters after
//! `;` are removed. Empty segments and `.` are then removed, which also eliminates repeated and
//! trailing slashes. Each `..` is removed together with the segment before it. Everything else,
//! including the case of letters, is left unchanged.

use alloc::borrow::Cow;
use alloc::vec::Vec;

use crate::hex;

/// Returns the normal form of a path, which must not include the query. The normal form is never
/// longer than the path. A string that does not start with `/`, such as the `*` of `OPTIONS *`, is
/// not a path and is returned unchanged.
pub fn normal(path: &[u8]) -> Cow<'_, [u8]> {
    let Some(inner) = path.strip_prefix(b"/") else {
        return Cow::Borrowed(path);
    };
    if inner.is_empty() || segments(inner).all(is_normal) {
        return Cow::Borrowed(path);
    }
    let mut out = Vec::with_capacity(path.len());
    for segment in segments(inner) {
        let start = out.len();
        out.push(b'/');
        let named = segment.split(|b| *b == b';').next().unwrap_or(segment);
        push_decoded(named, &mut out);
        match out.get(start..) {
            Some(b"/" | b"/.") => out.truncate(start),
            Some(b"/..") => {
                out.truncate(start);
                let parent = out.iter().rposition(|b| *b == b'/');
                out.truncate(parent.unwrap_or(0));
            }
            _ => {}
        }
    }
    if out.is_empty() {
        out.push(b'/');
    }
    Cow::Owned(out)
}

fn segments(inner: &[u8]) -> impl Iterator<Item = &[u8]> {
    inner.split(|b| *b == b'/')
}

/// Returns true if a segment is known to be in normal form.
fn is_normal(segment: &[u8]) -> bool {
    if matches!(segment, b"" | b"." | b"..") {
        return false;
    }
    let mut rest = segment;
    while let Some((first, tail)) = rest.split_first() {
        rest = match first {
            b';' => return false,
            b'%' => match hex::byte(tail) {
                Some((byte, after)) if !is_unreserved(byte) && has_upper_digits(tail) => after,
                _ => return false,
            },
            _ => tail,
        };
    }
    true
}

/// Appends a segment with normalized escapes.
fn push_decoded(segment: &[u8], out: &mut Vec<u8>) {
    // Number of further digits that would turn the last `%`, which is not part of an escape, into
    // one. A digit decoded at this point would create an escape, which a second normalization would
    // decode.
    let mut open: u8 = 0;
    let mut rest = segment;
    while let Some((first, tail)) = rest.split_first() {
        let escaped = (*first == b'%').then(|| hex::byte(tail)).flatten();
        let Some((byte, after)) = escaped else {
            out.push(*first);
            open = match first {
                b'%' => 2,
                digit if digit.is_ascii_hexdigit() => open.saturating_sub(1),
                _ => 0,
            };
            rest = tail;
            continue;
        };
        if is_unreserved(byte) && !(open > 0 && byte.is_ascii_hexdigit()) {
            out.push(byte);
        } else {
            out.push(b'%');
            let digits = tail.iter().take(2);
            out.extend(digits.map(u8::to_ascii_uppercase));
        }
        open = 0;
        rest = after;
    }
}

/// Returns true if the first two bytes contain no lower-case letters.
fn has_upper_digits(digits: &[u8]) -> bool {
    !digits.iter().take(2).any(u8::is_ascii_lowercase)
}

/// Returns true if the byte needs no escape anywhere in a URI.
const fn is_unreserved(byte: u8) -> bool {
    byte.is_ascii_alphanumeric() || matches!(byte, b'-' | b'.' | b'_' | b'~')
}
