//! Decodes the record parts that are not cached. The decoders are handwritten: derived decoders
//! would be several times larger, because they can report problems for individual fields, which is
//! not needed here.

use std::rc::Rc;

use loudou_rules::config::{parse_edit, parse_override};
use loudou_rules::rule::KeyMap;
use serde_json::Value;

use super::layout::{Layout, Stored, StoredRule};
use super::part::{Id, Part, Text};
use super::rule::Parts;
use super::{Base, Bases, Edit, Origin, OverrideEdit, Record, RuleRecord};
use crate::json::{carry, number, optional, text};

impl Record {
    /// Returns true if the bytes contain a record that this build can read.
    pub(crate) fn is_sound(bytes: &[u8]) -> bool {
        let layout = Layout::read(bytes);
        layout.is_some_and(|layout| Self::read(layout, None, &Bases::default()).is_some())
    }

    /// Decodes a record from its layout. Returns `None` if a part is corrupt. Parts that are in
    /// `last` or `bases` are reused instead of being decoded. Rules that only a later build can
    /// read are preserved.
    pub(super) fn read(layout: Layout<'_>, last: Option<&Self>, bases: &Bases) -> Option<Self> {
        let known = Known { last, bases };
        let mut later = layout.head.later.clone();
        let mut rules = |stored: &[StoredRule<'_>], of: fn(&Self) -> &[Rc<RuleRecord>], is_gone| {
            let last = last.map(of).unwrap_or_default();
            let mut rules = Vec::with_capacity(stored.len());
            for (place, stored) in stored.iter().enumerate() {
                match known.rule(stored, last.get(place)) {
                    Some(rule) => rules.push(rule),
                    None if later.keep((place, is_gone), stored) => {}
                    None => return None,
                }
            }
            Some(rules)
        };
        Some(Self {
            rules: rules(&layout.rules, |record| &record.rules, false)?,
            gone: rules(&layout.gone, |record| &record.gone, true)?,
            later,
            ..layout.head
        })
    }
}

/// Parts that the worker has already decoded.
struct Known<'a> {
    last: Option<&'a Record>,
    bases: &'a Bases,
}

impl Known<'_> {
    /// Decodes a rule, reusing known parts. `near` is the known rule at the same position.
    fn rule(
        &self,
        stored: &StoredRule<'_>,
        near: Option<&Rc<RuleRecord>>,
    ) -> Option<Rc<RuleRecord>> {
        let [base, edit, own, history] = stored;
        let is_base = |rule: &&Rc<RuleRecord>| rule.base.id() == Some(base.id);
        let elsewhere = || self.last?.all().find(is_base);
        let near = near.filter(is_base).or_else(elsewhere);
        let parts = Parts {
            base: self.base(base, near)?,
            edit: part(edit.id, edit.text, near.map(|near| &near.edit))?,
            own: part(own.id, own.text, near.map(|near| &near.own))?,
            history: part(history.id, history.text, near.map(|near| &near.history))?,
        };
        let Some(near) = near else {
            return Some(Rc::new(RuleRecord::of(parts)));
        };
        if parts.is_same(near) {
            return Some(Rc::clone(near));
        }
        Some(Rc::new(near.replaced_by(parts)))
    }
}

impl Known<'_> {
    fn base(&self, stored: &Stored<'_>, near: Option<&Rc<RuleRecord>>) -> Option<Part<Base>> {
        let mut own = self.bases.rules.iter();
        let known = near.map(|near| &near.base);
        let known = known.or_else(|| own.find(|own| own.id() == Some(stored.id)));
        part(stored.id, stored.text, known)
    }
}

/// Returns a clone of the known part if it has the same ID; otherwise, decodes the part.
fn part<T: Text>(id: Id, text: &[u8], known: Option<&Part<T>>) -> Option<Part<T>> {
    match known.filter(|known| known.id() == Some(id)) {
        Some(known) => Some(known.clone()),
        None => Part::read(id, text),
    }
}

fn json(text: &[u8]) -> Option<Value> {
    serde_json::from_slice(text).ok()
}

impl Text for Option<Edit> {
    fn write(&self) -> Vec<u8> {
        let text = self.as_ref().map(serde_json::to_vec);
        text.and_then(Result::ok).unwrap_or_default()
    }

    fn read(text: &[u8]) -> Option<Self> {
        if text.is_empty() {
            return Some(None);
        }
        Some(Some(Edit::read(&json(text)?)?))
    }
}

impl Text for KeyMap<OverrideEdit> {
    fn write(&self) -> Vec<u8> {
        if self.is_empty() {
            return Vec::new();
        }
        serde_json::to_vec(self).unwrap_or_default()
    }

    fn read(text: &[u8]) -> Option<Self> {
        let mut all = Self::default();
        if text.is_empty() {
            return Some(all);
        }
        for (pattern, edit) in json(text)?.as_object()? {
            all.set(pattern, Some(OverrideEdit::read(pattern, edit)?));
        }
        Some(all)
    }
}

impl Edit {
    /// Decodes an edit. Returns `None` if the JSON is invalid.
    pub(crate) fn read(edit: &Value) -> Option<Self> {
        Some(Self {
            change: parse_edit(edit.get("change")?).ok()?,
            carry: carry(edit)?,
            who: who(edit)?,
        })
    }
}

impl OverrideEdit {
    /// Decodes a pattern's edited override. Returns `None` if the JSON is invalid. Does not check
    /// that the override fits the rule.
    pub(crate) fn read(pattern: &str, edit: &Value) -> Option<Self> {
        Some(Self {
            gives: parse_override(pattern, edit.get("gives")?, None).ok()?,
            who: who(edit)?,
        })
    }
}

fn who(edit: &Value) -> Option<Origin> {
    let who = edit.get("who")?;
    Some(Origin {
        by: text(who, "by")?,
        reason: text(who, "reason")?,
        at_ns: number(who, "at_ns")?,
        at_unix_ms: number(who, "at_unix_ms")?,
        expires_at_ns: optional(who, "expires_at_ns", Value::as_u64)?,
    })
}
