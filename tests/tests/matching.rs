//! Every field of `match` in a real Envoy, with the rules that each request matches.
//!
//! All rules are in one Envoy, and no rule refuses. Each rule that admits adds its policy to
//! `RateLimit-Policy`, so one response shows all rules that matched.

use anyhow::{Result, ensure};
use loudou_tests::filters::header_to_metadata;
use loudou_tests::{Config, Envoy, Request};
use serde_json::{Value, json};

/// A match, with requests that it matches and requests that it does not match.
struct Case {
    matches: Value,
    hits: Vec<Request>,
    misses: Vec<Request>,
}

fn case(
    matches: Value,
    hits: impl IntoIterator<Item = Request>,
    misses: impl IntoIterator<Item = Request>,
) -> Case {
    Case {
        matches,
        hits: hits.into_iter().collect(),
        misses: misses.into_iter().collect(),
    }
}

fn get(path: &str) -> Request {
    Request::get(path)
}

fn with(name: &str, value: impl AsRef<[u8]>) -> Request {
    get("/").header(name, value)
}

fn paths() -> Vec<Case> {
    let path = |kind: &str, text: &str| json!({ "path": { kind: text } });
    vec![
        case(
            path("prefix", "/reply"),
            [get("/reply"), get("/reply/7?x"), get("/reply?/x")],
            [get("/replyall"), get("/x/reply"), get("/?/reply")],
        ),
        case(
            path("exact", "/reply"),
            [get("/reply"), get("/reply?x=1")],
            [get("/reply/"), get("/Reply")],
        ),
        case(
            path("suffix", ".json"),
            [get("/a.json"), get("/b/c.json?d=.xml")],
            [get("/a?b=.json"), get("/a.jsonp")],
        ),
        case(
            path("regex", "/v[0-9]+/.*"),
            [get("/v1/"), get("/v12/a?b")],
            [get("/v/"), get("/x/v1/"), get("/x?/v1/")],
        ),
        case(
            path("template", "/users/{id}/posts"),
            [get("/users/7/posts"), get("/users/%2F/posts?x")],
            [
                get("/users//posts"),
                get("/users/7/posts/"),
                get("/users/7/8/posts"),
            ],
        ),
        case(
            json!({ "path": { "prefix": "/api" }, "not": { "path": { "exact": "/api/healthz" } } }),
            [get("/api"), get("/api/healthz/x")],
            [get("/api/healthz"), get("/api/healthz?x"), get("/other")],
        ),
        case(
            json!({ "methods": ["PUT", "DELETE"] }),
            [Request::new("PUT", "/"), Request::new("DELETE", "/")],
            [get("/"), Request::post("/")],
        ),
    ]
}

fn packed() -> Vec<Case> {
    let query = |test: Value| json!({ "query": [test] });
    let cookies = |test: Value| json!({ "cookies": [test] });
    vec![
        case(
            query(json!({ "name": "debug", "present": true })),
            [get("/?debug"), get("/?x&debug=1"), get("/?%64ebug")],
            [get("/debug"), get("/?debugs")],
        ),
        case(
            query(json!({ "name": "user id", "exact": "a b" })),
            [get("/?user+id=a%20b"), get("/?user%20id=%61+b&user+id=c")],
            [get("/?user+id=c&user+id=a+b"), get("/?user+id=a%2Bb")],
        ),
        case(
            cookies(json!({ "name": "plan", "exact": "free" })),
            [
                with("cookie", "a=b; plan=free"),
                with("cookie", "plan=\"free\""),
            ],
            [
                with("cookie", "xplan=free"),
                with("cookie", "plan=free2"),
                get("/"),
            ],
        ),
        case(
            cookies(json!({ "name": "session", "present": false })),
            [
                get("/"),
                with("cookie", "session"),
                with("cookie", b";;=\";\xff"),
            ],
            [with("cookie", "a=b;session=\"")],
        ),
        case(
            json!({ "headers": [{ "name": "x-plan", "prefix": "fr" }, { "name": "x-plan", "suffix": "ee" }] }),
            [with("x-plan", "free"), with("x-plan", b"fr\xe9ee")],
            [with("x-plan", "f"), with("x-plan", ""), get("/")],
        ),
    ]
}

fn surroundings() -> Vec<Case> {
    let host = |host: &str| with("host", host);
    let from_outside = || with("x-forwarded-for", "10.1.2.3");
    let plan = |test: &str, value: Value| {
        let path = ["envoy.filters.http.jwt_authn", "plan"];
        json!({ "metadata": [{ "path": path, test: value }] })
    };
    vec![
        case(
            json!({ "host": { "suffix": ".example.com" } }),
            [
                host("a.example.com"),
                host("A.Example.COM:8443"),
                host("a.example.com."),
            ],
            [
                host("example.com"),
                host("a.example.com.evil.org"),
                get("/"),
            ],
        ),
        case(
            json!({ "host": { "exact": "LOUDOU.test" } }),
            [get("/"), host("loudou.test:80")],
            [host("loudou.tests")],
        ),
        case(
            json!({ "source": ["192.0.2.1", "127.0.0.0/8"] }),
            [get("/"), from_outside()],
            [],
        ),
        case(
            json!({ "source": ["10.0.0.0/8", "::/0"] }),
            [],
            [get("/"), from_outside()],
        ),
        case(json!({ "route": { "exact": "data" } }), [get("/")], []),
        case(json!({ "route": { "prefix": "other" } }), [], [get("/")]),
        case(
            plan("exact", json!("free")),
            [with("x-plan-from-jwt", "free")],
            [
                with("x-plan-from-jwt", "paid"),
                with("x-plan", "free"),
                get("/"),
            ],
        ),
        case(
            plan("present", json!(false)),
            [get("/")],
            [with("x-plan-from-jwt", "free")],
        ),
    ]
}

/// Returns a case for each test of each field that tests named values.
fn named() -> Vec<Case> {
    const METADATA: [&str; 2] = ["envoy.filters.http.jwt_authn", "plan"];
    type Place = (&'static str, fn(&str, Value) -> Value, fn(&str) -> Request);
    let by_name = |test: &str, value: Value| json!({ "name": "v", test: value });
    let by_path = |test: &str, value: Value| json!({ "path": METADATA, test: value });
    let places: [Place; 4] = [
        ("headers", by_name, |value| with("v", value)),
        ("query", by_name, |value| get(&format!("/?a=b&v={value}"))),
        ("cookies", by_name, |value| {
            with("cookie", format!("a=b; v={value}"))
        }),
        ("metadata", by_path, |value| with("x-plan-from-jwt", value)),
    ];
    let tests = [
        ("present", json!(true), "any", None),
        ("exact", json!("free"), "free", Some("freer")),
        ("prefix", json!("fr"), "free", Some("afr")),
        ("suffix", json!("ee"), "free", Some("eef")),
        ("regex", json!("fr(e|x)+"), "free", Some("frees")),
    ];
    let mut cases = Vec::new();
    for (place, test_of, request_with) in places {
        for (test, value, hit, miss) in &tests {
            let misses = miss.iter().map(|miss| request_with(miss)).chain([get("/")]);
            let matches = json!({ place: [test_of(test, value.clone())] });
            cases.push(case(matches, [request_with(hit)], misses));
        }
    }
    cases
}

fn beginnings() -> Vec<Case> {
    vec![
        case(
            json!({ "host": { "prefix": "api." } }),
            [with("host", "API.example.com")],
            [with("host", "www.api.com")],
        ),
        case(json!({ "route": { "prefix": "da" } }), [get("/")], []),
    ]
}

/// Returns the rule of a case. Its capacity is so large that it never refuses.
fn rule(index: usize, case: &Case) -> Value {
    json!({
        "name": format!("case-{index}"),
        "match": case.matches,
        "key": [],
        "limits": [{ "name": "l", "algorithm": "funnel", "capacity": 100_000, "rate": "1/s" }],
        "respond": { "ratelimit_headers": "draft11" },
    })
}

#[test]
fn every_field_of_a_match() -> Result<()> {
    let cases: Vec<Case> = [paths(), packed(), surroundings(), named(), beginnings()]
        .into_iter()
        .flatten()
        .collect();
    let rules: Vec<Value> = cases
        .iter()
        .enumerate()
        .map(|(n, case)| rule(n, case))
        .collect();
    let config = Config::new(json!(rules)).filter_before(header_to_metadata());
    let envoy = Envoy::start(&config)?;
    let mut http = envoy.data();
    for (index, case) in cases.iter().enumerate() {
        let policy = format!("\"case-{index}.l\"");
        let hits = case.hits.iter().map(|request| (request, true));
        let misses = case.misses.iter().map(|request| (request, false));
        for (request, expected) in hits.chain(misses) {
            let answer = http.send(request)?;
            ensure!(answer.status == 200, "{request:?}: {answer:?}");
            let policies = answer.header("ratelimit-policy").unwrap_or_default();
            let does = policies.contains(&policy);
            ensure!(
                does == expected,
                "{} and {request:?}: {policies}",
                case.matches
            );
        }
    }
    let log = envoy.log()?;
    ensure!(!log.contains("panicked") && !log.contains("[critical]"));
    envoy.stop()
}
