//! The schema of what clients are answered.

use alloc::format;

use serde_json::{Value, json};

use super::{object, words};
use crate::config::answers::{
    BODIES, BODY, CONTENT_TYPE, GRPC, HEADERS, MAX_BODY, MAX_HEADERS, MAX_JITTER, MAX_VALUE,
    NOT_SETTABLE, NOT_SETTABLE_STARTS, STATUS,
};
use crate::config::matches::MAX_NAME;

/// A value of a header.
const VALUE: &str = "^[!-~]([ -~]*[!-~])?$";
/// A value with a slash that has something on both sides.
const CONTENT_TYPES: &str = "^[!-.0-~][ -.0-~]*/([ -~]*[!-~])$";

pub(super) fn refuse(name: &str) -> Value {
    let [least, most] = STATUS;
    match name {
        "status" => json!({
            "description": "The HTTP status.",
            "type": "integer", "minimum": least, "maximum": most, "default": 429,
        }),
        "body" => json!({
            "description": "The body: problem (application/problem+json, which says which limits, and when to \
                            come back), none, or a text.",
            "anyOf": [
                { "enum": BODIES.map(|(name, _)| name) },
                { "$ref": "#/$defs/refuse_text" },
                { "type": "null" },
            ],
            "default": "problem",
        }),
        "headers" => json!({
            "description": "More headers: names and values.",
            "type": "object",
            "maxProperties": MAX_HEADERS,
            "propertyNames": {
                "pattern": "^[A-Za-z0-9!#$%&'*+.^_`|~-]+$",
                "maxLength": MAX_NAME,
                "not": { "pattern": not_settable() },
            },
            "patternProperties": { "": { "type": "string", "pattern": VALUE, "maxLength": MAX_VALUE } },
        }),
        "grpc" => words(
            "The status of refused gRPC calls: resource_exhausted, or unavailable, which many clients retry by \
             themselves. Both come with the time to wait.",
            &GRPC,
            Some("resource_exhausted"),
        ),
        _ => Value::Null,
    }
}

/// The names that are not to be set, in lower case.
fn not_settable() -> alloc::string::String {
    format!(
        "^(({})$|{})",
        NOT_SETTABLE.join("|"),
        NOT_SETTABLE_STARTS.join("|")
    )
}

pub(super) fn text() -> Value {
    object(BODY, &["text"], |name| match name {
        "text" => json!({
            "description": "The body.",
            "type": "string", "minLength": 1, "maxLength": MAX_BODY,
        }),
        "content_type" => json!({
            "description": "Its content type.",
            "type": "string", "pattern": CONTENT_TYPES, "maxLength": MAX_VALUE, "default": CONTENT_TYPE,
        }),
        _ => Value::Null,
    })
}

pub(super) fn respond(name: &str) -> Value {
    match name {
        "ratelimit_headers" => words(
            "Which rate-limit headers responses get: refused (those of the IETF draft 11, on refusals only), \
             draft11 (the same on admitted ones, too), legacy (X-RateLimit-*), both, or none. Retry-After \
             comes with any of them.",
            &HEADERS,
            Some("refused"),
        ),
        "retry_after_jitter" => json!({
            "description": "At most how much longer than the real wait Retry-After is, as a share of it; never \
                            shorter. Clients that were refused together do not come back together. At most 3 \
                            decimals.",
            "type": "number", "minimum": 0, "maximum": MAX_JITTER, "default": 0,
        }),
        "explain_header" => json!({
            "description": "Whether upstreams and access logs are told what the rule decided (x-loudou-decision, \
                            and the filter state wasm.loudou), and clients how long a request was held \
                            (x-loudou-wait-ms). For debugging: Envoy chooses the route again.",
            "type": "boolean", "default": false,
        }),
        _ => Value::Null,
    }
}
