//! Every key part in a real Envoy, with the bucket of each request.

use anyhow::{Context as _, Result, ensure};
use loudou_tests::filters::headers_to_claims;
use loudou_tests::{Config, Envoy, Operator, Request};
use serde_json::{Value, json};

fn rule(name: &str, part: &Value) -> Value {
    json!({
        "name": name,
        "key": [part],
        "limits": [{ "name": "l", "algorithm": "funnel", "capacity": 100_000, "rate": "1/s" }],
    })
}

fn metadata() -> Value {
    headers_to_claims(&[
        ("x-sub-from-jwt", "sub", json!({ "type": "STRING" })),
        ("x-number-from-jwt", "sub", json!({ "type": "NUMBER" })),
        // Any `google.protobuf.Value`.
        (
            "x-value-from-jwt",
            "sub",
            json!({ "type": "PROTOBUF_VALUE", "encode": "BASE64" }),
        ),
    ])
}

/// A part, and the keys of requests; none where the part is missing.
type Case = (Value, Vec<(Request, Option<&'static str>)>);

fn packed() -> Vec<Case> {
    let get = Request::get;
    let cookie = |value: &[u8]| get("/").header("cookie", value);
    vec![
        (
            json!({ "query": "user" }),
            vec![
                (get("/?user=%61lice"), Some("alice")),
                (get("/?x&user=bob&user=alice"), Some("bob")),
                (get("/?user=a+b%3A%ff"), Some("a%20b%3A%FF")),
                (get("/?user=%zz%"), Some("%25zz%25")),
                (get("/?user="), None),
                (get("/user=alice"), None),
            ],
        ),
        (
            json!({ "cookie": "session" }),
            vec![
                (cookie(b"a=b; session=s1"), Some("s1")),
                (cookie(b"session=\"s 2\"; session=s3"), Some("s%202")),
                (cookie(b"session=\"\xff"), Some("\"%FF")),
                (cookie(b"session=\"\""), None),
                (cookie(b";=;session"), None),
                (get("/"), None),
            ],
        ),
        (
            json!({ "metadata": ["envoy.filters.http.jwt_authn", "sub"] }),
            vec![
                (get("/").header("x-sub-from-jwt", "alice"), Some("alice")),
                (get("/").header("x-sub", "alice"), None),
                // Envoy writes a number as eight bytes, too.
                (
                    get("/").header("x-sub-from-jwt", "pro-plan"),
                    Some("pro-plan"),
                ),
                (get("/").header("x-number-from-jwt", "42"), Some("42")),
                (get("/").header("x-number-from-jwt", "-2.5"), Some("-2.5")),
                (
                    get("/").header("x-number-from-jwt", "123456789012345678"),
                    Some("123456789012345680"),
                ),
                // true, ["a", "b"], [7], [], {"k": "v"}, null
                (get("/").header("x-value-from-jwt", "IAE="), Some("true")),
                (
                    get("/").header("x-value-from-jwt", "MgoKAxoBYQoDGgFi"),
                    Some("a"),
                ),
                (
                    get("/").header("x-value-from-jwt", "MgsKCREAAAAAAAAcQA=="),
                    Some("7"),
                ),
                (get("/").header("x-value-from-jwt", "MgA="), None),
                (
                    get("/").header("x-value-from-jwt", "KgoKCAoBaxIDGgF2"),
                    None,
                ),
                (get("/").header("x-value-from-jwt", "CAA="), None),
            ],
        ),
    ]
}

fn paths() -> Vec<Case> {
    let get = Request::get;
    vec![
        (
            json!("path"),
            vec![
                (get("/a/b?c"), Some("/a/b")),
                (get("/reply"), Some("/reply")),
                (get("/reply/"), Some("/reply")),
                (get("/reply;a=b"), Some("/reply")),
                (get("//reply"), Some("/reply")),
                (get("/x/../reply"), Some("/reply")),
                (get("/%72eply"), Some("/reply")),
                (get("/REPLY"), Some("/REPLY")),
                (get("/reply%20"), Some("/reply%2520")),
            ],
        ),
        (
            json!({ "path": { "normalize": false } }),
            vec![(get("//reply;a/"), Some("//reply;a/"))],
        ),
        (
            json!({ "path": { "segments": 2 } }),
            vec![
                (get("/a/b/c/d?e"), Some("/a/b")),
                (get("/one?a/b/c"), Some("/one")),
                (get("//x/y/z"), Some("/x/y")),
                (get("/x;v=1/%79/"), Some("/x/y")),
            ],
        ),
    ]
}

fn surroundings() -> Vec<Case> {
    let get = Request::get;
    vec![
        (
            json!("method"),
            vec![
                (Request::new("DELETE", "/"), Some("DELETE")),
                (get("/"), Some("GET")),
            ],
        ),
        (
            json!("host"),
            vec![
                (
                    get("/").header("host", "A.Example.com:80"),
                    Some("a.example.com"),
                ),
                (get("/").header("host", "[::1]:80"), Some("[%3A%3A1]")),
            ],
        ),
        (json!("route"), vec![(get("/"), Some("data"))]),
        (json!("client_cert"), vec![(get("/"), None)]),
        (json!("peer"), vec![(get("/"), None)]),
        (
            json!("source"),
            vec![
                (get("/"), Some("127.0.0.1")),
                (
                    get("/").header("x-forwarded-for", "9.9.9.9"),
                    Some("127.0.0.1"),
                ),
            ],
        ),
        (
            json!({ "source": { "v4_prefix": 8 } }),
            vec![(get("/"), Some("127.0.0.0/8"))],
        ),
        (json!({ "literal": "a:b" }), vec![(get("/"), Some("a%3Ab"))]),
    ]
}

#[test]
fn every_part_of_a_key() -> Result<()> {
    let cases: Vec<Case> = [packed(), paths(), surroundings()].concat();
    let named = |index: usize| format!("case-{index}");
    let rules = cases.iter().enumerate();
    let rules: Vec<Value> = rules.map(|(n, (part, _))| rule(&named(n), part)).collect();
    let config = Config::new(json!(rules)).filter_before(metadata());
    let envoy = Envoy::start(&config)?;
    let (mut http, mut ops) = (envoy.data(), Operator::editor(&envoy));
    for (index, (part, requests)) in cases.iter().enumerate() {
        let rule = named(index);
        for (request, key) in requests {
            for bucket in ops.buckets(&format!("rule={rule}"))? {
                let key = bucket["key"].as_str().context("a key")?;
                ops.reset(&rule, key)?;
            }
            let answer = http.send(request)?;
            ensure!(answer.status == 200, "{request:?}: {answer:?}");
            let buckets = ops.buckets(&format!("rule={rule}"))?;
            let keys: Vec<&str> = buckets.iter().filter_map(|b| b["key"].as_str()).collect();
            let expected: Vec<&str> = key.iter().copied().collect();
            ensure!(
                keys == expected,
                "{part} of {request:?}: {keys:?}, not {expected:?}"
            );
        }
    }
    let log = envoy.log()?;
    ensure!(!log.contains("panicked") && !log.contains("[critical]"));
    envoy.stop()
}
