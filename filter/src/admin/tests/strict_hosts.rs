//! Without tokens, the host that a call names.

use super::strict::detail;
use super::*;

/// A bench without tokens, called over loopback, whose listener has an address of IPv6.
fn tokenless(hosts: &[&str]) -> Bench {
    let mut bench = Bench::new();
    bench.admin = AdminPlane::new(Settings {
        hosts: hosts.iter().map(|host| (*host).to_owned()).collect(),
        ..Settings::default()
    });
    let properties = [
        ("source\0address", "127.0.0.1:5"),
        ("destination\0address", "[2001:db8::7]:9911"),
    ];
    let properties = properties.map(|(path, value)| (path.to_owned(), value.as_bytes().to_vec()));
    bench.host.properties.borrow_mut().extend(properties);
    bench
}

/// The answer to a call of this host.
fn named(bench: &mut Bench, authority: &str) -> (u16, Value) {
    let headers: [(&str, &[u8]); 1] = [(":authority", authority.as_bytes())];
    bench.call("GET", "/v1/status", &headers, None)
}

#[test]
fn without_tokens_the_host_must_be_this_listener() {
    let mut bench = tokenless(&[]);
    for authority in [
        "localhost",
        "LOCALHOST:9911",
        "localhost.",
        "127.0.0.1:9911",
        "127.8.9.10",
        "[::1]",
        "[::1]:1",
        "[::ffff:127.0.0.1]:80",
        "[2001:db8::7]:80",
        "[2001:DB8:0::7]",
    ] {
        let (status, answer) = named(&mut bench, authority);
        assert_eq!(status, 200, "{authority}: {answer}");
    }
    for authority in [
        "evil.example",
        "evil.example:9911",
        "localhost.evil.example",
        "evil.localhost",
        "127.0.0.1.evil.example",
        "127.0.0.1@evil.example",
        "localhost:x",
        "localhost:",
        "::1",
        "[::1",
        "[::1]x",
        "2130706433",
        "127.1",
        "0.0.0.0",
        "[2001:db8::8]",
        "loudou.internal",
        "",
    ] {
        let (status, answer) = named(&mut bench, authority);
        assert_eq!(status, 403, "{authority}: {answer}");
        assert!(detail(&answer).contains("admin.hosts"), "{answer}");
    }
    let (status, _) = bench.call("GET", "/v1/status", &[], None);
    assert_eq!(status, 403, "no host");
}

#[test]
fn configured_hosts_are_known_too() {
    let mut bench = tokenless(&["loudou.internal"]);
    for authority in [
        "loudou.internal",
        "Loudou.Internal:9911",
        "loudou.internal.",
        "[::1]",
    ] {
        assert_eq!(named(&mut bench, authority).0, 200, "{authority}");
    }
    assert_eq!(named(&mut bench, "a.loudou.internal").0, 403);
}
