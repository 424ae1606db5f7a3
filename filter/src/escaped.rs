//! Escapes text from clients to printable ASCII, for logs and one-line responses.

/// Escapes the whole text.
pub(crate) fn escaped(text: &str) -> String {
    text.chars().flat_map(char::escape_default).collect()
}

/// Returns the escaped beginning of a key. A bucket's key is printable, but a key from a path may
/// be any text.
pub(crate) fn shown(key: &str) -> String {
    let end = key
        .char_indices()
        .nth(128)
        .map_or(key.len(), |(end, _)| end);
    escaped(key.get(..end).unwrap_or_default())
}
