//! Requests that repeat a header line, a cookie or a query parameter that a rule reads. The
//! upstream receives all values, so no value may hide another value from the rule.

use std::time::Duration;

use anyhow::{Context as _, Result, ensure};
use loudou_tests::crowd::Crowd;
use loudou_tests::one_rule::{Scene, play};
use loudou_tests::{Config, Envoy, Http, Operator, Request, eventually};
use serde_json::{Value, json};

type Line = (&'static str, &'static [u8]);

fn rule(name: &str, more: &Value) -> Value {
    let limit = json!({ "name": "l", "algorithm": "funnel", "capacity": 2, "rate": "1/d" });
    let mut rule = json!({ "name": name, "limits": [limit] });
    for (field, value) in more.as_object().into_iter().flatten() {
        if let Some(fields) = rule.as_object_mut() {
            fields.insert(field.clone(), value.clone());
        }
    }
    rule
}

fn request(path: &str, lines: &[Line]) -> Request {
    let lines = lines.iter();
    lines.fold(Request::get(path), |request, (name, line)| {
        request.header(name, line)
    })
}

/// Returns the status of the response to a request and the key of its bucket. Deletes the bucket.
fn answer_and_key(
    http: &mut Http,
    ops: &mut Operator,
    request: &Request,
) -> Result<(u16, Option<String>)> {
    let answer = http.send(request)?;
    let mut keys = buckets(ops)?;
    for (rule, key) in &keys {
        ops.reset(rule, key)?;
    }
    ensure!(keys.len() <= 1, "{request:?}: {keys:?}");
    Ok((answer.status, keys.pop().map(|(_, key)| key)))
}

/// Returns the key of the bucket of a request, which must be admitted. Deletes the bucket.
fn key_of(http: &mut Http, ops: &mut Operator, request: &Request) -> Result<Option<String>> {
    let (status, key) = answer_and_key(http, ops, request)?;
    ensure!(status == 200, "{request:?}: {status}");
    Ok(key)
}

/// Returns the rule and the key of each bucket, sorted.
fn buckets(ops: &mut Operator) -> Result<Vec<(String, String)>> {
    let mut found = Vec::new();
    for bucket in ops.buckets("limit=100")? {
        let text = |field: &str| bucket.get(field).and_then(Value::as_str).map(str::to_owned);
        found.push((
            text("rule").context("a rule")?,
            text("key").context("a key")?,
        ));
    }
    found.sort();
    Ok(found)
}

fn no_panic(envoy: &Envoy) -> Result<()> {
    let log = envoy.log()?;
    ensure!(!log.contains("panicked") && !log.contains("[critical]"));
    Ok(())
}

fn unharmed(envoy: Envoy) -> Result<()> {
    no_panic(&envoy)?;
    envoy.stop()
}

/// Each scene uses a separate rule and path, and deletes the buckets that it creates.
#[test]
fn no_line_hides_the_key() -> Result<()> {
    let scenes: &[Scene] = &[
        ("headers", an_empty_first_line_hides_no_key),
        ("cookies", cookies_are_found_on_every_line),
        ("query", the_first_query_parameter_with_a_value_is_the_key),
        ("joined", envoy_joins_the_lines_of_headers_that_it_knows),
    ];
    let of = |name: &str, part: Value| {
        let path = format!("/{name}");
        rule(
            name,
            &json!({ "match": { "path": { "exact": path } }, "key": [part] }),
        )
    };
    let rules = json!([
        of("header", json!({ "header": "x-api-key" })),
        of("cookie", json!({ "cookie": "sid" })),
        of("query", json!({ "query": "user" })),
        of("authorization", json!({ "header": "authorization" })),
    ]);
    play(&Config::new(rules), scenes, no_panic)
}

fn an_empty_first_line_hides_no_key(envoy: &Envoy) -> Result<()> {
    let (mut http, mut ops) = (envoy.data(), Operator::editor(envoy));
    let cases: [(&[Line], Option<&str>); 8] = [
        (&[("x-api-key", b""), ("x-api-key", b"K")], Some("K")),
        (&[("x-api-key", b"  "), ("x-api-key", b"K")], Some("K")),
        (
            &[
                ("X-API-KEY", b""),
                ("x-other", b"1"),
                ("x-Api-Key", b""),
                ("x-api-key", b"K"),
            ],
            Some("K"),
        ),
        (&[("x-api-key", b"K"), ("x-api-key", b"")], Some("K")),
        (&[("x-api-key", b"A"), ("x-api-key", b"B")], Some("A")),
        (&[("x-api-key", b"A, B")], Some("A,%20B")),
        (&[("x-api-key", b""), ("x-api-key", b"")], None),
        (&[("x-api-keys", b"K")], None),
    ];
    for (lines, key) in cases {
        let request = request("/header", lines);
        let found = key_of(&mut http, &mut ops, &request)?;
        ensure!(found.as_deref() == key, "{request:?}: {found:?}");
    }
    let attack = request("/header", &[("x-api-key", b""), ("x-api-key", b"K")]);
    let mut statuses = Vec::new();
    for _ in 0..3 {
        statuses.push(http.send(&attack)?.status);
    }
    ensure!(statuses == [200, 200, 429], "{statuses:?}");
    ops.reset("header", "K")?;
    Ok(())
}

fn cookies_are_found_on_every_line(envoy: &Envoy) -> Result<()> {
    let (mut http, mut ops) = (envoy.data(), Operator::editor(envoy));
    let cases: [(&[Line], Option<&str>); 7] = [
        (&[("cookie", b"a=b"), ("cookie", b"sid=s")], Some("s")),
        (&[("cookie", b""), ("Cookie", b"sid=s")], Some("s")),
        (
            &[
                ("cookie", b"sid="),
                ("cookie", b"a=b"),
                ("cookie", b"sid=\"s\""),
            ],
            Some("s"),
        ),
        (
            &[("cookie", b"sid=\"\"; sid=s"), ("cookie", b"sid=t")],
            Some("s"),
        ),
        (&[("cookie", b"sid=s; sid=t")], Some("s")),
        (&[("cookie", b"SID=s"), ("cookie", b"sid")], None),
        (&[("cookie", b"sid="), ("cookie", b"sid=")], None),
    ];
    for (lines, key) in cases {
        let request = request("/cookie", lines);
        let found = key_of(&mut http, &mut ops, &request)?;
        ensure!(found.as_deref() == key, "{request:?}: {found:?}");
    }
    Ok(())
}

fn the_first_query_parameter_with_a_value_is_the_key(envoy: &Envoy) -> Result<()> {
    let (mut http, mut ops) = (envoy.data(), Operator::editor(envoy));
    for (path, key) in [
        ("/query?user=&user=b", Some("b")),
        ("/query?user&user=b", Some("b")),
        ("/query?user=a&user=b", Some("a")),
        ("/query?user=&user=", None),
    ] {
        let found = key_of(&mut http, &mut ops, &Request::get(path))?;
        ensure!(found.as_deref() == key, "{path}: {found:?}");
    }
    Ok(())
}

#[test]
fn ambiguous_keys_can_be_refused() -> Result<()> {
    let strict = |name: &str, part: Value| {
        let path = format!("/{name}");
        let more = json!({
            "match": { "path": { "exact": path } }, "key": [part], "on_ambiguous_key": "refuse",
        });
        rule(name, &more)
    };
    let rules = json!([
        strict("header", json!({ "header": "x-api-key" })),
        strict("cookie", json!({ "cookie": "sid" })),
        strict("query", json!({ "query": "user" })),
    ]);
    let envoy = Envoy::start(&Config::new(rules))?;
    let mut http = envoy.data();
    let refused: [(&str, &[Line]); 5] = [
        ("/header", &[("x-api-key", b"A"), ("X-Api-Key", b"B")]),
        ("/header", &[("x-api-key", b"A"), ("x-api-key", b"A")]),
        ("/cookie", &[("cookie", b"sid=a; sid=b")]),
        ("/cookie", &[("cookie", b"sid=a"), ("cookie", b"sid=b")]),
        ("/query?user=a&user=b", &[]),
    ];
    for (path, lines) in refused {
        let answer = http.send(&request(path, lines))?;
        let is_right = answer.status == 429 && answer.text().contains("several values for the key");
        ensure!(is_right, "{path} {lines:?}: {answer:?}");
    }
    let admitted: [(&str, &[Line]); 6] = [
        ("/header", &[("x-api-key", b""), ("x-api-key", b"A")]),
        ("/header", &[]),
        (
            "/cookie",
            &[("cookie", b"sid=a"), ("cookie", b"sid=a; sid=")],
        ),
        ("/cookie", &[("cookie", b"a=b")]),
        ("/query?user=&user=%61&user=a", &[]),
        ("/query", &[]),
    ];
    for (path, lines) in admitted {
        let answer = http.send(&request(path, lines))?;
        ensure!(answer.status == 200, "{path}: {answer:?}");
    }
    unharmed(envoy)
}

/// A rule must match if one of several header lines matches, as Envoy's own matchers do. Otherwise
/// a client could avoid a rule by sending another line first. The routes show the result of Envoy's
/// matchers.
#[test]
fn matches_see_all_lines_as_envoy_does() -> Result<()> {
    let tests = [
        ("exact", "free", json!({ "exact": "free" })),
        ("prefix", "fre", json!({ "prefix": "fre" })),
        ("suffix", "ree", json!({ "suffix": "ree" })),
        (
            "regex",
            "f.*e",
            json!({ "safe_regex": { "regex": "f.*e" } }),
        ),
    ];
    let cases: [&[&[u8]]; 8] = [
        &[b"free"],
        &[b"x", b"free"],
        &[b"", b"free"],
        &[b"free", b"\xff"],
        &[b"x,free"],
        &[b"x,free", b"free"],
        &[b"f", b"e"],
        &[],
    ];
    // Each kind of matcher has a rule and a pair of routes.
    let (mut rules, mut routes) = (Vec::new(), Vec::new());
    for (kind, text, matcher) in &tests {
        let path = format!("/{kind}");
        let tested = json!({
            "path": { "prefix": path },
            "headers": [{ "name": "x-plan", *kind: text }],
        });
        let counted = json!({ "match": tested, "key": [], "mode": "shadow" });
        rules.push(rule(kind, &counted));
        let matched = json!({ "name": "x-plan", "string_match": matcher });
        routes.push(json!({
            "match": { "prefix": path, "headers": [matched] },
            "direct_response": { "status": 204 },
        }));
        routes.push(json!({
            "match": { "prefix": path },
            "direct_response": { "status": 200 },
        }));
    }
    let envoy = Envoy::start(&Config::new(json!(rules)).routes(json!(routes)))?;
    let (mut http, mut ops) = (envoy.data(), Operator::editor(&envoy));
    for (kind, ..) in &tests {
        for lines in cases {
            let lines: Vec<Line> = lines.iter().map(|line| ("x-plan", *line)).collect();
            let request = request(&format!("/{kind}"), &lines);
            let (status, key) = answer_and_key(&mut http, &mut ops, &request)?;
            ensure!(
                (status == 204) == key.is_some(),
                "{kind} {lines:?}: Envoy answers {status}, the rule's key is {key:?}"
            );
        }
    }
    unharmed(envoy)
}

/// Lines in HTTP/2 must count as in HTTP/1. Cookies of HTTP/2 may be on many lines, which Envoy
/// joins. Other headers stay separate.
#[test]
fn lines_of_http2_count_like_those_of_http1() -> Result<()> {
    let rules = json!([
        rule("header", &json!({ "key": [{ "header": "x-api-key" }] })),
        rule("cookie", &json!({ "key": [{ "cookie": "sid" }] })),
    ]);
    let envoy = Envoy::start(&Config::new(rules))?;
    let mut ops = Operator::editor(&envoy);
    let headers = [
        ("x-api-key", ""),
        ("cookie", "a=b"),
        ("x-api-key", "K"),
        ("cookie", "sid=s"),
    ];
    let _crowd = Crowd::send_with(envoy.data_address(), &headers, 1)?;
    let keys = eventually(Duration::from_secs(20), "both buckets", || {
        let buckets = buckets(&mut ops)?;
        Ok((buckets.len() == 2).then_some(buckets))
    })?;
    let expected = [("cookie", "s"), ("header", "K")];
    let expected = expected.map(|(rule, key)| (rule.to_owned(), key.to_owned()));
    ensure!(keys == expected, "{keys:?}");
    unharmed(envoy)
}

/// Envoy joins the lines of some headers before any filter sees them.
fn envoy_joins_the_lines_of_headers_that_it_knows(envoy: &Envoy) -> Result<()> {
    let (mut http, mut ops) = (envoy.data(), Operator::editor(envoy));
    let lines: [Line; 2] = [("authorization", b"A"), ("authorization", b"B")];
    let key = key_of(&mut http, &mut ops, &request("/authorization", &lines))?;
    ensure!(key.as_deref() == Some("A,B"), "{key:?}");
    let lines: [Line; 2] = [("authorization", b""), ("authorization", b"B")];
    let key = key_of(&mut http, &mut ops, &request("/authorization", &lines))?;
    ensure!(key.as_deref() == Some("B"), "{key:?}");
    Ok(())
}
