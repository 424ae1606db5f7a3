//! The current request gives the rules the same values as a sample of it, in any order of reading,
//! and with few host calls.

use loudou_rules::config::parse_rule;
use loudou_rules::request::Sample;
use loudou_rules::rule::Rule;
use serde_json::{Value, json};

use super::*;
use crate::host::fake::FakeHost;

type Line = (&'static str, &'static str);

fn rule(fields: &Value) -> Rule {
    let mut rule = json!({
        "name": "r", "key": [],
        "limits": [{ "algorithm": "funnel", "capacity": 1, "rate": "1/d" }],
    });
    for (name, value) in fields.as_object().expect("an object") {
        rule[name] = value.clone();
    }
    parse_rule(&rule).expect("a valid rule")
}

fn host(lines: &[Line]) -> FakeHost {
    let host = FakeHost::default();
    let headers: Vec<(&str, &[u8])> = lines.iter().map(|(n, l)| (*n, l.as_bytes())).collect();
    host.request("GET", "/", &headers);
    host
}

fn sample(lines: &[Line]) -> Sample<'static> {
    let headers = lines.iter();
    Sample {
        method: Some(Cow::Borrowed(b"GET")),
        path: Some(Cow::Borrowed(b"/")),
        headers: headers
            .map(|(name, line)| (Cow::Borrowed(*name), Cow::Borrowed(line.as_bytes())))
            .collect(),
        ..Sample::default()
    }
}

/// Every request of up to three lines.
fn requests() -> Vec<Vec<Line>> {
    let lines = [
        ("x-a", ""),
        ("x-a", "k"),
        ("x-a", "l,k"),
        ("x-b", "k"),
        ("cookie", "c="),
        ("cookie", "c=k"),
        ("cookie", "a=b,c; c=l"),
    ];
    let mut all: Vec<Vec<Line>> = vec![Vec::new()];
    for _ in 0..3 {
        let longer = all.iter().flat_map(|request| {
            lines.map(|line| request.iter().copied().chain([line]).collect::<Vec<_>>())
        });
        let longer: Vec<_> = longer.collect();
        all.extend(longer);
    }
    all
}

#[test]
fn requests_and_samples_agree_whatever_is_read_first() {
    let tested = |name: &str| json!({ "headers": [{ "name": name, "exact": "k" }] });
    let cookie = json!({ "cookies": [{ "name": "c", "exact": "k" }] });
    let rules = [
        json!({ "key": [{ "header": "x-a" }] }),
        json!({ "key": [{ "cookie": "c" }] }),
        json!({ "key": [{ "header": "x-a" }, { "cookie": "c" }], "on_ambiguous_key": "refuse" }),
        json!({ "match": tested("x-a"), "key": [{ "header": "x-a" }] }),
        json!({ "match": { "not": tested("x-a") }, "key": [{ "header": "x-b" }] }),
        json!({ "match": cookie, "key": [{ "header": "cookie" }] }),
    ]
    .map(|fields| rule(&fields));
    for lines in requests() {
        for first in 0..rules.len() {
            let host = host(&lines);
            let (mut real, mut sample) = (HostRequest::new(&host), sample(&lines));
            for at in 0..rules.len() {
                let rule = &rules[(first + at) % rules.len()];
                let of = |request: &mut dyn Request| {
                    let holds = rule.matches.holds(request);
                    (holds, rule.key_of(request), rule.first_ambiguous(request))
                };
                assert_eq!(of(&mut real), of(&mut sample), "{lines:?} {}", rule.name);
            }
            assert!(host.headers_read.get() <= 1, "{lines:?}");
        }
    }
}

/// The calls for one header, for properties, and for all headers, that a rule makes.
fn calls(fields: &Value, lines: &[Line]) -> [u32; 3] {
    let (host, rule) = (host(lines), rule(fields));
    let mut request = HostRequest::new(&host);
    if rule.matches.holds(&mut request) {
        let _key = rule.key_of(&mut request);
    }
    [
        host.header_reads.get(),
        host.properties_read.get(),
        host.headers_read.get(),
    ]
}

#[test]
fn usual_requests_take_one_call_and_hostile_ones_one_more() {
    let header = json!({ "key": [{ "header": "x-a" }] });
    assert_eq!(calls(&header, &[("x-a", "k"), ("x-a", "l")]), [1, 0, 0]);
    assert_eq!(calls(&header, &[]), [1, 0, 0]);
    assert_eq!(calls(&header, &[("x-a", ""), ("x-a", "k")]), [1, 0, 1]);
    let cookie = json!({ "key": [{ "cookie": "c" }] });
    assert_eq!(calls(&cookie, &[("cookie", "c=k")]), [1, 0, 0]);
    assert_eq!(calls(&cookie, &[]), [1, 0, 0]);
    assert_eq!(calls(&cookie, &[("cookie", "a=b")]), [1, 0, 1]);
    let strict = json!({ "key": [{ "header": "x-a" }], "on_ambiguous_key": "refuse" });
    assert_eq!(calls(&strict, &[("x-a", "k")]), [0, 1, 0]);
    assert_eq!(calls(&strict, &[]), [0, 1, 0]);
    assert_eq!(calls(&strict, &[("x-a", "k"), ("x-a", "l")]), [0, 1, 1]);
    let tested = json!({
        "match": { "headers": [{ "name": "x-a", "exact": "k" }] }, "key": [{ "header": "x-a" }],
    });
    assert_eq!(calls(&tested, &[("x-a", "k")]), [0, 1, 0]);
    assert_eq!(calls(&tested, &[]), [0, 1, 0]);
    assert_eq!(calls(&tested, &[("x-a", "l"), ("x-a", "k")]), [0, 1, 1]);
    let present = json!({
        "match": { "headers": [{ "name": "x-a", "present": true }] }, "key": [{ "header": "x-a" }],
    });
    assert_eq!(calls(&present, &[("x-a", "k")]), [1, 0, 0]);
}

/// The filter reads from Envoy once, for any number of values and tests.
#[test]
fn metadata_are_read_once() {
    // `{"jwt": {"sub": "ann", "roles": ["a", "b"]}}` as `envoy.config.core.v3.Metadata`.
    let metadata = b"\x0a\x2c\x0a\x03jwt\x12\x25\
        \x0a\x0c\x0a\x03sub\x12\x05\x1a\x03ann\
        \x0a\x15\x0a\x05roles\x12\x0c\x32\x0a\x0a\x03\x1a\x01\x61\x0a\x03\x1a\x01\x62";
    let host = FakeHost::default();
    host.properties
        .borrow_mut()
        .insert("metadata".to_owned(), metadata.to_vec());
    let rule = rule(&json!({
        "match": { "metadata": [{ "path": ["jwt", "roles"], "exact": "b" }] },
        "key": [{ "metadata": ["jwt", "sub"] }, { "metadata": ["jwt", "roles"] }],
    }));
    let mut request = HostRequest::new(&host);
    assert_eq!(rule.reach(&mut request), loudou_rules::rule::Reach::Yes);
    assert_eq!(rule.find_key(&mut request).as_deref(), Ok("ann:a"));
    assert_eq!(rule.find_key(&mut request).as_deref(), Ok("ann:a"));
    assert_eq!(host.properties_read.get(), 1);
}
