//! A parsed text, with its values and their positions.

use std::collections::BTreeMap;

use loudou_rules::config::{Path, Severity, Step};
use saphyr_parser::Marker;
use serde_json::Value;

use super::kind::Kind;

/// The maximum nesting of lists and objects.
pub const MAX_DEPTH: usize = 64;

/// A position in a text.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq, PartialOrd, Ord)]
pub struct Position {
    /// Line number; the first line is 1, and 0 stands for the whole text.
    pub line: usize,
    /// Column in characters; the first column is 1.
    pub column: usize,
}

impl Position {
    pub(super) fn of(marker: Marker) -> Self {
        Self {
            line: marker.line(),
            column: marker.col().saturating_add(1),
        }
    }
}

/// A fault of the text, independent of its contents.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Fault {
    /// Position in the text.
    pub position: Position,
    /// Error or warning.
    pub severity: Severity,
    /// Description of the fault, with the correct form.
    pub message: String,
}

impl Fault {
    pub(super) fn error(position: Position, message: impl Into<String>) -> Self {
        Self {
            position,
            severity: Severity::Error,
            message: message.into(),
        }
    }
}

/// A parsed text.
#[derive(Clone, Debug)]
pub struct Document {
    /// Its value.
    pub value: Value,
    /// Faults of the text that did not stop the reader.
    pub faults: Vec<Fault>,
    /// Kind of text as which it was read.
    pub kind: Kind,
    pub(super) root: Node,
}

/// The position of a value and of the values in it.
#[derive(Clone, Debug, Default)]
pub(super) struct Node {
    pub(super) at: Position,
    pub(super) inside: Inside,
}

#[derive(Clone, Debug, Default)]
pub(super) enum Inside {
    #[default]
    Nothing,
    /// A block of lines, below `at`.
    Block,
    List(Vec<Node>),
    /// Name of each field, with the name's position.
    Object(BTreeMap<String, (Position, Node)>),
}

impl Document {
    /// Returns the position of `path`. This is the position of the field's name if `at_name`,
    /// otherwise of its value. For a path that does not exist, it is the position of its innermost
    /// existing part.
    pub fn locate(&self, path: &Path, at_name: bool) -> Position {
        let mut node = &self.root;
        let mut name_at = node.at;
        for step in path.steps() {
            let Some((at, inner)) = node.inner(step) else {
                return node.at;
            };
            name_at = at;
            node = inner;
        }
        if at_name { name_at } else { node.at }
    }
}

impl Node {
    /// Returns the target of a step, with the position of its name, or of its value if it has no
    /// name.
    pub(super) fn inner(&self, step: &Step) -> Option<(Position, &Self)> {
        match (step, &self.inside) {
            (Step::Field(name), Inside::Object(fields)) => {
                fields.get(name).map(|(at, node)| (*at, node))
            }
            (Step::Index(index), Inside::List(nodes)) => {
                nodes.get(*index).map(|node| (node.at, node))
            }
            _ => None,
        }
    }
}

// Sizes of values. Aliases repeat values, so a short text could become a large tree.

/// Assumed size of a value in addition to its text, in bytes.
const VALUE_BYTES: usize = 32;

/// Returns the size of a value.
#[derive(Clone, Copy, Default)]
pub(super) struct Size {
    pub(super) bytes: usize,
    pub(super) depth: usize,
}

impl Size {
    pub(super) fn of(value: &Value) -> Self {
        let (own, inner): (usize, Vec<Self>) = match value {
            Value::String(text) => (text.len(), Vec::new()),
            Value::Array(values) => (0, values.iter().map(Self::of).collect()),
            Value::Object(fields) => (
                fields.keys().map(String::len).sum(),
                fields.values().map(Self::of).collect(),
            ),
            Value::Null | Value::Bool(_) | Value::Number(_) => (0, Vec::new()),
        };
        let is_leaf = !value.is_array() && !value.is_object();
        let bytes = inner.iter().map(|size| size.bytes);
        let depth = inner.iter().map(|size| size.depth).max().unwrap_or(0);
        Self {
            bytes: bytes.fold(own.saturating_add(VALUE_BYTES), usize::saturating_add),
            depth: depth.saturating_add(usize::from(!is_leaf)),
        }
    }
}
