//! The tags of buckets must never change, because a build that computes other tags loses all live
//! buckets.

use serde_json::{Value, json};

use super::rule;

/// A key, and the tag of a rule `per-user` with it.
fn golden() -> Vec<(Value, u32)> {
    vec![
        (json!([]), 781_621_478),
        (json!(["source"]), 3_677_314_148),
        (
            json!([{ "source": { "v4_prefix": 24, "v6_prefix": 48 } }]),
            58_999_591,
        ),
        (json!(["path"]), 1_386_692_021),
        (json!([{ "path": { "segments": 2 } }]), 1_059_954_436),
        (json!(["route"]), 970_504_243),
        (json!(["method"]), 1_129_780_652),
        (json!(["host"]), 1_777_854_881),
        (json!(["peer"]), 2_647_189_734),
        (json!([{ "header": "x-api-key" }]), 171_893_910),
        (json!([{ "query": "user \"é\" \\" }]), 3_209_800_721),
        (json!([{ "cookie": "sid" }]), 1_932_104_179),
        (json!([{ "literal": "a\tb" }]), 1_561_847_748),
        (
            json!([{ "metadata": ["envoy.filters.http.jwt_authn", "payload", "sub"] }]),
            1_360_968_321,
        ),
        (json!([{ "header": "x-tenant" }, "source"]), 319_741_182),
    ]
}

#[test]
fn tags_are_the_same_in_every_build() {
    for (key, tag) in golden() {
        let rule = rule(&json!({ "name": "per-user", "key": key }));
        assert_eq!(rule.tag(), tag, "{key}");
    }
}

/// Normalized paths keep the buckets of earlier builds. A path without normalization had no buckets
/// before.
#[test]
fn normal_paths_keep_their_buckets() {
    let tag = |part: Value| rule(&json!({ "name": "per-user", "key": [part] })).tag();
    let normal = |more: Value| tag(json!({ "path": more }));
    assert_eq!(normal(json!({ "normalize": true })), 1_386_692_021);
    assert_eq!(normal(json!({})), 1_386_692_021);
    let two = json!({ "segments": 2, "normalize": true });
    assert_eq!(normal(two), 1_059_954_436);
}

#[test]
fn tags_of_other_keys_differ() {
    let keys = [
        json!(["path"]),
        json!([{ "path": { "normalize": false } }]),
        json!([{ "path": { "segments": 2 } }]),
        json!([{ "path": { "segments": 2, "normalize": false } }]),
        json!([{ "query": "a\"" }]),
        json!([{ "query": "a\\\"" }]),
        json!([{ "query": "a" }, { "query": "b" }]),
        json!([{ "query": "a\"},{\"query\":\"b" }]),
        json!([{ "literal": "1" }]),
        json!([{ "metadata": ["a", "b,c"] }]),
        json!([{ "metadata": ["a", "b", "c"] }]),
        json!([{ "metadata": ["a", "b\",\"c"] }]),
    ];
    let tags: Vec<u32> = keys
        .iter()
        .map(|key| rule(&json!({ "name": "per-user", "key": key })).tag())
        .collect();
    for (index, tag) in tags.iter().enumerate() {
        assert!(
            !tags.iter().take(index).any(|other| other == tag),
            "{index}"
        );
    }
}
