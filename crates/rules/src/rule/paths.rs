//! Normalizes paths, so that spellings of a path that upstreams usually treat alike give the same
//! key.
//!
//! Within each segment, escapes of letters, digits, `-`, `.`, `_` and `~` are decoded (RFC 3986,
//! 6.2.2.2). Other escapes get upper-case digits, and parameters after `;` are removed. Then empty
//! segments, `.` and `..` are removed, so that there are no repeated or trailing slashes. The case
//! of letters and everything else stay unchanged.

use alloc::borrow::Cow;
use alloc::vec::Vec;

use crate::hex;

/// Returns the normal form of a path without its query, which is never longer than the path. A text
/// that does not start with `/`, such as the `*` of `OPTIONS *`, is not a path and stays unchanged.
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

/// Returns true if a segment is certainly in its normal form.
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

/// Adds a segment with normalized escapes.
fn push_decoded(segment: &[u8], out: &mut Vec<u8>) {
    // Number of bytes that would complete an escape after a `%` without digits. Decoding a digit
    // there would create an escape, which another normalization would decode again.
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
