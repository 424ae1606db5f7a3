//! Reads methods, metadata paths, and names of headers, query parameters and cookies, as used in
//! matches, keys and costs.

use alloc::format;
use alloc::string::{String, ToString};
use alloc::vec::Vec;

use super::grammar::{Field, Form, List, Text};
use super::reader::{Cursor, Report, several};

/// Maximum size of a method, in bytes.
pub(super) const MAX_METHOD: usize = 32;
/// Maximum size of a header, query parameter, cookie or metadata key name, in bytes.
pub(super) const MAX_NAME: usize = 256;
/// Maximum number of steps in a metadata path.
pub(super) const MAX_METADATA: usize = 8;

/// Grammar of a header name in a test or a key.
pub(super) const HEADER_NAME: Form =
    Form::Text(Text::like("^[A-Za-z0-9!#$%&'*+.^_`|~:-]+$", MAX_NAME));
pub(super) const QUERY_NAME: Form =
    Form::Text(Text::like("^[^\\u0000-\\u001f\\u007f-\\u009f]+$", MAX_NAME));
pub(super) const COOKIE_NAME: Form =
    Form::Text(Text::like("^[A-Za-z0-9!#$%&'*+.^_`|~-]+$", MAX_NAME));
/// Grammar of a metadata path: the namespace, and the keys below it.
pub(super) const METADATA_PATH: Form = Form::List(&List {
    fewest: 2,
    most: MAX_METADATA,
    item: Field::value(QUERY_NAME, "One step."),
});

/// Kind of named value in a request.
#[derive(Clone, Copy)]
pub(super) enum Named {
    Header,
    Query,
    Cookie,
}

pub(super) fn name(cursor: &Cursor<'_, '_>, kind: Named, report: &mut Report) -> Option<String> {
    let text = cursor.text(MAX_NAME, report)?;
    let token = |b: u8| b.is_ascii_alphanumeric() || b"!#$%&'*+-.^_`|~".contains(&b);
    let (fits, message, allowed) = match kind {
        Named::Header => (
            text.bytes().all(|b| token(b) || b == b':'),
            "invalid header name",
            "letters, digits and !#$%&'*+-.^_`|~",
        ),
        Named::Query => (
            !text.contains(char::is_control),
            "invalid query parameter name",
            "a text without control characters, decoded",
        ),
        Named::Cookie => (
            text.bytes().all(token),
            "invalid cookie name",
            "letters, digits and !#$%&'*+-.^_`|~",
        ),
    };
    if !fits {
        report.error(cursor, message, allowed);
        return None;
    }
    Some(match kind {
        Named::Header => text.to_ascii_lowercase(),
        Named::Query | Named::Cookie => text.to_string(),
    })
}

pub(super) const METADATA_FORM: &str =
    "a namespace and keys: [envoy.filters.http.jwt_authn, payload, sub]";

/// Reads a metadata path: the namespace, and the keys below it.
pub(super) fn metadata_path(cursor: &Cursor<'_, '_>, report: &mut Report) -> Option<Vec<String>> {
    let count = cursor.value.as_array().map(Vec::len);
    if count.is_some_and(|count| !(2..=MAX_METADATA).contains(&count)) {
        let message = "the path is too short or too long";
        let allowed = format!("2 to {MAX_METADATA} steps, {METADATA_FORM}");
        report.error(cursor, message, &allowed);
        return None;
    }
    let steps = several(cursor, MAX_METADATA, report, |step, report| {
        let text = step.text(MAX_NAME, report)?;
        if text.contains(char::is_control) {
            let allowed = "a text without control characters";
            report.error(step, "invalid metadata key", allowed);
            return None;
        }
        Some(text.to_string())
    });
    Some(steps).filter(|steps| Some(steps.len()) == count)
}

pub(super) fn method(cursor: &Cursor<'_, '_>, report: &mut Report) -> Option<String> {
    let text = cursor.text(MAX_METHOD, report)?;
    let is_method = |text: &str| {
        let fits = |b: u8| b.is_ascii_uppercase() || b == b'-' || b == b'_';
        text.bytes().all(fits)
    };
    if is_method(text) {
        return Some(text.to_string());
    }
    let upper = text.to_ascii_uppercase();
    let problem = cursor.wrong("invalid method");
    report.add(
        problem
            .allowed("upper-case names: GET, POST, …")
            .suggest(Some(upper.as_str()).filter(|upper| is_method(upper))),
    );
    None
}
