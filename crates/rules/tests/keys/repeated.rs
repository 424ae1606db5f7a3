//! Requests that repeat a header, a cookie or a query parameter, as lines of a sample.

use std::borrow::Cow;

use loudou_rules::request::{Request as _, Sample};
use loudou_rules::rule::key::{Key, NoKey};
use serde_json::{Value, json};

use super::rule;

type Lines = &'static [(&'static str, &'static str)];

fn sample(path: &'static str, lines: &[(&'static str, &'static str)]) -> Sample<'static> {
    let lines = lines.iter();
    Sample {
        path: Some(Cow::Borrowed(path.as_bytes())),
        headers: lines
            .map(|(name, line)| (Cow::Borrowed(*name), Cow::Borrowed(line.as_bytes())))
            .collect(),
        ..Sample::default()
    }
}

fn key(part: &Value, policy: &str, mut request: Sample<'_>) -> Key {
    let rule = rule(&json!({ "key": [part], "on_ambiguous_key": policy }));
    rule.key_of(&mut request)
}

#[test]
fn the_first_line_with_a_value_is_the_key() {
    let of = |lines: &[(&'static str, &'static str)]| {
        key(&json!({ "header": "x-a" }), "first", sample("/", lines))
    };
    let bucket = |key: &str| Key::Bucket(key.to_string());
    assert_eq!(of(&[("x-a", ""), ("X-A", "k")]), bucket("k"));
    assert_eq!(of(&[("x-a", "k"), ("x-a", "")]), bucket("k"));
    assert_eq!(of(&[("x-a", "k"), ("x-a", "l")]), bucket("k"));
    assert_eq!(of(&[("x-a", "k,l")]), bucket("k,l"));
    assert_eq!(of(&[("x-a", ""), ("x-a", "")]), Key::Skip);
    assert_eq!(of(&[("x-b", "k")]), Key::Skip);
}

#[test]
fn cookies_are_found_on_any_line() {
    let of = |lines: &[(&'static str, &'static str)]| {
        key(&json!({ "cookie": "c" }), "first", sample("/", lines))
    };
    let bucket = |key: &str| Key::Bucket(key.to_string());
    assert_eq!(of(&[("cookie", "a=b"), ("cookie", "c=k")]), bucket("k"));
    assert_eq!(of(&[("cookie", ""), ("cookie", "c=k; c=l")]), bucket("k"));
    assert_eq!(
        of(&[("cookie", "c=; c=\"\""), ("cookie", "c=k")]),
        bucket("k")
    );
    assert_eq!(of(&[("cookie", "c="), ("cookie", "d=k")]), Key::Skip);
}

#[test]
fn several_values_are_refused_on_request() {
    let header = json!({ "header": "x-a" });
    let cookie = json!({ "cookie": "c" });
    let query = json!({ "query": "q" });
    let cases: [(&Value, &'static str, Lines, bool); 12] = [
        (&header, "/", &[("x-a", "k"), ("x-a", "l")], true),
        // An upstream may join them.
        (&header, "/", &[("x-a", "k"), ("x-a", "k")], true),
        (
            &header,
            "/",
            &[("x-a", ""), ("x-a", "k"), ("x-a", "")],
            false,
        ),
        (&header, "/", &[("x-a", "k"), ("x-b", "l")], false),
        (&cookie, "/", &[("cookie", "c=k; c=l")], true),
        (&cookie, "/", &[("cookie", "c=k"), ("cookie", "c=l")], true),
        (
            &cookie,
            "/",
            &[("cookie", "c=k"), ("cookie", "c=\"k\"; c=")],
            false,
        ),
        (&cookie, "/", &[("cookie", "c=k; C=l")], false),
        (&query, "/?q=k&q=l", &[], true),
        (&query, "/?q=k&q=&q=%6b&Q=l", &[], false),
        (&query, "/?q=k#q=l", &[], false),
        (
            &json!("path"),
            "/?a&a",
            &[("path", "a"), ("path", "b")],
            false,
        ),
    ];
    for (part, path, lines, is_ambiguous) in cases {
        let strict = key(part, "refuse", sample(path, lines));
        assert_eq!(
            strict == Key::Ambiguous,
            is_ambiguous,
            "{part} {path} {lines:?}"
        );
        let lenient = key(part, "first", sample(path, lines));
        assert!(matches!(&lenient, Key::Bucket(_)), "{part} {lines:?}");
        assert!(is_ambiguous || strict == lenient, "{part} {lines:?}");
    }
}

#[test]
fn an_ambiguous_part_decides_before_a_missing_one() {
    let rule = rule(&json!({
        "key": [{ "header": "x-b" }, { "header": "x-a" }], "on_ambiguous_key": "refuse",
    }));
    let mut request = sample("/", &[("x-a", "k"), ("x-a", "l")]);
    assert_eq!(rule.find_key(&mut request), Err(NoKey::Ambiguous(1)));
    let mut request = sample("/", &[("x-a", "k")]);
    assert_eq!(rule.find_key(&mut request), Err(NoKey::Missing(0)));
}

#[test]
fn a_header_passes_a_test_with_any_line() {
    let holds = |test: Value, lines: &[&'static str]| {
        let mut tests = test;
        tests["name"] = json!("x-a");
        let rule = rule(&json!({ "match": { "headers": [tests] } }));
        let lines: Vec<_> = lines.iter().map(|line| ("x-a", *line)).collect();
        rule.matches.holds(&mut sample("/", &lines))
    };
    let exact = json!({ "exact": "free" });
    assert!(holds(exact.clone(), &["x", "", "free"]));
    assert!(!holds(exact.clone(), &["x,free"]) && !holds(exact, &[]));
    assert!(holds(json!({ "exact": "a,b" }), &["a,b"]));
    assert!(!holds(json!({ "exact": "a,b" }), &["a", "b"]));
    assert!(holds(json!({ "regex": "f.*" }), &["", "free"]));
    assert!(holds(json!({ "present": true }), &[""]));
    assert!(holds(json!({ "present": false }), &[]));
}

#[test]
fn lines_keep_their_order() {
    let lines = [("x-a", "3"), ("x-b", "0"), ("X-a", ""), ("x-A", "1")];
    let mut sample = sample("/", &lines);
    let mut seen = Vec::new();
    sample.each_line("x-a", &mut |line| seen.push(line.to_vec()));
    assert_eq!(seen, [&b"3"[..], b"", b"1"]);
}

/// The largest header that Envoy accepts, filled with the most expensive contents.
#[test]
fn many_cookies_take_linear_time() {
    let header = json!({ "cookie": "c" });
    let line: &'static str = Box::leak("c=;".repeat(20_000).into_boxed_str());
    for policy in ["first", "refuse"] {
        let lines: Vec<_> = (0..100).map(|_| ("cookie", line)).collect();
        assert_eq!(key(&header, policy, sample("/", &lines)), Key::Skip);
    }
}
