//! The requests that a rule matches.

use serde_json::{Value, json};

use super::{Fake, rule};

fn holds(matches: &Value, request: &Fake) -> bool {
    rule(&json!({ "match": matches }))
        .matches
        .holds(&mut request.clone())
}

fn method(method: &str) -> Fake {
    Fake {
        method: Some(method.into()),
        ..Fake::to("/")
    }
}

#[test]
fn nothing_given_matches_everything() {
    assert!(holds(&json!({}), &Fake::default()));
    assert!(holds(
        &json!({ "methods": [], "headers": [] }),
        &Fake::default()
    ));
}

#[test]
fn methods() {
    let matches = json!({ "methods": ["GET", "POST"] });
    assert!(holds(&matches, &method("GET")));
    assert!(holds(&matches, &method("POST")));
    for other in ["get", "PUT", "GE", "GETS", ""] {
        assert!(!holds(&matches, &method(other)), "{other}");
    }
    assert!(!holds(&matches, &Fake::to("/")), "no method");
}

#[test]
fn prefixes_hold_on_segments() {
    let cases = [
        ("/reply", "/reply", true),
        ("/reply", "/reply/", true),
        ("/reply", "/reply/7/edit", true),
        ("/reply", "/reply?x=/y", true),
        ("/reply", "/reply#x", true),
        ("/reply", "/replyall", false),
        ("/reply", "/Reply", false),
        ("/reply", "/x/reply", false),
        ("/reply", "/", false),
        ("/reply", "", false),
        ("/reply/", "/reply/7", true),
        ("/reply/", "/reply/", true),
        ("/reply/", "/reply", false),
        ("/", "/anything", true),
        ("/", "*", false),
    ];
    for (prefix, path, expected) in cases {
        let matches = json!({ "path": { "prefix": prefix } });
        assert_eq!(
            holds(&matches, &Fake::to(path)),
            expected,
            "{prefix} of {path}"
        );
    }
    assert!(
        !holds(&json!({ "path": { "prefix": "/" } }), &Fake::default()),
        "no path"
    );
}

#[test]
fn exact_paths() {
    let cases = [
        ("/reply", true),
        ("/reply?x=1", true),
        ("/reply?x=1#y?z", true),
        ("/reply#y", true),
        ("/reply?", true),
        ("/reply/", false),
        ("/repl", false),
        ("/REPLY", false),
        ("?/reply", false),
    ];
    for (path, expected) in cases {
        let matches = json!({ "path": { "exact": "/reply" } });
        assert_eq!(holds(&matches, &Fake::to(path)), expected, "{path}");
    }
    let bytes = Fake {
        path: Some(b"/\xff".to_vec()),
        ..Fake::default()
    };
    assert!(
        holds(&json!({ "path": { "prefix": "/" } }), &bytes),
        "any bytes"
    );
    assert!(!holds(&json!({ "path": { "exact": "/\u{ff}" } }), &bytes));
}

#[test]
fn headers() {
    let with = |value: &[u8]| Fake::default().with("x-plan", value);
    let present = |yes: bool| json!({ "headers": [{ "name": "X-Plan", "present": yes }] });
    let exact = json!({ "headers": [{ "name": "x-plan", "exact": "free" }] });
    for (request, is_present, is_exact) in [
        (Fake::default(), false, false),
        (with(b""), true, false),
        (with(b"free"), true, true),
        (with(b"Free"), true, false),
        (with(b"free "), true, false),
        (with(b"\xff\xfe"), true, false),
        (Fake::default().with("x-plans", "free"), false, false),
    ] {
        assert_eq!(holds(&present(true), &request), is_present, "{request:?}");
        assert_eq!(holds(&present(false), &request), !is_present, "{request:?}");
        assert_eq!(holds(&exact, &request), is_exact, "{request:?}");
    }
}

#[test]
fn all_parts_must_hold() {
    let matches = json!({
        "methods": ["POST"],
        "path": { "prefix": "/reply" },
        "headers": [{ "name": "x-a", "present": true }, { "name": "x-b", "exact": "b" }]
    });
    let request = || Fake {
        method: Some(b"POST".to_vec()),
        ..Fake::to("/reply/1").with("x-a", "a").with("x-b", "b")
    };
    assert!(holds(&matches, &request()));
    let others = [
        Fake {
            method: Some(b"GET".to_vec()),
            ..request()
        },
        Fake {
            path: Some(b"/other".to_vec()),
            ..request()
        },
        request().with("x-b", "c"),
        Fake {
            headers: [("x-b".to_string(), b"b".to_vec())].into(),
            ..request()
        },
    ];
    for other in others {
        assert!(!holds(&matches, &other), "{other:?}");
    }
}

/// Each header costs a host call, so headers are read last, and only as far as needed.
#[test]
fn headers_are_read_only_when_needed() {
    let rule = rule(&json!({ "match": {
        "path": { "prefix": "/reply" },
        "headers": [{ "name": "x-a", "present": true }, { "name": "x-b", "present": true }]
    }}));
    for (request, asked) in [
        (Fake::to("/other"), vec![]),
        (Fake::to("/reply"), vec!["x-a"]),
        (Fake::to("/reply").with("x-a", "1"), vec!["x-a", "x-b"]),
    ] {
        let mut request = request;
        assert!(!rule.matches.holds(&mut request));
        assert_eq!(request.asked, asked);
    }
}
