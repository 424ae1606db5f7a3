//! Rule files as text: one reader for YAML and JSON that knows where everything stands.
//!
//! JSON is read as the subset of YAML that it is. The result is a JSON tree for
//! [`loudou_rules::config`], which names places by path, and a tree of positions beside it that
//! turns such a path into line and column. What makes sense in YAML alone (anchors, aliases, tags,
//! several documents, keys that are not text) is refused, and sizes and depths are bounded.

use std::borrow::Cow;
use std::collections::BTreeMap;

use loudou_rules::config::{MAX_FILE_BYTES, Path, Severity, Step};
use saphyr_parser::{Marker, Parser};
use serde::de::IgnoredAny;
use serde_json::Value;

mod build;
mod scalar;
#[cfg(test)]
mod tests;

/// How deep lists and objects may be nested.
pub const MAX_DEPTH: usize = 64;

/// A place in a text.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq, PartialOrd, Ord)]
pub struct Position {
    /// The line, from 1; 0 when it is about the text as a whole.
    pub line: usize,
    /// The column in characters, from 1.
    pub column: usize,
}

impl Position {
    fn of(marker: Marker) -> Self {
        Self {
            line: marker.line(),
            column: marker.col().saturating_add(1),
        }
    }
}

/// Something wrong with the text itself, whatever it says.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Fault {
    /// Where.
    pub position: Position,
    /// Error or warning.
    pub severity: Severity,
    /// What, and what to write instead.
    pub message: String,
}

impl Fault {
    fn error(position: Position, message: impl Into<String>) -> Self {
        Self {
            position,
            severity: Severity::Error,
            message: message.into(),
        }
    }
}

/// A text that could be read.
#[derive(Clone, Debug)]
pub struct Document {
    /// What it says.
    pub value: Value,
    /// What is wrong with how it says it; reading went on.
    pub faults: Vec<Fault>,
    root: Node,
}

/// Where a value stands, and where what is in it stands.
#[derive(Clone, Debug, Default)]
struct Node {
    at: Position,
    inside: Inside,
}

#[derive(Clone, Debug, Default)]
enum Inside {
    #[default]
    Nothing,
    List(Vec<Node>),
    /// Each field's name with the position of the name.
    Object(BTreeMap<String, (Position, Node)>),
}

impl Document {
    /// The position of `path`: of the field's name if `at_name`, else of the value. A path that
    /// leads nowhere gets the innermost place on the way.
    pub fn locate(&self, path: &Path, at_name: bool) -> Position {
        let mut node = &self.root;
        let mut name_at = node.at;
        for step in path.steps() {
            let next = match (step, &node.inside) {
                (Step::Field(name), Inside::Object(fields)) => {
                    fields.get(name).map(|(at, node)| (*at, node))
                }
                (Step::Index(index), Inside::List(nodes)) => {
                    nodes.get(*index).map(|node| (node.at, node))
                }
                _ => None,
            };
            let Some((at, inner)) = next else {
                return node.at;
            };
            name_at = at;
            node = inner;
        }
        if at_name { name_at } else { node.at }
    }
}

/// Reads a text. The error is what made it unreadable.
pub fn read(bytes: &[u8]) -> Result<Document, Fault> {
    if bytes.len() > MAX_FILE_BYTES {
        let message = format!("larger than {} MiB", MAX_FILE_BYTES >> 20);
        return Err(Fault::error(Position::default(), message));
    }
    let text = str::from_utf8(bytes).map_err(|error| not_utf8(bytes, error.valid_up_to()))?;
    let text = text.strip_prefix('\u{feff}').unwrap_or(text);
    let text = without_tabs(text);
    let mut builder = build::Builder::default();
    let mut parser = Parser::new_from_str(&text);
    while let Some(event) = parser.next_event() {
        let (event, span) = event.map_err(|error| {
            let position = Position::of(*error.marker());
            let info = error.info();
            // YAML has no surrogate pairs: `\ud83d\ude00` is one character to JSON alone.
            let advice = if info.contains("Unicode character escape") {
                "; write the character itself"
            } else {
                ""
            };
            Fault::error(position, format!("cannot be read: {info}{advice}"))
        })?;
        builder.event(event, Position::of(span.start))?;
    }
    Ok(builder.finish())
}

/// JSON may have tabs in all places, YAML has them in few. Strict JSON has none inside strings, so
/// there a space may stand for each, and everything keeps its place.
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
