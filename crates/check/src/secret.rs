//! Masks the fleet token in excerpts, because a report quotes the source line of each problem.

use serde_json::Value;

/// Name of the field whose value is masked.
const FIELD: &str = "token";
const MASK: char = '*';

/// Returns a line of the document in which each character of a token is masked.
pub(super) fn masked(line: &str, document: Option<&Value>) -> String {
    let token = document.and_then(|document| document.pointer("/fleet/token")?.as_str());
    // The lines of a multi-line token are not on the line of the field, so they are masked by
    // value.
    let parts = token
        .unwrap_or_default()
        .lines()
        .filter(|part| !part.is_empty());
    parts.fold(after_fields(line), |line, part| {
        line.replace(part, &MASK.to_string().repeat(part.chars().count()))
    })
}

/// Masks the values that follow the field name `token` in a line. Masking by field name also works
/// in a file that cannot be parsed.
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

/// Splits `text` before the value of the next `token` field.
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

/// Returns the length of the value at the start of `text`. `before` is the part of the line before
/// the value.
fn end(text: &str, before: &str) -> usize {
    if text.starts_with(is_quote) {
        return quoted(text).unwrap_or(text.len());
    }
    // Within braces, an unquoted value ends at a comma or a closing brace.
    if before.contains('{') {
        text.find([',', '}']).unwrap_or(text.len())
    } else {
        text.len()
    }
}

/// Returns the length of a quoted value, including its quotes. A quote inside the value is escaped
/// with a backslash or doubled.
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
