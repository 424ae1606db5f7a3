//! Text that somebody sent, as it stands in logs and in answers of one line: printable and in ASCII.

/// All of a text.
pub(crate) fn escaped(text: &str) -> String {
    text.chars().flat_map(char::escape_default).collect()
}

/// The beginning of a key: one from a path may be any text, those of buckets are printable.
pub(crate) fn shown(key: &str) -> String {
    let end = key
        .char_indices()
        .nth(128)
        .map_or(key.len(), |(end, _)| end);
    escaped(key.get(..end).unwrap_or_default())
}
