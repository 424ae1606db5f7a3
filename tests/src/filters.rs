//! HTTP filters of Envoy that several tests put before Loudou.

use serde_json::{Value, json};

/// Namespace of the claims of a JWT in dynamic metadata.
const CLAIMS: &str = "envoy.filters.http.jwt_authn";

/// Turns the header `x-plan-from-jwt` into the claim `plan`.
pub fn header_to_metadata() -> Value {
    headers_to_claims(&[("x-plan-from-jwt", "plan", json!({ "type": "STRING" }))])
}

/// Moves headers into dynamic metadata, in the form of a JWT's claims. Each claim has a header, a
/// name, and the type that Envoy reads.
pub fn headers_to_claims(claims: &[(&str, &str, Value)]) -> Value {
    let rules = claims.iter().map(|(header, name, how)| {
        let mut to = how.clone();
        if let Some(to) = to.as_object_mut() {
            to.insert("metadata_namespace".to_owned(), json!(CLAIMS));
            to.insert("key".to_owned(), json!(name));
        }
        json!({ "header": header, "on_header_present": to, "remove": true })
    });
    json!({
        "name": "header-to-metadata",
        "typed_config": {
            "@type": "type.googleapis.com/envoy.extensions.filters.http.header_to_metadata.v3.Config",
            "request_rules": rules.collect::<Vec<_>>(),
        },
    })
}
