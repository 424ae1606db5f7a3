//! Reading `match` and `key`.

use alloc::format;
use alloc::string::{String, ToString};
use alloc::vec::Vec;

use super::problem::Problem;
use super::reader::{Cursor, Report};
use super::suggest::nearest;
use crate::rule::{HeaderMatch, HeaderTest, KeyPart, Match, PathMatch};

/// The most methods, headers or key parts in one rule.
pub(super) const MAX_PARTS: usize = 16;
/// The longest text to match, in bytes.
pub(super) const MAX_TEXT: usize = 1024;
/// The longest name of a header, in bytes.
pub(super) const MAX_HEADER_NAME: usize = 256;
/// The longest method, in bytes.
pub(super) const MAX_METHOD: usize = 32;
/// The longest literal of a key, in bytes.
pub(super) const MAX_LITERAL: usize = 64;
/// The fields of a match.
pub(super) const MATCH: &[&str] = &["methods", "path", "headers"];
/// The tests of a path, of which there is exactly one.
pub(super) const PATH: &[&str] = &["prefix", "exact"];
/// The fields of the test of a header: the name and one of [`HEADER_TESTS`].
pub(super) const HEADER: &[&str] = &["name", "present", "exact"];
pub(super) const HEADER_TESTS: &[&str] = &["present", "exact"];
/// The parts of a key that are one word.
pub(super) const KEY_WORDS: &[&str] = &["source", "path", "route"];
/// The parts of a key that have a text.
pub(super) const KEY_TEXTS: &[&str] = &["header", "literal"];

pub(super) fn matches(cursor: &Cursor<'_>, report: &mut Report) -> Option<Match> {
    let fields = cursor.object(MATCH, report)?;
    let methods = fields
        .get("methods")
        .map(|methods| several(&methods, report, method));
    let path = fields.get("path").map(|path| self::path(&path, report));
    let headers = fields
        .get("headers")
        .map(|headers| several(&headers, report, header));
    Some(Match {
        methods: methods.unwrap_or_default(),
        path: path.flatten(),
        headers: headers.unwrap_or_default(),
    })
}

pub(super) fn key(cursor: &Cursor<'_>, report: &mut Report) -> Vec<KeyPart> {
    several(cursor, report, key_part)
}

/// Reads a list of at most [`MAX_PARTS`] elements.
fn several<T>(
    cursor: &Cursor<'_>,
    report: &mut Report,
    read: impl Fn(&Cursor<'_>, &mut Report) -> Option<T>,
) -> Vec<T> {
    let Some(cursors) = cursor.list(report) else {
        return Vec::new();
    };
    if cursors.len() > MAX_PARTS {
        report.error(cursor, "too long a list", &format!("at most {MAX_PARTS}"));
        return Vec::new();
    }
    cursors
        .iter()
        .filter_map(|cursor| read(cursor, report))
        .collect()
}

fn method(cursor: &Cursor<'_>, report: &mut Report) -> Option<String> {
    let text = cursor.text(MAX_METHOD, report)?;
    let is_method = |text: &str| {
        let fits = |b: u8| b.is_ascii_uppercase() || b == b'-' || b == b'_';
        text.bytes().all(fits)
    };
    if is_method(text) {
        return Some(text.to_string());
    }
    let upper = text.to_ascii_uppercase();
    let problem = Problem::error(cursor.path.clone(), cursor.value, "not a method");
    report.add(
        problem
            .allowed("upper-case names: GET, POST, …")
            .suggest(Some(upper.as_str()).filter(|upper| is_method(upper))),
    );
    None
}

fn path(cursor: &Cursor<'_>, report: &mut Report) -> Option<PathMatch> {
    let fields = cursor.object(PATH, report)?;
    let (kind, text) = fields.one_of(PATH, report)?;
    let path = text.text(MAX_TEXT, report)?;
    if !path.starts_with('/') || path.contains(['?', '#']) {
        let problem = Problem::error(text.path.clone(), text.value, "not a path");
        report.add(problem.allowed("a path that starts with / and has no query"));
        return None;
    }
    let path = path.to_string();
    Some(if kind == "prefix" {
        PathMatch::Prefix(path)
    } else {
        PathMatch::Exact(path)
    })
}

fn header_name(cursor: &Cursor<'_>, report: &mut Report) -> Option<String> {
    let text = cursor.text(MAX_HEADER_NAME, report)?;
    let fits = |b: u8| b.is_ascii_alphanumeric() || b"!#$%&'*+-.^_`|~:".contains(&b);
    if text.bytes().all(fits) {
        return Some(text.to_ascii_lowercase());
    }
    report.error(
        cursor,
        "not a header name",
        "letters, digits and !#$%&'*+-.^_`|~",
    );
    None
}

fn header(cursor: &Cursor<'_>, report: &mut Report) -> Option<HeaderMatch> {
    let fields = cursor.object(HEADER, report)?;
    let name = fields.need("name", "a header name", report);
    let name = name.and_then(|name| header_name(&name, report));
    let (kind, value) = fields.one_of(HEADER_TESTS, report)?;
    let test = if kind == "present" {
        HeaderTest::Present(value.boolean(report)?)
    } else {
        HeaderTest::Exact(value.text(MAX_TEXT, report)?.to_string())
    };
    Some(HeaderMatch { name: name?, test })
}

fn key_part(cursor: &Cursor<'_>, report: &mut Report) -> Option<KeyPart> {
    if let Some(word) = cursor.value.as_str() {
        return key_word(word, cursor, report);
    }
    let fields = cursor.object(KEY_TEXTS, report)?;
    let (kind, value) = fields.one_of(KEY_TEXTS, report)?;
    if kind == "header" {
        return header_name(&value, report).map(KeyPart::Header);
    }
    value
        .text(MAX_LITERAL, report)
        .map(|text| KeyPart::Literal(text.to_string()))
}

fn key_word(word: &str, cursor: &Cursor<'_>, report: &mut Report) -> Option<KeyPart> {
    match word {
        "source" => Some(KeyPart::Source),
        "path" => Some(KeyPart::Path),
        "route" => Some(KeyPart::Route),
        _ => {
            let allowed = "source, path, route, { header: NAME }, { literal: TEXT }";
            let problem = Problem::error(cursor.path.clone(), cursor.value, "unknown key part");
            report.add(problem.allowed(allowed).suggest(nearest(word, KEY_WORDS)));
            None
        }
    }
}
