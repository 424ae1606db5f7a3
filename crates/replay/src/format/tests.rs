use loudou_rules::request::Request as _;
use proptest::prelude::*;

use super::*;

mod clients;

const ENVOY: &str = r#"[2016-04-15T20:17:00.310Z] "POST /api/v1/locations?x=1 HTTP/2" 204 - 154 0 226 100 "9.9.9.9, 10.0.35.28" "nsq2http" "cc21d9b0-cf5c-432b-8c7e-98aeb7988cd2" "locations" "tcp://10.0.2.1:80""#;
const ISTIO: &str = r#"[2020-11-25T21:26:18.409Z] "GET /status/418 HTTP/1.1" 418 - via_upstream - "-" 0 135 3 1 "-" "curl/7.73.0-DEV" "84961386-6d84-929d-98bd-c5aee93b5c88" "httpbin:8000" "127.0.0.1:80" inbound|8000|| 127.0.0.1:41854 10.44.1.27:80 10.44.1.23:37652 outbound_.8000_._.httpbin.foo.svc.cluster.local default"#;
const ISTIO_TCP: &str = r#"[2020-11-25T21:26:18.409Z] "- - -" 0 - - - "-" 0 135 3 - "-" "-" "-" "-" "10.0.0.1:80" outbound|80||x 10.0.0.2:1 10.0.0.3:80 10.0.0.4:2 - -"#;
const COMMON_LINE: &str =
    r#"203.0.113.7 - frank [10/Oct/2000:13:55:36 -0700] "GET /a\x22b?c=d HTTP/1.1" 200 2326"#;
const INGRESS_LINE: &str = r#"192.168.1.1 - - [10/Oct/2000:13:55:36 -0700] "GET /a HTTP/2.0" 200 612 "-" "curl/7.8" 43 1.500 [default-web-80] [] 10.0.0.5:80, 10.0.0.6:80 0, 612 0.001, 0.002 502, 200 0a1b2c"#;
const ALB_LINE: &str = r#"https 2018-07-02T22:23:00.186641Z app/my-loadbalancer/50dc6c495c0c9188 192.168.131.39:2817 10.0.0.1:80 0.086 0.048 -1 429 200 0 57 "GET https://www.example.com:443/a?b HTTP/1.1" "curl/7.46.0" ECDHE-RSA-AES128-GCM-SHA256 TLSv1.2 arn:aws:elasticloadbalancing:us-east-2:123456789012:targetgroup/my-targets/73e2d6bc24d8a067 "Root=1-58337281-1d84f3d73c47ec4e58577259" "www.example.com" "arn:aws:acm:us-east-2:123456789012:certificate/12345678-1234-1234-1234-123456789012" 1 2018-07-02T22:22:48.364000Z "authenticate,forward" "-" "-" "10.0.0.1:80" "200" "-" "-" TID_123456"#;

/// The format that a line shows; time in milliseconds, duration, status; method, path, source, route, and
/// the headers `names`.
fn seen(line: &str, names: &[&str]) -> (LogFormat, [u64; 3], Vec<String>) {
    let mut parser = LineParser::new(None, None);
    let parsed = parser.parse(line.as_bytes());
    let Ok(LogLine::Request(mut record)) = parsed else {
        panic!("{line}: {parsed:?}");
    };
    let text = |value: Option<std::borrow::Cow<'_, [u8]>>| {
        value.map_or(String::new(), |value| {
            String::from_utf8(value.into_owned()).expect("UTF-8")
        })
    };
    let ms = |nanos: loudou_limiter::Nanos| nanos.get() / 1_000_000;
    let numbers = [
        ms(record.at),
        record.duration.map_or(0, ms),
        record.status.map_or(0, u64::from),
    ];
    let request = &mut record.request;
    let mut values = vec![
        text(request.method()),
        text(request.path()),
        text(request.source()),
        text(request.route()),
    ];
    values.extend(names.iter().map(|name| text(request.header(name))));
    drop(record);
    (parser.form.expect("a format"), numbers, values)
}

#[test]
fn every_built_in_format_is_one() {
    for form in LogFormat::ALL {
        for pattern in form.patterns() {
            assert!(pattern.is_ok(), "{form:?}: {pattern:?}");
        }
    }
    let parser = LineParser::new(None, None);
    assert_eq!(parser.patterns.len(), 2 + 5 + 1 + 3 + 1);
}

#[test]
fn envoy_and_istio() {
    let names = ["host", "user-agent", "x-forwarded-for", "x-request-id"];
    let id = "cc21d9b0-cf5c-432b-8c7e-98aeb7988cd2";
    let expected = [
        "POST",
        "/api/v1/locations?x=1",
        "",
        "",
        "locations",
        "nsq2http",
        "9.9.9.9, 10.0.35.28",
        id,
    ];
    let found = seen(ENVOY, &names);
    let numbers = [1_460_751_420_310, 226, 204];
    assert_eq!(
        found,
        (
            LogFormat::Envoy,
            numbers,
            expected.map(str::to_owned).to_vec()
        )
    );

    let id = "84961386-6d84-929d-98bd-c5aee93b5c88";
    let expected = [
        "GET",
        "/status/418",
        "10.44.1.23",
        "default",
        "httpbin:8000",
        "curl/7.73.0-DEV",
        "",
        id,
    ];
    let numbers = [1_606_339_578_409, 3, 418];
    let found = seen(ISTIO, &names);
    assert_eq!(
        found,
        (
            LogFormat::Envoy,
            numbers,
            expected.map(str::to_owned).to_vec()
        )
    );
}

#[test]
fn a_dash_is_a_missing_value() {
    let line = r#"[2016-04-15T20:17:00.310Z] "- - HTTP/1.1" 400 DPE 0 11 0 - "-" "-" "-" "-" "-""#;
    let (_, _, values) = seen(line, &["host", "user-agent"]);
    assert_eq!(values, [""; 6]);
}

#[test]
fn quotes_in_a_user_agent_of_envoy_are_kept() {
    let line = ENVOY.replace("nsq2http", r#"x" "y" "z"#);
    let (_, _, values) = seen(&line, &["user-agent", ":authority", "x-forwarded-for"]);
    assert_eq!(
        values[4..],
        [r#"x" "y" "z"#, "locations", "9.9.9.9, 10.0.35.28"]
    );
}

/// Envoy does not escape a path. Even if a path imitates other columns, the columns of the line are
/// read correctly.
#[test]
fn quotes_in_a_path_of_envoy_are_kept() {
    for path in [
        r#"/search?q="foo""#,
        r#"/""#,
        r#"/a"?""#,
        r#"/"HTTP/2""#,
        r#"/x-""#,
        r#"/"429"-"0"#,
    ] {
        for (line, own) in [(ENVOY, "/api/v1/locations?x=1"), (ISTIO, "/status/418")] {
            let line = line.replace(own, path);
            let (form, [_, duration, status], values) = seen(&line, &["x-forwarded-for", "host"]);
            let (_, [_, own_duration, own_status], own) = seen(
                if line.contains("via_upstream") {
                    ISTIO
                } else {
                    ENVOY
                },
                &["x-forwarded-for", "host"],
            );
            assert_eq!(form, LogFormat::Envoy, "{line}");
            assert_eq!((duration, status), (own_duration, own_status), "{line}");
            assert_eq!(
                (values[1].as_str(), &values[2..]),
                (path, &own[2..]),
                "{line}"
            );
        }
    }
    // A user agent imitates the end of a request: the first one counts.
    let agent = r#"x HTTP/2" 200 - 0 0 0 - "9.9.9.9" "y"#;
    let line = ENVOY.replace("nsq2http", agent);
    let (_, [.., status], values) = seen(&line, &["x-forwarded-for", "user-agent"]);
    assert_eq!(status, 204);
    assert_eq!(values[4..], ["9.9.9.9, 10.0.35.28", agent]);
    // Without a protocol in the request, the log is read as before.
    let odd = ENVOY.replace(" HTTP/2", " h2c");
    assert_eq!(seen(&odd, &[]).2[1], "/api/v1/locations?x=1");
}

#[test]
fn apache_and_nginx() {
    let names = ["host", "user-agent", "referer", "x-forwarded-for"];
    let request = ["GET", r#"/a"b?c=d"#, "203.0.113.7", ""];
    let tail = r#" "http://example.com/" "Mozilla/5.0 \"x\\\" \x22y""#;
    let columns = ["http://example.com/", r#"Mozilla/5.0 "x\" "y"#];
    let main = format!(r#"{tail} "1.1.1.1, 2.2.2.2""#);
    for (form, before, host) in [
        (LogFormat::Combined, "", ""),
        (LogFormat::VhostCombined, "example.com:443 ", "example.com"),
    ] {
        let of = |tail: &str| seen(&format!("{before}{COMMON_LINE}{tail}"), &names);
        let expected = |last: [&str; 4]| -> Vec<String> {
            request
                .iter()
                .chain(&last)
                .map(|text| (*text).to_owned())
                .collect()
        };
        let numbers = [971_211_336_000, 0, 200];
        let [referer, agent] = columns;
        let (found, times, values) = of("");
        assert_eq!((found, times), (form, numbers));
        assert_eq!(values, expected([host, "", "", ""]));
        let (found, _, values) = of(tail);
        assert_eq!(
            (found, values),
            (form, expected([host, agent, referer, ""]))
        );
        if form == LogFormat::Combined {
            let (found, _, values) = of(&main);
            assert_eq!(found, form);
            assert_eq!(values, expected([host, agent, referer, "1.1.1.1, 2.2.2.2"]));
        }
    }
}

#[test]
fn ingress_nginx() {
    let (form, numbers, values) = seen(INGRESS_LINE, &["user-agent"]);
    // The time is when the request ended.
    let expected = [971_211_336_000 - 1_500, 1_500, 200];
    assert_eq!((form, numbers), (LogFormat::IngressNginx, expected));
    assert_eq!(values, ["GET", "/a", "192.168.1.1", "", "curl/7.8"]);
}

#[test]
fn load_balancers_of_aws() {
    let (form, numbers, values) = seen(ALB_LINE, &["host", "user-agent"]);
    let expected = [1_530_570_168_364, 134, 429];
    assert_eq!((form, numbers), (LogFormat::Alb, expected));
    let expected = [
        "GET",
        "/a?b",
        "192.168.131.39",
        "",
        "www.example.com:443",
        "curl/7.46.0",
    ];
    assert_eq!(values, expected);
}

#[test]
fn lines_that_are_no_requests() {
    let mut parser = LineParser::new(None, None);
    for (line, expected) in [
        (ISTIO_TCP.to_owned(), OtherLine::Connection),
        (
            COMMON_LINE.replace(r"GET /a\x22b?c=d HTTP/1.1", "-"),
            OtherLine::NoRequest,
        ),
        (
            COMMON_LINE.replace(r"GET /a\x22b?c=d HTTP/1.1", ""),
            OtherLine::NoRequest,
        ),
        (
            ALB_LINE.replace(
                "GET https://www.example.com:443/a?b HTTP/1.1",
                "- http://h:80- -",
            ),
            OtherLine::NoRequest,
        ),
        (
            r#"{"ts":1,"logger":"admin","msg":"x"}"#.to_owned(),
            OtherLine::Message,
        ),
    ] {
        let read = parser.parse(line.as_bytes()).map(|_| ());
        assert_eq!(read, Err(Unread::Other(expected)), "{line}");
        assert_eq!(parser.form, None, "{line}");
    }
}

#[test]
fn json_formats() {
    for (line, form) in [
        (r#"{"at_ns":7}"#, LogFormat::Trace),
        (
            r#" {"path":"/","start_time":"2020-11-25T21:26:18Z"}"#,
            LogFormat::EnvoyJson,
        ),
        (
            r#"{"ts":1.5,"logger":"http.log.access","request":{"method":"GET","uri":"/"}}"#,
            LogFormat::Caddy,
        ),
    ] {
        assert_eq!(seen(line, &[]).0, form, "{line}");
    }
}

#[test]
fn the_nearest_format() {
    for (line, expected) in [
        ("starting", "nearest is envoy: column 1: expected `[`"),
        ("[warn] starting", "nearest is combined: column 8: expected"),
        (
            &COMMON_LINE.replace(" 200 2326", ""),
            "nearest is combined: column 51: expected `\\\" ` after `$request`",
        ),
        (&format!("{COMMON_LINE} 0.003"), "nearest is combined"),
        (
            r#"{"message":"starting"}"#,
            "nearest is envoy-json: expected a time in `start_time`",
        ),
    ] {
        let mut parser = LineParser::new(None, None);
        let wrong = format!("{:?}", parser.parse(line.as_bytes()));
        assert!(wrong.contains(expected), "{line}: {wrong}");
        assert_eq!(parser.form, None);
    }
}

proptest! {
    #[test]
    fn arbitrary_lines_never_panic(cuts in prop::collection::vec((0_usize..500, any::<u8>()), 0..6)) {
        for line in [ENVOY, ISTIO, ISTIO_TCP, COMMON_LINE, INGRESS_LINE, ALB_LINE] {
            let mut line = line.as_bytes().to_vec();
            for (at, byte) in &cuts {
                let at = at % line.len();
                line[at] = *byte;
            }
            for form in LogFormat::ALL.map(Some).into_iter().chain([None]) {
                let mut parser = LineParser::new(form, None);
                let wrong = parser.parse(&line).err();
                let message = format!("{wrong:?}");
                prop_assert!(message.len() < 10_000);
            }
        }
    }
}
