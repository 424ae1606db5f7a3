//! An object with all of its fields, as a rule file would have it.

use alloc::string::String;

use serde::Serialize;
use serde_json::{Map, Value};

/// The fields of a limit or of another object as in a rule file, all of them.
pub fn written(object: &impl Serialize) -> Map<String, Value> {
    // By way of the text: it takes no second serialiser in the filter, whose module has to be small.
    let text = serde_json::to_vec(object).unwrap_or_default();
    match serde_json::from_slice(&text) {
        Ok(Value::Object(fields)) => fields,
        _ => Map::new(),
    }
}
