//! Reading the record back. By hand, and not derived: code that can say what is wrong with any field
//! is several times as large, and nobody is told.

use loudou_limiter::Carry;
use loudou_rules::config::{parse_edit, parse_override, parse_rule};
use loudou_rules::rule::KeyMap;
use serde_json::Value;

use super::{Edit, FORMAT, OwnEdit, Record, RuleRecord, Who, history};
use crate::instance::Instance;
use crate::json::{list, number, text};

impl Record {
    /// The record, unless it is damaged or of another format.
    pub(super) fn read(bytes: &[u8]) -> Option<Self> {
        let record: Value = serde_json::from_slice(bytes).ok()?;
        if number(&record, "format")? != u64::from(FORMAT) {
            return None;
        }
        Some(Self {
            format: FORMAT,
            instance: Instance::read(record.get("instance")?)?,
            generation: number(&record, "generation")?,
            since_ns: number(&record, "since_ns")?,
            taken_ns: number(&record, "taken_ns")?,
            rollbacks: u32::try_from(number(&record, "rollbacks")?).ok()?,
            rules: list(record.get("rules")?, rule)?,
            gone: optional(&record, "gone", |gone| list(gone, rule))?.unwrap_or_default(),
        })
    }
}

fn rule(rule: &Value) -> Option<RuleRecord> {
    Some(RuleRecord {
        base: parse_rule(rule.get("base")?).ok()?,
        edit: optional(rule, "edit", edit)?,
        own: optional(rule, "own", own)?.unwrap_or_default(),
        history: history::read(rule.get("history")?)?,
    })
}

fn edit(edit: &Value) -> Option<Edit> {
    Some(Edit {
        change: parse_edit(edit.get("change")?).ok()?,
        carry: carry(edit)?,
        who: who(edit)?,
    })
}

/// The edited overrides of a rule.
fn own(own: &Value) -> Option<KeyMap<OwnEdit>> {
    let mut all = KeyMap::default();
    for (pattern, edit) in own.as_object()? {
        // Whether a scale fits was looked at when it was edited.
        let gives = parse_override(pattern, edit.get("gives")?, None).ok()?;
        let who = who(edit)?;
        all.set(pattern, Some(OwnEdit { gives, who }));
    }
    Some(all)
}

fn who(edit: &Value) -> Option<Who> {
    let who = edit.get("who")?;
    Some(Who {
        by: text(who, "by")?,
        reason: text(who, "reason")?,
        at_ns: number(who, "at_ns")?,
        at_unix_ms: number(who, "at_unix_ms")?,
        expires_at_ns: optional(who, "expires_at_ns", Value::as_u64)?,
    })
}

pub(super) fn carry(object: &Value) -> Option<Carry> {
    Carry::parse(object.get("carry")?.as_str()?)
}

/// A field that may be absent; nothing if it is there and damaged.
#[expect(clippy::option_option, reason = "absent and damaged are different")]
pub(super) fn optional<T>(
    object: &Value,
    name: &str,
    read: impl FnOnce(&Value) -> Option<T>,
) -> Option<Option<T>> {
    match object.get(name) {
        None => Some(None),
        Some(value) => read(value).map(Some),
    }
}
