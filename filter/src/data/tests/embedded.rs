//! The admin API that the data role answers itself.

use super::*;
use crate::admin::Begin;
use crate::host::Reply;
use crate::plugin::{Plugin, read};

/// A data role whose admin API is at `/.loudou`, with a rule per user, on a fake host that a client reached
/// at this address.
fn plane(destination: &str) -> (FakeHost, DataPlane) {
    let host = FakeHost::default();
    reach(&host, destination);
    let token =
        |name: &str, may: &str, sha256: &str| json!({ "name": name, "sha256": sha256, "may": may });
    let file = json!({
        "version": 1,
        "rules": rules("enforce", &[]),
        "admin": { "at": "/.loudou", "tokens": [
            token("ops", "edit", "6fc8433e3bb906f1590e7ef545948de2540f6ae2b5bcf1656cf1f03126afa987"),
        ] },
    });
    let file = serde_json::to_vec(&file).expect("JSON");
    let plugin = read(&file).unwrap_or_else(|problems| panic!("{problems:?}"));
    let (Plugin::Data(file, Some(admin)), _) = plugin else {
        panic!("no admin API");
    };
    let admin = AdminPlane::embedded(admin, Nanos::ZERO);
    let mut plane = DataPlane::new(file, Nanos::ZERO).with_admin(admin);
    assert!(plane.start(&host) && plane.has_admin());
    (host, plane)
}

/// A connection to this address from this machine.
fn reach(host: &FakeHost, destination: &str) {
    connect(host, "127.0.0.1:50000", destination);
}

fn connect(host: &FakeHost, source: &str, destination: &str) {
    let mut properties = host.properties.borrow_mut();
    for (end, address) in [("source", source), ("destination", destination)] {
        properties.insert(format!("{end}\0address"), address.as_bytes().to_vec());
    }
}

fn ask(
    (host, plane): (&FakeHost, &mut DataPlane),
    method: &str,
    path: &str,
    headers: &[(&str, &[u8])],
) -> Option<Reply> {
    let token: (&str, &[u8]) = ("authorization", b"Bearer edit-token");
    host.request(method, path, &[&[token], headers].concat());
    match plane.call(host, false)? {
        Begin::Answer(reply) => Some(reply),
        Begin::AwaitBody(_) => panic!("no body arrives"),
    }
}

#[test]
fn it_answers_below_its_path_and_only_there() {
    let (host, mut plane) = plane("127.0.0.1:8080");
    for (path, status) in [
        ("/.loudou/v1/status", Some(200)),
        ("/.loudou/v1/buckets?limit=1", Some(200)),
        ("/.loudou/v1/nothing", Some(404)),
        ("/.loudou", Some(404)),
        ("/.loudou?", Some(404)),
        ("/.loudou/.loudou/v1/status", Some(404)),
        ("/v1/status", None),
        ("/.loudouv1/status", None),
        ("/.Loudou/v1/status", None),
        ("//.loudou/v1/status", None),
        ("/%2eloudou/v1/status", None),
        ("/", None),
    ] {
        let reply = ask((&host, &mut plane), "GET", path, &[]);
        assert_eq!(reply.map(|reply| reply.status), status, "{path}");
    }
}

/// The client of a tunnel names the destination address itself, and the client of a proxy names its
/// own address.
#[test]
fn a_connection_from_another_address_finds_nothing() {
    let (host, mut plane) = plane("127.0.0.1:8080");
    for (source, status) in [
        ("10.0.0.1:50000", 404),
        ("[2001:db8::1]:50000", 404),
        ("127.0.0.1:0", 404),
        ("[::1]:0", 404),
        ("", 404),
        ("127.0.0.1:50000", 200),
        ("[::1]:50000", 200),
    ] {
        connect(&host, source, "127.0.0.1:8080");
        let reply = ask((&host, &mut plane), "GET", "/.loudou/v1/status", &[]);
        assert_eq!(reply.map(|reply| reply.status), Some(status), "{source}");
    }
}

#[test]
fn a_connection_to_another_address_finds_nothing() {
    let (host, mut plane) = plane("10.0.0.1:8080");
    let forged: [(&str, &[u8]); 3] = [
        ("x-forwarded-for", b"127.0.0.1"),
        (":authority", b"127.0.0.1:8080"),
        ("x-envoy-external-address", b"127.0.0.1"),
    ];
    for address in [
        "10.0.0.1:8080",
        "[2001:db8::1]:80",
        "[::ffff:10.0.0.1]:80",
        "0.0.0.0:0",
        "pipe",
        "",
    ] {
        reach(&host, address);
        let reply = ask((&host, &mut plane), "GET", "/.loudou/v1/status", &forged);
        let reply = reply.expect("an answer");
        assert_eq!(
            (reply.status, reply.headers.len(), reply.body.len()),
            (404, 0, 0)
        );
    }
    for address in [
        "127.0.0.1:80",
        "127.9.9.9:80",
        "[::1]:80",
        "[::ffff:127.0.0.1]:80",
    ] {
        reach(&host, address);
        let reply = ask((&host, &mut plane), "GET", "/.loudou/v1/status", &[]);
        assert_eq!(reply.expect("an answer").status, 200, "{address}");
    }
}

#[test]
fn an_edit_in_a_header_acts_on_the_next_request() {
    let (host, mut plane) = plane("[::1]:8080");
    let edit = br#"{"mode":"off"}"#;
    assert_eq!(
        [
            send(&mut plane, &host, Some(b"alice")),
            send(&mut plane, &host, Some(b"alice"))
        ],
        [0, 0]
    );
    assert_eq!(send(&mut plane, &host, Some(b"alice")), 429);
    let headers: [(&str, &[u8]); 2] = [("loudou-body", edit), ("if-match", b"*")];
    let path = "/.loudou/v1/rules/per-user";
    let reply = ask((&host, &mut plane), "PUT", path, &headers).expect("an answer");
    assert_eq!(
        reply.status,
        200,
        "{}",
        String::from_utf8_lossy(&reply.body)
    );
    let named = reply.headers.iter().find(|(name, _)| name == "loudou-body");
    assert_eq!(named.map(|(_, ways)| ways.as_str()), Some("header"));
    assert_eq!(send(&mut plane, &host, Some(b"alice")), 0);
}

#[test]
fn a_call_with_a_body_is_answered_without_it() {
    let (host, mut plane) = plane("127.0.0.1:80");
    // The declaration of the body does not matter: curl's default, and a length beyond any bound.
    for (kind, length) in [
        ("application/json", "20"),
        ("application/x-www-form-urlencoded", "20"),
        ("application/json", "100000000"),
    ] {
        let headers: [(&str, &[u8]); 4] = [
            ("authorization", b"Bearer edit-token"),
            ("if-match", b"*"),
            ("content-type", kind.as_bytes()),
            ("content-length", length.as_bytes()),
        ];
        host.request("PUT", "/.loudou/v1/rules/per-user", &headers);
        let Some(Begin::Answer(reply)) = plane.call(&host, true) else {
            panic!("it waits for a body that does not arrive");
        };
        assert_eq!(reply.status, 400, "{kind}");
        assert!(String::from_utf8_lossy(&reply.body).contains("loudou-body"));
    }
}

/// The worker's only timer serves both roles. A ban's end is reported even if the rules need no
/// timer.
#[test]
fn the_timer_looks_through_bans() {
    let (host, mut plane) = plane("127.0.0.1:80");
    plane.tick(&host);
    let ban = "/.loudou/v1/buckets/per-user/alice/ban?for=3s";
    let reply = ask((&host, &mut plane), "POST", ban, &[]).expect("an answer");
    assert_eq!(
        reply.status,
        200,
        "{}",
        String::from_utf8_lossy(&reply.body)
    );
    let mut fired = 0;
    while host.now() < Nanos::from_secs(3) {
        let period = host.timer_ms.get();
        assert!(period > 0 && fired < 100, "the timer stopped");
        host.now.set(
            host.now()
                .saturating_add(Nanos::from_millis(period.into()))
                .get(),
        );
        plane.tick(&host);
        fired += 1;
    }
    let lines = host.logs.take();
    let ended = lines.iter().filter(|line| line.starts_with("ban_expired"));
    assert_eq!(ended.count(), 1, "{lines:?}");
}
