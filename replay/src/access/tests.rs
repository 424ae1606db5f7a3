use loudou_rules::request::Request as _;
use proptest::prelude::*;

use super::*;

const ENVOY: &str = r#"[2016-04-15T20:17:00.310Z] "POST /api/v1/locations?x=1 HTTP/2" 204 - 154 0 226 100 "9.9.9.9, 10.0.35.28" "nsq2http" "cc21d9b0-cf5c-432b-8c7e-98aeb7988cd2" "locations" "tcp://10.0.2.1:80""#;
const ISTIO: &str = r#"[2020-11-25T21:26:18.409Z] "GET /status/418 HTTP/1.1" 418 - via_upstream - "-" 0 135 3 1 "-" "curl/7.73.0-DEV" "84961386-6d84-929d-98bd-c5aee93b5c88" "httpbin:8000" "127.0.0.1:80" inbound|8000|| 127.0.0.1:41854 10.44.1.27:80 10.44.1.23:37652 outbound_.8000_._.httpbin.foo.svc.cluster.local default"#;
const NGINX: &str = r#"203.0.113.7 - frank [10/Oct/2000:13:55:36 -0700] "GET /a\x22b?c=d HTTP/1.1" 200 2326 "http://example.com/" "Mozilla/5.0 \x22x\x22""#;

fn text(value: Option<Cow<'_, [u8]>>) -> Option<String> {
    value.map(|value| String::from_utf8(value.into_owned()).expect("UTF-8"))
}

/// Time, method, path, source, route, and the headers called `names`.
fn seen(mut record: LoggedRequest<'_>, names: &[&str]) -> (u64, Vec<Option<String>>) {
    let mut values = vec![
        text(record.request.method()),
        text(record.request.path()),
        text(record.request.source()),
        text(record.request.route()),
    ];
    values.extend(names.iter().map(|name| text(record.request.header(name))));
    (record.at.get(), values)
}

fn some<const N: usize>(values: [&str; N]) -> Vec<Option<String>> {
    values
        .map(|value| Some(value.to_owned()).filter(|value| !value.is_empty()))
        .to_vec()
}

#[test]
fn envoys_default_format() {
    let record = envoy(ENVOY.as_bytes()).expect("a line");
    assert_eq!(record.duration, Some(Nanos::from_millis(226)));
    let names = [
        ":authority",
        "user-agent",
        "x-request-id",
        "x-forwarded-for",
    ];
    let (at, values) = seen(record, &names);
    assert_eq!(at, 1_460_751_420_310_000_000);
    let id = "cc21d9b0-cf5c-432b-8c7e-98aeb7988cd2";
    let forwarded = "9.9.9.9, 10.0.35.28";
    let expected = [
        "POST",
        "/api/v1/locations?x=1",
        "10.0.35.28",
        "",
        "locations",
        "nsq2http",
        id,
        forwarded,
    ];
    assert_eq!(values, some(expected));
}

#[test]
fn istios_format() {
    let record = envoy(ISTIO.as_bytes()).expect("a line");
    assert_eq!(record.duration, Some(Nanos::from_millis(3)));
    let (_, values) = seen(record, &["host", "user-agent", "x-forwarded-for"]);
    let expected = [
        "GET",
        "/status/418",
        "10.44.1.23",
        "default",
        "httpbin:8000",
        "curl/7.73.0-DEV",
        "",
    ];
    assert_eq!(values, some(expected));
}

#[test]
fn a_dash_is_a_missing_value() {
    let line = r#"[2016-04-15T20:17:00.310Z] "- - HTTP/1.1" 400 DPE 0 11 0 - "-" "-" "-" "-" "-""#;
    let (_, values) = seen(
        envoy(line.as_bytes()).expect("a line"),
        &["host", "user-agent"],
    );
    assert_eq!(values, some(["", "", "", "", "", ""]));
}

#[test]
fn quotes_in_a_user_agent_are_kept() {
    let line = ENVOY.replace("nsq2http", r#"x" "y" "z"#);
    let names = ["user-agent", ":authority", "x-forwarded-for"];
    let (_, values) = seen(envoy(line.as_bytes()).expect("a line"), &names);
    let expected = some([r#"x" "y" "z"#, "locations", "9.9.9.9, 10.0.35.28"]);
    assert_eq!(values[4..], expected);
}

#[test]
fn nginx_combined_and_main() {
    let (at, values) = seen(
        nginx(NGINX.as_bytes()).expect("a line"),
        &["user-agent", "referer"],
    );
    assert_eq!(at, 971_211_336_000_000_000);
    let agent = r#"Mozilla/5.0 "x""#;
    let referer = "http://example.com/";
    let expected = ["GET", r#"/a"b?c=d"#, "203.0.113.7", "", agent, referer];
    assert_eq!(values, some(expected));

    let main = format!(r#"{NGINX} "1.1.1.1, 2.2.2.2""#);
    let (_, values) = seen(
        nginx(main.as_bytes()).expect("a line"),
        &["x-forwarded-for"],
    );
    assert_eq!(values[4..], some(["1.1.1.1, 2.2.2.2"]));
}

#[test]
fn escapes_of_nginx() {
    assert_eq!(*unescape(b"plain"), *b"plain");
    assert_eq!(
        *unescape(br"\x1B[m\xfF\x5c\xg0\x1"),
        *b"\x1b[m\xff\\\\xg0\\x1"
    );
}

#[test]
fn malformed_lines_are_reported() {
    for line in [
        "",
        "[",
        "[2016] \"x\" 1",
        r#"[2016-04-15T20:17:00.310Z] "GET / HTTP/1.1""#,
    ] {
        assert!(envoy(line.as_bytes()).is_err(), "{line}");
    }
    // A TLS handshake on a plain-text port.
    let handshake = r#"1.2.3.4 - - [10/Oct/2000:13:55:36 -0700] "\x16\x03\x01" 400 157 "-" "-""#;
    let error = nginx(handshake.as_bytes()).expect_err("no request");
    assert!(error.contains("METHOD PATH PROTOCOL"), "{error}");
}

proptest! {
    #[test]
    fn arbitrary_lines_never_panic(cuts in prop::collection::vec((0_usize..300, any::<u8>()), 0..6)) {
        for line in [ENVOY, ISTIO, NGINX] {
            let mut line = line.as_bytes().to_vec();
            for (at, byte) in &cuts {
                let at = at % line.len();
                line[at] = *byte;
            }
            let read = [envoy(&line).is_ok(), nginx(&line).is_ok()];
            prop_assert!(read != [true, true]);
        }
    }
}
