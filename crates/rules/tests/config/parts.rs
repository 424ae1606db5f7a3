//! The problems of invalid stores, names, matches, keys and edits.

use loudou_rules::config::{parse_edit, parse_limits, parse_rule, parse_store};
use loudou_rules::rule::Mode;
use serde_json::{Value, json};

use super::{of_match, of_rule, problems};

#[test]
fn rule_names() {
    let form = "1 to 63 of a-z, 0-9 and -";
    let long = "x".repeat(64);
    for (name, suggestion) in [
        ("Reply_Per User", "; did you mean `reply-per-user`?"),
        ("naïve", "; did you mean `na-ve`?"),
        ("", ""),
    ] {
        let line = format!("name: \"{name}\": invalid name; allowed: {form}{suggestion}");
        assert_eq!(of_rule(&json!({ "name": name })), [line]);
    }
    let lines = of_rule(&json!({ "name": long }));
    assert!(
        lines[0].ends_with(&format!("…: invalid name; allowed: {form}")),
        "{lines:?}"
    );
    assert_eq!(of_rule(&json!({ "name": "x".repeat(63) })), [""; 0]);
    let line = format!("name: 7: invalid name; allowed: {form}");
    assert_eq!(of_rule(&json!({ "name": 7 })), [line]);
    let line = format!("rules[0]: `name` is missing; allowed: {form}");
    assert_eq!(of_rule(&json!({ "name": null })), [line]);
}

#[test]
fn stores() {
    let of_store = |store: Value| problems(&json!({ "version": 1, "store": store, "rules": [] }));
    assert_eq!(
        of_store(json!({ "buckets": 63, "namespace": "a:b" })),
        [
            "store.buckets: 63: out of range; allowed: a whole number from 64 to 16777216",
            "store.namespace: \"a:b\": invalid name; allowed: 1 to 12 of a-z, 0-9, - and _; \
             did you mean `a-b`?",
        ]
    );
    assert_eq!(of_store(json!({ "namespace": "thirteen-long" })).len(), 1);
    assert_eq!(of_store(json!({ "bucket": 64 })).len(), 1);
    assert_eq!(
        of_store(json!({ "buckets": 64, "namespace": "twelve-chars" })),
        [""; 0]
    );
    let alone = parse_store(&json!({ "buckets": 1 })).map_err(|problems| problems.len());
    assert_eq!(alone, Err(1));
    assert_eq!(
        parse_store(&json!({})).map(|store| store.buckets),
        Ok(65_536)
    );
}

/// Each match and its exact problems.
fn say(cases: &[(Value, &[&str])]) {
    for (fields, expected) in cases {
        assert_eq!(of_match(fields), *expected, "{fields}");
    }
}

#[test]
fn methods_and_parts_of_a_match() {
    say(&[
        (
            json!({ "methods": ["get", "PO ST"] }),
            &[
                "methods[0]: \"get\": invalid method; allowed: upper-case names: GET, POST, …; \
                 did you mean `GET`?",
                "methods[1]: \"PO ST\": invalid method; allowed: upper-case names: GET, POST, …",
            ],
        ),
        (
            json!({ "methods": "GET" }),
            &["methods: \"GET\": a text instead of a list; allowed: a list"],
        ),
        (
            json!({ "hosts": {} }),
            &[
                "hosts: unknown field; allowed: methods, path, host, headers, query, cookies, source, \
                 route, metadata, not; did you mean `host`?",
            ],
        ),
    ]);
    let many: Vec<Value> = (0..17).map(|_| json!("GET")).collect();
    let lines = of_match(&json!({ "methods": many }));
    assert!(
        lines[0].ends_with("the list is too long; allowed: at most 16"),
        "{lines:?}"
    );
    assert_eq!(of_match(&json!({ "methods": many[..16] })), [""; 0]);
}

#[test]
fn paths() {
    let rest = "invalid path; allowed: a path that starts with /, without a query";
    for (kind, path) in [
        ("prefix", "reply"),
        ("exact", "*"),
        ("exact", "/a?b=c"),
        ("prefix", "/a#b"),
    ] {
        let line = format!("path.{kind}: \"{path}\": {rest}");
        assert_eq!(of_match(&json!({ "path": { kind: path } })), [line]);
    }
    say(&[(
        json!({ "path": { "prefix": "/a", "exact": "/a" } }),
        &[
            "path: more than one of the fields is given; allowed: exactly one of prefix, exact, suffix, template, regex",
        ],
    )]);
}

#[test]
fn headers() {
    say(&[
        (
            json!({ "headers": [{ "name": "x", "present": "false" }] }),
            &[
                "headers[0].present: \"false\": a text instead of true or false; allowed: true, \
               false",
            ],
        ),
        (
            json!({
                "headers": [{ "name": "x y", "exact": "" }, { "present": true }, { "name": "x" }]
            }),
            &[
                "headers[0].name: \"x y\": invalid header name; allowed: letters, digits and \
                 !#$%&'*+-.^_`|~",
                "headers[0].exact: \"\": empty; allowed: a text of 1 to 1024 bytes",
                "headers[1]: `name` is missing; allowed: a header name",
                "headers[2]: none of the fields is given; allowed: exactly one of present, exact, prefix, suffix, regex",
            ],
        ),
    ]);
}

#[test]
fn keys() {
    let parts = "header, query, cookie, literal, metadata, path, source";
    let allowed =
        format!("source, path, route, method, host, client_cert, or an object with {parts}");
    let cases = [
        (
            json!(["sourc", "anybody"]),
            vec![
                format!(
                    "key[0]: \"sourc\": unknown key part; allowed: {allowed}; did you mean `source`?"
                ),
                format!("key[1]: \"anybody\": unknown key part; allowed: {allowed}"),
            ],
        ),
        (
            json!([{ "cookies": "session" }]),
            vec![
                format!("key[0].cookies: unknown field; allowed: {parts}; did you mean `cookie`?"),
                format!("key[0]: none of the fields is given; allowed: exactly one of {parts}"),
            ],
        ),
        (
            json!([{ "header": "x", "literal": "y" }]),
            vec![format!("key[0]: more than one of the fields is given; allowed: exactly one of {parts}")],
        ),
        (
            json!([{ "header": "" }, { "literal": "" }, { "header": "a b" }, 7]),
            vec![
                "key[0].header: \"\": empty; allowed: a text of 1 to 256 bytes".to_string(),
                "key[1].literal: \"\": empty; allowed: a text of 1 to 64 bytes".to_string(),
                "key[2].header: \"a b\": invalid header name; allowed: letters, digits and \
                 !#$%&'*+-.^_`|~"
                    .to_string(),
                format!("key[3]: 7: a number instead of an object; allowed: an object with {parts}"),
            ],
        ),
        (
            json!("source"),
            vec!["key: \"source\": a text instead of a list; allowed: a list".to_string()],
        ),
        (
            Value::Null,
            vec!["rules[0]: `key` is missing; allowed: a list of key parts; [] for one bucket for all"
                .to_string()],
        ),
    ];
    for (key, expected) in cases {
        assert_eq!(of_rule(&json!({ "key": key })), expected, "{key}");
    }
}

#[test]
fn words() {
    assert_eq!(
        of_rule(&json!({
            "on_missing_key": "deny", "on_long_value": "deny", "mode": "Enforce", "stop": "yes", "on_error": 1,
            "respond": { "ratelimit_headers": "draft-11", "retry_after_jitter": 1.5, "explain_header": 1, "explain": true },
        })),
        [
            "on_long_value: \"deny\": unknown value; allowed: apply, skip, refuse",
            "on_missing_key: \"deny\": unknown value; allowed: skip, refuse, share",
            "mode: \"Enforce\": unknown value; allowed: enforce, shadow, off; did you mean `enforce`?",
            "stop: \"yes\": a text instead of true or false; allowed: true, false",
            "on_error: 1: unknown value; allowed: admit, refuse",
            "respond.explain: unknown field; allowed: ratelimit_headers, retry_after_jitter, explain_header",
            "respond.ratelimit_headers: \"draft-11\": unknown value; allowed: refused, draft11, legacy, both, \
             openai, none; did you mean `draft11`?",
            "respond.retry_after_jitter: 1.5: out of range; allowed: a number from 0 to 1 with at most 3 decimals",
            "respond.explain_header: 1: a number instead of true or false; allowed: true, false",
        ]
    );
}

#[test]
fn refusals() {
    assert_eq!(
        of_rule(&json!({ "refuse": {
            "status": 200,
            "body": "problm",
            // In alphabetical order, as a map without `preserve_order` has them.
            "headers": {
                ":status": "200", "Connection": "close", "X-A": "2", "x y": "z", "x-a": "1",
                "x-b": "\r\n", "x-c": 1, "x-ratelimit-limit": "1",
            },
            "grpc": "RESOURCE_EXHAUSTED",
        } })),
        [
            "refuse.status: 200: out of range; allowed: a whole number from 400 to 599",
            "refuse.body: \"problm\": unknown value; allowed: problem, none, \
             { text: TEXT, content_type: TYPE }; did you mean `problem`?",
            "refuse.headers.:status: this header cannot be set here; allowed: headers that neither the \
             connection nor Loudou sets",
            "refuse.headers.Connection: this header cannot be set here; allowed: headers that neither the \
             connection nor Loudou sets",
            "refuse.headers.x y: invalid header name; allowed: letters, digits and !#$%&'*+-.^_`|~",
            "refuse.headers.x-a: duplicate header; allowed: each name once",
            "refuse.headers.x-b: \"\\r\\n\": invalid header value; allowed: printable ASCII, without \
             spaces around it",
            "refuse.headers.x-c: 1: a number instead of a text; allowed: a text of 1 to 1024 bytes",
            "refuse.headers.x-ratelimit-limit: this header cannot be set here; allowed: headers that neither \
             the connection nor Loudou sets",
            "refuse.grpc: \"RESOURCE_EXHAUSTED\": unknown value; allowed: resource_exhausted, \
             unavailable; did you mean `resource_exhausted`?",
        ]
    );
    let body = |body: Value| of_rule(&json!({ "refuse": { "body": body } }));
    assert_eq!(
        body(json!({ "content_type": "html" })),
        [
            "refuse.body: `text` is missing; allowed: a text",
            "refuse.body.content_type: \"html\": invalid content type; allowed: type/subtype, as text/html",
        ]
    );
    assert_eq!(
        body(json!({ "text": "x".repeat(4097) }))[0]
            .split_once("too long")
            .map(|(_, rest)| rest),
        Some("; allowed: a text of 1 to 4096 bytes")
    );
    assert_eq!(body(json!({ "text": "no" })), [""; 0]);
}

/// Envoy reads a bare `off` in its YAML as false.
#[test]
fn a_bare_off_is_off() {
    let off = super::read_rule(&json!({ "mode": false }));
    assert_eq!(off.mode, Mode::Off);
    assert_eq!(
        of_rule(&json!({ "mode": true, "on_error": false })),
        [
            "mode: true: unknown value; allowed: enforce, shadow, off",
            "on_error: false: unknown value; allowed: admit, refuse",
        ]
    );
}

#[test]
fn edits() {
    let limits = json!([{ "algorithm": "funnel", "capacity": 5, "rate": "1/s" }]);
    let edit = parse_edit(&json!({ "limits": limits, "mode": "off" })).expect("valid");
    assert_eq!(edit.mode, Some(Mode::Off));
    assert_eq!(edit.limits, parse_limits(&limits).ok());
    let only_mode = parse_edit(&json!({ "mode": "shadow", "limits": null })).expect("valid");
    assert_eq!(
        (only_mode.mode, only_mode.limits),
        (Some(Mode::Shadow), None)
    );
    let lines = |document: Value| -> Vec<String> {
        let problems = parse_edit(&document).expect_err("wrong");
        problems.iter().map(ToString::to_string).collect()
    };
    assert_eq!(
        lines(json!({})),
        ["(the whole file): {}: nothing to change; allowed: limits, mode, penalty, overrides"]
    );
    assert_eq!(
        lines(json!({ "mode": "of", "limits": [], "key": [] })),
        [
            "key: unknown field; allowed: limits, mode, penalty, overrides",
            "limits: []: 0 limits; allowed: 1 to 8 limits",
            "mode: \"of\": unknown value; allowed: enforce, shadow, off; did you mean `off`?",
        ]
    );
    assert!(parse_edit(&json!(7)).is_err());
    assert!(parse_limits(&json!({})).is_err());
    assert!(parse_rule(&json!({ "name": "x" })).is_err());
}
