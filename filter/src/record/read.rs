//! Reading the record back. By hand, and not derived: code that can say what is wrong with any field
//! is several times as large, and nobody is told.

use loudou_limiter::config::{parse_limits, parse_rule};
use loudou_limiter::rule::Mode;
use loudou_limiter::{Carry, Limits};
use serde_json::Value;

use super::{Edit, FORMAT, PastRecord, Record, RuleRecord};
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
            generation: number(&record, "generation")?,
            since_ns: number(&record, "since_ns")?,
            rules: list(record.get("rules")?, rule)?,
        })
    }
}

fn rule(rule: &Value) -> Option<RuleRecord> {
    Some(RuleRecord {
        base: parse_rule(rule.get("base")?).ok()?,
        edit: optional(rule, "edit", edit)?,
        past: optional(rule, "past", |past| list(past, self::past))?.unwrap_or_default(),
    })
}

fn edit(edit: &Value) -> Option<Edit> {
    Some(Edit {
        limits: optional(edit, "limits", limits)?,
        mode: optional(edit, "mode", |mode| Mode::parse(mode.as_str()?))?,
        carry: carry(edit)?,
        by: text(edit, "by")?,
        reason: text(edit, "reason")?,
        at_ns: number(edit, "at_ns")?,
        at_unix_ms: number(edit, "at_unix_ms")?,
        expires_at_ns: optional(edit, "expires_at_ns", Value::as_u64)?,
    })
}

fn past(past: &Value) -> Option<PastRecord> {
    Some(PastRecord {
        limits: limits(past.get("limits")?)?,
        carry: carry(past)?,
        until_ns: number(past, "until_ns")?,
    })
}

fn limits(limits: &Value) -> Option<Limits> {
    parse_limits(limits).ok()
}

fn carry(object: &Value) -> Option<Carry> {
    Carry::parse(object.get("carry")?.as_str()?)
}

/// A field that may be absent; nothing if it is there and damaged.
#[expect(clippy::option_option, reason = "absent and damaged are different")]
fn optional<T>(
    object: &Value,
    name: &str,
    read: impl FnOnce(&Value) -> Option<T>,
) -> Option<Option<T>> {
    match object.get(name) {
        None => Some(None),
        Some(value) => read(value).map(Some),
    }
}
