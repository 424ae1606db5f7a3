//! Filters of Envoy's that stand in front of Loudou's in several tests.

use serde_json::{Value, json};

/// The header `x-plan-from-jwt` becomes dynamic metadata, as a JWT's claim would.
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
