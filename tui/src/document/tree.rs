//! A text that was read: its values, and the place of each.

use std::collections::BTreeMap;

use loudou_rules::config::{Path, Severity, Step};
use saphyr_parser::Marker;
use serde_json::Value;

use super::kind::Kind;

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
    pub(super) fn of(marker: Marker) -> Self {
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
    pub(super) fn error(position: Position, message: impl Into<String>) -> Self {
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
    /// As what it was read.
    pub kind: Kind,
    pub(super) root: Node,
}

/// Where a value stands, and where what is in it stands.
#[derive(Clone, Debug, Default)]
pub(super) struct Node {
    pub(super) at: Position,
    pub(super) inside: Inside,
}

#[derive(Clone, Debug, Default)]
pub(super) enum Inside {
    #[default]
    Nothing,
    /// A text in lines of its own, below `at`.
    Block,
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
    /// What a step leads to, with the position of its name, or of its own where it has none.
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
