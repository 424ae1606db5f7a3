//! The schema of what clients are answered.

use serde_json::{Value, json};

use super::words;
use crate::config::answers::{HEADERS, MAX_JITTER};

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
        _ => Value::Null,
    }
}
