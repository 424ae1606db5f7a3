//! Traces: JSON Lines in which every request, and every edit of a rule, has an instant of its own.

use std::borrow::Cow;

use loudou_limiter::{Carry, Nanos};
use loudou_rules::config::{self, Problem};
use loudou_rules::request::Sample;
use serde::Deserialize;
use serde_json::{Map, Value};

use super::json::{self, Headers, Str};
use super::record::{Line, Record, Set};

#[derive(Debug, Deserialize)]
#[serde(deny_unknown_fields)]
struct Wire<'a> {
    at_ns: u64,
    #[serde(borrow, default)]
    method: Option<Str<'a>>,
    #[serde(borrow, default)]
    path: Option<Str<'a>>,
    #[serde(borrow, default)]
    host: Option<Str<'a>>,
    #[serde(borrow, default)]
    headers: Option<Headers<'a>>,
    #[serde(borrow, default)]
    source: Option<Str<'a>>,
    #[serde(borrow, default)]
    route: Option<Str<'a>>,
    cost: Option<u64>,
    max_wait_ns: Option<u64>,
    duration_ns: Option<u64>,
    set: Option<Value>,
}

/// Reads a line.
pub(crate) fn parse(line: &[u8]) -> Result<Line<'_>, String> {
    let wire: Wire<'_> = json::read(line)?;
    let at = Nanos::new(wire.at_ns);
    if let Some(set) = &wire.set {
        return if wire.is_request() {
            Err("a line with `set` is no request: only `at_ns` goes with it".to_owned())
        } else {
            parse_set(at, set).map(Line::Set)
        };
    }
    let request = Sample {
        method: Some(wire.method.map_or(Cow::Borrowed(b"GET"), Str::bytes)),
        path: Some(wire.path.map_or(Cow::Borrowed(b"/"), Str::bytes)),
        host: wire.host.map(Str::bytes).filter(|host| !host.is_empty()),
        source: wire.source.map(Str::bytes),
        route: wire.route.map(Str::bytes),
        headers: wire.headers.unwrap_or_default().0,
        cost: wire.cost,
        max_wait: wire.max_wait_ns.map(Nanos::new),
        ..Sample::default()
    };
    Ok(Line::Request(Record {
        at,
        request,
        duration: wire.duration_ns.map(Nanos::new),
    }))
}

impl Wire<'_> {
    /// Whether anything is there that only a request has.
    fn is_request(&self) -> bool {
        let texts = [
            &self.method,
            &self.path,
            &self.host,
            &self.source,
            &self.route,
        ];
        let numbers = [self.cost, self.max_wait_ns, self.duration_ns];
        texts.iter().any(|text| text.is_some())
            || numbers.iter().any(Option::is_some)
            || self.headers.is_some()
    }
}

fn parse_set(at: Nanos, set: &Value) -> Result<Set, String> {
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
            format!("set.carry: {carry} is no way to carry; write {names}")
        })?,
    };
    // The rest is what the admin API takes.
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
    Ok(Set {
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

    fn request(line: &str) -> Record<'_> {
        match parse(line.as_bytes()).expect(line) {
            Line::Request(record) => record,
            Line::Set(set) => panic!("{set:?}"),
        }
    }

    #[test]
    fn everything_a_request_may_have() {
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
    fn only_the_instant_is_needed() {
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
        let Ok(Line::Set(set)) = parse(line.as_bytes()) else {
            panic!("an edit");
        };
        assert_eq!((set.rule.as_str(), set.carry), ("r", Carry::Keep));
        assert_eq!(set.edit.mode, Some(Mode::Shadow));
        assert_eq!(set.edit.limits.expect("limits").iter().len(), 1);
    }

    #[test]
    fn what_is_wrong_is_said() {
        for (line, said) in [
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
            (r#"{"at_ns":1,"set":{},"cost":1}"#, "no request"),
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
            assert!(error.contains(said), "{line}: {error}");
        }
        assert!(parse(b"{\"at_ns\":1,\"path\":\"\xff\"}").is_err());
        assert!(parse(b"\0\0").is_err());
    }
}
