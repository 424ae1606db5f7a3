//! Which column of a line in the formats of Apache and NGINX is the client.

use super::*;

#[test]
fn addresses_are_no_virtual_hosts() {
    for address in ["::1", "2001:db8::5", "2001:db8::1:80", "localhost", "-"] {
        let line = COMMON_LINE.replace("203.0.113.7", address);
        let (form, _, values) = seen(&line, &[]);
        let source = address.trim_matches('-');
        assert_eq!(
            (form, values[2].as_str()),
            (LogFormat::Combined, source),
            "{address}"
        );
        let spaced = line.replace("frank", "a b c");
        assert_eq!(seen(&spaced, &[]).0, LogFormat::Combined, "{address}");
    }
    let line = format!("[2001:db8::1]:8080 {COMMON_LINE}");
    assert_eq!(seen(&line, &[]).0, LogFormat::VhostCombined);
}

/// A column before the client's address must never pass as the client.
#[test]
fn lines_whose_first_column_is_not_the_client() {
    let full = format!(r#"{COMMON_LINE} "-" "curl/8.5.0""#);
    for line in [COMMON_LINE, &full] {
        for before in ["www.example.com ", "localhost ", "_ ", "- "] {
            let (form, _, values) = seen(&format!("{before}{line}"), &["host"]);
            let host = before.trim_matches([' ', '-']);
            let found = (form, values[2].as_str(), values[4].as_str());
            assert_eq!(found, (LogFormat::VhostCombined, "203.0.113.7", host));
        }
        for before in [
            "nginx-1  | ",
            "Oct 10 13:55:36 host nginx[1]: ",
            "<190>1 2023-10-10T13:55:36Z host nginx - - - ",
            "2023-10-10T13:55:36Z stdout F ",
            "1.1.1.1, ",
            "1.1.1.1 ",
            "::1 ",
            "nginx[1]: ",
            "nginx: ",
            "10.0.0.9 nginx: ",
            "web - ",
            "web x ",
            "web x - ",
        ] {
            let line = format!("{before}{line}");
            let mut parser = LineParser::new(None, None);
            let wrong = parser.parse(line.as_bytes()).map(|_| ());
            let wrong = format!("{wrong:?}");
            let nearest = "in no known format; nearest is combined: column ";
            assert!(wrong.contains(nearest), "{line}: {wrong}");
        }
    }
    // Once the log has shown a host, it may be an address: a client chooses it.
    let mut parser = LineParser::new(None, None);
    for host in ["a.example", "192.0.2.1", "[::1]", ""] {
        let line = format!("{host} {COMMON_LINE}");
        let Ok(LogLine::Request(mut read)) = parser.parse(line.as_bytes()) else {
            panic!("{line}");
        };
        assert_eq!(read.request.source().as_deref(), Some(&b"203.0.113.7"[..]));
    }
}

/// Users and hosts as Apache may log them, and a socket, which has no address.
#[test]
fn clients_with_names() {
    for (from, to, source) in [
        ("frank", "1.2.3.4 - -", "203.0.113.7"),
        (
            "203.0.113.7 -",
            "dialup-7.example.net -",
            "dialup-7.example.net",
        ),
        ("203.0.113.7 -", "203.0.113.7 ident", "203.0.113.7"),
        ("203.0.113.7", "fe80::1%eth0", "fe80::1%eth0"),
        ("203.0.113.7", "unix:", ""),
    ] {
        let line = COMMON_LINE.replace(from, to);
        let (form, _, values) = seen(&line, &[]);
        assert_eq!(
            (form, values[2].as_str()),
            (LogFormat::Combined, source),
            "{line}"
        );
    }
}

/// Lines that leave open which column is the client, or have none that can be one.
#[test]
fn lines_without_a_clear_client() {
    let rest = COMMON_LINE
        .strip_prefix("203.0.113.7 - frank")
        .expect("starts so");
    for columns in [
        "4.4.4.4, 5.5.5.5 - -",
        "unknown, 5.5.5.5 - -",
        "4.4.4.4; 5.5.5.5 - -",
        "(4.4.4.4) 5.5.5.5 - -",
        "(4.4.4.4):80 5.5.5.5 - -",
        "4.4.4.4;5.5.5.5:80 6.6.6.6 - -",
        "\"h.e.com\" 5.5.5.5 - -",
        "a,b 5.5.5.5 - -",
        "h.e.com: 5.5.5.5 - -",
        "h.e.com:x 5.5.5.5 - -",
        "[::1 5.5.5.5 - -",
        "[x] 5.5.5.5 - -",
        "h.e.com (5.5.5.5) - -",
        "h.e.com:80 (5.5.5.5) - -",
        "1.1.1.1;2.2.2.2 - -",
        "1.1.1.1/2.2.2.2 - -",
        "(1.1.1.1) - -",
        "%h - -",
        "h.e.com:80 - - -",
        "h.e.com:80 - - bob",
        "h.e.com - - -",
        "h.e.com - - bob",
    ] {
        let line = format!(r#"{columns}{rest} "-" "curl/8.5.0""#);
        // A line of its own, in a log of another host, and in a format that was named.
        let shown = format!(r#"a.example {COMMON_LINE} "-" "curl/8.5.0""#);
        for (first, form) in [
            (None, None),
            (Some(&shown), None),
            (None, Some(LogFormat::VhostCombined)),
            (None, Some(LogFormat::Combined)),
        ] {
            let mut parser = LineParser::new(form, None);
            if let Some(first) = first {
                assert!(parser.parse(first.as_bytes()).is_ok(), "{first}");
            }
            let read = parser.parse(line.as_bytes());
            assert!(matches!(read, Err(Unread::Bad { .. })), "{line}: {read:?}");
        }
    }
    // What such a line leaves open, the ones after it show.
    let mut parser = LineParser::new(None, None);
    let without = format!("h.e.com:80 - - -{rest}");
    assert!(parser.parse(without.as_bytes()).is_err());
    let with = format!("h.e.com:80 {COMMON_LINE}");
    assert!(parser.parse(with.as_bytes()).is_ok());
    assert_eq!(parser.form, Some(LogFormat::VhostCombined));
}

/// Hosts as servers log them once the log is known to have one.
#[test]
fn virtual_hosts() {
    for host in [
        "h.e.com",
        "h-1_a.e.com.",
        "*.e.com",
        "_",
        "-",
        "",
        "192.0.2.1",
        "2001:db8::1",
        "[2001:db8::1]",
    ] {
        for port in ["", ":443"] {
            if port.len() + host.len() == 4 {
                continue;
            }
            let line = format!("{host}{port} {COMMON_LINE}");
            let mut parser = LineParser::new(Some(LogFormat::VhostCombined), None);
            let Ok(LogLine::Request(mut read)) = parser.parse(line.as_bytes()) else {
                panic!("{line}");
            };
            assert_eq!(read.request.source().as_deref(), Some(&b"203.0.113.7"[..]));
        }
    }
}
