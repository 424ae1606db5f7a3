//! Decodes hexadecimal escapes.

use alloc::borrow::Cow;
use alloc::vec::Vec;

/// Returns the byte encoded by the first two hexadecimal digits of `text`, and the rest of the
/// text.
pub(crate) fn byte(text: &[u8]) -> Option<(u8, &[u8])> {
    let [high, low, rest @ ..] = text else {
        return None;
    };
    Some(((digit(*high)? << 4) | digit(*low)?, rest))
}

fn digit(hex: u8) -> Option<u8> {
    let digit = char::from(hex).to_digit(16)?;
    u8::try_from(digit).ok()
}

/// Replaces each `mark` followed by two digits with the byte that the digits encode. Passes all
/// other bytes through `plain`. A `mark` that is not followed by two digits is not an escape.
pub fn unescaped<'a>(text: &'a [u8], mark: &[u8], plain: impl Fn(u8) -> u8) -> Cow<'a, [u8]> {
    let is_plain = |b: &u8| Some(b) != mark.first() && plain(*b) == *b;
    if text.iter().all(is_plain) {
        return Cow::Borrowed(text);
    }
    let mut out = Vec::with_capacity(text.len());
    let mut rest = text;
    while let Some((first, tail)) = rest.split_first() {
        let escaped = rest.strip_prefix(mark).and_then(byte);
        let (next, tail) = escaped.unwrap_or_else(|| (plain(*first), tail));
        out.push(next);
        rest = tail;
    }
    Cow::Owned(out)
}
