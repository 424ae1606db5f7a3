//! `POST /v1/explain`, together with a data role that limits.

use serde_json::{Value, json};

use super::Bench;

const HEADERS: [(&str, &[u8]); 2] = [
    ("authorization", b"Bearer view-token"),
    ("content-type", b"application/json"),
];

fn explain(bench: &mut Bench, body: &Value) -> (u16, Value) {
    bench.call("POST", "/v1/explain", &HEADERS, Some(body))
}

/// A token with view access may explain. The decision then is as explained, and explaining takes no
/// tokens.
#[test]
fn a_request_is_explained_and_nothing_is_taken() {
    let mut bench = Bench::new();
    let alice = json!({ "headers": { "x-user-id": "alice" } });
    for (verdict, left) in [("admit", 1), ("admit", 0), ("refuse", 0)] {
        for _ in 0..5 {
            let (status, answer) = explain(&mut bench, &alice);
            assert_eq!(status, 200, "{answer}");
            assert_eq!(
                (&answer["verdict"], &answer["generation"]),
                (&json!(verdict), &json!(1))
            );
            assert_eq!(answer["rules"][0]["limits"][0]["remaining"], left);
        }
        assert_eq!(bench.passes("alice"), verdict == "admit");
    }
    explain(&mut bench, &json!({ "headers": { "x-user-id": "bob" } }));
    assert_eq!(bench.buckets("").len(), 1, "explaining makes no bucket");
    assert_eq!(bench.get("/v1/buckets/per-user/alice")["refused"], 1);
    assert_eq!(bench.host.metric("loudou.rule.per-user.admitted"), 2);
}

#[test]
fn a_sample_is_read_strictly() {
    let mut bench = Bench::new();
    let (status, answer) = explain(&mut bench, &json!({}));
    assert_eq!((status, &answer["rules"][0]["says"]), (200, &json!("skip")));
    assert_eq!(answer["rules"][0]["missing"]["place"], "key[0]");
    let (status, answer) = explain(&mut bench, &json!({ "header": {}, "path": "reply" }));
    let problems = answer["problems"].as_array().expect("problems");
    assert_eq!((status, problems.len()), (400, 2));
    assert_eq!(problems[0]["suggestion"], "headers");
    let body = json!({});
    for (method, path, headers, body, status) in [
        ("POST", "/v1/explain", &HEADERS[..], None, 400),
        ("POST", "/v1/explain?x=1", &HEADERS, Some(&body), 400),
        ("POST", "/v1/explain", &HEADERS[1..], Some(&body), 401),
        ("POST", "/v1/explain", &HEADERS[..1], Some(&body), 415),
        ("GET", "/v1/explain", &HEADERS, None, 405),
        ("POST", "/v1/explain/x", &HEADERS, Some(&body), 403),
    ] {
        let answered = bench.call(method, path, headers, body).0;
        assert_eq!(answered, status, "{method} {path} {headers:?}");
    }
}
