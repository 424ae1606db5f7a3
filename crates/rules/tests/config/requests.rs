//! The problems of invalid match fields and invalid key parts.

use loudou_rules::config::advice;
use serde_json::{Value, json};

use super::{file, of_match, of_rule, read, read_rule, rule};

#[test]
fn paths_and_hosts() {
    let template =
        "invalid template; allowed: a path like /users/{id}, where {id} is one whole segment";
    for text in [
        "users/{id}",
        "/users/{}",
        "/users/{id",
        "/a{b}",
        "/{a}{b}",
        "/a?b",
    ] {
        let line = format!("path.template: \"{text}\": {template}");
        assert_eq!(of_match(&json!({ "path": { "template": text } })), [line]);
    }
    let host = "invalid host; allowed: a host without scheme, port and path: example.com";
    for (text, meant) in [
        ("example.com:80", "; did you mean `example.com`?"),
        ("https://example.com/a", "; did you mean `example.com`?"),
        ("a b", ""),
        ("ex\u{e4}mple", ""),
    ] {
        let line = format!("host.exact: \"{text}\": {host}{meant}");
        assert_eq!(of_match(&json!({ "host": { "exact": text } })), [line]);
    }
    assert_eq!(
        of_match(&json!({ "host": {}, "route": { "suffix": "x" } })),
        [
            "host: none of the fields is given; allowed: exactly one of exact, prefix, suffix",
            "route.suffix: unknown field; allowed: exact, prefix",
            "route: none of the fields is given; allowed: exactly one of exact, prefix",
        ]
    );
}

#[test]
fn sources() {
    let form = "an address or a network: 203.0.113.7, 203.0.113.0/24, 2001:db8::/32";
    assert_eq!(
        of_match(&json!({ "source": ["203.0.113.7/24", "10.0.0.0/33", "localhost", 7] })),
        [
            format!(
                "source[0]: \"203.0.113.7/24\": the address has bits beyond the prefix; allowed: {form}; \
                 did you mean `203.0.113.0/24`?"
            ),
            format!("source[1]: \"10.0.0.0/33\": invalid network; allowed: {form}"),
            format!("source[2]: \"localhost\": invalid network; allowed: {form}"),
            format!("source[3]: 7: invalid network; allowed: {form}"),
        ]
    );
    let many = |count: usize| of_match(&json!({ "source": vec!["10.0.0.0/8"; count] }));
    assert_eq!(many(64), [""; 0]);
    assert_eq!(many(65).len(), 1);
}

#[test]
fn queries_cookies_and_metadata() {
    let lines = of_match(&json!({
        "query": [{ "name": "a\nb", "present": true }],
        "cookies": [{ "name": "a=b", "exact": "x" }],
        "metadata": [
            { "path": ["ns"], "exact": "x" },
            { "path": ["ns", ""], "exact": "x" },
            { "path": ["ns", "a\u{0}b"], "exact": "x" },
            { "exact": "x" },
        ],
    }));
    let keys = "a namespace and keys: [envoy.filters.http.jwt_authn, payload, sub]";
    assert_eq!(
        lines,
        [
            "query[0].name: \"a\\nb\": invalid query parameter name; allowed: a text without \
             control characters, decoded"
                .to_string(),
            "cookies[0].name: \"a=b\": invalid cookie name; allowed: letters, digits and \
             !#$%&'*+-.^_`|~"
                .to_string(),
            format!(
                "metadata[0].path: [\"ns\"]: the path is too short or too long; allowed: 2 to 8 steps, {keys}"
            ),
            "metadata[1].path[1]: \"\": empty; allowed: a text of 1 to 256 bytes".to_string(),
            "metadata[2].path[1]: \"a\\u0000b\": invalid metadata key; allowed: a text without control \
             characters"
                .to_string(),
            format!("metadata[3]: `path` is missing; allowed: {keys}"),
        ]
    );
    assert_eq!(of_rule(&json!({ "key": [{ "metadata": "sub" }] })).len(), 1);
}

#[test]
fn keys_have_bounds() {
    assert_eq!(
        of_rule(&json!({ "key": [
            { "path": { "segments": 0 } }, { "source": { "v4_prefix": 33, "v6_prefix": 129 } },
            { "source": { "v6_prefix": 129, "v4": 8 } },
        ] })),
        [
            "key[0].path.segments: 0: out of range; allowed: a whole number from 1 to 64",
            "key[1].source.v4_prefix: 33: out of range; allowed: a whole number from 0 to 32",
            "key[2].source.v4: unknown field; allowed: v4_prefix, v6_prefix",
            "key[2].source.v6_prefix: 129: out of range; allowed: a whole number from 0 to 128",
        ]
    );
}

#[test]
fn not_has_a_bounded_depth() {
    let nested = |depth: usize| (0..depth).fold(json!({}), |inner, _| json!({ "not": inner }));
    assert_eq!(of_match(&nested(4)), [""; 0]);
    assert_eq!(
        of_match(&nested(5)),
        ["not.not.not.not.not: {}: `not` is nested too deeply; allowed: at most 4 levels"]
    );
    assert_eq!(of_match(&json!({ "not": { "paths": 1 } })).len(), 1);
}

/// Defaults are not written.
#[test]
fn written_as_short_as_read() {
    let fields = json!({
        "match": {
            "host": { "suffix": ".example.com" },
            "query": [{ "name": "debug", "present": false }],
            "source": ["10.0.0.0/8", "::1"],
            "not": { "path": { "template": "/a/{b}" } }
        },
        "key": ["source", { "source": { "v4_prefix": 24, "v6_prefix": 64 } }, "path",
            { "path": { "segments": 2 } }, { "metadata": ["a", "b"] }, "client_cert"],
    });
    let written = serde_json::to_value(read_rule(&fields)).expect("serialises");
    assert_eq!(written["match"], fields["match"]);
    assert_eq!(written["key"], fields["key"]);
}

#[test]
fn matches_that_never_hold() {
    let of = |matches: Value| {
        let problems = advice(&read(&file(&[rule(&json!({ "match": matches }))])));
        problems.iter().map(ToString::to_string).collect::<Vec<_>>()
    };
    let never = "no request ever matches:";
    let pair = |one: Value, two: Value| {
        let test = |mut test: Value| {
            test["name"] = json!("a");
            test
        };
        of(json!({ "query": [test(one), test(two)] }))
    };
    assert_eq!(
        pair(json!({ "prefix": "x" }), json!({ "exact": "y" })),
        [format!(
            "rules[0].match.query[1]: {never} `a` = `x…` and `a` = `y` contradict each other"
        )]
    );
    assert_eq!(
        pair(json!({ "suffix": "x" }), json!({ "suffix": "y" })).len(),
        1
    );
    assert_eq!(
        pair(json!({ "prefix": "x" }), json!({ "suffix": "y" })),
        [""; 0]
    );
    assert_eq!(
        pair(json!({ "prefix": "x" }), json!({ "exact": "xy" })),
        [""; 0]
    );
    assert_eq!(
        of(json!({ "not": {} })),
        [format!(
            "rules[0].match.not: {never} `not` excludes every request"
        )]
    );
    let within = |path: &str, source: &str| {
        of(json!({
            "methods": ["GET"], "path": { "prefix": "/a/b" }, "source": ["10.1.0.0/16"],
            "not": { "methods": ["GET", "PUT"], "path": { "prefix": path }, "source": [source] },
        }))
        .len()
    };
    assert_eq!(within("/a", "10.0.0.0/8"), 1);
    assert_eq!(
        [within("/a/b/c", "10.0.0.0/8"), within("/a", "10.1.1.0/24")],
        [0, 0]
    );
}
