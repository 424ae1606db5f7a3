//! A parsed document: its values and their positions.

use std::collections::BTreeMap;

use loudou_rules::config::{Path, Severity, Step};
use saphyr_parser::Marker;
use serde_json::Value;

use super::kind::Kind;

/// Maximum nesting depth of lists and objects.
pub const MAX_DEPTH: usize = 64;

/// A position in a file.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq, PartialOrd, Ord)]
pub struct Position {
    /// 1-based line number. 0 stands for the whole file.
    pub line: usize,
    /// 1-based column, counted in characters.
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

/// A fault that the parser found, such as a syntax error or a duplicate field.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Fault {
    /// Position of the fault.
    pub position: Position,
    /// Severity: error or warning.
    pub severity: Severity,
    /// Description of the fault. Where possible, the description includes the correct form.
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

/// A parsed document.
#[derive(Clone, Debug)]
pub struct Document {
    /// Parsed value.
    pub value: Value,
    /// Faults after which parsing could continue.
    pub faults: Vec<Fault>,
    /// Kind of file as which the document was parsed.
    pub kind: Kind,
    pub(super) root: Node,
}

/// Position of a value and of all values nested in it.
#[derive(Clone, Debug, Default)]
pub(super) struct Node {
    pub(super) at: Position,
    pub(super) inside: Inside,
}

#[derive(Clone, Debug, Default)]
pub(super) enum Inside {
    #[default]
    Nothing,
    /// A YAML block scalar.
    Block,
    List(Vec<Node>),
    /// Fields by name. Each has the position of its name and the node of its value.
    Object(BTreeMap<String, (Position, Node)>),
}

impl Document {
    /// Returns the position of the value at `path`, or of the field's name if `at_name` is true. If
    /// `path` does not exist, returns the position of the innermost existing value on the path.
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
    /// Returns the node that `step` leads to. Also returns the position of the field's name or, for
    /// a list, of the element itself.
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

// The size of a value is measured because aliases repeat values, so a short file could expand to a
// huge tree.

/// Assumed overhead of a value in addition to its text, in bytes.
const VALUE_BYTES: usize = 32;

/// Size of a value, including all values nested in it.
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
