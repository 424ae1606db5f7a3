//! Converts client-supplied text to printable ASCII for logs and single-line responses.

/// Returns the whole text, escaped.
pub(crate) fn escaped(text: &str) -> String {
    text.chars().flat_map(char::escape_default).collect()
}

/// Returns the first 128 characters of a key, escaped. Bucket keys are printable, but a key in a
/// request path may contain any characters.
pub(crate) fn shown(key: &str) -> String {
    let end = key
        .char_indices()
        .nth(128)
        .map_or(key.len(), |(end, _)| end);
    escaped(key.get(..end).unwrap_or_default())
}
