//! Envoy's own filters that several tests put before Loudou's.

use serde_json::{Value, json};

/// Turns the header `x-plan-from-jwt` into dynamic metadata, like a JWT's claim.
pub fn header_to_metadata() -> Value {
    json!({
        "name": "header-to-metadata",
        "typed_config": {
            "@type": "type.googleapis.com/envoy.extensions.filters.http.header_to_metadata.v3.Config",
            "request_rules": [{
                "header": "x-plan-from-jwt",
                "on_header_present": {
                    "metadata_namespace": "envoy.filters.http.jwt_authn", "key": "plan", "type": "STRING",
                },
                "remove": true,
            }],
        },
    })
}
