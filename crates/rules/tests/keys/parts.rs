//! Tests all fields of a match and all parts of a key with requests of any bytes.

use loudou_rules::rule::key::Key;
use proptest::prelude::*;
use serde_json::{Value, json};

use super::{Fake, rule};

fn holds(matches: &Value, request: &Fake) -> bool {
    rule(&json!({ "match": matches }))
        .matches
        .holds(&mut request.clone())
}

fn key(part: &Value, request: &Fake) -> Option<String> {
    let rule = rule(&json!({ "key": [part] }));
    match rule.key_of(&mut request.clone()) {
        Key::Bucket(key) => Some(key),
        Key::Skip => None,
        Key::Refuse | Key::Ambiguous => panic!("{part}"),
    }
}

fn from(source: &str) -> Fake {
    Fake {
        source: Some(source.into()),
        ..Fake::to("/")
    }
}

fn at(host: &str) -> Fake {
    Fake::to("/").with(":authority", host)
}

fn cookies(cookies: &str) -> Fake {
    Fake::to("/").with("cookie", cookies)
}

#[test]
fn suffixes_and_templates_of_paths() {
    let suffix = |path: &str| holds(&json!({ "path": { "suffix": ".json" } }), &Fake::to(path));
    assert!(suffix("/a.json") && suffix("/a.json?x=.xml") && suffix("/.json"));
    assert!(!suffix("/a.jsonp") && !suffix("/a?x=.json") && !suffix("/a#.json"));
    let template = |path: &str| {
        let matches = json!({ "path": { "template": "/users/{id}/posts/{post}" } });
        holds(&matches, &Fake::to(path))
    };
    assert!(template("/users/7/posts/8") && template("/users/%2F/posts/{post}?q"));
    assert!(!template("/users/7/posts/") && !template("/users//posts/8"));
    assert!(!template("/users/7/posts/8/") && !template("/users/7/post/8"));
}

#[test]
fn hosts_are_compared_without_case_port_and_root() {
    let of =
        |kind: &str, text: &str, host: &str| holds(&json!({ "host": { kind: text } }), &at(host));
    for host in [
        "api.example.com",
        "API.Example.COM",
        "api.example.com:8443",
        "api.example.com.:80",
    ] {
        assert!(of("exact", "Api.example.com", host), "{host}");
        assert!(of("exact", "api.Example.com.", host), "{host}");
        assert!(of("suffix", ".example.com", host), "{host}");
        assert!(of("suffix", ".example.com.", host), "{host}");
        assert!(of("prefix", "api.", host), "{host}");
    }
    for host in [
        "example.com",
        "api.example.com.evil.org",
        "api.example.org",
        "",
        ":80",
    ] {
        assert!(!of("suffix", ".example.com", host), "{host}");
    }
    assert!(of("exact", "[::1]", "[::1]:80") && of("exact", "[::1]", "[::1]"));
    assert!(!holds(
        &json!({ "host": { "suffix": "m" } }),
        &Fake::to("/")
    ));
    assert_eq!(key(&json!("host"), &at("A.b:80")).as_deref(), Some("a.b"));
    assert_eq!(key(&json!("host"), &at(":80")), None);
}

#[test]
fn query_parameters() {
    let of = |test: Value, path: &str| holds(&json!({ "query": [test] }), &Fake::to(path));
    let absent = json!({ "name": "debug", "present": false });
    let exact = json!({ "name": "user id", "exact": "a b" });
    assert!(of(absent.clone(), "/?debu=1") && of(absent.clone(), "/debug"));
    assert!(!of(absent.clone(), "/?debug") && !of(absent, "/?x&%64ebug=1"));
    assert!(
        of(exact.clone(), "/?user%20id=a+b") && of(exact.clone(), "/?user+id=%61%20b&user+id=c")
    );
    assert!(!of(exact.clone(), "/?user+id=c&user+id=a+b") && !of(exact, "/?user+id=a%2Bb"));
    let starts = json!({ "name": "q", "prefix": "a", "suffix": null });
    assert!(of(starts.clone(), "/?q=abc") && !of(starts, "/?q=bac"));
    let part = json!({ "query": "user" });
    let of = |path: &str| key(&part, &Fake::to(path));
    assert_eq!(of("/?user=%61lice").as_deref(), Some("alice"));
    assert_eq!(of("/?user=alice&user=bob").as_deref(), Some("alice"));
    assert_eq!(of("/?user=%ff%3A%00").as_deref(), Some("%FF%3A%00"));
    for path in ["/", "/?user=", "/?user", "/?USER=a", "/#?user=a"] {
        assert_eq!(of(path), None, "{path}");
    }
}

#[test]
fn cookies_with_and_without_quotes() {
    let part = json!({ "cookie": "session" });
    for (header, value) in [
        ("session=a", Some("a")),
        ("x=1; session=a; session=b", Some("a")),
        ("x=1;session = \"a b\" ", Some("a%20b")),
        ("session=\"a", Some("\"a")),
        ("session=a=b\"", Some("a=b\"")),
        ("session=\"\"", None),
        ("session=", None),
        ("session", None),
        ("Session=a; xsession=b", None),
        (";;=;\"", None),
        ("session=\"", Some("\"")),
    ] {
        assert_eq!(key(&part, &cookies(header)).as_deref(), value, "{header}");
    }
    let of = |test: Value, header: &str| holds(&json!({ "cookies": [test] }), &cookies(header));
    let present = |yes: bool| json!({ "name": "session", "present": yes });
    assert!(of(present(true), "session=") && of(present(false), "session; x=1"));
    assert!(of(
        json!({ "name": "plan", "exact": "free" }),
        "a=b; plan=\"free\""
    ));
    assert!(holds(
        &json!({ "cookies": [present(false)] }),
        &Fake::to("/")
    ));
}

#[test]
fn sources() {
    let of = |source: &str| {
        holds(
            &json!({ "source": ["203.0.113.0/24", "2001:db8::/32", "10.1.2.3"] }),
            &from(source),
        )
    };
    for source in [
        "203.0.113.7",
        "2001:db8:1::1",
        "10.1.2.3",
        "::ffff:10.1.2.3",
    ] {
        assert!(of(source), "{source}");
    }
    for source in [
        "203.0.114.7",
        "2001:db9::1",
        "10.1.2.4",
        "",
        "/tmp/socket",
        "\u{ff}",
    ] {
        assert!(!of(source), "{source}");
    }
    assert!(!holds(
        &json!({ "source": ["0.0.0.0/0", "::/0"] }),
        &Fake::to("/")
    ));
    let narrow = json!({ "source": { "v4_prefix": 24, "v6_prefix": 128 } });
    let all = json!({ "source": { "v4_prefix": 0, "v6_prefix": 0 } });
    for (source, plain, narrowed, one) in [
        ("203.0.113.7", "203.0.113.7", "203.0.113.0/24", "0.0.0.0/0"),
        (
            "::ffff:203.0.113.7",
            "203.0.113.7",
            "203.0.113.0/24",
            "0.0.0.0/0",
        ),
        (
            "2001:DB8::0:1",
            "2001%3Adb8%3A%3A/64",
            "2001%3Adb8%3A%3A1",
            "%3A%3A/0",
        ),
        ("fe80::1%eth0", "fe80%3A%3A/64", "fe80%3A%3A1", "%3A%3A/0"),
        (
            "@/tmp/socket",
            "@/tmp/socket",
            "@/tmp/socket",
            "@/tmp/socket",
        ),
    ] {
        let request = from(source);
        assert_eq!(key(&json!("source"), &request).as_deref(), Some(plain));
        assert_eq!(key(&narrow, &request).as_deref(), Some(narrowed));
        assert_eq!(key(&all, &request).as_deref(), Some(one));
    }
}

#[test]
fn routes_metadata_and_the_rest() {
    let request = Fake {
        method: Some(b"POST".to_vec()),
        route: Some(b"replies-eu".to_vec()),
        client_cert: Some(b"spiffe://a/b".to_vec()),
        metadata: [("jwt/payload/sub".to_string(), b"alice".to_vec())].into(),
        ..Fake::to("/a/b/c?d=/e")
    };
    let nobody = Fake::to("");
    for (part, value) in [
        (json!("method"), "POST"),
        (json!("route"), "replies-eu"),
        (json!("client_cert"), "spiffe%3A//a/b"),
        (json!({ "metadata": ["jwt", "payload", "sub"] }), "alice"),
        (json!({ "path": { "segments": 1 } }), "/a"),
        (json!({ "path": { "segments": 2 } }), "/a/b"),
        (json!({ "path": { "segments": 3 } }), "/a/b/c"),
        (json!({ "path": { "segments": 64 } }), "/a/b/c"),
        (json!({ "path": {} }), "/a/b/c"),
    ] {
        assert_eq!(key(&part, &request).as_deref(), Some(value), "{part}");
        assert_eq!(key(&part, &nobody), None, "{part}");
    }
    let sub = |test: &str, value: Value| json!({ "metadata": [{ "path": ["jwt", "payload", "sub"], test: value }] });
    assert!(holds(&sub("exact", json!("alice")), &request));
    assert!(holds(&sub("present", json!(false)), &nobody));
    assert!(!holds(&sub("suffix", json!("bob")), &request));
    assert!(holds(
        &json!({ "route": { "prefix": "replies-" } }),
        &request
    ));
    assert!(!holds(
        &json!({ "route": { "exact": "replies" } }),
        &request
    ));
}

#[test]
fn not_is_the_opposite() {
    let health = json!({ "path": { "exact": "/healthz" } });
    let not = json!({ "methods": ["GET"], "not": health });
    let get = |path: &str| Fake {
        method: Some(b"GET".to_vec()),
        ..Fake::to(path)
    };
    assert!(
        holds(&not, &get("/")) && !holds(&not, &get("/healthz?x")) && !holds(&not, &Fake::to("/"))
    );
    let twice = json!({ "not": { "not": health } });
    assert!(holds(&twice, &get("/healthz")) && !holds(&twice, &get("/")));
    assert!(!holds(&json!({ "not": {} }), &get("/")));
}

/// Bytes that clients use to break parsers.
fn nasty() -> impl Strategy<Value = Vec<u8>> {
    let bytes = b"/?#&=;%+\"{}:.[]aA0 \\\0\xff\xc3\xa9";
    prop_oneof![
        prop::collection::vec(prop::sample::select(&bytes[..]), 0..40),
        prop::collection::vec(any::<u8>(), 0..40),
    ]
}

proptest! {
    #![proptest_config(ProptestConfig { failure_persistence: None, ..ProptestConfig::with_cases(1024) })]

    /// Every request gets an answer, and its key is printable. A match and its negation never
    /// agree.
    #[test]
    fn any_bytes_get_an_answer(values in prop::collection::vec(nasty(), 6)) {
        let take = |at: usize| values[at].clone();
        let request = Fake {
            method: Some(take(0)),
            path: Some(take(1)),
            source: Some(take(2)),
            route: Some(take(3)),
            ..Fake::default()
        };
        let request = request.with(":authority", take(4)).with("cookie", take(5));
        for matches in [
            json!({ "path": { "template": "/a/{b}" } }),
            json!({ "path": { "suffix": "a" } }),
            json!({ "host": { "suffix": "a" } }),
            json!({ "query": [{ "name": "a", "prefix": "a" }] }),
            json!({ "cookies": [{ "name": "a", "present": true }] }),
            json!({ "source": ["::/0", "0.0.0.0/0"] }),
        ] {
            prop_assert_ne!(holds(&matches, &request), holds(&json!({ "not": matches }), &request));
        }
        for part in [
            json!({ "query": "a" }),
            json!({ "cookie": "a" }),
            json!({ "path": { "segments": 2 } }),
            json!("source"),
            json!("host"),
        ] {
            let key = key(&part, &request).unwrap_or_default();
            prop_assert!(key.bytes().all(|b| b.is_ascii_graphic()), "{}", key);
        }
    }
}
