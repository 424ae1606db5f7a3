//! Reads `match`.

use alloc::boxed::Box;
use alloc::format;
use alloc::string::ToString;

use serde_json::Value;

use super::grammar::{Field, Form, List, Object, Text, object};
use super::named::{
    COOKIE_NAME, HEADER_NAME, MAX_METHOD, MAX_NAME, METADATA_FORM, METADATA_PATH, Named,
    QUERY_NAME, metadata_path, method, name,
};
use super::reader::{Cursor, Fields, Report, several};
use crate::request::without_root;
use crate::rule::cidr::{CIDR_FORM, Cidr, CidrError};
use crate::rule::pattern::MAX_PATTERN;
use crate::rule::{Match, MetadataTest, NamedTest, PathMatch, Pattern, Test};

/// Maximum number of methods, tests or key parts in a list.
pub(super) const MAX_PARTS: usize = 16;
/// Maximum number of networks in a list.
const MAX_NETWORKS: usize = 64;
/// Maximum size of a string to match, in bytes.
const MAX_TEXT: usize = 1024;
/// Maximum nesting depth of `not` matches.
const MAX_DEPTH: usize = 4;
/// Creates the field for a list of tests, all of which must pass.
const fn tests(name: &'static str, item: &'static List, doc: &'static str) -> Field {
    Field::optional(name, Form::List(item), "", doc)
}

const fn parts(item: Form) -> List {
    List {
        fewest: 0,
        most: MAX_PARTS,
        item: Field::value(item, ""),
    }
}

/// Grammar of a match.
pub(super) const MATCH: Object = object!([
    Field::optional(
        "methods",
        Form::List(&parts(Form::Text(Text::like("^[A-Z_-]+$", MAX_METHOD)))),
        "all",
        "Any of these methods.",
    ),
    Field::optional(
        "path",
        Form::Defined("path"),
        "",
        "The path without its query."
    ),
    Field::optional(
        "host",
        Form::Defined("host"),
        "",
        "The requested host (Host or :authority), without its port.",
    ),
    tests(
        "headers",
        &parts(Form::Defined("header")),
        "Tests of headers; all must pass. A test of a repeated header passes if one of its lines does.",
    ),
    tests(
        "query",
        &parts(Form::Defined("query")),
        "Tests of query parameters; all must pass.",
    ),
    tests(
        "cookies",
        &parts(Form::Defined("cookie")),
        "Tests of cookies; all must pass.",
    ),
    Field::optional(
        "source",
        Form::List(&List {
            fewest: 0,
            most: MAX_NETWORKS,
            item: Field::value(
                Form::Text(Text::like("^[0-9A-Fa-f.:]+(/[0-9]{1,3})?$", 0)),
                ""
            ),
        }),
        "all",
        "The trusted client address is in any of these networks.",
    ),
    Field::optional(
        "route",
        Form::Defined("route"),
        "",
        "The name of Envoy's route."
    ),
    tests(
        "metadata",
        &parts(Form::Defined("metadata")),
        "Tests of values in the dynamic metadata of earlier filters; all must pass. A test of a list passes if one of its \
         elements does.",
    ),
    Field::optional(
        "not",
        Form::Defined("match"),
        "",
        "Requests that match this are excluded. At most 4 levels deep.",
    ),
]);

/// Creates the field for a test, for example with `test!("header", exact)`.
macro_rules! test {
    ($what:literal, present) => {
        Field::optional("present", Form::Boolean, "", "Whether it is present.")
    };
    ($what:literal, exact) => {
        test!("exact", TEXT, concat!("The ", $what, " is this text."))
    };
    ($what:literal, prefix) => {
        test!(
            "prefix",
            TEXT,
            concat!("The ", $what, " starts with this text.")
        )
    };
    ($what:literal, suffix) => {
        test!(
            "suffix",
            TEXT,
            concat!("The ", $what, " ends with this text.")
        )
    };
    ($what:literal, regex) => {
        test!(
            "regex",
            Text::any(MAX_PATTERN),
            concat!(
                "All of the ",
                $what,
                " matches this regular expression, in the syntax of the crate regex-lite. Of long values, \
                 `on_long_value` decides."
            )
        )
    };
    ($name:literal, $text:expr, $doc:expr) => {
        Field::optional($name, Form::Text($text), "", $doc)
    };
}

const TEXT: Text = Text::any(MAX_TEXT);

/// Creates the grammar of an object that has this field and exactly one of the tests.
macro_rules! tested {
    ($field:expr) => {
        object!(
            [
                $field,
                test!("value", present),
                test!("value", exact),
                test!("value", prefix),
                test!("value", suffix),
                test!("value", regex),
            ],
            TESTS
        )
    };
}

const TESTS: &[&str] = &["present", "exact", "prefix", "suffix", "regex"];
pub(super) const HEADER: Object = tested!(Field::required("name", HEADER_NAME, "Its name."));
pub(super) const QUERY: Object = tested!(Field::required("name", QUERY_NAME, "Its name."));
pub(super) const COOKIE: Object = tested!(Field::required("name", COOKIE_NAME, "Its name."));
/// A JSON string, number or boolean, which the test compares, as text, with the value.
const SCALAR: Form = Form::OneOf(&[
    Field::value(Form::Text(TEXT), ""),
    Field::value(Form::Integer(0, u32::MAX), ""),
    Field::value(Form::Boolean, ""),
]);
pub(super) const METADATA: Object = object!(
    [
        Field::required(
            "path",
            METADATA_PATH,
            "The namespace, and the keys below it."
        ),
        test!("value", present),
        Field::optional(
            "exact",
            SCALAR,
            "",
            "The value is this text, number or boolean.",
        ),
        test!("value", prefix),
        test!("value", suffix),
        test!("value", regex),
    ],
    TESTS
);

const HOST_TESTS: &[&str] = &["exact", "prefix", "suffix"];
/// Grammar of the test for the host.
pub(super) const HOST: Object = object!(
    [
        test!("host without its port", exact),
        test!("host without its port", prefix),
        test!("host without its port", suffix),
    ],
    HOST_TESTS
);
const ROUTE_TESTS: &[&str] = &["exact", "prefix"];
/// Grammar of the test for the route.
pub(super) const ROUTE: Object = object!(
    [test!("route's name", exact), test!("route's name", prefix)],
    ROUTE_TESTS
);

const fn path_like(name: &'static str, pattern: &'static str, doc: &'static str) -> Field {
    Field::optional(name, Form::Text(Text::like(pattern, MAX_TEXT)), "", doc)
}

/// Grammar of the test for the path.
pub(super) const PATH: Object = object!(
    [
        path_like(
            "prefix",
            "^/[^?#]*$",
            "It starts with this text, on whole segments: /reply matches /reply and /reply/7, not \
             /replyall.",
        ),
        path_like("exact", "^/[^?#]*$", "It is this text."),
        path_like("suffix", "^[^?#]+$", "It ends with this text."),
        path_like(
            "template",
            "^/[^?#]*$",
            "It has these segments; {name} is any one: /users/{id} matches /users/7, not \
             /users/7/posts.",
        ),
        test!("path", regex),
    ],
    &["prefix", "exact", "suffix", "template", "regex"]
);

pub(super) fn matches(cursor: &Cursor<'_, '_>, report: &mut Report) -> Option<Match> {
    nested(cursor, 0, report)
}

fn nested(cursor: &Cursor<'_, '_>, depth: usize, report: &mut Report) -> Option<Match> {
    if depth > MAX_DEPTH {
        let allowed = format!("at most {MAX_DEPTH} levels");
        report.error(cursor, "`not` is nested too deeply", &allowed);
        return None;
    }
    let fields = cursor.object(MATCH.names, report)?;
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
        let fields = route.object(ROUTE.names, report)?;
        test(&fields, ROUTE.choice, report)
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

fn path(cursor: &Cursor<'_, '_>, report: &mut Report) -> Option<PathMatch> {
    let fields = cursor.object(PATH.names, report)?;
    let (kind, value) = fields.one_of(PATH.choice, report)?;
    if kind == "regex" {
        return pattern(&value, report).map(PathMatch::Regex);
    }
    let text = value.text(MAX_TEXT, report)?;
    let (fits, message, allowed) = match kind {
        "suffix" => (true, "invalid path suffix", "a text without a query"),
        "template" => (
            text.starts_with('/') && text.split('/').all(is_segment),
            "invalid template",
            "a path like /users/{id}, where {id} is one whole segment",
        ),
        _ => (
            text.starts_with('/'),
            "invalid path",
            "a path that starts with /, without a query",
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

/// Returns true if the segment contains no braces or is a name in braces, such as `{id}`.
fn is_segment(segment: &str) -> bool {
    let name = segment.strip_prefix('{').and_then(|s| s.strip_suffix('}'));
    let inner = name.unwrap_or(segment);
    !inner.contains(['{', '}']) && name != Some("")
}

fn host(cursor: &Cursor<'_, '_>, report: &mut Report) -> Option<Test> {
    let fields = cursor.object(HOST.names, report)?;
    let (_, value) = fields.one_of(HOST.choice, report)?;
    let text = value.text(MAX_NAME, report)?;
    // A colon in a host introduces the port, unless it is part of a bracketed address.
    let has_port = text.contains(':') && !text.contains(['[', ']']);
    if has_port || !text.bytes().all(|b| b.is_ascii_graphic() && b != b'/') {
        let bare = text.split([':', '/']).find(|part| part.contains('.'));
        let problem = value.wrong("invalid host");
        let problem = problem.allowed("a host without scheme, port and path: example.com");
        report.add(problem.suggest(bare.filter(|bare| *bare != text)));
        return None;
    }
    // Normalizes the text like a request's host.
    let whole = |host: &str| {
        let bare = host.get(..without_root(host.as_bytes()).len());
        bare.unwrap_or(host).to_ascii_lowercase()
    };
    Some(match test(&fields, HOST.choice, report)? {
        Test::Exact(host) => Test::Exact(whole(&host)),
        Test::Prefix(host) => Test::Prefix(host.to_ascii_lowercase()),
        Test::Suffix(host) => Test::Suffix(whole(&host)),
        other @ (Test::Present(_) | Test::Regex(_)) => other,
    })
}

/// Reads whichever test is present. Exactly one of `kinds` must be present.
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

/// Reads a regular expression.
fn pattern(cursor: &Cursor<'_, '_>, report: &mut Report) -> Option<Pattern> {
    let text = cursor.text(MAX_PATTERN, report)?;
    let pattern = Pattern::new(text);
    if let Err(wrong) = &pattern {
        let message = format!("invalid regular expression: {wrong}");
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
    let fields = cursor.object(HEADER.names, report)?;
    let name = fields.need("name", form, report);
    let name = name.and_then(|name| self::name(&name, kind, report));
    let test = test(&fields, TESTS, report)?;
    Some(NamedTest { name: name?, test })
}

fn network(cursor: &Cursor<'_, '_>, report: &mut Report) -> Option<Cidr> {
    let (message, meant) = match Cidr::parse(cursor.value.as_str().unwrap_or_default()) {
        Ok(cidr) => return Some(cidr),
        Err(CidrError::Form) => ("invalid network", None),
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
    let fields = cursor.object(METADATA.names, report)?;
    let path = fields.need("path", METADATA_FORM, report);
    let path = path.and_then(|path| metadata_path(&path, report));
    let (kind, value) = fields.one_of(TESTS, report)?;
    let test = match value.value {
        Value::Bool(exact) if kind == "exact" => Test::Exact(exact.to_string()),
        Value::Number(_) if kind == "exact" => {
            Test::Exact(value.integer(0, u32::MAX, report)?.to_string())
        }
        _ => test(&fields, TESTS, report)?,
    };
    Some(MetadataTest { path: path?, test })
}
