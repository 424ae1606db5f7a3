//! Parser for rule files in YAML or JSON. The parser records the position of every value.
//!
//! JSON is parsed as a subset of YAML. The result consists of two trees. The first is a JSON tree
//! for [`loudou_rules::config`], which reports problems by path. The second contains the position
//! of each value, and converts a path to a line and a column. In rule files, YAML features that
//! JSON lacks are refused: anchors, aliases, tags, multiple documents, and keys that are not
//! strings. File size and nesting depth are bounded.
//!
//! Envoy files may contain anchors, aliases and tags, which are interpreted as Envoy interprets
//! them. Kubernetes manifests may also contain multiple documents.

use std::borrow::Cow;

use loudou_rules::config::MAX_FILE_BYTES;
use saphyr_parser::Parser;
use serde::de::IgnoredAny;

pub use kind::Kind;

mod build;
pub mod configuration;
pub mod envoy;
mod kind;
pub mod manifest;
mod part;
pub mod proto;
mod scalar;
#[cfg(test)]
mod tests;
mod tree;

pub use tree::{Document, Fault, MAX_DEPTH, Position};

/// Maximum size of an input file, in bytes. The limit is generous because the output of `kustomize
/// build` contains many other objects, which are skipped.
pub const MAX_MANIFEST_BYTES: usize = 16 << 20;

/// Parses the content of a file. Returns the fault that prevents parsing, if any.
pub fn read(bytes: &[u8]) -> Result<Document, Fault> {
    read_text(bytes, |kind| kind)
}

/// Parses the content of a file that was written for another program. An Envoy file is parsed as
/// Envoy parses it. Any other file is parsed like a Kubernetes manifest, which may contain multiple
/// documents, anchors and tags, and whose value is the list of documents.
pub fn read_foreign(bytes: &[u8]) -> Result<Document, Fault> {
    read_text(bytes, |kind| match kind {
        Kind::Envoy => Kind::Envoy,
        Kind::Loudou | Kind::Kubernetes => Kind::Kubernetes,
    })
}

/// Parses the content of a file. The file is parsed as the kind that `read_as_kind` returns for the
/// detected kind.
fn read_text(bytes: &[u8], read_as_kind: fn(Kind) -> Kind) -> Result<Document, Fault> {
    if bytes.len() > MAX_MANIFEST_BYTES {
        return Err(too_large(MAX_MANIFEST_BYTES));
    }
    let text = str::from_utf8(bytes).map_err(|error| not_utf8(bytes, error.valid_up_to()))?;
    let text = text.strip_prefix('\u{feff}').unwrap_or(text);
    let text = without_tabs(text);
    let kind = Kind::of(&text);
    if text.len() > MAX_FILE_BYTES && kind != Kind::Kubernetes {
        return Err(too_large(MAX_FILE_BYTES));
    }
    read_as(read_as_kind(kind), &text)
}

fn too_large(most: usize) -> Fault {
    let message = format!("larger than {} MiB", most >> 20);
    Fault::error(Position::default(), message)
}

fn read_as(kind: Kind, text: &str) -> Result<Document, Fault> {
    let mut builder = build::Builder::new(kind);
    let mut parser = Parser::new_from_str(text);
    while let Some(event) = parser.next_event() {
        let (event, span) = event.map_err(|error| {
            let position = Position::of(*error.marker());
            let info = error.info();
            // YAML has no surrogate pairs. Only JSON decodes `\ud83d\ude00` as one character.
            let advice = if info.contains("Unicode character escape") {
                "; write the character itself"
            } else {
                ""
            };
            Fault::error(position, format!("invalid syntax: {info}{advice}"))
        })?;
        builder.event(event, Position::of(span.start))?;
    }
    Ok(builder.finish())
}

/// Replaces each tab of a JSON document with a space. JSON allows tabs between any two tokens, but
/// YAML allows tabs in few places. In strict JSON, strings contain no literal tabs, so the
/// replacement changes no value and no position.
fn without_tabs(text: &str) -> Cow<'_, str> {
    if text.contains('\t') && serde_json::from_str::<IgnoredAny>(text).is_ok() {
        return Cow::Owned(text.replace('\t', " "));
    }
    Cow::Borrowed(text)
}

fn not_utf8(bytes: &[u8], valid: usize) -> Fault {
    let before = String::from_utf8_lossy(bytes.get(..valid).unwrap_or_default());
    let line = before.matches('\n').count().saturating_add(1);
    let last = before.rsplit('\n').next().unwrap_or_default();
    let column = last.chars().count().saturating_add(1);
    Fault::error(Position { line, column }, "not UTF-8")
}
