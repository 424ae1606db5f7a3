//! An object with all of its fields, as in a rule file.

use alloc::string::String;

use serde::Serialize;
use serde_json::{Map, Value};

/// All fields of a limit or of another object, as in a rule file.
pub fn written(object: &impl Serialize) -> Map<String, Value> {
    // Through the text, so that the filter, whose module has to be small, needs no second serialiser.
    let text = serde_json::to_vec(object).unwrap_or_default();
    match serde_json::from_slice(&text) {
        Ok(Value::Object(fields)) => fields,
        _ => Map::new(),
    }
}
