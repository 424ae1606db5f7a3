//! Reads the record back. The code is written by hand, not derived: code that can report a problem with
//! any field is several times as large, and there is no reader of such reports.

use loudou_rules::config::{parse_edit, parse_override, parse_rule};
use loudou_rules::rule::KeyMap;
use serde_json::Value;

use super::{Edit, FORMAT, Origin, OverrideEdit, Record, RuleRecord, history};
use crate::instance::Instance;
use crate::json::{carry, list, number, optional, text};

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
fn own(own: &Value) -> Option<KeyMap<OverrideEdit>> {
    let mut all = KeyMap::default();
    for (pattern, edit) in own.as_object()? {
        // The scale was checked when it was edited.
        let gives = parse_override(pattern, edit.get("gives")?, None).ok()?;
        let who = who(edit)?;
        all.set(pattern, Some(OverrideEdit { gives, who }));
    }
    Some(all)
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
