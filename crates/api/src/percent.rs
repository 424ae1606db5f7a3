//! Percent-decoding of paths and names.

/// Decodes the `%XX` sequences in a string. Returns `None` if the result is not UTF-8. A percent sign that is not
/// followed by two hexadecimal digits is kept.
///
/// ```
/// use loudou_api::percent_decoded;
///
/// assert_eq!(percent_decoded("a%2fb%C3%a4").as_deref(), Some("a/b\u{e4}"));
/// assert_eq!(percent_decoded("100%, %zz%4").as_deref(), Some("100%, %zz%4"));
/// assert_eq!(percent_decoded("%ff"), None);
/// ```
pub fn percent_decoded(text: &str) -> Option<String> {
    let mut bytes = Vec::with_capacity(text.len());
    let mut rest = text.as_bytes();
    while let Some((first, after)) = rest.split_first() {
        let escaped = after.split_first_chunk().filter(|_| *first == b'%');
        let escaped = escaped.and_then(|([high, low], after)| Some((byte(*high, *low)?, after)));
        let (byte, after) = escaped.unwrap_or((*first, after));
        bytes.push(byte);
        rest = after;
    }
    String::from_utf8(bytes).ok()
}

fn byte(high: u8, low: u8) -> Option<u8> {
    let digit = |byte| char::from(byte).to_digit(16);
    let value = digit(high)?.checked_mul(16)?.checked_add(digit(low)?)?;
    u8::try_from(value).ok()
}
