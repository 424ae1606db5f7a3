//! The parts of the record that only a later build of Loudou can read, while both run in one Envoy.
//!
//! During an upgrade, and after one that is taken back, builds share the record. A later build may use a field
//! of rules or edits that this one does not know. This build then leaves out the rule, keeps its texts as they
//! are, and goes by the rest of the record; its own rule of that name decides alone.

use std::rc::Rc;

use serde_json::Value;

use super::layout::{Stored, StoredRule, Texts};
use super::part::{Id, PARTS};

/// In the first byte that a later build appended: it keeps the rules under another key now, and has left this
/// record for the builds before it. Edits of it would not be in force.
const MOVED: u8 = 1;

/// What only a later build can read.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub(crate) struct Later {
    /// The rules, in their order.
    rules: Vec<Rc<LaterRule>>,
    /// State that is appended to the record. The first byte has flags.
    pub(super) appended: Rc<[u8]>,
}

/// A rule.
#[derive(Clone, Debug, PartialEq, Eq)]
struct LaterRule {
    /// Its place among the rules, or among the removed ones.
    place: usize,
    is_gone: bool,
    name: String,
    parts: [(Id, Vec<u8>); PARTS],
}

impl Later {
    /// Keeps a rule that cannot be read; returns false if it is damaged.
    pub(super) fn keep(
        &mut self,
        (place, is_gone): (usize, bool),
        stored: &StoredRule<'_>,
    ) -> bool {
        if stored.iter().any(|part| Id::of(part.text) != part.id) {
            return false;
        }
        let [base, ..] = stored;
        let base: Option<Value> = serde_json::from_slice(base.text).ok();
        let name = base.as_ref().and_then(|base| base.get("name")?.as_str());
        self.rules.push(Rc::new(LaterRule {
            place,
            is_gone,
            name: name.unwrap_or("?").to_owned(),
            parts: stored.map(|part| (part.id, part.text.to_vec())),
        }));
        true
    }

    /// The stored rules: the known ones, with these in between.
    pub(super) fn beside<'a>(
        &'a self,
        known: &'a [Texts<'_>],
        is_gone: bool,
    ) -> Vec<StoredRule<'a>> {
        let known = known.iter();
        let mut all: Vec<StoredRule<'a>> = known
            .map(|parts| parts.each_ref().map(|(id, text)| Stored { id: *id, text }))
            .collect();
        for rule in self.rules.iter().filter(|rule| rule.is_gone == is_gone) {
            let parts = rule.parts.each_ref();
            let parts = parts.map(|(id, text)| Stored { id: *id, text });
            all.insert(rule.place.min(all.len()), parts);
        }
        all
    }

    /// The names of the rules in force.
    pub(crate) fn names(&self) -> impl Iterator<Item = &str> {
        let rules = self.rules.iter().filter(|rule| !rule.is_gone);
        rules.map(|rule| rule.name.as_str())
    }

    /// Drops all of it, since a configuration of this build takes over; returns the names of the rules.
    pub(super) fn end(&mut self) -> Vec<String> {
        let names = self.names().map(ToOwned::to_owned).collect();
        *self = Self::default();
        names
    }

    /// Whether a later build keeps the rules elsewhere.
    pub(crate) fn has_moved(&self) -> bool {
        let flags = self.appended.first();
        flags.is_some_and(|flags| flags & MOVED != 0)
    }
}
