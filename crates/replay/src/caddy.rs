//! Parses Caddy's JSON access log. `request` is an object, and `ts` is the time at which the
//! request ended.

use std::borrow::Cow;
use std::fmt;

use loudou_limiter::Nanos;
use loudou_rules::request::Sample;
use serde::Deserialize;
use serde::de::{Deserializer, MapAccess, Visitor};

use super::envoy_json::{status, text, time};
use super::json::{self, JsonStr, Scalar};
use super::record::{LoggedRequest, OtherLine, Text, Unread};
use super::source::address_of;
use loudou_words::num::whole;

#[derive(Deserialize)]
struct Wire<'a> {
    #[serde(borrow)]
    ts: Option<Scalar<'a>>,
    #[serde(borrow)]
    logger: Option<Scalar<'a>>,
    #[serde(borrow)]
    level: Option<Scalar<'a>>,
    #[serde(borrow)]
    msg: Option<Scalar<'a>>,
    #[serde(borrow)]
    request: Option<WireRequest<'a>>,
    #[serde(borrow)]
    duration: Option<Scalar<'a>>,
    #[serde(borrow)]
    status: Option<Scalar<'a>>,
}

#[derive(Deserialize)]
struct WireRequest<'a> {
    #[serde(borrow)]
    client_ip: Option<JsonStr<'a>>,
    #[serde(borrow)]
    remote_ip: Option<JsonStr<'a>>,
    #[serde(borrow)]
    remote_addr: Option<JsonStr<'a>>,
    #[serde(borrow)]
    method: Option<JsonStr<'a>>,
    #[serde(borrow)]
    host: Option<JsonStr<'a>>,
    #[serde(borrow)]
    uri: Option<JsonStr<'a>>,
    #[serde(borrow, default)]
    headers: HeaderLists<'a>,
}

/// Header lines by name.
#[derive(Default)]
struct HeaderLists<'a>(Vec<(Cow<'a, str>, Text<'a>)>);

struct HeaderListsVisitor;

impl<'a> Visitor<'a> for HeaderListsVisitor {
    type Value = HeaderLists<'a>;

    fn expecting(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str("an object of lists of strings")
    }

    fn visit_map<A: MapAccess<'a>>(self, mut map: A) -> Result<HeaderLists<'a>, A::Error> {
        let mut headers = Vec::new();
        while let Some((name, lines)) = map.next_entry::<JsonStr<'a>, Vec<JsonStr<'a>>>()? {
            for line in lines {
                headers.push((name.0.clone(), line.bytes()));
            }
        }
        Ok(HeaderLists(headers))
    }
}

impl<'de: 'a, 'a> Deserialize<'de> for HeaderLists<'a> {
    fn deserialize<D: Deserializer<'de>>(deserializer: D) -> Result<Self, D::Error> {
        deserializer.deserialize_map(HeaderListsVisitor)
    }
}

/// Parses a line of the log.
pub(crate) fn parse(line: &[u8]) -> Result<LoggedRequest<'_>, Unread> {
    let wire: Wire<'_> = json::read(line)?;
    let Some(request) = wire.request else {
        // Before Caddy has configured its loggers, its messages contain only `level`, `ts` and
        // `msg`.
        let is_message = wire.level.is_some() && wire.ts.is_some() && wire.msg.is_some();
        return Err(if is_message || wire.logger.is_some() {
            Unread::Other(OtherLine::Message)
        } else {
            Unread::bad("not a request: no `request`")
        });
    };
    let end = wire.ts.as_ref().and_then(time);
    let end = end.ok_or_else(|| Unread::untimed("expected a time in `ts`"))?;
    let duration = wire.duration.as_ref().and_then(seconds);
    let source = [request.client_ip, request.remote_ip, request.remote_addr];
    let source = source.into_iter().flatten().next();
    if request
        .method
        .as_ref()
        .is_none_or(|method| method.0.is_empty())
    {
        return Err(Unread::bad("not a request: no `request.method`"));
    }
    Ok(LoggedRequest {
        at: Nanos::new(end.get().saturating_sub(duration.unwrap_or_default().get())),
        request: Sample {
            method: request.method.map(JsonStr::bytes),
            path: request.uri.map(JsonStr::bytes),
            host: request
                .host
                .map(JsonStr::bytes)
                .filter(|host| !host.is_empty()),
            source: source
                .and_then(|source| text(Scalar::Text(source.0)))
                .and_then(address_of),
            headers: request.headers.0,
            ..Sample::default()
        },
        duration,
        status: wire.status.as_ref().and_then(status),
        settled: None,
        verdict: None,
        // The log contains all request headers, including `content-length`.
        received: None,
    })
}

/// Parses a duration in seconds. Fractions are rounded to microseconds.
fn seconds(value: &Scalar<'_>) -> Option<Nanos> {
    let seconds = match value {
        Scalar::Float(seconds) => *seconds,
        Scalar::Whole(seconds) => return Some(Nanos::from_secs(*seconds)),
        Scalar::Text(text) => text.strip_suffix('s').unwrap_or(text).parse().ok()?,
        Scalar::Other => return None,
    };
    Some(Nanos::new(
        whole((seconds * 1e6).round()).saturating_mul(1_000),
    ))
}

#[cfg(test)]
mod tests {
    use loudou_rules::request::Request as _;

    use super::*;

    const LINE: &str = r#"{"level":"info","ts":1646861401.5241024,"logger":"http.log.access",
        "msg":"handled request","request":{"remote_ip":"10.0.0.1","remote_port":"41342",
        "client_ip":"203.0.113.7","proto":"HTTP/2.0","method":"GET","host":"localhost","uri":"/a?b",
        "headers":{"User-Agent":["curl/7.82.0"],"X-Forwarded-For":["1.1.1.1","2.2.2.2"]},
        "tls":{"resumed":false}},"bytes_read":0,"user_id":"","duration":0.5,"size":10900,
        "status":429,"resp_headers":{"Server":["Caddy"]}}"#;

    #[test]
    fn the_default_format() {
        let mut record = parse(LINE.as_bytes()).expect("a line");
        assert_eq!(record.at, Nanos::new(1_646_861_401_024_102_000));
        assert_eq!(record.duration, Some(Nanos::from_millis(500)));
        assert_eq!(record.status, Some(429));
        let request = &mut record.request;
        assert_eq!(request.method().as_deref(), Some(&b"GET"[..]));
        assert_eq!(request.path().as_deref(), Some(&b"/a?b"[..]));
        assert_eq!(request.source().as_deref(), Some(&b"203.0.113.7"[..]));
        assert_eq!(request.header("host").as_deref(), Some(&b"localhost"[..]));
        let agent = request.header("user-agent");
        assert_eq!(agent.as_deref(), Some(&b"curl/7.82.0"[..]));
        assert_eq!(request.headers.len(), 3);
    }

    #[test]
    fn lines_that_are_no_requests() {
        for message in [
            r#"{"level":"info","ts":1.5,"logger":"admin","msg":"stopped"}"#,
            r#"{"level":"info","ts":1.5,"msg":"serving initial configuration"}"#,
            r#"{"level":"warn","ts":1.5,"msg":"exiting; byeee!! 👋","signal":"SIGTERM"}"#,
        ] {
            assert_eq!(
                parse(message.as_bytes()),
                Err(Unread::Other(OtherLine::Message))
            );
        }
        for line in [
            "{",
            r#"{"ts":1}"#,
            r#"{"ts":1,"msg":"x"}"#,
            r#"{"request":{"method":"GET"}}"#,
            r#"{"ts":1646861401.5,"request":{}}"#,
            r#"{"ts":1646861401.5,"request":{"method":"GET","headers":{"a":1}}}"#,
        ] {
            assert!(
                matches!(parse(line.as_bytes()), Err(Unread::Bad { .. })),
                "{line}"
            );
        }
    }
}
