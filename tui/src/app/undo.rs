//! Taking own edits back, and the questions that are asked before anything hard to undo.

use loudou_api::{EditAnswer, EditView, RuleView};
use loudou_limiter::{Carry, Nanos};
use serde_json::{Map, Value};

use super::effects::{Change, Edit};
use super::key_undo::KeyUndo;
use super::of_key::KeyChange;
use super::rows::BucketName;
use crate::live::Item;

/// The most edits that can be taken back.
pub(crate) const MOST: usize = 50;

/// An own change, with what it takes to undo it.
#[derive(Clone, Debug, PartialEq)]
pub(crate) enum Undo {
    /// Of a rule.
    Edit(Box<EditUndo>),
    /// For a key.
    Key(KeyUndo),
}

/// An own edit of a rule.
#[derive(Clone, Debug, PartialEq)]
pub(crate) struct EditUndo {
    /// The rule after the edit.
    pub(crate) after: RuleView,
    /// The limits and the mode before it.
    before: Value,
    /// The edit that was in force before it, if any.
    earlier: Option<EditView>,
    carry: Carry,
    /// What the edit did, in one line.
    pub(crate) change: String,
}

impl EditUndo {
    /// Remembers how to undo `edit`.
    pub(crate) fn new(edit: &Edit, answer: &EditAnswer) -> Self {
        Self {
            after: answer.after.clone(),
            before: body_of(&answer.before),
            earlier: edit.seen.edit.clone(),
            // Levels that were set to nothing cannot be brought back; do not do it twice.
            carry: match edit.carry {
                Carry::Reset => Carry::Proportional,
                carry => carry,
            },
            change: answer.change.clone(),
        }
    }

    /// The question before it is undone.
    pub(crate) fn ask(&self, server_ns: u64) -> Pending {
        Pending {
            question: format!("Undo the last edit of {}?", self.after.name),
            detail: vec![format!("it was: {}", self.change)],
            action: Action::Edit(Box::new(self.edit(server_ns))),
        }
    }

    /// The edit that undoes it, by the server's clock: an earlier edit is put back for the rest of its
    /// time; with none, the rule goes back to its configuration.
    fn edit(&self, server_ns: u64) -> Edit {
        let left = self
            .earlier
            .as_ref()
            .map(|earlier| earlier.expires_at_ns.map(|at| at.saturating_sub(server_ns)));
        let change = match left {
            None | Some(Some(0)) => Change::Drop,
            Some(left) => Change::Put {
                body: self.before.clone(),
                expires_after: left.map(whole_millis),
            },
        };
        Edit {
            rule: self.after.name.clone(),
            change,
            seen: self.after.clone(),
            carry: self.carry,
            reason: format!("undo of: {}", self.change)
                .chars()
                .take(120)
                .collect(),
            is_undo: true,
            retries: 0,
        }
    }
}

/// Rounded up to milliseconds: nobody needs the rest in an address.
fn whole_millis(ns: u64) -> Nanos {
    Nanos::from_millis(Nanos::new(ns).millis_ceil())
}

/// The parts of a rule that an edit replaces.
fn body_of(rule: &Value) -> Value {
    let mut body = Map::new();
    for name in ["limits", "mode"] {
        if let Some(value) = rule.get(name) {
            body.insert(name.to_owned(), value.clone());
        }
    }
    Value::Object(body)
}

/// A question, and what "yes" does.
#[derive(Clone, Debug, PartialEq)]
pub(crate) struct Pending {
    pub(crate) question: String,
    pub(crate) detail: Vec<String>,
    pub(crate) action: Action,
}

/// What "yes" does.
#[derive(Clone, Debug, PartialEq)]
pub(crate) enum Action {
    Edit(Box<Edit>),
    Reset(BucketName),
    OfKey(Box<KeyChange>),
    /// Apply again what a restart took.
    Again(Vec<Item>),
}
