//! Reading `key`.

use alloc::string::ToString;
use alloc::vec::Vec;

use super::matches::{MAX_PARTS, Named, metadata_path, name, several};
use super::reader::{Cursor, Report};
use super::suggest::nearest;
use crate::rule::{KeyPart, SourcePrefix};

/// The longest literal of a key, in bytes.
pub(super) const MAX_LITERAL: usize = 64;
/// The most segments of a path.
pub(super) const MAX_SEGMENTS: u8 = 64;
/// The parts of a key that are one word.
pub(super) const WORDS: &[&str] = &["source", "path", "route", "method", "host", "peer"];
/// The parts of a key that say more.
pub(super) const PARTS: &[&str] = &[
    "header", "query", "cookie", "literal", "metadata", "path", "source",
];
/// The fields of a path in a key.
pub(super) const PATH: &[&str] = &["segments"];
/// The fields of a source in a key.
pub(super) const SOURCE: &[&str] = &["v4_prefix", "v6_prefix"];

pub(super) fn key(cursor: &Cursor<'_, '_>, report: &mut Report) -> Vec<KeyPart> {
    several(cursor, MAX_PARTS, report, part)
}

fn part(cursor: &Cursor<'_, '_>, report: &mut Report) -> Option<KeyPart> {
    if let Some(text) = cursor.value.as_str() {
        return word(text, cursor, report);
    }
    let fields = cursor.object(PARTS, report)?;
    let (kind, value) = fields.one_of(PARTS, report)?;
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
    match word {
        "source" => Some(KeyPart::Source(SourcePrefix::default())),
        "path" => Some(KeyPart::Path { segments: None }),
        "route" => Some(KeyPart::Route),
        "method" => Some(KeyPart::Method),
        "host" => Some(KeyPart::Host),
        "peer" => Some(KeyPart::Peer),
        _ => {
            let allowed = alloc::format!(
                "{}, or an object with {}",
                WORDS.join(", "),
                PARTS.join(", ")
            );
            let problem = cursor.wrong("unknown key part");
            report.add(problem.allowed(allowed).suggest(nearest(word, WORDS)));
            None
        }
    }
}

fn path(cursor: &Cursor<'_, '_>, report: &mut Report) -> Option<KeyPart> {
    let fields = cursor.object(PATH, report)?;
    let segments = match fields.get("segments") {
        Some(segments) => Some(byte(&segments, 1, MAX_SEGMENTS, report)?),
        None => None,
    };
    Some(KeyPart::Path { segments })
}

fn source(cursor: &Cursor<'_, '_>, report: &mut Report) -> Option<KeyPart> {
    let fields = cursor.object(SOURCE, report)?;
    let mut prefix = SourcePrefix::default();
    if let Some(v4) = fields.get("v4_prefix") {
        prefix.v4 = byte(&v4, 0, 32, report)?;
    }
    if let Some(v6) = fields.get("v6_prefix") {
        prefix.v6 = byte(&v6, 0, 128, report)?;
    }
    Some(KeyPart::Source(prefix))
}

fn byte(cursor: &Cursor<'_, '_>, least: u8, most: u8, report: &mut Report) -> Option<u8> {
    let number = cursor.integer(least.into(), most.into(), report)?;
    u8::try_from(number).ok()
}
