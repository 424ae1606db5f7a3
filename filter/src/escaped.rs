//! Text from clients for logs and one-line answers: printable ASCII.

/// The whole text, escaped.
pub(crate) fn escaped(text: &str) -> String {
    text.chars().flat_map(char::escape_default).collect()
}

/// The beginning of a key. A key from a path may be any text; keys of buckets are printable.
pub(crate) fn shown(key: &str) -> String {
    let end = key
        .char_indices()
        .nth(128)
        .map_or(key.len(), |(end, _)| end);
    escaped(key.get(..end).unwrap_or_default())
}
