//! Parses Envoy's JSON access log. The recognised member names are the names in the Envoy and Istio
//! documentation.
//!
//! All other members are treated as request headers. For example, `x_user_id` is the header
//! `x-user-id`.

use std::borrow::Cow;
use std::fmt;

use loudou_limiter::Nanos;
use loudou_rules::request::Sample;
use serde::de::{Deserialize, Deserializer, MapAccess, Visitor};

use super::instant;
use super::json::{self, JsonStr, Scalar};
use super::record::{LoggedRequest, OtherLine, Text, Unread};
use super::source::address_of;
use super::verdict::LogVerdict;
use loudou_words::num::whole;

/// A log line, with its timestamp if it has one.
struct LogWire<'a> {
    record: LoggedRequest<'a>,
    at: Option<Nanos>,
    /// Last member that should contain a timestamp but does not.
    unread_time: Option<(Cow<'a, str>, Scalar<'a>)>,
    /// True if the recorded path is the original path, before any rewrite.
    is_original: bool,
    /// True if the line has `bytes_received`, which Envoy also logs for TCP connections.
    is_stream: bool,
}

struct LogWireVisitor;

impl<'a> Visitor<'a> for LogWireVisitor {
    type Value = LogWire<'a>;

    fn expecting(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str("an object")
    }

    fn visit_map<A: MapAccess<'a>>(self, mut map: A) -> Result<LogWire<'a>, A::Error> {
        let mut wire = LogWire {
            record: LoggedRequest {
                request: Sample {
                    underscores: true,
                    ..Sample::default()
                },
                ..LoggedRequest::default()
            },
            at: None,
            unread_time: None,
            is_original: false,
            is_stream: false,
        };
        while let Some((name, value)) = map.next_entry::<JsonStr<'a>, Scalar<'a>>()? {
            wire.member(name.0, value);
        }
        Ok(wire)
    }
}

impl<'de> Deserialize<'de> for LogWire<'de> {
    fn deserialize<D: Deserializer<'de>>(deserializer: D) -> Result<Self, D::Error> {
        deserializer.deserialize_map(LogWireVisitor)
    }
}

impl<'a> LogWire<'a> {
    fn member(&mut self, name: Cow<'a, str>, value: Scalar<'a>) {
        let record = &mut self.record;
        match &*name {
            "start_time" | "timestamp" | "@timestamp" | "time" => {
                self.at = self.at.or_else(|| time(&value));
                if self.at.is_none() {
                    self.unread_time = Some((name, value));
                }
            }
            "method" | ":method" | "request_method" => record.request.method = text(value),
            // The filter evaluates the original path, before a route rewrites it.
            "x-envoy-origin-path" | "x-envoy-original-path" | "x_envoy_original_path" => {
                if let Some(path) = text(value) {
                    record.request.path = Some(path);
                    self.is_original = true;
                }
            }
            "path" | ":path" | "request_path" => {
                if !self.is_original {
                    record.request.path = text(value);
                }
            }
            "authority" | ":authority" | "host" => record.request.host = text(value),
            "downstream_remote_address"
            | "downstream_remote_address_bare_address"
            | "remote_address"
            | "source_address"
            | "client_ip" => record.request.source = text(value).and_then(address_of),
            "route_name" | "route" => record.request.route = text(value),
            "duration" | "duration_ms" => record.duration = duration(&value),
            "response_code" | "status" => record.status = status(&value),
            "response_code_details" => record.verdict(LogVerdict::of_cause, value),
            "loudou" | "wasm.loudou" | "wasm_loudou" => {
                record.verdict(LogVerdict::of_decisions, value);
            }
            "bytes_received" => {
                self.is_stream = true;
                record.received = number(&value);
            }
            "request_id" => record.add("x-request-id".into(), value),
            _ => record.add(name, value),
        }
    }
}

impl<'a> LoggedRequest<'a> {
    fn add(&mut self, name: Cow<'a, str>, value: Scalar<'a>) {
        if let Some(value) = text(value) {
            self.request.headers.push((name, value));
        }
    }

    /// Sets the filter's verdict. If several columns contain evidence, the strongest applies. A
    /// value that is not recognised means that the filter did not refuse the request.
    fn verdict(&mut self, of: fn(&[u8]) -> LogVerdict, value: Scalar<'a>) {
        let verdict = text(value).map_or(LogVerdict::Unknown, |value| of(&value));
        self.verdict = self.verdict.max(Some(verdict));
    }
}

/// Parses a line of the log.
pub(crate) fn parse(line: &[u8]) -> Result<LoggedRequest<'_>, Unread> {
    let wire: LogWire<'_> = json::read(line)?;
    let mut record = wire.record;
    record.at = match (wire.at, wire.unread_time) {
        (Some(at), _) => at,
        (None, Some((name, value))) => {
            let expected = "a time like 2016-04-15T20:17:00.310Z or 1460751420.310";
            let value = value.excerpt();
            let wrong = format!("expected {expected} in `{name}`, not {value}");
            return Err(Unread::untimed(wrong));
        }
        (None, None) => {
            let expected = "expected a time in `start_time`, `timestamp` or `time`";
            return Err(Unread::untimed(expected));
        }
    };
    if record.request.method.is_none() && record.request.path.is_none() {
        return Err(if wire.is_stream {
            Unread::Other(OtherLine::Connection)
        } else {
            Unread::bad("not a request: neither `method` nor `path`")
        });
    }
    Ok(record)
}

/// Returns a string or integer as bytes, or `None` if the value is empty, `-` or of another type.
pub(crate) fn text(value: Scalar<'_>) -> Option<Text<'_>> {
    let text = match value {
        Scalar::Text(text) => JsonStr(text).bytes(),
        Scalar::Whole(number) => Cow::Owned(number.to_string().into_bytes()),
        Scalar::Float(_) | Scalar::Other => return None,
    };
    Some(text).filter(|text| !text.is_empty() && **text != *b"-")
}

pub(crate) fn time(value: &Scalar<'_>) -> Option<Nanos> {
    match value {
        Scalar::Text(text) => {
            let text = text.as_bytes();
            instant::rfc3339(text).or_else(|| instant::epoch(text))
        }
        Scalar::Whole(number) => instant::epoch(number.to_string().as_bytes()),
        // A float this large has at best microsecond precision.
        Scalar::Float(seconds) => Some(Nanos::new(whole(seconds * 1e6).saturating_mul(1_000))),
        Scalar::Other => None,
    }
}

/// Parses the status of a response. The status 0 means that no response was sent.
pub(crate) fn status(value: &Scalar<'_>) -> Option<u16> {
    let status = match value {
        Scalar::Text(text) => text.parse().ok(),
        Scalar::Whole(number) => u16::try_from(*number).ok(),
        Scalar::Float(_) | Scalar::Other => None,
    };
    status.filter(|status| *status > 0)
}

fn number(value: &Scalar<'_>) -> Option<u64> {
    match value {
        Scalar::Text(text) => text.parse().ok(),
        Scalar::Whole(number) => Some(*number),
        Scalar::Float(_) | Scalar::Other => None,
    }
}

/// Parses a number of milliseconds.
fn duration(value: &Scalar<'_>) -> Option<Nanos> {
    match value {
        Scalar::Text(text) => text.parse().ok().map(Nanos::from_millis),
        Scalar::Whole(number) => Some(Nanos::from_millis(*number)),
        Scalar::Float(ms) => Some(Nanos::new(whole((ms * 1e6).round()))),
        Scalar::Other => None,
    }
}

#[cfg(test)]
mod tests {
    use loudou_rules::request::Request as _;

    use super::*;

    const LINE: &str = r#"{"authority":"httpbin:8000","bytes_received":0,"upstream_host":null,
        "downstream_remote_address":"10.44.1.23:37652","duration":4,"method":"GET",
        "path":"/status/200","protocol":"HTTP/1.1","request_id":"a1b2","response_code":200,
        "route_name":"default","start_time":"2020-11-25T21:26:18.409Z","user_agent":"curl/7.88.1",
        "x_forwarded_for":"-","x_user_id":"alice","X-Plan":"free","nested":{"a":[1]}}"#;

    fn seen(line: &str, names: &[&str]) -> Vec<Option<String>> {
        let mut record = parse(line.as_bytes()).expect(line);
        let names = names.iter().map(|name| {
            let value = match *name {
                "source" => record.request.source(),
                "route" => record.request.route(),
                name => record.request.header(name),
            };
            value.map(|value| String::from_utf8(value.into_owned()).expect("UTF-8"))
        });
        names.collect()
    }

    #[test]
    fn the_usual_names() {
        let record = parse(LINE.as_bytes()).expect("a line");
        assert_eq!(record.at, Nanos::new(1_606_339_578_409_000_000));
        assert_eq!(record.duration, Some(Nanos::from_millis(4)));
        let names = [
            ":method",
            ":path",
            "host",
            "source",
            "route",
            "user-agent",
            "x-request-id",
            "x-user-id",
            "x-plan",
            "x-forwarded-for",
        ];
        let expected = [
            "GET",
            "/status/200",
            "httpbin:8000",
            "10.44.1.23",
            "default",
            "curl/7.88.1",
            "a1b2",
            "alice",
            "free",
            "",
        ];
        let expected = expected.map(|text| Some(text.to_owned()).filter(|text| !text.is_empty()));
        assert_eq!(seen(LINE, &names), expected);
    }

    #[test]
    fn a_time_that_cannot_be_read_is_shown() {
        for (value, shown) in [
            ("\"15/04/2016 20:17\"", "`15/04/2016 20:17`"),
            ("\"2016-04-15 20:17:00\"", "`2016-04-15 20:17:00`"),
            ("null", "another value"),
            (&format!("\"{}\"", "x".repeat(900)), "`xxxxxxxx"),
        ] {
            let line = format!(r#"{{"@timestamp":{value},"path":"/"}}"#);
            let wrong = format!("{:?}", parse(line.as_bytes()));
            let expected =
                format!("2016-04-15T20:17:00.310Z or 1460751420.310 in `@timestamp`, not {shown}");
            assert!(wrong.contains(&expected) && wrong.len() < 400, "{wrong}");
        }
    }

    #[test]
    fn other_formats_of_times_and_addresses() {
        for time in ["1606339578.409", "\"1606339578.409\"", "1606339578409"] {
            let line = format!(
                r#"{{"timestamp":{time},"path":"/","duration":"2","x_forwarded_for":"1.1.1.1, 2.2.2.2"}}"#
            );
            let record = parse(line.as_bytes()).expect(&line);
            assert_eq!(record.at, Nanos::new(1_606_339_578_409_000_000), "{time}");
            assert_eq!(record.duration, Some(Nanos::from_millis(2)));
            assert_eq!(seen(&line, &["source"]), [None]);
        }
    }

    /// A product of floats can be slightly below the number in the log.
    #[test]
    fn durations_with_decimals() {
        let line = r#"{"timestamp":1606339578,"path":"/","duration":1.001}"#;
        let record = parse(line.as_bytes()).expect(line);
        assert_eq!(record.duration, Some(Nanos::new(1_001_000)));
    }

    #[test]
    fn the_default_of_envoy_gateway() {
        let line = r#"{":authority":"example.com","bytes_received":0,"bytes_sent":10,
            "connection_termination_details":null,"downstream_remote_address":"10.1.2.3:5","duration":3,
            "method":"GET","protocol":"HTTP/1.1","response_code":429,"route_name":"r","path":"/rewritten",
            "start_time":"2020-11-25T21:26:18.409Z","user-agent":"curl","x-envoy-origin-path":"/a?b",
            "x-forwarded-for":"1.1.1.1"}"#;
        assert_eq!(parse(line.as_bytes()).expect(line).status, Some(429));
        let names = [":path", "host", "source", "route", "x-forwarded-for"];
        let expected = ["/a?b", "example.com", "10.1.2.3", "r", "1.1.1.1"];
        assert_eq!(
            seen(line, &names),
            expected.map(|text| Some(text.to_owned()))
        );
        let connection = r#"{"bytes_received":5,"duration":3,"method":null,"x-envoy-origin-path":null,
            "start_time":"2020-11-25T21:26:18.409Z"}"#;
        let unread = Err(Unread::Other(OtherLine::Connection));
        assert_eq!(parse(connection.as_bytes()), unread);
    }

    #[test]
    fn malformed_lines_are_reported() {
        for (line, expected) in [
            ("{", "EOF"),
            ("[]", "expected an object"),
            (r#"{"path":"/"}"#, "start_time"),
            (r#"{"path":"/","start_time":"noon"}"#, "start_time"),
            (
                r#"{"start_time":"2020-11-25T21:26:18Z","method":null}"#,
                "not a request",
            ),
        ] {
            let error = parse(line.as_bytes()).expect_err(line);
            assert!(format!("{error:?}").contains(expected), "{line}: {error:?}");
        }
    }
}
