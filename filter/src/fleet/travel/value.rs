//! The JSON of a change that travels.

use serde::Serialize;
use serde_json::Value;

use crate::json::{number, text};

/// The value of a ban.
#[derive(Clone, Debug, Default, PartialEq, Eq, Serialize)]
pub(crate) struct BanValue {
    /// The rule's tag: a rule with other keys has no such bucket.
    pub(crate) tag: u32,
    pub(crate) by: String,
    pub(crate) reason: String,
    pub(crate) at_unix_ms: u64,
}

impl BanValue {
    pub(super) fn write(&self) -> Vec<u8> {
        as_read(&serde_json::to_vec(self).unwrap_or_default())
    }

    /// The ban of a value, unless it is damaged.
    pub(crate) fn read(value: &[u8]) -> Option<Self> {
        let ban: Value = serde_json::from_slice(value).ok()?;
        Some(Self {
            tag: u32::try_from(number(&ban, "tag")?).ok()?,
            by: text(&ban, "by")?,
            reason: text(&ban, "reason")?,
            at_unix_ms: number(&ban, "at_unix_ms")?,
        })
    }
}

/// The value of an edit or of an override: what it gives, and the identity of the rule that it is made for.
pub(super) fn of_edit(base: &str, gives: &impl Serialize) -> Vec<u8> {
    let gives = serde_json::to_vec(gives).unwrap_or_default();
    let head = ["{\"base\":\"", base, "\",\"gives\":"].concat();
    as_read(&[head.as_bytes(), &gives, b"}"].concat())
}

/// The same JSON as it is written after it was read: so it comes back from the engine, and can be recognised.
fn as_read(json: &[u8]) -> Vec<u8> {
    let value: Option<Value> = serde_json::from_slice(json).ok();
    value.map_or_else(Vec::new, |value| {
        serde_json::to_vec(&value).unwrap_or_default()
    })
}

/// The identity of the rule for which an edit or an override was made.
pub(crate) fn base_of(value: &Value) -> Option<&str> {
    value.get("base")?.as_str()
}
