//! Reading `match`.

use alloc::boxed::Box;
use alloc::format;
use alloc::string::{String, ToString};
use alloc::vec::Vec;

use super::reader::{Cursor, Fields, Report};
use crate::rule::cidr::{CIDR_FORM, Cidr, CidrError};
use crate::rule::pattern::MAX_PATTERN;
use crate::rule::{Match, MetadataTest, NamedTest, PathMatch, Pattern, Test};

/// The most methods, tests or key parts in one list.
pub(super) const MAX_PARTS: usize = 16;
/// The most networks in one list.
pub(super) const MAX_NETWORKS: usize = 64;
/// The longest text to match, in bytes.
pub(super) const MAX_TEXT: usize = 1024;
/// The longest name of a header, a query parameter, a cookie or a key of metadata, in bytes.
pub(super) const MAX_NAME: usize = 256;
/// The longest method, in bytes.
pub(super) const MAX_METHOD: usize = 32;
/// The longest path of metadata.
pub(super) const MAX_METADATA: usize = 8;
/// How deep `not` may stand in `not`.
pub(super) const MAX_DEPTH: usize = 4;
/// The fields of a match.
pub(super) const MATCH: &[&str] = &[
    "methods", "path", "host", "headers", "query", "cookies", "source", "route", "metadata", "not",
];
/// The tests of a path, of which there is exactly one.
pub(super) const PATH: &[&str] = &["prefix", "exact", "suffix", "template", "regex"];
/// The tests of the host and of the route, of which there is exactly one.
pub(super) const HOST: &[&str] = &["exact", "prefix", "suffix"];
pub(super) const ROUTE: &[&str] = &["exact", "prefix"];
/// The fields of the test of a header, a query parameter or a cookie: the name and one of [`TESTS`].
pub(super) const NAMED: &[&str] = &["name", "present", "exact", "prefix", "suffix", "regex"];
/// The fields of the test of metadata: the path and one of [`TESTS`].
pub(super) const METADATA: &[&str] = &["path", "present", "exact", "prefix", "suffix", "regex"];
pub(super) const TESTS: &[&str] = &["present", "exact", "prefix", "suffix", "regex"];

/// What has a name.
#[derive(Clone, Copy)]
pub(super) enum Named {
    Header,
    Query,
    Cookie,
}

pub(super) fn matches(cursor: &Cursor<'_, '_>, report: &mut Report) -> Option<Match> {
    nested(cursor, 0, report)
}

fn nested(cursor: &Cursor<'_, '_>, depth: usize, report: &mut Report) -> Option<Match> {
    if depth > MAX_DEPTH {
        let allowed = format!("at most {MAX_DEPTH} deep");
        report.error(cursor, "`not` in too many others", &allowed);
        return None;
    }
    let fields = cursor.object(MATCH, report)?;
    let named = |name: &str, kind: Named, report: &mut Report| {
        let list = fields.get(name);
        list.map(|list| several(&list, MAX_PARTS, report, |c, r| named_test(c, kind, r)))
            .unwrap_or_default()
    };
    let methods = fields
        .get("methods")
        .map(|methods| several(&methods, MAX_PARTS, report, method));
    let path = fields
        .get("path")
        .and_then(|path| self::path(&path, report));
    let host = fields
        .get("host")
        .and_then(|host| self::host(&host, report));
    let headers = named("headers", Named::Header, report);
    let query = named("query", Named::Query, report);
    let cookies = named("cookies", Named::Cookie, report);
    let source = fields
        .get("source")
        .map(|source| several(&source, MAX_NETWORKS, report, network));
    let route = fields.get("route").and_then(|route| {
        let fields = route.object(ROUTE, report)?;
        test(&fields, ROUTE, report)
    });
    let metadata = fields
        .get("metadata")
        .map(|metadata| several(&metadata, MAX_PARTS, report, metadata_test));
    let not = fields
        .get("not")
        .and_then(|not| nested(&not, depth.saturating_add(1), report));
    Some(Match {
        methods: methods.unwrap_or_default(),
        path,
        host,
        headers,
        query,
        cookies,
        source: source.unwrap_or_default(),
        route,
        metadata: metadata.unwrap_or_default(),
        not: not.map(Box::new),
    })
}

/// Reads a list of at most `most` elements.
pub(super) fn several<T>(
    cursor: &Cursor<'_, '_>,
    most: usize,
    report: &mut Report,
    read: impl Fn(&Cursor<'_, '_>, &mut Report) -> Option<T>,
) -> Vec<T> {
    let mut read_ones = Vec::new();
    each(cursor, most, report, &mut |cursor, report| {
        read_ones.extend(read(cursor, report));
    });
    read_ones
}

/// The same for whatever is read: one copy of it in the code.
fn each(
    cursor: &Cursor<'_, '_>,
    most: usize,
    report: &mut Report,
    read: &mut dyn FnMut(&Cursor<'_, '_>, &mut Report),
) {
    let Some(cursors) = cursor.list(report) else {
        return;
    };
    if cursors.len() > most {
        report.error(cursor, "too long a list", &format!("at most {most}"));
        return;
    }
    for cursor in &cursors {
        read(cursor, report);
    }
}

pub(super) fn method(cursor: &Cursor<'_, '_>, report: &mut Report) -> Option<String> {
    let text = cursor.text(MAX_METHOD, report)?;
    let is_method = |text: &str| {
        let fits = |b: u8| b.is_ascii_uppercase() || b == b'-' || b == b'_';
        text.bytes().all(fits)
    };
    if is_method(text) {
        return Some(text.to_string());
    }
    let upper = text.to_ascii_uppercase();
    let problem = cursor.wrong("not a method");
    report.add(
        problem
            .allowed("upper-case names: GET, POST, …")
            .suggest(Some(upper.as_str()).filter(|upper| is_method(upper))),
    );
    None
}

fn path(cursor: &Cursor<'_, '_>, report: &mut Report) -> Option<PathMatch> {
    let fields = cursor.object(PATH, report)?;
    let (kind, value) = fields.one_of(PATH, report)?;
    if kind == "regex" {
        return pattern(&value, report).map(PathMatch::Regex);
    }
    let text = value.text(MAX_TEXT, report)?;
    let (fits, message, allowed) = match kind {
        "suffix" => (true, "not the end of a path", "a text that has no query"),
        "template" => (
            text.starts_with('/') && text.split('/').all(is_segment),
            "not a template",
            "a path like /users/{id}, where {id} is one whole segment",
        ),
        _ => (
            text.starts_with('/'),
            "not a path",
            "a path that starts with / and has no query",
        ),
    };
    if !fits || text.contains(['?', '#']) {
        report.error(&value, message, allowed);
        return None;
    }
    let text = text.to_string();
    Some(match kind {
        "prefix" => PathMatch::Prefix(text),
        "suffix" => PathMatch::Suffix(text),
        "template" => PathMatch::Template(text),
        _ => PathMatch::Exact(text),
    })
}

/// Whether braces only stand around a whole segment.
fn is_segment(segment: &str) -> bool {
    let name = segment.strip_prefix('{').and_then(|s| s.strip_suffix('}'));
    let inner = name.unwrap_or(segment);
    !inner.contains(['{', '}']) && name != Some("")
}

fn host(cursor: &Cursor<'_, '_>, report: &mut Report) -> Option<Test> {
    let fields = cursor.object(HOST, report)?;
    let (_, value) = fields.one_of(HOST, report)?;
    let text = value.text(MAX_NAME, report)?;
    // An address in brackets has colons, a host has none but before its port.
    let has_port = text.contains(':') && !text.contains(['[', ']']);
    if has_port || !text.bytes().all(|b| b.is_ascii_graphic() && b != b'/') {
        let bare = text.split([':', '/']).find(|part| part.contains('.'));
        let problem = value.wrong("not a host");
        let problem = problem.allowed("a host without scheme, port and path: example.com");
        report.add(problem.suggest(bare.filter(|bare| *bare != text)));
        return None;
    }
    Some(match test(&fields, HOST, report)? {
        Test::Exact(host) => Test::Exact(host.to_ascii_lowercase()),
        Test::Prefix(host) => Test::Prefix(host.to_ascii_lowercase()),
        Test::Suffix(host) => Test::Suffix(host.to_ascii_lowercase()),
        other @ (Test::Present(_) | Test::Regex(_)) => other,
    })
}

/// The only one of the tests `kinds` that is there.
fn test(fields: &Fields<'_, '_>, kinds: &[&'static str], report: &mut Report) -> Option<Test> {
    let (kind, value) = fields.one_of(kinds, report)?;
    if kind == "present" {
        return value.boolean(report).map(Test::Present);
    }
    if kind == "regex" {
        return pattern(&value, report).map(Test::Regex);
    }
    let text = value.text(MAX_TEXT, report)?.to_string();
    Some(match kind {
        "prefix" => Test::Prefix(text),
        "suffix" => Test::Suffix(text),
        _ => Test::Exact(text),
    })
}

/// A regular expression.
fn pattern(cursor: &Cursor<'_, '_>, report: &mut Report) -> Option<Pattern> {
    let text = cursor.text(MAX_PATTERN, report)?;
    let pattern = Pattern::new(text);
    if let Err(wrong) = &pattern {
        let message = format!("not a regular expression: {wrong}");
        let allowed = "a small pattern for the whole value, like /v[0-9]+/.*";
        report.error(cursor, &message, allowed);
    }
    pattern.ok()
}

fn named_test(cursor: &Cursor<'_, '_>, kind: Named, report: &mut Report) -> Option<NamedTest> {
    let form = match kind {
        Named::Header => "a header name",
        Named::Query => "the name of a query parameter",
        Named::Cookie => "the name of a cookie",
    };
    let fields = cursor.object(NAMED, report)?;
    let name = fields.need("name", form, report);
    let name = name.and_then(|name| self::name(&name, kind, report));
    let test = test(&fields, TESTS, report)?;
    Some(NamedTest { name: name?, test })
}

pub(super) fn name(cursor: &Cursor<'_, '_>, kind: Named, report: &mut Report) -> Option<String> {
    let text = cursor.text(MAX_NAME, report)?;
    let token = |b: u8| b.is_ascii_alphanumeric() || b"!#$%&'*+-.^_`|~".contains(&b);
    let (fits, message, allowed) = match kind {
        Named::Header => (
            text.bytes().all(|b| token(b) || b == b':'),
            "not a header name",
            "letters, digits and !#$%&'*+-.^_`|~",
        ),
        Named::Query => (
            !text.contains(char::is_control),
            "not the name of a query parameter",
            "a text without control characters, decoded",
        ),
        Named::Cookie => (
            text.bytes().all(token),
            "not the name of a cookie",
            "letters, digits and !#$%&'*+-.^_`|~",
        ),
    };
    if !fits {
        report.error(cursor, message, allowed);
        return None;
    }
    Some(match kind {
        Named::Header => text.to_ascii_lowercase(),
        Named::Query | Named::Cookie => text.to_string(),
    })
}

fn network(cursor: &Cursor<'_, '_>, report: &mut Report) -> Option<Cidr> {
    let (message, meant) = match Cidr::parse(cursor.value.as_str().unwrap_or_default()) {
        Ok(cidr) => return Some(cidr),
        Err(CidrError::Form) => ("not a network", None),
        Err(CidrError::HostBits(meant)) => (
            "the address has bits beyond the prefix",
            Some(meant.to_string()),
        ),
    };
    let problem = cursor.wrong(message);
    report.add(problem.allowed(CIDR_FORM).suggest(meant.as_deref()));
    None
}

fn metadata_test(cursor: &Cursor<'_, '_>, report: &mut Report) -> Option<MetadataTest> {
    let fields = cursor.object(METADATA, report)?;
    let path = fields.need("path", METADATA_FORM, report);
    let path = path.and_then(|path| metadata_path(&path, report));
    let test = test(&fields, TESTS, report)?;
    Some(MetadataTest { path: path?, test })
}

const METADATA_FORM: &str = "a name space and keys: [envoy.filters.http.jwt_authn, payload, sub]";

/// The name space of metadata, and the keys below it.
pub(super) fn metadata_path(cursor: &Cursor<'_, '_>, report: &mut Report) -> Option<Vec<String>> {
    let count = cursor.value.as_array().map(Vec::len);
    if count.is_some_and(|count| !(2..=MAX_METADATA).contains(&count)) {
        let message = "too short or too long a path";
        let allowed = format!("2 to {MAX_METADATA} steps, {METADATA_FORM}");
        report.error(cursor, message, &allowed);
        return None;
    }
    let steps = several(cursor, MAX_METADATA, report, |step, report| {
        let text = step.text(MAX_NAME, report)?;
        if text.contains(char::is_control) {
            let allowed = "a text without control characters";
            report.error(step, "not a key of metadata", allowed);
            return None;
        }
        Some(text.to_string())
    });
    Some(steps).filter(|steps| Some(steps.len()) == count)
}
