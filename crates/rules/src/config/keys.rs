//! Reads `key`.

use alloc::string::ToString;
use alloc::vec::Vec;

use super::grammar::{Field, Form, List, Object, Text, object, words, written_as};
use super::matches::MAX_PARTS;
use super::named::{
    COOKIE_NAME, HEADER_NAME, METADATA_PATH, Named, QUERY_NAME, metadata_path, name,
};
use super::reader::{Cursor, Report, several};
use super::suggest::nearest;
use crate::joined::joined;
use crate::rule::{KeyPart, SourcePrefix};

/// Maximum size of a literal in a key, in bytes.
const MAX_LITERAL: usize = 64;
/// Key parts in the form of a single word.
const WORDS: &[&str] = &words(&KeyPart::WORDS);
/// Key parts in object form.
const PARTS: Object = object!(
    [
        part_of(
            "header",
            HEADER_NAME,
            "The first line of this header that is not empty.",
        ),
        part_of(
            "query",
            QUERY_NAME,
            "The first value of this query parameter that is not empty, decoded.",
        ),
        part_of(
            "cookie",
            COOKIE_NAME,
            "The first value of this cookie that is not empty, without quotes around it.",
        ),
        part_of(
            "literal",
            Form::Text(Text::any(MAX_LITERAL)),
            "A fixed text."
        ),
        part_of(
            "metadata",
            METADATA_PATH,
            "A value in the dynamic metadata of earlier filters: the namespace, and the keys below it. Of a list, the \
             first element that is not empty.",
        ),
        part_of(
            "path",
            Form::Defined("key_path"),
            "The path without its query, in its normal form or as it is, or its first segments.",
        ),
        part_of(
            "source",
            Form::Defined("key_source"),
            "The network of the trusted client address.",
        ),
    ],
    &[
        "header", "query", "cookie", "literal", "metadata", "path", "source"
    ]
);

const fn part_of(name: &'static str, form: Form, doc: &'static str) -> Field {
    Field::optional(name, form, "", doc)
}

/// Grammar of a key.
pub(super) const KEY: List = List {
    fewest: 0,
    most: MAX_PARTS,
    item: Field::value(
        Form::OneOf(&[
            Field::value(
                Form::Word(WORDS),
                "source: the trusted client address; for IPv6, its first 64 bits. path: the path without its \
                 query, in its normal form. route: the name of Envoy's route. host: without its port. client_cert: the first URI or DNS name of the client's certificate.",
            ),
            Field::value(Form::Object(&PARTS), ""),
        ]),
        "",
    ),
};

const SEGMENTS: Field = Field::optional(
    "segments",
    Form::Integer(1, 64),
    "all",
    "The number of segments, from the first.",
);
const NORMALIZE: Field = Field::optional(
    "normalize",
    Form::Boolean,
    "true",
    "If true, equivalent spellings of a path share a bucket: escaped letters and digits, repeated slashes, dot \
     segments, a slash at the end, parameters after a semicolon.",
);
/// Grammar of the object in a `path` key part.
pub(super) const PATH: Object = object!([SEGMENTS, NORMALIZE]);

const V4_PREFIX: Field = Field::optional(
    "v4_prefix",
    Form::Integer(0, 32),
    "32",
    "The prefix length for IPv4 addresses, in bits.",
);
const V6_PREFIX: Field = Field::optional(
    "v6_prefix",
    Form::Integer(0, 128),
    "64",
    "The prefix length for IPv6 addresses, in bits.",
);
/// Grammar of the object in a `source` key part.
pub(super) const SOURCE: Object = object!([V4_PREFIX, V6_PREFIX]);

pub(super) fn key(cursor: &Cursor<'_, '_>, report: &mut Report) -> Vec<KeyPart> {
    several(cursor, MAX_PARTS, report, part)
}

fn part(cursor: &Cursor<'_, '_>, report: &mut Report) -> Option<KeyPart> {
    if let Some(text) = cursor.value.as_str() {
        return word(text, cursor, report);
    }
    let fields = cursor.object(PARTS.names, report)?;
    let (kind, value) = fields.one_of(PARTS.choice, report)?;
    match kind {
        "header" => name(&value, Named::Header, report).map(KeyPart::Header),
        "query" => name(&value, Named::Query, report).map(KeyPart::Query),
        "cookie" => name(&value, Named::Cookie, report).map(KeyPart::Cookie),
        "metadata" => metadata_path(&value, report).map(KeyPart::Metadata),
        "path" => path(&value, report),
        "source" => source(&value, report),
        _ => value
            .text(MAX_LITERAL, report)
            .map(|text| KeyPart::Literal(text.to_string())),
    }
}

fn word(word: &str, cursor: &Cursor<'_, '_>, report: &mut Report) -> Option<KeyPart> {
    let found = KeyPart::of_word(written_as(word).unwrap_or(word));
    if found.is_some() {
        return found;
    }
    let allowed = alloc::format!(
        "{}, or an object with {}",
        joined(WORDS, ", "),
        joined(PARTS.names, ", ")
    );
    let problem = cursor.wrong("unknown key part");
    report.add(problem.allowed(allowed).suggest(nearest(word, WORDS)));
    None
}

fn path(cursor: &Cursor<'_, '_>, report: &mut Report) -> Option<KeyPart> {
    let fields = cursor.object(PATH.names, report)?;
    let segments = match fields.get(SEGMENTS.name) {
        Some(segments) => Some(byte(&segments, SEGMENTS, report)?),
        None => None,
    };
    let normalize = match fields.get(NORMALIZE.name) {
        Some(normalize) => normalize.boolean(report)?,
        None => true,
    };
    Some(KeyPart::Path {
        segments,
        normalize,
    })
}

fn source(cursor: &Cursor<'_, '_>, report: &mut Report) -> Option<KeyPart> {
    let fields = cursor.object(SOURCE.names, report)?;
    let mut prefix = SourcePrefix::default();
    if let Some(v4) = fields.get(V4_PREFIX.name) {
        prefix.v4 = byte(&v4, V4_PREFIX, report)?;
    }
    if let Some(v6) = fields.get(V6_PREFIX.name) {
        prefix.v6 = byte(&v6, V6_PREFIX, report)?;
    }
    Some(KeyPart::Source(prefix))
}

fn byte(cursor: &Cursor<'_, '_>, field: Field, report: &mut Report) -> Option<u8> {
    u8::try_from(cursor.integer_of(field, report)?).ok()
}
