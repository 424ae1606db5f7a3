use loudou_limiter::Nanos;
use loudou_rules::request::Request as _;
use proptest::prelude::*;

use super::*;
use crate::verdict::LogVerdict;

fn text(value: Option<std::borrow::Cow<'_, [u8]>>) -> String {
    value.map_or(String::new(), |value| {
        String::from_utf8(value.into_owned()).expect("UTF-8")
    })
}

/// Time in milliseconds, duration in milliseconds, status, method, path, source, and the headers `names`.
fn seen(format: &str, line: &str, names: &[&str]) -> (u64, u64, u16, Vec<String>) {
    let pattern = Pattern::parse(format).expect(format);
    let mut record = match pattern.read(line.as_bytes(), false) {
        Ok(record) => record,
        Err(misfit) => panic!("{line}: {:?}", pattern.unread(misfit)),
    };
    let request = &mut record.request;
    let mut values = vec![
        text(request.method()),
        text(request.path()),
        text(request.source()),
    ];
    values.extend(names.iter().map(|name| text(request.header(name))));
    let ms = |nanos: Nanos| nanos.get() / 1_000_000;
    let duration = record.duration.map_or(0, ms);
    (ms(record.at), duration, record.status.unwrap_or(0), values)
}

#[test]
fn nginx_notation() {
    let format = r#"$remote_addr - ${remote_user} [$time_iso8601] "$request_method $uri $server_protocol" $status $request_time "$http_x_user_id" "$cookie_plan" $host ?$args"#;
    let line = r#"::1 - a b [2016-04-15T20:17:00+00:00] "GET /a b HTTP/1.1" 429 1.250 "al\x22ice" "free" h.example ?x=1"#;
    let names = ["x-user-id", "cookie", "host"];
    let (at, duration, status, values) = seen(format, line, &names);
    // The time is when the request ended.
    assert_eq!((at, duration, status), (1_460_751_418_750, 1_250, 429));
    let expected = [
        "GET",
        "/a b?x=1",
        "::1",
        "al\"ice",
        "plan=free",
        "h.example",
    ];
    assert_eq!(values, expected);
}

#[test]
fn envoy_notation() {
    let format = r"%START_TIME(%s.%3f)%|%REQ(:METHOD)%|%REQ(X-ENVOY-ORIGINAL-PATH?:PATH):80%|%DURATION%|%RESPONSE_CODE%|%DOWNSTREAM_REMOTE_ADDRESS%|100%%|%REQ(X-User-Id)%\n";
    let line = "1460751420.310|GET|/a\"b|12|503|10.0.0.1:5|100%|alice";
    let (at, duration, status, values) = seen(format, line, &["x-user-id"]);
    assert_eq!((at, duration, status), (1_460_751_420_310, 12, 503));
    assert_eq!(values, ["GET", "/a\"b", "10.0.0.1", "alice"]);
}

/// A client's column never has a part of the line around it.
#[test]
fn a_client_that_is_no_address() {
    let nginx = r#"$remote_addr - $remote_user [$time_local] "$request" $status"#;
    let rest = r#" - - [10/Oct/2000:13:55:36 -0700] "GET / HTTP/1.1" 200"#;
    let envoy = r#"[%START_TIME%] "%REQ(:PATH)%" "%DOWNSTREAM_REMOTE_ADDRESS%" / %DURATION%"#;
    let start = r#"[2016-04-15T20:17:00.310Z] "/" ""#;
    for (address, source) in [
        ("1.1.1.1", Some("1.1.1.1")),
        ("[2001:db8::1]:80", Some("2001:db8::1")),
        ("fe80::1%eth0", Some("fe80::1%eth0")),
        ("unix:", Some("")),
        ("-", Some("")),
        ("nginx-1  | 1.1.1.1", None),
        ("8.8.8.8 1.1.1.1", None),
        ("1.1.1.1, 2.2.2.2", None),
        ("1.1.1.1,2.2.2.2", None),
        ("\"1.1.1.1\"", None),
        ("6.6.6.6:1\" 1.1.1.1:5", None),
    ] {
        for (format, name, line) in [
            (nginx, "$remote_addr", format!("{address}{rest}")),
            (
                envoy,
                "%DOWNSTREAM_REMOTE_ADDRESS%",
                format!(r#"{start}{address}" / 7"#),
            ),
        ] {
            if let Some(source) = source {
                assert_eq!(seen(format, &line, &[]).3[2], source, "{line}");
                continue;
            }
            let pattern = Pattern::parse(format).expect(format);
            let misfit = pattern.read(line.as_bytes(), true).expect_err(&line);
            let wrong = format!("{:?}", pattern.unread(misfit));
            let expected = format!("expected an address in `{name}`");
            assert!(wrong.contains(&expected), "{line}: {wrong}");
        }
    }
}

/// The verdict in a line, and its user agent.
fn verdict(format: &str, line: &str) -> (Option<LogVerdict>, String) {
    let pattern = Pattern::parse(format).expect(format);
    let mut record = match pattern.read(line.as_bytes(), false) {
        Ok(record) => record,
        Err(misfit) => panic!("{line}: {:?}", pattern.unread(misfit)),
    };
    (record.verdict, text(record.request.header("user-agent")))
}

#[test]
fn the_verdict_of_the_filter() {
    let key = "0123456789abcdef";
    let several = format!("a;l;admit;0;{key}, b;l;shadow_hold;2;{key}, r;-;refuse;-;-");
    let passed = format!("a;l;admit;0;{key}, r;l;hold;20;{key}");
    let (refused, admitted) = (Some(LogVerdict::Refused), Some(LogVerdict::Passed));
    for (decisions, found) in [
        (several.as_str(), refused),
        (&passed, admitted),
        ("-", Some(LogVerdict::Unknown)),
    ] {
        for then in [" ", ", ", ",", "|", "\" \""] {
            // Before the user agent, after it, and at the end.
            let columns = [
                "%REQ(:PATH)%",
                "%FILTER_STATE(wasm.loudou:PLAIN)%",
                "%DURATION%",
            ];
            let (start, end) = ("%START_TIME% \"", "\" \"%REQ(USER-AGENT)%\" \"%PROTOCOL%\"");
            let format = format!("{start}{}{end}", columns.join(then));
            let line = format!("1460751420.310 \"/{then}{decisions}{then}12\" \"x, y\" \"HTTP/2\"");
            assert_eq!(
                verdict(&format, &line),
                (found, "x, y".to_owned()),
                "{line}"
            );

            let tail = format!("%FILTER_STATE(wasm.loudou:PLAIN)%{then}%DURATION%");
            let format = format!("%START_TIME% %REQ(:PATH)% \"%REQ(USER-AGENT)%\" \"{tail}\"");
            let line = format!("1460751420.310 / \"x\" y, z\" \"{decisions}{then}12\"");
            assert_eq!(
                verdict(&format, &line),
                (found, "x\" y, z".to_owned()),
                "{line}"
            );

            let tail = format!("%DURATION%{then}%FILTER_STATE(wasm.loudou:PLAIN)%");
            let format = format!("%START_TIME% %REQ(:PATH)% \"%REQ(USER-AGENT)%\" \"{tail}\"");
            let line = format!("1460751420.310 / \"x\" \"12{then}{decisions}\"");
            assert_eq!(verdict(&format, &line), (found, "x".to_owned()), "{line}");
        }
    }
    let format = "%START_TIME% %REQ(:PATH)% %RESPONSE_CODE_DETAILS(ALLOW_WHITESPACES)%";
    let line = "1460751420.310 / loudou_over_limit{r.l}";
    assert_eq!(verdict(format, line).0, refused);
    // Another filter's state, and the decisions in base64.
    for name in ["wasm.other:PLAIN", "wasm.loudou", "wasm.loudou:TYPED"] {
        let format = format!("%START_TIME% %REQ(:PATH)% %FILTER_STATE({name})%");
        assert_eq!(verdict(&format, "1460751420.310 / r;-;refuse;-;-").0, None);
    }
}

#[test]
fn times_of_envoy() {
    for (form, time, ms) in [
        ("", "2016-04-15T20:17:00.310Z", 310),
        ("(%s)", "1460751420", 0),
        ("(%s.%6f)", "1460751420.310000", 310),
        ("(%s%3f)", "1460751420310", 310),
        ("(%FT%T.%3fZ)", "2016-04-15T20:17:00.310Z", 310),
        (
            "(%Y-%m-%dT%H:%M:%E3S%Ez)",
            "2016-04-15T22:17:00.310+02:00",
            310,
        ),
        (
            "(%Y-%m-%d %H:%M:%S.%3f%z)",
            "2016-04-15 22:17:00.310+0200",
            310,
        ),
        ("(%d/%b/%Y:%H:%M:%S %z)", "15/Apr/2016:20:17:00 +0000", 0),
    ] {
        let line = format!("{time}|/");
        let (at, ..) = seen(&format!("%START_TIME{form}%|%REQ(:PATH)%"), &line, &[]);
        assert_eq!(at, 1_460_751_420_000 + ms, "{form}");
    }
}

#[test]
fn formats_that_cannot_be_read() {
    for (format, expected) in [
        ("", "$remote_addr"),
        ("%h %l %u %t", "$remote_addr"),
        ("$remote_addr $request", "no time"),
        ("$time_local $status", "no request"),
        (
            "$time_local$request",
            "nothing separates `$time_local` from `$request`",
        ),
        ("$ $time_local", "without the name"),
        ("${time_local $request", "without `}`"),
        ("%START_TIME%%REQ(:PATH)%", "nothing separates"),
        ("%START_TIME% %REQ(:PATH)", "closing `%`"),
        ("%PROTOCOL% %REQ(:PATH)%", "`%START_TIME%`"),
        (
            "%START_TIME(%H:%M:%S)% %REQ(:PATH)%",
            "cannot be read; forms",
        ),
        (
            "%START_TIME(%Y-%m-%d %H:%M:%S)% %REQ(:PATH)%",
            "cannot be read; forms",
        ),
    ] {
        let error = Pattern::parse(format).expect_err(format);
        assert!(error.contains(expected), "{format}: {error}");
    }
    let long = format!("$time_local {}", "x".repeat(MAX_FORMAT));
    assert!(Pattern::parse(&long).is_err());
    assert!(Pattern::parse(&"$time_local $request ".repeat(MOST_PIECES)).is_err());
}

#[test]
fn the_place_where_a_line_departs() {
    let format = r#"$remote_addr [$time_local] "$request" $status"#;
    let pattern = Pattern::parse(format).expect(format);
    for (line, at, expected) in [
        ("", 0, "column 1: expected ` [` after `$remote_addr`"),
        ("1.2.3.4 (10", 0, "expected ` [`"),
        (
            "1.2.3.4 [10/Okt/2000:13:55:36 -0700] \"",
            9,
            "column 10: expected a time like",
        ),
        (
            "1.2.3.4 [10/Oct/2000:13:55:36 -0700] \"GET / HTTP/1.1 200",
            38,
            "column 39: expected `\" ` after `$request`",
        ),
        (
            "1.2.3.4 [10/Oct/2000:13:55:36 -0700] \"\\x16\\x03\" 400",
            38,
            "Other(NoRequest)",
        ),
        (
            "1.2.3.4 [10/Oct/2000:13:55:36 -0700] \"GET /\" 200",
            38,
            "METHOD PATH PROTOCOL",
        ),
        (
            "1.2.3.4 [10/Oct/2000:13:55:36 -0700] \"GET / HTTP/1.1\" x",
            54,
            "expected digits in `$status`",
        ),
    ] {
        let misfit = pattern.read(line.as_bytes(), false).expect_err(line);
        let unread = format!("{:?}", pattern.unread(misfit));
        assert!(
            unread.contains(&expected.replace('"', "\\\"")),
            "{line}: {unread}"
        );
        assert_eq!(misfit.at, at, "{line}");
    }
}

/// A user may have any name: it is sent by the client, and no part of it is a time or a request.
#[test]
fn a_user_cannot_forge_columns() {
    let format = r#"$remote_addr - $remote_user [$time_local] "$request" $status"#;
    let line = r#"1.2.3.4 - x [10/Oct/2001:00:00:00 +0000] y [10/Oct/2000:13:55:36 -0700] "GET / HTTP/1.1" 200"#;
    assert_eq!(seen(format, line, &[]).0, 971_211_336_000);
    let line = r#"1.2.3.4 - x [ y [10/Oct/2000:13:55:36 -0700] "GET / HTTP/1.1" 200"#;
    assert_eq!(seen(format, line, &[]).0, 971_211_336_000);
}

proptest! {
    #[test]
    fn arbitrary_formats_and_lines_never_panic(
        format in "[$%{}A-Z_a-z():?\" ]{0,60}", line in "\\PC{0,80}"
    ) {
        if let Ok(pattern) = Pattern::parse(&format) {
            let read = pattern.read(line.as_bytes(), false);
            let wrong = read.err().map(|misfit| pattern.unread(misfit));
            let message = format!("{wrong:?}");
            prop_assert!(message.len() < 10_000);
        }
    }
}
