//! Calls that bring their JSON in a header.

use super::strict::detail;
use super::*;

const RULE: &str = "/v1/rules/per-user";

/// Returns the response to an edit with these headers in addition to the token. The flag is true if
/// a body follows.
fn put(bench: &mut Bench, headers: &[(&str, &[u8])], body: Option<&Value>) -> (u16, Value) {
    let mut all: Vec<(&str, &[u8])> =
        vec![("authorization", b"Bearer edit-token"), ("if-match", b"*")];
    all.extend(headers);
    bench.call("PUT", RULE, &all, body)
}

fn generation(bench: &mut Bench) -> Value {
    bench.get("/v1/status")["generation"].clone()
}

#[test]
fn an_edit_in_a_header_acts() {
    let mut bench = Bench::new();
    let text = capacity(7).to_string();
    let (status, answer) = put(&mut bench, &[("loudou-body", text.as_bytes())], None);
    assert_eq!(status, 200, "{answer}");
    let rule = bench.get(RULE);
    assert_eq!(rule["rule"]["limits"][0]["capacity"], 7, "{rule}");
}

#[test]
fn only_ascii_of_a_bounded_length_on_calls_that_take_json() {
    let mut bench = Bench::new();
    let long = format!("{:32769}", capacity(7).to_string());
    let json: (&str, &[u8]) = ("content-type", b"application/json");
    let text = capacity(7).to_string();
    for (headers, body, status, says) in [
        (vec![("loudou-body", long.as_bytes())], None, 413, "32768"),
        (
            vec![("loudou-body", "{\"é\":1}".as_bytes())],
            None,
            400,
            "\\u00e9",
        ),
        (vec![("loudou-body", &b""[..])], None, 400, "not JSON"),
        (vec![("loudou-body", &b"{"[..])], None, 400, "not JSON"),
        (
            vec![("loudou-body", text.as_bytes()), json],
            Some(capacity(7)),
            400,
            "and no body",
        ),
    ] {
        let (got, answer) = put(&mut bench, &headers, body.as_ref());
        assert_eq!(got, status, "{answer}");
        assert!(detail(&answer).contains(says), "{answer}");
    }
    let headers: [(&str, &[u8]); 2] = [
        ("authorization", b"Bearer edit-token"),
        ("loudou-body", text.as_bytes()),
    ];
    let (status, answer) = bench.call("POST", "/v1/buckets/per-user/alice/reset", &headers, None);
    assert_eq!(status, 400, "{answer}");
    assert!(detail(&answer).contains("no body"), "{answer}");
    assert_eq!(generation(&mut bench), 1);
}

/// The filter would apply the first line alone.
#[test]
fn an_edit_in_two_headers_is_refused() {
    let mut bench = Bench::new();
    let [first, second] = [7, 8].map(|n| capacity(n).to_string());
    for second in [&first, &second] {
        let headers = [&first, second].map(|line| ("loudou-body", line.as_bytes()));
        let (status, answer) = put(&mut bench, &headers, None);
        assert_eq!(status, 400, "{answer}");
        assert!(detail(&answer).contains("sent twice"), "{answer}");
    }
    assert_eq!(generation(&mut bench), 1);
}

#[test]
fn a_caller_learns_nothing_of_a_header_before_its_token() {
    let mut bench = Bench::new();
    let text = capacity(7).to_string();
    let body: (&str, &[u8]) = ("loudou-body", text.as_bytes());
    for (token, status) in [(&b"Bearer nobody"[..], 401), (b"Bearer view-token", 403)] {
        let headers = [("authorization", token), ("if-match", b"*"), body];
        assert_eq!(bench.call("PUT", RULE, &headers, None).0, status);
    }
    assert_eq!(generation(&mut bench), 1);
}

#[test]
fn every_answer_says_which_ways_there_are() {
    let mut bench = Bench::new();
    for (token, path) in [
        ("Bearer view-token", "/v1/status"),
        ("Bearer view-token", "/v1/nothing"),
        ("Bearer nobody", "/v1/status"),
    ] {
        bench
            .host
            .request("GET", path, &[("authorization", token.as_bytes())]);
        let Begin::Answer(reply) = bench.admin.begin(&bench.host, false) else {
            panic!("waits for a body");
        };
        let named = reply.headers.iter().find(|(name, _)| name == "loudou-body");
        assert_eq!(named.map(|(_, ways)| ways.as_str()), Some("any"), "{path}");
    }
}
