//! Envoy's access log as JSON, by the names that Envoy's and Istio's documents give the members.
//!
//! What operators log beside them counts as headers: `x_user_id` is the header `x-user-id`.

use std::borrow::Cow;
use std::fmt;

use loudou_limiter::Nanos;
use loudou_rules::request::Sample;
use serde::de::{Deserialize, Deserializer, MapAccess, Visitor};

use super::instant;
use super::json::{self, Scalar, Str};
use super::record::{Record, Text, last_address, without_port};
use crate::num::whole;

/// A line, and whether it said when.
struct Wire<'a> {
    record: Record<'a>,
    at: Option<Nanos>,
}

struct WireVisitor;

impl<'a> Visitor<'a> for WireVisitor {
    type Value = Wire<'a>;

    fn expecting(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str("an object")
    }

    fn visit_map<A: MapAccess<'a>>(self, mut map: A) -> Result<Wire<'a>, A::Error> {
        let mut wire = Wire {
            record: Record {
                request: Sample {
                    underscores: true,
                    ..Sample::default()
                },
                ..Record::default()
            },
            at: None,
        };
        while let Some((name, value)) = map.next_entry::<Str<'a>, Scalar<'a>>()? {
            wire.member(name.0, value);
        }
        Ok(wire)
    }
}

impl<'de> Deserialize<'de> for Wire<'de> {
    fn deserialize<D: Deserializer<'de>>(deserializer: D) -> Result<Self, D::Error> {
        deserializer.deserialize_map(WireVisitor)
    }
}

impl<'a> Wire<'a> {
    fn member(&mut self, name: Cow<'a, str>, value: Scalar<'a>) {
        let record = &mut self.record;
        match &*name {
            "start_time" | "timestamp" | "@timestamp" | "time" => {
                self.at = self.at.or_else(|| time(&value));
            }
            "method" | ":method" | "request_method" => record.request.method = text(value),
            "path" | ":path" | "request_path" => record.request.path = text(value),
            "authority" | ":authority" | "host" => record.request.host = text(value),
            "downstream_remote_address"
            | "downstream_remote_address_without_port"
            | "remote_address"
            | "source_address"
            | "client_ip" => record.request.source = text(value).map(bare),
            "route_name" | "route" => record.request.route = text(value),
            "duration" | "duration_ms" => record.duration = duration(&value),
            "request_id" => record.add("x-request-id".into(), value),
            _ => record.add(name, value),
        }
    }
}

impl<'a> Record<'a> {
    fn add(&mut self, name: Cow<'a, str>, value: Scalar<'a>) {
        if let Some(value) = text(value) {
            self.request.headers.push((name, value));
        }
    }
}

/// Reads a line.
pub(crate) fn parse(line: &[u8]) -> Result<Record<'_>, String> {
    use loudou_rules::request::Request as _;
    let Wire { mut record, at } = json::read(line)?;
    record.at = at.ok_or("no `start_time`, `timestamp` or `time` that is one")?;
    if record.request.method.is_none() && record.request.path.is_none() {
        return Err("no request: neither `method` nor `path`".to_owned());
    }
    if record.request.source.is_none() {
        let last = record.request.header("x-forwarded-for");
        let last = last.map(|addresses| last_address(&addresses).to_vec());
        record.request.source = last.map(Cow::Owned);
    }
    Ok(record)
}

/// What is known of a value as text.
fn text(value: Scalar<'_>) -> Option<Text<'_>> {
    let text = match value {
        Scalar::Text(text) => Str(text).bytes(),
        Scalar::Whole(number) => Cow::Owned(number.to_string().into_bytes()),
        Scalar::Float(_) | Scalar::Other => return None,
    };
    Some(text).filter(|text| !text.is_empty() && **text != *b"-")
}

fn bare(address: Text<'_>) -> Text<'_> {
    match address {
        Cow::Borrowed(address) => Cow::Borrowed(without_port(address)),
        Cow::Owned(address) => Cow::Owned(without_port(&address).to_vec()),
    }
}

fn time(value: &Scalar<'_>) -> Option<Nanos> {
    match value {
        Scalar::Text(text) => {
            let text = text.as_bytes();
            instant::rfc3339(text).or_else(|| instant::epoch(text))
        }
        Scalar::Whole(number) => instant::epoch(number.to_string().as_bytes()),
        // A number has no more than microseconds at this size.
        Scalar::Float(seconds) => Some(Nanos::new(whole(seconds * 1e6).saturating_mul(1_000))),
        Scalar::Other => None,
    }
}

/// Milliseconds.
fn duration(value: &Scalar<'_>) -> Option<Nanos> {
    match value {
        Scalar::Text(text) => text.parse().ok().map(Nanos::from_millis),
        Scalar::Whole(number) => Some(Nanos::from_millis(*number)),
        Scalar::Float(ms) => Some(Nanos::new(whole(ms * 1e6))),
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
    fn the_names_that_are_usual() {
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
    fn other_forms_of_times_and_addresses() {
        for time in ["1606339578.409", "\"1606339578.409\"", "1606339578409"] {
            let line = format!(
                r#"{{"timestamp":{time},"path":"/","duration":"2","x_forwarded_for":"1.1.1.1, 2.2.2.2"}}"#
            );
            let record = parse(line.as_bytes()).expect(&line);
            assert_eq!(record.at, Nanos::new(1_606_339_578_409_000_000), "{time}");
            assert_eq!(record.duration, Some(Nanos::from_millis(2)));
            assert_eq!(seen(&line, &["source"]), [Some("2.2.2.2".to_owned())]);
        }
    }

    #[test]
    fn what_is_wrong_is_said() {
        for (line, said) in [
            ("{", "EOF"),
            ("[]", "expected an object"),
            (r#"{"path":"/"}"#, "start_time"),
            (r#"{"path":"/","start_time":"noon"}"#, "start_time"),
            (
                r#"{"start_time":"2020-11-25T21:26:18Z","method":null}"#,
                "no request",
            ),
        ] {
            let error = parse(line.as_bytes()).expect_err(line);
            assert!(error.contains(said), "{line}: {error}");
        }
    }
}
