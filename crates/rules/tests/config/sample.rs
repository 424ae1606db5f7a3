//! Reading a request to explain, and the problems of invalid ones.

use std::borrow::Cow;

use loudou_rules::config::parse_sample;
use loudou_rules::request::{Request, Sample};
use proptest::prelude::*;
use serde_json::{Value, json};

use super::arbitrary::any_json;

fn wrong(sample: &Value) -> Vec<String> {
    let problems = parse_sample(sample).expect_err("wrong");
    problems.iter().map(ToString::to_string).collect()
}

fn text(value: Option<Cow<'_, [u8]>>) -> String {
    value.map_or_else(
        || "-".to_owned(),
        |value| String::from_utf8_lossy(&value).into_owned(),
    )
}

#[test]
fn silence_is_a_plain_request() {
    let document = json!({});
    let sample = parse_sample(&document).expect("a sample");
    let plain = Sample {
        method: Some(Cow::Borrowed(b"GET")),
        path: Some(Cow::Borrowed(b"/")),
        ..Sample::default()
    };
    assert_eq!(sample, plain);
}

#[test]
fn everything_a_sample_may_have() {
    let document = json!({
        "method": "M-SEARCH", "path": "/a?b=c", "host": "[::1]:8443", "source": "2001:db8::1",
        "route": "main", "client_cert": "spiffe://a", "cost": 7.0,
        "headers": { "X-One": " 1 ", "x-two": ["a", "b"], "x-none": [], ":scheme": "https", "x-e": "" },
        "metadata": {
            "ns": {
                "a": { "b": "deep" }, "o": { "b": "x", "c": "y" }, "c": "", "e": {}, "id": 42, "half": 0.5, "big": 123_456_789_012_345_680_u64,
                "staff": true, "none": null, "roles": ["", "admin", 7], "no-roles": [],
            },
            "ns.d": "dotted",
        },
    });
    let mut sample = parse_sample(&document).expect("a sample");
    assert_eq!(text(sample.method()), "M-SEARCH");
    assert_eq!(text(sample.path()), "/a?b=c");
    assert_eq!(text(sample.source()), "2001:db8::1");
    assert_eq!(text(sample.route()), "main");
    assert_eq!(text(sample.client_cert()), "spiffe://a");
    assert_eq!(sample.cost(), Some(7));
    for (name, value) in [
        (":authority", "[::1]:8443"),
        ("host", "[::1]:8443"),
        ("x-one", "1"),
        ("x-two", "a"),
        ("x-none", "-"),
        ("x-e", ""),
        (":scheme", "https"),
        (":method", "M-SEARCH"),
    ] {
        assert_eq!(text(sample.header(name)), value, "{name}");
    }
    for (path, value) in [
        (["ns", "a", "b"].as_slice(), "deep"),
        (&["ns", "c"], ""),
        (&["ns", "d"], "dotted"),
        (&["ns.d"], "dotted"),
        // An object is present and has no text.
        (&["ns", "a"], ""),
        (&["ns", "e"], ""),
        (&["ns", "id"], "42"),
        (&["ns", "half"], "0.5"),
        (&["ns", "big"], "123456789012345680"),
        (&["ns", "staff"], "true"),
        (&["ns", "none"], "-"),
        (&["ns", "roles"], "admin"),
        (&["ns", "no-roles"], ""),
        (&["ns", "n"], "-"),
    ] {
        let path: Vec<String> = path.iter().map(|step| (*step).to_owned()).collect();
        assert_eq!(text(sample.metadata(&path)), value, "{path:?}");
    }
    let mut values = Vec::new();
    let object = ["ns".to_owned(), "o".to_owned()];
    sample.each_metadata(&object, &mut |value| values.push(value.to_vec()));
    assert_eq!(
        values,
        [b""],
        "an object has one value, whatever it contains"
    );
}

#[test]
fn every_problem_is_told() {
    let sample = json!({
        "methods": "GET", "method": "get", "path": "reply", "host": "https://example.com/x",
        "source": "10.0.0.1:80", "route": "", "client_cert": 7, "cost": -1,
        "headers": { "x y": "1", "x-a": 1, "x-b": ["1", "2\n3"], ":path": "/", "Host": "a" },
        "metadata": { "ns": { "list": [["x"]] } },
    });
    let mut told = wrong(&sample);
    told.sort();
    let value = "allowed: a text of at most 8192 bytes on one line";
    let mut expected = vec![
        "methods: unknown field; allowed: method, path, host, headers, source, route, cluster, metadata, client_cert, cost; \
         did you mean `method`?"
            .to_owned(),
        "method: \"get\": invalid method; allowed: upper-case names: GET, POST, …; did you mean `GET`?"
            .to_owned(),
        "path: \"reply\": invalid path; allowed: a path that starts with /, with its query: /reply?x=1; \
         did you mean `/reply`?"
            .to_owned(),
        "host: \"https://example.com/x\": invalid host; allowed: a host without scheme and path: example.com, \
         example.com:8443; did you mean `example.com`?"
            .to_owned(),
        "source: \"10.0.0.1:80\": invalid address; allowed: an address without a port: 203.0.113.7, \
         2001:db8::1; did you mean `10.0.0.1`?"
            .to_owned(),
        "route: \"\": empty; allowed: a text of 1 to 8192 bytes".to_owned(),
        "client_cert: 7: a number instead of a text; allowed: a text of 1 to 8192 bytes".to_owned(),
        "cost: -1: out of range; allowed: a whole number from 0 to 1000000000".to_owned(),
        "headers.x y: \"x y\": invalid header name; allowed: letters, digits and !#$%&'*+-.^_`|~".to_owned(),
        format!("headers.x-a: 1: invalid value; {value}"),
        format!("headers.x-b[1]: \"2\\n3\": invalid value; {value}"),
        "headers.:path: \"/\": this header has a separate field; allowed: other headers; did you mean `path`?"
            .to_owned(),
        "headers.Host: \"a\": this header has a separate field; allowed: other headers; did you mean `host`?"
            .to_owned(),
        format!("metadata.ns.list[0]: [\"x\"]: invalid value; {value}"),
    ];
    expected.sort();
    assert_eq!(told, expected);
}

#[test]
fn values_of_the_wrong_type_are_reported() {
    for (sample, line) in [
        (
            json!([]),
            "(the whole file): []: a list instead of an object",
        ),
        (
            json!({ "headers": [] }),
            "headers: []: a list instead of an object",
        ),
        (
            json!({ "metadata": "x" }),
            "metadata: \"x\": a text instead of an object",
        ),
        (
            json!({ "path": "/a b" }),
            "path: \"/a b\": invalid path; allowed",
        ),
        (
            json!({ "source": "[2001:db8::1]:80" }),
            "source: \"[2001:db8::1]:80\": invalid address",
        ),
    ] {
        let told = wrong(&sample);
        assert!(told.len() == 1 && told[0].starts_with(line), "{told:?}");
    }
}

#[test]
fn sizes_are_bounded() {
    let many = |count: usize| -> Value {
        let members = (0..count).map(|n| (format!("x{n}"), json!("1")));
        Value::Object(members.collect())
    };
    let deep = |steps: usize| (0..steps).fold(json!("1"), |inner, _| json!({ "a": inner }));
    for right in [
        json!({ "headers": many(100) }),
        json!({ "metadata": many(100) }),
        json!({ "metadata": deep(8) }),
        json!({ "path": format!("/{}", "a".repeat(8_191)), "headers": { "a": "x".repeat(8_192) } }),
    ] {
        assert!(parse_sample(&right).is_ok());
    }
    for (sample, line) in [
        (
            json!({ "headers": many(101) }),
            "headers: 101 values are too many; allowed: at most 100",
        ),
        (
            json!({ "metadata": many(101) }),
            "metadata: 101 values are too many; allowed: at most 100",
        ),
        (
            json!({ "metadata": deep(9) }),
            "metadata.a.a.a.a.a.a.a.a: {\"a\":\"1\"}: the path is too long; allowed",
        ),
        (
            json!({ "path": format!("/{}", "a".repeat(8_192)) }),
            "path: \"/aaa",
        ),
        (
            json!({ "headers": { "a": "x".repeat(8_193) } }),
            "headers.a: \"xxx",
        ),
    ] {
        let told = wrong(&sample);
        assert!(told.len() == 1 && told[0].starts_with(line), "{told:?}");
    }
}

proptest! {
    #![proptest_config(ProptestConfig { failure_persistence: None, ..ProptestConfig::with_cases(512) })]

    #[test]
    fn a_sample_or_a_problem(document in any_json()) {
        if let Err(problems) = parse_sample(&document) {
            prop_assert!(!problems.is_empty());
            for problem in &problems {
                prop_assert!(!problem.to_string().chars().any(char::is_control));
            }
        }
    }
}
