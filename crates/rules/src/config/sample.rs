//! Reads a sample: a JSON object that describes a request whose outcome is to be explained, such as `{"method": "POST",
//! "path": "/reply", "headers": {"x-user-id": "alice"}, "source": "10.0.0.1", …}`. All fields are optional.

use alloc::borrow::Cow;
use alloc::format;
use alloc::string::{String, ToString};
use alloc::vec::Vec;
use core::net::IpAddr;

use loudou_limiter::bounds::MAX_AMOUNT;
use serde_json::Value;

use super::named::{self, MAX_METADATA, MAX_NAME, Named};
use super::problem::Problem;
use super::reader::{Cursor, Report};
use crate::metadata::number_text;
use crate::request::{Sample, Text};

/// Names of the fields of a sample.
pub const SAMPLE: &[&str] = &[
    "method",
    "path",
    "host",
    "headers",
    "source",
    "route",
    "cluster",
    "metadata",
    "client_cert",
    "cost",
];
/// Maximum size of a string in a sample, in bytes.
const MAX_TEXT: usize = 8 * 1024;
/// Maximum number of header values, and likewise of metadata values.
const MAX_VALUES: usize = 100;

/// Reads a sample, which borrows its strings from `document`. An empty sample stands for the request `GET /`.
pub fn parse_sample(document: &Value) -> Result<Sample<'_>, Vec<Problem>> {
    let mut report = Report::default();
    let sample = sample(&Cursor::root(document), &mut report);
    report.unless_invalid(sample)
}

/// Reads the metadata of a sample. Returns each value with its dot-separated path.
pub fn parse_metadata(document: &Value) -> Result<Vec<(String, Text<'_>)>, Vec<Problem>> {
    let (mut report, mut found) = (Report::default(), Vec::new());
    below(&Cursor::root(document), "", 0, &mut found, &mut report);
    report.unless_invalid(Some(found))
}

fn sample<'a>(cursor: &Cursor<'a, '_>, report: &mut Report) -> Option<Sample<'a>> {
    let fields = cursor.object(SAMPLE, report)?;
    let mut read = |name: &str, read: Reader<'a>| {
        let field = fields.get(name)?;
        read(&field, report).map(str::as_bytes).map(Cow::Borrowed)
    };
    let method = read("method", |cursor, report| {
        named::method(cursor, report)?;
        cursor.value.as_str()
    });
    let path = read("path", path);
    let host = read("host", host);
    let source = read("source", address);
    let route = read("route", |cursor, report| cursor.text(MAX_TEXT, report));
    let cluster = read("cluster", |cursor, report| cursor.text(MAX_TEXT, report));
    let client_cert = read("client_cert", |cursor, report| {
        cursor.text(MAX_TEXT, report)
    });
    let headers = fields.get("headers");
    let headers = headers.map_or_else(Vec::new, |headers| self::headers(&headers, report));
    let metadata = fields.get("metadata");
    let cost = fields.get("cost");
    let mut found = Vec::new();
    if let Some(metadata) = metadata {
        below(&metadata, "", 0, &mut found, report);
    }
    Some(Sample {
        method: method.or(Some(Cow::Borrowed(b"GET"))),
        path: path.or(Some(Cow::Borrowed(b"/"))),
        host,
        source,
        route,
        cluster,
        client_cert,
        headers,
        underscores: false,
        metadata: found,
        cost: cost.and_then(|cost| cost.integer(0, MAX_AMOUNT, report).map(u64::from)),
        max_wait: None,
        fleet: None,
    })
}

type Reader<'a> = fn(&Cursor<'a, '_>, &mut Report) -> Option<&'a str>;

fn path<'a>(cursor: &Cursor<'a, '_>, report: &mut Report) -> Option<&'a str> {
    let text = cursor.text(MAX_TEXT, report)?;
    let is_not_allowed = |c: char| c.is_control() || c == ' ';
    if (text.starts_with('/') || text == "*") && !text.contains(is_not_allowed) {
        return Some(text);
    }
    let meant = format!("/{text}");
    let meant =
        Some(meant.as_str()).filter(|_| !text.starts_with('/') && !text.contains(is_not_allowed));
    let problem = cursor.wrong("invalid path");
    let allowed = "a path that starts with /, with its query: /reply?x=1";
    report.add(problem.allowed(allowed).suggest(meant));
    None
}

fn host<'a>(cursor: &Cursor<'a, '_>, report: &mut Report) -> Option<&'a str> {
    let text = cursor.text(MAX_NAME, report)?;
    if text.bytes().all(|b| b.is_ascii_graphic() && b != b'/') {
        return Some(text);
    }
    let problem = cursor.wrong("invalid host");
    let meant = text.split('/').find(|part| part.contains('.'));
    report.add(
        problem
            .allowed("a host without scheme and path: example.com, example.com:8443")
            .suggest(meant),
    );
    None
}

fn address<'a>(cursor: &Cursor<'a, '_>, report: &mut Report) -> Option<&'a str> {
    let text = cursor.text(MAX_NAME, report)?;
    let is_address = |text: &str| text.parse::<IpAddr>().is_ok();
    if is_address(text) {
        return Some(text);
    }
    let host = text.rsplit_once(':').map_or(text, |(host, _port)| host);
    let host = host.trim_start_matches('[').trim_end_matches(']');
    let problem = cursor.wrong("invalid address");
    report.add(
        problem
            .allowed("an address without a port: 203.0.113.7, 2001:db8::1")
            .suggest(Some(host).filter(|host| is_address(host))),
    );
    None
}

fn headers<'a>(cursor: &Cursor<'a, '_>, report: &mut Report) -> Vec<(Cow<'a, str>, Text<'a>)> {
    let mut headers = Vec::new();
    for (name, values) in cursor.members("an object", report) {
        if !is_header(name, &values, report) {
            continue;
        }
        let values = if values.value.is_array() {
            values.list(report).unwrap_or_default()
        } else {
            Vec::from([values])
        };
        for value in values {
            let read = self::value(&value, report);
            headers.extend(read.map(|text| (Cow::Borrowed(name), text)));
        }
    }
    few(cursor, headers.len(), report);
    headers
}

/// Returns true if a sample may contain a header with this name; otherwise reports a problem.
fn is_header(name: &str, value: &Cursor<'_, '_>, report: &mut Report) -> bool {
    let field = match name.to_ascii_lowercase().as_str() {
        ":method" => "method",
        ":path" => "path",
        ":authority" | "host" => "host",
        _ => {
            let as_value = Value::from(name);
            return named::name(&value.with(&as_value), Named::Header, report).is_some();
        }
    };
    let problem = value.wrong("this header has a separate field");
    report.add(problem.allowed("other headers").suggest(Some(field)));
    false
}

/// Reads a value and trims the surrounding whitespace.
fn value<'a>(cursor: &Cursor<'a, '_>, report: &mut Report) -> Option<Text<'a>> {
    let text = cursor.value.as_str().filter(|text| {
        let is_not_allowed = |b: u8| matches!(b, b'\0' | b'\r' | b'\n');
        text.len() <= MAX_TEXT && !text.bytes().any(is_not_allowed)
    });
    if text.is_none() {
        let allowed = format!("a text of at most {MAX_TEXT} bytes on one line");
        report.error(cursor, "invalid value", &allowed);
    }
    text.map(|text| Cow::Borrowed(text.as_bytes().trim_ascii()))
}

/// Reads a metadata value as text. A list yields one text per element.
fn metadata_values<'a>(
    cursor: &Cursor<'a, '_>,
    path: &str,
    found: &mut Vec<(String, Text<'a>)>,
    report: &mut Report,
) {
    if cursor.value.is_array() {
        let elements = cursor.list(report).unwrap_or_default();
        if elements.is_empty() {
            found.push((path.to_string(), Cow::Borrowed(b"")));
        }
        for element in elements {
            found.extend(scalar(&element, report).map(|text| (path.to_string(), text)));
        }
        return;
    }
    found.extend(scalar(cursor, report).map(|text| (path.to_string(), text)));
}

fn scalar<'a>(cursor: &Cursor<'a, '_>, report: &mut Report) -> Option<Text<'a>> {
    match cursor.value {
        // A null counts as absent, as in Envoy.
        Value::Null => None,
        Value::Bool(true) => Some(Cow::Borrowed(b"true")),
        Value::Bool(false) => Some(Cow::Borrowed(b"false")),
        // Envoy stores each number as a double.
        Value::Number(number) => number
            .as_f64()
            .and_then(number_text)
            .map(|text| Cow::Owned(text.into_bytes())),
        _ => value(cursor, report),
    }
}

/// Adds all values of a metadata object and its nested objects.
fn below<'a>(
    cursor: &Cursor<'a, '_>,
    path: &str,
    depth: usize,
    found: &mut Vec<(String, Text<'a>)>,
    report: &mut Report,
) {
    if depth > 0 && !cursor.value.is_object() {
        metadata_values(cursor, path, found, report);
        return;
    }
    if depth == MAX_METADATA {
        let allowed = format!("at most {MAX_METADATA} steps");
        report.error(cursor, "the path is too long", &allowed);
        return;
    }
    let members = cursor.members("an object", report);
    if members.is_empty() && depth > 1 {
        found.push((path.to_string(), Cow::Borrowed(b"")));
    }
    for (name, value) in members {
        let path = if path.is_empty() {
            String::from(name)
        } else {
            format!("{path}.{name}")
        };
        below(&value, &path, depth.saturating_add(1), found, report);
    }
    if depth == 0 {
        few(cursor, found.len(), report);
    }
}

fn few(cursor: &Cursor<'_, '_>, count: usize, report: &mut Report) {
    if count > MAX_VALUES {
        let message = format!("{count} values are too many");
        let at = cursor.with(&Value::Null);
        report.error(&at, &message, &format!("at most {MAX_VALUES}"));
    }
}
