//! Reading `refuse` and `respond`: what clients are answered.

use alloc::format;
use alloc::string::{String, ToString};
use alloc::vec::Vec;

use loudou_limiter::Decimal;

use super::matches::MAX_NAME;
use super::reader::{Cursor, Report};
use super::suggest::nearest;
use crate::rule::{GrpcStatus, RateLimitHeaders, Refuse, RefuseBody, Respond};

/// The fields of `refuse`.
pub(super) const REFUSE: &[&str] = &["status", "body", "headers", "grpc"];
/// The fields of a body that is a text.
pub(super) const BODY: &[&str] = &["text", "content_type"];
/// The bodies that are one word.
pub(super) const BODIES: [(&str, RefuseBody); 2] =
    [("problem", RefuseBody::Problem), ("none", RefuseBody::None)];
pub(super) const GRPC: [(&str, GrpcStatus); 2] = [
    ("resource_exhausted", GrpcStatus::ResourceExhausted),
    ("unavailable", GrpcStatus::Unavailable),
];
/// The statuses of refused requests.
pub(super) const STATUS: [u32; 2] = [400, 599];
/// The longest text of a body, in bytes.
pub(super) const MAX_BODY: usize = 4096;
/// The longest value of a header, in bytes.
pub(super) const MAX_VALUE: usize = 1024;
/// The most headers of one refusal.
pub(super) const MAX_HEADERS: usize = 16;
/// What a text is when nothing is said.
pub(super) const CONTENT_TYPE: &str = "text/plain; charset=utf-8";
/// Headers that are Envoy's, of one connection, or ours by another field.
pub(super) const NOT_SETTABLE: &[&str] = &[
    "connection",
    "content-length",
    "content-type",
    "host",
    "keep-alive",
    "proxy-connection",
    "ratelimit",
    "ratelimit-policy",
    "retry-after",
    "te",
    "trailer",
    "transfer-encoding",
    "upgrade",
];
/// The beginnings of names of headers that are ours by another field, or gRPC's.
pub(super) const NOT_SETTABLE_STARTS: &[&str] = &[":", "grpc-", "x-loudou-", "x-ratelimit-"];

/// The fields of `respond`.
pub(super) const RESPOND: &[&str] = &["ratelimit_headers", "retry_after_jitter", "explain_header"];

pub(super) const HEADERS: [(&str, RateLimitHeaders); 5] = [
    ("refused", RateLimitHeaders::Refused),
    ("draft11", RateLimitHeaders::Draft11),
    ("legacy", RateLimitHeaders::Legacy),
    ("both", RateLimitHeaders::Both),
    ("none", RateLimitHeaders::None),
];
/// The most jitter: up to twice the wait.
pub(super) const MAX_JITTER: Decimal = Decimal::from_thousandths(1_000);

pub(super) fn respond(cursor: &Cursor<'_, '_>, report: &mut Report) -> Respond {
    let Some(fields) = cursor.object(RESPOND, report) else {
        return Respond::default();
    };
    let headers = fields.get("ratelimit_headers");
    let headers = headers.and_then(|cursor| cursor.word(&HEADERS, report));
    let jitter = fields.get("retry_after_jitter");
    let jitter = jitter.and_then(|cursor| cursor.decimal(Decimal::default(), MAX_JITTER, report));
    let explain = fields.get("explain_header");
    let explain = explain.and_then(|cursor| cursor.boolean(report));
    Respond {
        ratelimit_headers: headers.unwrap_or_default(),
        retry_after_jitter: jitter.unwrap_or_default(),
        explain_header: explain.unwrap_or_default(),
    }
}

pub(super) fn refuse(cursor: &Cursor<'_, '_>, report: &mut Report) -> Refuse {
    let mut refuse = Refuse::default();
    let Some(fields) = cursor.object(REFUSE, report) else {
        return refuse;
    };
    let [least, most] = STATUS;
    let status = fields.get("status");
    let status = status.and_then(|status| status.integer(least, most, report));
    if let Some(status) = status.and_then(|status| u16::try_from(status).ok()) {
        refuse.status = status;
    }
    if let Some(body) = fields
        .get("body")
        .and_then(|body| self::body(&body, report))
    {
        refuse.body = body;
    }
    if let Some(cursor) = fields.get("headers") {
        refuse.headers = headers(&cursor, report);
    }
    let grpc = fields.get("grpc");
    refuse.grpc = grpc
        .and_then(|grpc| grpc.word(&GRPC, report))
        .unwrap_or_default();
    refuse
}

fn body(cursor: &Cursor<'_, '_>, report: &mut Report) -> Option<RefuseBody> {
    if !cursor.value.is_object() {
        let word = cursor.value.as_str();
        let known = BODIES.into_iter().find(|(name, _)| word == Some(name));
        if known.is_none() {
            let names = BODIES.map(|(name, _)| name);
            let problem = cursor.wrong("unknown value");
            report.add(
                problem
                    .allowed("problem, none, { text: TEXT, content_type: TYPE }")
                    .suggest(word.and_then(|word| nearest(word, &names))),
            );
        }
        return known.map(|(_, body)| body);
    }
    let fields = cursor.object(BODY, report)?;
    let text = fields.need("text", "a text", report);
    let text = text.and_then(|text| text.text(MAX_BODY, report));
    let content_type = match fields.get("content_type") {
        Some(cursor) => content_type(&cursor, report),
        None => Some(CONTENT_TYPE),
    };
    Some(RefuseBody::Text {
        text: text?.to_string(),
        content_type: content_type?.to_string(),
    })
}

fn content_type<'a>(cursor: &Cursor<'a, '_>, report: &mut Report) -> Option<&'a str> {
    let value = header_value(cursor, report)?;
    let kinds = value.split_once('/');
    if kinds.is_none_or(|(kind, rest)| kind.is_empty() || rest.is_empty()) {
        report.error(cursor, "not a content type", "type/subtype, as text/html");
        return None;
    }
    Some(value)
}

fn headers(cursor: &Cursor<'_, '_>, report: &mut Report) -> Vec<(String, String)> {
    let mut headers: Vec<(String, String)> = Vec::new();
    let form = "an object of names and values: { x-refused-by: loudou }";
    let members = cursor.members(form, report);
    if members.len() > MAX_HEADERS {
        report.error(
            cursor,
            "too many headers",
            &format!("at most {MAX_HEADERS}"),
        );
        return headers;
    }
    for (name, at) in members {
        let value = header_value(&at, report);
        let lower = name.to_ascii_lowercase();
        if let Some((message, allowed)) =
            why_not(&lower, headers.iter().any(|(name, _)| *name == lower))
        {
            report.add(at.wrong_name(message).allowed(allowed));
        } else if let Some(value) = value {
            headers.push((lower, value.to_string()));
        }
    }
    headers
}

/// What is wrong with the name of a header, in lower case, and what is allowed.
fn why_not(name: &str, is_there: bool) -> Option<(&'static str, &'static str)> {
    let fits = |b: u8| b.is_ascii_alphanumeric() || b"!#$%&'*+-.^_`|~".contains(&b);
    if NOT_SETTABLE.contains(&name) || NOT_SETTABLE_STARTS.iter().any(|s| name.starts_with(s)) {
        return Some((
            "not a header to set here",
            "names that neither the connection nor Loudou itself sets",
        ));
    }
    if name.is_empty() || name.len() > MAX_NAME || !name.bytes().all(fits) {
        return Some(("not a header name", "letters, digits and !#$%&'*+-.^_`|~"));
    }
    is_there.then_some(("this header is there already", "each name once"))
}

fn header_value<'a>(cursor: &Cursor<'a, '_>, report: &mut Report) -> Option<&'a str> {
    let text = cursor.text(MAX_VALUE, report)?;
    if text.trim_ascii() == text && text.bytes().all(|b| matches!(b, b' '..=b'~')) {
        return Some(text);
    }
    report.error(
        cursor,
        "not a header value",
        "printable ASCII, without spaces around it",
    );
    None
}
