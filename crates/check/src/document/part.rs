//! Extracts a part of a document, with its value, positions and faults.

use std::collections::BTreeSet;

use loudou_rules::config::{Path, Step};
use serde_json::Value;

use super::tree::{Document, Inside, Node, Position};

impl Document {
    /// Returns the part at `path` as a separate document, with the faults located in that part.
    pub(super) fn part(&self, value: &Value, path: &Path) -> Self {
        let root = self.node(path).cloned().unwrap_or_default();
        let mut positions = BTreeSet::new();
        root.positions(&mut positions);
        let faults = self.faults.iter();
        let faults = faults.filter(|fault| positions.contains(&fault.position));
        Self {
            value: value.clone(),
            faults: faults.cloned().collect(),
            kind: self.kind,
            root,
        }
    }

    /// Returns the value at `path`, or `None` if there is no such value.
    pub fn value_at(&self, path: &Path) -> Option<&Value> {
        let mut steps = path.steps().iter();
        steps.try_fold(&self.value, |value, step| match step {
            Step::Field(name) => value.get(name),
            Step::Index(index) => value.get(*index),
        })
    }

    pub(super) fn node(&self, path: &Path) -> Option<&Node> {
        let mut steps = path.steps().iter();
        steps.try_fold(&self.root, |node, step| Some(node.inner(step)?.1))
    }
}

impl Node {
    /// Adds the positions of this value and of all names and values in it to `all`.
    fn positions(&self, all: &mut BTreeSet<Position>) {
        all.insert(self.at);
        match &self.inside {
            Inside::Nothing | Inside::Block => {}
            Inside::List(nodes) => nodes.iter().for_each(|node| node.positions(all)),
            Inside::Object(fields) => {
                for (at, node) in fields.values() {
                    all.insert(*at);
                    node.positions(all);
                }
            }
        }
    }

    pub(super) fn move_by(&mut self, place: &impl Fn(Position) -> Position) {
        self.at = place(self.at);
        match &mut self.inside {
            Inside::Nothing | Inside::Block => {}
            Inside::List(nodes) => nodes.iter_mut().for_each(|node| node.move_by(place)),
            Inside::Object(fields) => {
                for (at, node) in fields.values_mut() {
                    *at = place(*at);
                    node.move_by(place);
                }
            }
        }
    }
}
