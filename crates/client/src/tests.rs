//! The client against a server that answers well, badly, or not at all.

use std::net::TcpListener;
use std::thread;
use std::time::Duration;

use loudou_api::{EditAnswer, ProblemAnswer, ResetAnswer, RuleProblem, RuleView, Status};
use loudou_limiter::{Carry, Nanos};
use serde_json::json;

use super::fake::{Answer, Fake};
use super::*;

/// The CA of the relay's tests.
const CA: &str = concat!(
    env!("CARGO_MANIFEST_DIR"),
    "/../relay/tests/relay/certs/ca.pem"
);
const LONG: Duration = Duration::from_secs(10);
const SHORT: Duration = Duration::from_millis(150);

fn status_of(answer: Answer, timeout: Duration) -> Result<Status, ClientError> {
    Fake::new(vec![answer]).client(timeout).status()
}

fn raw(text: &str) -> Vec<u8> {
    text.as_bytes().to_vec()
}

fn edit() -> EditRequest {
    EditRequest {
        body: json!({"mode": "shadow"}),
        if_match: "\"i-7\"".to_owned(),
        carry: Carry::Keep,
        expires_after: Some(Nanos::from_secs(1800)),
        reason: "too many".to_owned(),
        dry_run: false,
    }
}

#[test]
fn a_request_carries_token_and_agent() {
    let status = Status {
        version: "1.2.3".to_owned(),
        ..Status::default()
    };
    let fake = Fake::new(vec![Answer::json("200 OK", &status)]);
    assert_eq!(fake.client(LONG).status(), Ok(status));
    let request = fake.request();
    assert!(
        request.starts_with("GET /v1/status HTTP/1.1\r\n"),
        "{request}"
    );
    assert!(
        request.contains("authorization: Bearer secret\r\n"),
        "{request}"
    );
    assert!(request.contains("user-agent: loudou/"), "{request}");
}

#[test]
fn an_edit_carries_body_and_if_match() {
    let fake = Fake::new(vec![Answer::json("200 OK", &<EditAnswer>::default())]);
    fake.client(LONG).put_rule("r", &edit()).expect("taken");
    let request = fake.request();
    let line = "PUT /v1/rules/r?carry=keep&for=30m&reason=too%20many HTTP/1.1\r\n";
    assert!(request.starts_with(line), "{request}");
    assert!(request.contains("if-match: \"i-7\"\r\n"), "{request}");
    assert!(
        request.ends_with("\r\n\r\n{\"mode\":\"shadow\"}"),
        "{request}"
    );
}

#[test]
fn a_drop_and_a_reset_have_no_body() {
    let drop = DropRequest {
        if_match: "\"i-3\"".to_owned(),
        carry: Carry::Reset,
        reason: String::new(),
        dry_run: false,
    };
    let fake = Fake::new(vec![
        Answer::json("200 OK", &<EditAnswer>::default()),
        Answer::json("200 OK", &ResetAnswer::default()),
    ]);
    let client = fake.client(LONG);
    client.delete_rule("r", &drop).expect("dropped");
    let with = ActRequest {
        reason: "asked".to_owned(),
        ..ActRequest::default()
    };
    let reset = client.act::<ResetAnswer>(("reset", "r", "a/b"), &with);
    reset.expect("reset");
    let request = fake.request();
    assert!(
        request.starts_with("DELETE /v1/rules/r?carry=reset "),
        "{request}"
    );
    assert!(request.contains("if-match: \"i-3\"\r\n"), "{request}");
    let request = fake.request();
    assert!(
        request.starts_with("POST /v1/buckets/r/a%2Fb/reset?reason=asked "),
        "{request}"
    );
    assert!(request.contains("content-length: 0\r\n"), "{request}");
}

#[test]
fn a_closed_port() {
    let listener = TcpListener::bind("127.0.0.1:0").expect("a port");
    let url = format!("http://{}", listener.local_addr().expect("an address"));
    drop(listener);
    let target = Target {
        url,
        ..Target::default()
    };
    let error = Client::new(&target, LONG)
        .expect("a good target")
        .status()
        .expect_err("nobody listens");
    assert!(
        matches!(error, ClientError::Unreachable { .. }),
        "{error:?}"
    );
    assert!(error.to_string().contains("is Envoy running"), "{error}");
}

#[test]
fn a_silent_server_runs_into_the_time_out() {
    let halves = [
        "",
        "HTTP/1.1 200 OK\r\n",
        "HTTP/1.1 200 OK\r\ncontent-length: 9\r\n\r\n{",
    ];
    for half in halves {
        let error = status_of(Answer::Hang(raw(half)), SHORT).expect_err("silence");
        assert!(
            matches!(error, ClientError::TimedOut { .. }),
            "{half:?}: {error:?}"
        );
        assert!(error.to_string().contains("within 150ms"), "{error}");
    }
}

#[test]
fn a_server_that_hangs_up() {
    let halves = [
        "",
        "HTTP/1.1 200",
        "HTTP/1.1 200 OK\r\ncontent-length: 9\r\n\r\n{",
    ];
    for half in halves {
        let error = status_of(Answer::Bytes(raw(half)), LONG).expect_err("cut off");
        assert!(
            matches!(error, ClientError::Unexpected { .. }),
            "{half:?}: {error:?}"
        );
    }
}

#[test]
fn not_http() {
    let error = status_of(Answer::Bytes(raw("SSH-2.0-OpenSSH_9.6\r\n\r\n")), LONG);
    let error = error.expect_err("not HTTP");
    assert!(matches!(error, ClientError::Unexpected { .. }), "{error:?}");
}

#[test]
fn not_json_and_not_the_contract() {
    for body in ["<html>hello", "", "[]", "{\"version\": 3}"] {
        let error = status_of(Answer::text("200 OK", body), LONG).expect_err(body);
        assert!(matches!(error, ClientError::Unexpected { .. }), "{error:?}");
    }
    let answer = Answer::text("503 Service Unavailable", "no healthy \u{1b}[31mupstream");
    let error = status_of(answer, LONG).expect_err("Envoy's own answer");
    let said = error.to_string();
    assert!(said.contains("503 Service Unavailable"), "{said}");
    assert!(said.contains("no healthy \\u{1b}[31mupstream"), "{said}");
}

#[test]
fn redirects_are_not_followed() {
    let answer = raw("HTTP/1.1 302 Found\r\nlocation: http://x/\r\ncontent-length: 0\r\n\r\n");
    let error = status_of(Answer::Bytes(answer), LONG).expect_err("a redirect");
    assert!(error.to_string().contains("a redirect"), "{error}");
}

#[test]
fn a_huge_body_is_not_read_to_its_end() {
    let head = raw("HTTP/1.1 200 OK\r\nconnection: close\r\n\r\n");
    let error = status_of(Answer::Endless(head), LONG).expect_err("endless");
    assert!(error.to_string().contains("more than 8 MiB"), "{error}");
}

#[test]
fn refusals_suggest_a_remedy() {
    let problem = |status, title: &str| -> ProblemAnswer {
        ProblemAnswer {
            kind: "about:blank".to_owned(),
            title: title.to_owned(),
            status,
            ..ProblemAnswer::default()
        }
    };
    let unauthorised = problem(401, "Unauthorized");
    let error = status_of(Answer::json("401 Unauthorized", &unauthorised), LONG);
    let error = error.expect_err("no token");
    assert_eq!(error.status(), Some(401));
    assert!(error.to_string().contains("LOUDOU_TOKEN"), "{error}");

    let bad = ProblemAnswer {
        problems: vec![RuleProblem {
            path: "limits[0].rate".to_owned(),
            value: "\"0/s\"".to_owned(),
            message: "a rate of nothing never admits".to_owned(),
            ..RuleProblem::default()
        }],
        ..problem(400, "Bad Request")
    };
    let error = status_of(Answer::json("400 Bad Request", &bad), LONG).expect_err("bad");
    let line = "\n  limits[0].rate: \"0/s\": a rate of nothing never admits";
    assert!(error.to_string().ends_with(line), "{error}");
}

#[test]
fn a_stale_edit_brings_the_rule_as_it_is() {
    let current = RuleView {
        name: "r".to_owned(),
        generation: 9,
        ..RuleView::default()
    };
    let stale = ProblemAnswer {
        status: 412,
        current: Some(current.clone()),
        ..ProblemAnswer::default()
    };
    let fake = Fake::new(vec![Answer::json("412 Precondition Failed", &stale)]);
    let error = fake.client(LONG).put_rule("r", &edit()).expect_err("stale");
    assert_eq!(error.current(), Some(&current));
}

#[test]
fn bad_targets_are_refused_before_anything_is_sent() {
    for url in [
        "",
        "127.0.0.1:9911",
        "ftp://x",
        "https://",
        "unix:relative",
        "unix:",
        "http://",
        "http://user:pw@host",
        "http://host/?a=b",
        "http://host/#x",
        "http://a b",
    ] {
        let target = Target {
            url: url.to_owned(),
            ..Target::default()
        };
        let error = Client::new(&target, LONG).expect_err(url);
        assert!(
            matches!(error, ClientError::BadTarget { .. }),
            "{url}: {error:?}"
        );
    }
    for token in ["", "a b", "a\r\nx: y", "ü"] {
        let target = Target {
            url: "http://h".to_owned(),
            token: Some(token.to_owned()),
            ..Target::default()
        };
        let error = Client::new(&target, LONG).expect_err(token);
        assert!(
            matches!(error, ClientError::BadTarget { .. }),
            "{token}: {error:?}"
        );
    }
}

#[test]
fn the_token_is_never_shown() {
    let target = Target {
        url: "http://h/base/".to_owned(),
        token: Some("hunter2".to_owned()),
        ..Target::default()
    };
    let client = Client::new(&target, LONG).expect("a good target");
    assert_eq!(client.url(), "http://h/base");
    let shown = format!("{target:?} {client:?}");
    assert!(!shown.contains("hunter2"), "{shown}");
}

/// A listener that accepts only headers gets JSON in a header. Before its first answer, the client
/// finds out.
#[test]
fn the_way_of_json_is_found_out() {
    let any = |status: &str, ways: &str| {
        let head = format!("HTTP/1.1 {status}\r\nloudou-body: {ways}\r\nconnection: close\r\n");
        let body = serde_json::to_string(&<ProblemAnswer>::default()).expect("JSON");
        let length = body.len();
        Answer::Bytes(format!("{head}content-length: {length}\r\n\r\n{body}").into_bytes())
    };
    let older = Answer::json("400 Bad Request", &<ProblemAnswer>::default());
    let sample = json!({ "path": "/é" });
    let long = json!({ "path": "x".repeat(9_000) });

    // A listener that accepts both ways gets a header for short JSON, and otherwise a body.
    let fake = Fake::new(vec![
        any("400 Bad Request", "any"),
        any("400 Bad Request", "any"),
    ]);
    let client = fake.client(LONG);
    client.explain(&sample).expect_err("400");
    let first = fake.request();
    assert!(
        first.contains(r#"loudou-body: {"path":"/\u00e9"}"#),
        "{first}"
    );
    client.explain(&long).expect_err("400");
    let second = fake.request();
    assert!(!second.contains("loudou-body"), "{second}");
    assert!(fake.try_request().is_none() && !client.has_no_bodies());

    // A listener that accepts only headers: JSON sent as a body is sent again.
    let fake = Fake::new(vec![
        any("400 Bad Request", "header"),
        any("400 Bad Request", "header"),
    ]);
    let client = fake.client(LONG);
    client.explain(&long).expect_err("400");
    assert!(!fake.request().contains("loudou-body"));
    assert!(fake.request().contains("loudou-body"));
    assert!(client.has_no_bodies());

    // An older filter: JSON sent in a header is sent again, as a body.
    let fake = Fake::new(vec![older, Answer::text("200 OK", "{}")]);
    fake.client(LONG)
        .explain(&sample)
        .expect_err("not an explanation");
    assert!(fake.request().contains("loudou-body"));
    let again = fake.request();
    assert!(again.ends_with(r#"{"path":"/\u00e9"}"#), "{again}");
    assert!(
        again.contains("content-type: application/json\r\n"),
        "{again}"
    );
}

/// A server that expects TLS resets the connection, closes it, or answers with an alert. Any other server that does
/// so may have read the request.
#[test]
fn a_port_that_expects_tls_is_named() {
    let alert = b"\x15\x03\x01\x00\x02\x02\x46".to_vec();
    for bytes in [alert, Vec::new()] {
        let fake = Fake::new(vec![Answer::Bytes(bytes)]);
        let error = fake.client(LONG).status().expect_err("no HTTP").to_string();
        let advice = fake.url.replace("http://", "try https://");
        assert!(error.contains(&advice), "{error}");
    }
    let listener = TcpListener::bind("127.0.0.1:0").expect("a port");
    let address = listener.local_addr().expect("an address");
    let server = thread::spawn(move || {
        let (stream, _) = listener.accept().expect("a client");
        // A connection that is closed before its request was read is reset.
        stream.peek(&mut [0]).expect("a request");
    });
    let target = Target {
        url: format!("http://{address}"),
        ..Target::default()
    };
    let client = Client::new(&target, LONG).expect("a good target");
    let error = client.status().expect_err("reset");
    assert!(error.is_in_doubt(), "{error:?}");
    let error = error.to_string();
    assert!(error.contains(&format!("try https://{address}")), "{error}");
    server.join().expect("it ends");
}

/// A failure at the proxy is not blamed on the server behind it.
#[test]
fn errors_name_the_proxy() {
    // Only the silent proxy runs into its limit: a busy machine may take longer than that for the others.
    let status = |proxy: &str, limit: Duration| {
        let target = Target {
            url: "https://envoy.example.com:9911".to_owned(),
            proxy: Some(proxy.replace("http://", "http://user:geheim@")),
            tls: Tls {
                ca: Some(Pem {
                    file: "ca.pem".to_owned(),
                    bytes: std::fs::read(CA).expect("the CA"),
                }),
                ..Tls::default()
            },
            ..Target::default()
        };
        let client = Client::new(&target, limit).expect("a good target");
        assert_eq!(client.url(), "https://envoy.example.com:9911");
        let error = client.status().expect_err("no Envoy").to_string();
        let through = "https://envoy.example.com:9911 through the proxy http://…@127.0.0.1:";
        assert!(
            error.contains(through) && !error.contains("geheim"),
            "{error}"
        );
        error
    };
    let refuses = Fake::new(vec![Answer::text("403 Forbidden", "")]);
    let error = status(&refuses.url, LONG);
    assert!(
        error.starts_with("cannot reach ") && error.contains("403"),
        "{error}"
    );
    let silent = Fake::new(vec![Answer::Hang(Vec::new())]);
    let error = status(&silent.url, SHORT);
    assert!(error.starts_with("no complete answer from "), "{error}");
    let gone = Fake::new(Vec::new());
    let error = status(&gone.url, LONG);
    assert!(error.starts_with("cannot reach "), "{error}");
}
