//! The schema of overrides and penalties.

use alloc::vec::Vec;

use loudou_store::names::MAX_KEY;
use serde_json::{Value, json};

use super::form::form;
use super::{object, one_of, reference};
use crate::config::overrides::{FIELDS, MAX_OVERRIDES, PENALTY, SCALE, WORDS};

/// The schema of a rule's overrides.
fn overrides() -> Value {
    let words = WORDS.map(|(word, _)| word);
    json!({
        "type": "object",
        "maxProperties": MAX_OVERRIDES,
        "propertyNames": { "pattern": "^[!-~]+$", "maxLength": MAX_KEY.saturating_add(1) },
        "additionalProperties": { "anyOf": [{ "enum": words }, { "$ref": "#/$defs/override" }] },
    })
}

/// Names and what they stand for.
pub(super) fn definitions() -> Vec<(&'static str, Value)> {
    let names: Vec<&str> = PENALTY.iter().map(|field| field.name).collect();
    let needed = PENALTY.iter().filter(|field| field.default.is_none());
    let needed: Vec<&str> = needed.map(|field| field.name).collect();
    let penalty = object(&names, &needed, |name| {
        let field = PENALTY.iter().find(|field| field.name == name);
        field.map_or(Value::Null, |field| form(*field))
    });
    Vec::from([
        ("overrides", overrides()),
        ("override", one_of(FIELDS, FIELDS, part)),
        ("penalty", penalty),
    ])
}

fn part(name: &str) -> Value {
    let [least, most] = SCALE;
    match name {
        "scale" => json!({
            "description": "The rule's limits, with this many times as much of everything that counts cost units, \
                            rounded up; times stay. At most 3 decimals.",
            "type": "number", "minimum": least, "maximum": most,
        }),
        "limits" => reference("limits", "Other limits."),
        _ => Value::Null,
    }
}
