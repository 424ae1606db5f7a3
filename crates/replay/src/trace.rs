//! Parses traces in JSON Lines format. Each line is a request or an edit of a rule, with a
//! timestamp.

use std::borrow::Cow;

use loudou_limiter::{Carry, Nanos};
use loudou_rules::config::{self, Problem};
use loudou_rules::request::Sample;
use serde::Deserialize;
use serde_json::{Map, Value};

use super::json::{self, HeaderList, JsonStr};
use super::record::{LogLine, LoggedRequest, Text, TraceEdit, Unread};

#[derive(Debug, Deserialize)]
#[serde(deny_unknown_fields)]
struct Wire<'a> {
    at_ns: u64,
    #[serde(borrow, default)]
    method: Option<JsonStr<'a>>,
    #[serde(borrow, default)]
    path: Option<JsonStr<'a>>,
    #[serde(borrow, default)]
    host: Option<JsonStr<'a>>,
    #[serde(borrow, default)]
    headers: Option<HeaderList<'a>>,
    #[serde(borrow, default)]
    source: Option<JsonStr<'a>>,
    #[serde(borrow, default)]
    route: Option<JsonStr<'a>>,
    metadata: Option<Value>,
    cost: Option<u64>,
    max_wait_ns: Option<u64>,
    duration_ns: Option<u64>,
    status: Option<u16>,
    settled: Option<u64>,
    set: Option<Value>,
}

/// Parses a line of a trace.
pub(crate) fn parse(line: &[u8]) -> Result<LogLine<'_>, Unread> {
    let wire: Wire<'_> = json::read(line).map_err(unread)?;
    let at = Nanos::new(wire.at_ns);
    if let Some(set) = &wire.set {
        return if wire.is_request() {
            Err(Unread::bad(
                "a line with `set` is not a request: only `at_ns` is allowed beside it",
            ))
        } else {
            Ok(LogLine::Edit(parse_set(at, set)?))
        };
    }
    let request = Sample {
        method: Some(wire.method.map_or(Cow::Borrowed(b"GET"), JsonStr::bytes)),
        path: Some(wire.path.map_or(Cow::Borrowed(b"/"), JsonStr::bytes)),
        host: wire
            .host
            .map(JsonStr::bytes)
            .filter(|host| !host.is_empty()),
        source: wire.source.map(JsonStr::bytes),
        route: wire.route.map(JsonStr::bytes),
        headers: wire.headers.unwrap_or_default().0,
        metadata: wire
            .metadata
            .map_or_else(|| Ok(Vec::new()), |own| metadata(&own))?,
        cost: wire.cost,
        max_wait: wire.max_wait_ns.map(Nanos::new),
        ..Sample::default()
    };
    Ok(LogLine::Request(LoggedRequest {
        at,
        request,
        duration: wire.duration_ns.map(Nanos::new),
        status: wire.status,
        settled: wire.settled,
        verdict: None,
        received: None,
    }))
}

fn unread(message: String) -> Unread {
    if message.starts_with("missing field `at_ns`") {
        Unread::untimed(message)
    } else {
        Unread::bad(message)
    }
}

impl Wire<'_> {
    /// Returns true if the line contains any field that only requests have.
    fn is_request(&self) -> bool {
        let texts = [
            &self.method,
            &self.path,
            &self.host,
            &self.source,
            &self.route,
        ];
        let status = self.status.map(u64::from);
        let numbers = [
            self.cost,
            self.max_wait_ns,
            self.duration_ns,
            status,
            self.settled,
        ];
        texts.iter().any(|text| text.is_some())
            || numbers.iter().any(Option::is_some)
            || self.headers.is_some()
            || self.metadata.is_some()
    }
}

/// Parses metadata. The format is the same as in the request for the explain API.
fn metadata(metadata: &Value) -> Result<Vec<(String, Text<'static>)>, Unread> {
    let wrong = |problems: Vec<Problem>| {
        let problems: Vec<String> = problems.iter().map(Problem::to_string).collect();
        Unread::bad(format!("metadata: {}", problems.join("; ")))
    };
    let found = config::parse_metadata(metadata).map_err(wrong)?;
    let owned = |(path, value): (String, Text<'_>)| (path, Text::Owned(value.into_owned()));
    Ok(found.into_iter().map(owned).collect())
}

fn parse_set(at: Nanos, set: &Value) -> Result<TraceEdit, String> {
    let Value::Object(set) = set else {
        return Err("`set` is not an object".to_owned());
    };
    let Some(rule) = set.get("rule").and_then(Value::as_str) else {
        return Err("`set` needs the name of a `rule`".to_owned());
    };
    let carry = match set.get("carry") {
        None => Carry::default(),
        Some(carry) => carry.as_str().and_then(Carry::parse).ok_or_else(|| {
            let names = Carry::NAMES.join(", ");
            format!("set.carry: unknown value {carry}; expected one of {names}")
        })?,
    };
    // All other fields have the same format as in an edit request to the admin API.
    let rest = set
        .iter()
        .filter(|(name, _)| *name != "rule" && *name != "carry");
    let rest: Map<String, Value> = rest
        .map(|(name, value)| (name.clone(), value.clone()))
        .collect();
    let edit = config::parse_edit(&Value::Object(rest)).map_err(|problems| {
        let problems: Vec<String> = problems.iter().map(Problem::to_string).collect();
        format!("set: {}", problems.join("; "))
    })?;
    Ok(TraceEdit {
        at,
        rule: rule.to_owned(),
        edit,
        carry,
    })
}

#[cfg(test)]
mod tests {
    use loudou_rules::request::Request as _;
    use loudou_rules::rule::Mode;

    use super::*;

    fn request(line: &str) -> LoggedRequest<'_> {
        match parse(line.as_bytes()).expect(line) {
            LogLine::Request(record) => record,
            LogLine::Edit(set) => panic!("{set:?}"),
        }
    }

    #[test]
    fn every_field_of_a_request() {
        let mut record = request(
            r#"{"at_ns":7,"method":"POST","path":"/a\u0062?x","host":"h","headers":{"X-User-Id":"al\u0069ce"},
               "source":"10.0.0.1","route":"r","cost":3,"max_wait_ns":4,"duration_ns":5}"#,
        );
        assert_eq!(record.at, Nanos::new(7));
        assert_eq!(record.request.method().as_deref(), Some(&b"POST"[..]));
        assert_eq!(record.request.path().as_deref(), Some(&b"/ab?x"[..]));
        assert_eq!(record.request.header("host").as_deref(), Some(&b"h"[..]));
        assert_eq!(
            record.request.header(":authority").as_deref(),
            Some(&b"h"[..])
        );
        assert_eq!(
            record.request.header("x-user-id").as_deref(),
            Some(&b"alice"[..])
        );
        assert_eq!(record.request.header("x-user"), None);
        assert_eq!(record.request.source().as_deref(), Some(&b"10.0.0.1"[..]));
        assert_eq!(record.request.route().as_deref(), Some(&b"r"[..]));
        assert_eq!(
            (record.request.cost(), record.request.max_wait()),
            (Some(3), Some(Nanos::new(4)))
        );
        assert_eq!(record.duration, Some(Nanos::new(5)));
    }

    #[test]
    fn only_the_instant_is_required() {
        let mut record = request(r#"{"at_ns":18446744073709551615,"host":""}"#);
        assert_eq!(record.at, Nanos::MAX);
        assert_eq!(
            record.request.header(":method").as_deref(),
            Some(&b"GET"[..])
        );
        assert_eq!(record.request.header(":path").as_deref(), Some(&b"/"[..]));
        assert_eq!(record.request.header("host"), None);
        assert_eq!(record.request.source(), None);
        assert_eq!(
            (
                record.request.cost(),
                record.request.max_wait(),
                record.duration
            ),
            (None, None, None)
        );
    }

    #[test]
    fn edits() {
        let line = r#"{"at_ns":5,"set":{"rule":"r","mode":"shadow","carry":"keep",
            "limits":[{"algorithm":"funnel","capacity":2,"rate":"1/s"}]}}"#;
        let Ok(LogLine::Edit(set)) = parse(line.as_bytes()) else {
            panic!("an edit");
        };
        assert_eq!((set.rule.as_str(), set.carry), ("r", Carry::Keep));
        assert_eq!(set.edit.mode, Some(Mode::Shadow));
        assert_eq!(set.edit.limits.expect("limits").iter().len(), 1);
    }

    #[test]
    fn malformed_lines_are_reported() {
        for (line, expected) in [
            ("", "EOF while parsing a value"),
            ("{}", "missing field `at_ns` (column 2)"),
            (
                r#"{"at_ns":-1}"#,
                "invalid value: integer `-1`, expected u64 (column 11)",
            ),
            (
                r#"{"at_ns":1,"sorce":"x"}"#,
                "unknown field `sorce`, expected one of",
            ),
            (
                r#"{"at_ns":1,"headers":{"a":1}}"#,
                "invalid type: integer `1`, expected a string",
            ),
            (r#"{"at_ns":1} x"#, "trailing characters (column 13)"),
            (r#"{"at_ns":1,"set":{},"cost":1}"#, "not a request"),
            (r#"{"at_ns":1,"set":{}}"#, "`rule`"),
            (r#"{"at_ns":1,"set":{"rule":"r"}}"#, "nothing to change"),
            (
                r#"{"at_ns":1,"set":{"rule":"r","carry":"x","mode":"off"}}"#,
                "keep, proportional, reset",
            ),
            (
                r#"{"at_ns":1,"set":{"rule":"r","limits":[{"algorithm":"funel","capacity":1,"rate":"1/s"}]}}"#,
                "did you mean `funnel`?",
            ),
        ] {
            let error = parse(line.as_bytes()).expect_err(line);
            assert!(format!("{error:?}").contains(expected), "{line}: {error:?}");
        }
        assert!(parse(b"{\"at_ns\":1,\"path\":\"\xff\"}").is_err());
        assert!(parse(b"\0\0").is_err());
    }
}
