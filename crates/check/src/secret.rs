//! The fleet's token in a line of a file: the line is shown beside a problem, and the token is not.

use serde_json::Value;

/// The field whose values are hidden.
const FIELD: &str = "token";
const MASK: char = '*';

/// The line of a document, if that could be read, with the same number of characters, where those of a
/// token are masked.
pub(super) fn masked(line: &str, document: Option<&Value>) -> String {
    let token = document.and_then(|document| document.pointer("/fleet/token")?.as_str());
    // A text of several lines is not beside its field.
    let parts = token
        .unwrap_or_default()
        .lines()
        .filter(|part| !part.is_empty());
    parts.fold(after_fields(line), |line, part| {
        line.replace(part, &MASK.to_string().repeat(part.chars().count()))
    })
}

/// The line without the values of fields that are called as the token is.
fn after_fields(line: &str) -> String {
    let mut out = String::with_capacity(line.len());
    let mut rest = line;
    while let Some((before, value)) = next(rest) {
        out.push_str(before);
        let (token, after) = value.split_at(end(value, &out));
        let mask = |c: char| if is_quote(c) { c } else { MASK };
        out.extend(token.chars().map(mask));
        rest = after;
    }
    out.push_str(rest);
    out
}

/// The text up to the next token, and the text from there on.
fn next(text: &str) -> Option<(&str, &str)> {
    let mut fields = text.match_indices(FIELD);
    fields.find_map(|(at, _)| {
        let is_name = |c: char| c.is_alphanumeric() || c == '_' || c == '-';
        if text.get(..at)?.ends_with(is_name) {
            return None;
        }
        let value = text.get(at + FIELD.len()..)?;
        let value = value.trim_start_matches(is_quote).trim_start();
        let value = value.strip_prefix(':')?.trim_start();
        text.split_at_checked(text.len() - value.len())
    })
}

/// The length of the value at the beginning of `text`, which comes after `before`.
fn end(text: &str, before: &str) -> usize {
    if text.starts_with(is_quote) {
        return quoted(text).unwrap_or(text.len());
    }
    // Within braces, a plain value ends where the next field begins.
    if before.contains('{') {
        text.find([',', '}']).unwrap_or(text.len())
    } else {
        text.len()
    }
}

/// The length of a value with its quotes. A quote within it follows a backslash, or stands twice.
fn quoted(text: &str) -> Option<usize> {
    let mut chars = text.char_indices().peekable();
    let (_, quote) = chars.next()?;
    while let Some((at, c)) = chars.next() {
        if c == '\\' && quote == '"' {
            chars.next();
        } else if c == quote
            && chars
                .next_if(|(_, next)| *next == '\'' && quote == '\'')
                .is_none()
        {
            return Some(at + c.len_utf8());
        }
    }
    None
}

const fn is_quote(c: char) -> bool {
    c == '"' || c == '\''
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn tokens_are_masked() {
        for (line, shown) in [
            ("  token: geheim", "  token: ******"),
            ("  token: geheim # old", "  token: ************"),
            (
                "fleet: { token: geheim, cluster: c }",
                "fleet: { token: ******, cluster: c }",
            ),
            (
                "fleet: { cluster: c, token: geheim }",
                "fleet: { cluster: c, token: *******}",
            ),
            (
                r#"{"token":"ge,h}eim","cluster":"c"}"#,
                r#"{"token":"********","cluster":"c"}"#,
            ),
            (r#"{"token": "geheim"#, r#"{"token": "******"#),
            (
                r#"{"token": "a\"b\\", "cluster": "c"}"#,
                r#"{"token": "**"***", "cluster": "c"}"#,
            ),
            ("token: 'a''b', x", "token: '*''*', x"),
            ("  'token' : 'geheim' # x", "  'token' : '******' # x"),
        ] {
            assert_eq!(masked(line, None), shown);
            assert_eq!(masked(line, None).chars().count(), line.chars().count());
        }
    }

    #[test]
    fn other_fields_are_shown() {
        for line in [
            "  tokens: [ { name: ops } ]",
            "  - { algorithm: token_bucket, capacity: 5 }",
            "  csrf-token: shown",
            "  # the token of the relay",
            "token",
            "",
        ] {
            assert_eq!(masked(line, None), line);
        }
    }
}
