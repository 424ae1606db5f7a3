//! Reads `refuse` and `respond`, which configure the responses to clients.

use alloc::format;
use alloc::string::{String, ToString};
use alloc::vec::Vec;

use loudou_limiter::Decimal;

use super::grammar::{Field, Form, Names, Object, Text, object, words};
use super::named::MAX_NAME;
use super::reader::{Cursor, Report};
use super::suggest::nearest;
use crate::rule::{GrpcStatus, RateLimitHeaders, Refuse, RefuseBody, Respond};

const BODIES: [(&str, RefuseBody); 2] =
    [("problem", RefuseBody::Problem), ("none", RefuseBody::None)];
const GRPC: [(&str, GrpcStatus); 2] = [
    ("resource_exhausted", GrpcStatus::ResourceExhausted),
    ("unavailable", GrpcStatus::Unavailable),
];
/// Maximum size of a text body, in bytes.
const MAX_BODY: usize = 4096;
/// Maximum size of a header value, in bytes.
const MAX_VALUE: usize = 1024;
/// Maximum number of headers that a rule can add to refusals.
const MAX_HEADERS: usize = 16;
/// Default content type of a text body.
const CONTENT_TYPE: &str = "text/plain; charset=utf-8";
/// Headers that `refuse.headers` cannot set, because they are set by Envoy or by another field of
/// the rule, or because they control the connection.
const NOT_SETTABLE: &[&str] = &[
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
/// Prefixes of header names that `refuse.headers` cannot set, because these headers are set by gRPC
/// or by another field of the rule.
const NOT_SETTABLE_STARTS: &[&str] = &[":", "grpc-", "x-loudou-", "x-ratelimit-"];

const STATUS: Field = Field::optional("status", Form::Integer(400, 599), "429", "The HTTP status.");
const STATUS_WITHOUT_KEY: Field = Field::optional(
    "status_without_key",
    Form::Integer(400, 599),
    "",
    "The HTTP status for a request without a key, where on_missing_key is refuse; the default is status. 400 tells \
     clients that retrying does not help.",
);
/// Grammar of a header value.
const VALUE: Text = Text::like("^[!-~]([ -~]*[!-~])?$", MAX_VALUE);
/// Grammar of the field `refuse`.
pub(super) const REFUSE: Object = object!([
    STATUS,
    STATUS_WITHOUT_KEY,
    Field::optional(
        "body",
        Form::Or(&[
            Field::value(Form::Word(&["problem", "none"]), ""),
            Field::value(Form::Defined("refuse_text"), ""),
            Field::value(Form::Null, ""),
        ]),
        "problem",
        "The body: problem (application/problem+json with the limits and the time to wait), \
         none, or a text.",
    ),
    Field::optional(
        "headers",
        Form::Map(&Names {
            most: MAX_HEADERS,
            name: Text::like("^[A-Za-z0-9!#$%&'*+.^_`|~-]+$", MAX_NAME),
            not: [NOT_SETTABLE, NOT_SETTABLE_STARTS],
            value: Form::Text(VALUE),
        }),
        "",
        "Additional headers: names and values.",
    ),
    Field::optional(
        "grpc",
        Form::Word(&words(&GRPC)),
        "resource_exhausted",
        "The status of refused gRPC calls: resource_exhausted, or unavailable, which many clients retry \
         automatically. Both include the time to wait.",
    ),
]);
/// Grammar of a text body.
pub(super) const BODY: Object = object!([
    Field::required("text", Form::Text(Text::any(MAX_BODY)), "The body."),
    Field::optional(
        "content_type",
        // The pattern requires text on both sides of a slash.
        Form::Text(Text::like("^[!-.0-~][ -.0-~]*/([ -~]*[!-~])$", MAX_VALUE,)),
        CONTENT_TYPE,
        "Its content type.",
    ),
]);

const HEADERS: [(&str, RateLimitHeaders); 6] = [
    ("refused", RateLimitHeaders::Refused),
    ("draft11", RateLimitHeaders::Draft11),
    ("legacy", RateLimitHeaders::Legacy),
    ("both", RateLimitHeaders::Both),
    ("openai", RateLimitHeaders::Openai),
    ("none", RateLimitHeaders::None),
];
const JITTER: Field = Field::optional(
    "retry_after_jitter",
    // Even the maximum jitter of 1 at most doubles the wait.
    Form::Decimal(
        Decimal::from_thousandths(0),
        Decimal::from_thousandths(1_000),
    ),
    "0",
    "The maximum random increase of Retry-After, as a fraction of the wait; never a decrease. Clients \
     that were refused together then retry at different times.",
);
/// Grammar of the field `respond`.
pub(super) const RESPOND: Object = object!([
    Field::optional(
        "ratelimit_headers",
        Form::Word(&words(&HEADERS)),
        "refused",
        "The rate-limit headers of responses: refused (those of the IETF draft 11, on refusals only), \
         draft11 (the same on admitted ones, too), legacy (X-RateLimit-*), both, openai (X-RateLimit-*-Tokens), or none. Retry-After \
         comes with any of them.",
    ),
    JITTER,
    Field::optional(
        "explain_header",
        Form::Boolean,
        "false",
        "If true, the rule's decision is passed to upstreams and access logs (x-loudou-decision, and the \
         filter state wasm.loudou), and the planned wait of a held request to clients \
         (x-loudou-wait-ms). For debugging: Envoy chooses the route again.",
    ),
]);

pub(super) fn respond(cursor: &Cursor<'_, '_>, report: &mut Report) -> Respond {
    let Some(fields) = cursor.object(RESPOND.names, report) else {
        return Respond::default();
    };
    let headers = fields.get("ratelimit_headers");
    let headers = headers.and_then(|cursor| cursor.word(&HEADERS, report));
    let jitter = fields.get(JITTER.name);
    let jitter = jitter.and_then(|cursor| cursor.decimal_of(JITTER, report));
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
    let Some(fields) = cursor.object(REFUSE.names, report) else {
        return refuse;
    };
    let mut status = |field: Field| {
        let status = fields.get(field.name)?.integer_of(field, report);
        u16::try_from(status?).ok()
    };
    refuse.status = status(STATUS).unwrap_or(refuse.status);
    refuse.status_without_key = status(STATUS_WITHOUT_KEY);
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
    let fields = cursor.object(BODY.names, report)?;
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
        report.error(cursor, "invalid content type", "type/subtype, as text/html");
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

/// Checks a header name, which must be in lower case. Returns an error message and the allowed
/// names, or `None` if the name is valid.
fn why_not(name: &str, is_there: bool) -> Option<(&'static str, &'static str)> {
    let fits = |b: u8| b.is_ascii_alphanumeric() || b"!#$%&'*+-.^_`|~".contains(&b);
    if NOT_SETTABLE.contains(&name) || NOT_SETTABLE_STARTS.iter().any(|s| name.starts_with(s)) {
        return Some((
            "this header cannot be set here",
            "headers that neither the connection nor Loudou sets",
        ));
    }
    if name.is_empty() || name.len() > MAX_NAME || !name.bytes().all(fits) {
        return Some(("invalid header name", "letters, digits and !#$%&'*+-.^_`|~"));
    }
    is_there.then_some(("duplicate header", "each name once"))
}

fn header_value<'a>(cursor: &Cursor<'a, '_>, report: &mut Report) -> Option<&'a str> {
    let text = cursor.text(MAX_VALUE, report)?;
    if text.trim_ascii() == text && text.bytes().all(|b| matches!(b, b' '..=b'~')) {
        return Some(text);
    }
    report.error(
        cursor,
        "invalid header value",
        "printable ASCII, without spaces around it",
    );
    None
}
