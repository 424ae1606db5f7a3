//! Schemas of single values: numbers, rates, durations, words.

use alloc::string::{String, ToString};
use alloc::vec::Vec;

use loudou_limiter::Nanos;
use serde_json::{Map, Value, json};

use crate::config::{Field, Form};

/// A rate whose amount and period are not nothing.
const RATE: &str = "^0*[1-9][0-9]*/(0*[1-9][0-9]*)?(d|h|m|s|ms|us|ns)$";
const DURATION: &str = "^[0-9]+(d|h|m|s|ms|us|ns)$";
/// A duration that is not nothing.
const SOME_DURATION: &str = "^0*[1-9][0-9]*(d|h|m|s|ms|us|ns)$";

/// The schema of one field of an algorithm.
pub(super) fn form(field: Field) -> Value {
    let mut description = field.doc.to_string();
    let mut schema = match field.form {
        Form::Integer(least, most) => {
            json!({ "type": "integer", "minimum": least, "maximum": most })
        }
        Form::Decimal(least, most) => {
            description.push_str(" At most 3 decimals.");
            json!({ "type": "number", "minimum": least, "maximum": most })
        }
        Form::Rate => {
            let examples = ["30/60s", "10/s", "5/m", "1000/d", "1/250ms"];
            json!({ "type": "string", "pattern": RATE, "examples": examples })
        }
        Form::Duration(least, most) => {
            let pattern = if least > Nanos::ZERO {
                SOME_DURATION
            } else {
                DURATION
            };
            description.push_str(" From ");
            description.push_str(&least.to_string());
            description.push_str(" to ");
            description.push_str(&most.to_string());
            description.push('.');
            json!({ "type": "string", "pattern": pattern, "examples": ["250ms", "60s", "1d"] })
        }
        Form::Word(words) => json!({ "enum": words }),
        Form::Boolean => json!({ "type": "boolean" }),
    };
    if let Some(text) = field.default {
        let value = default_value(field.form, text);
        if value.is_none() {
            description.push_str(" Without: ");
            description.push_str(text);
            description.push('.');
        }
        if let (Some(schema), Some(value)) = (schema.as_object_mut(), value) {
            schema.insert("default".to_string(), value);
        }
    }
    describe(&mut schema, &description);
    schema
}

/// A default as a value; `None` when it is only told in words.
fn default_value(form: Form, text: &str) -> Option<Value> {
    match form {
        Form::Integer(..) | Form::Decimal(..) => text.parse::<u32>().ok().map(Value::from),
        Form::Duration(..) => Nanos::parse(text).map(|_| Value::from(text)),
        Form::Word(words) => words.contains(&text).then(|| Value::from(text)),
        Form::Boolean => text.parse::<bool>().ok().map(Value::from),
        Form::Rate => None,
    }
}

/// Puts a description in front of what a schema says.
pub(super) fn describe(schema: &mut Value, description: &str) {
    if let Some(fields) = schema.as_object_mut() {
        let rest = core::mem::take(fields);
        fields.insert("description".to_string(), Value::from(description));
        fields.extend(rest);
    }
}

/// Takes a field out; the others stay in their order, where a map has one.
fn take(fields: &mut Map<String, Value>, name: &str) -> Option<Value> {
    let taken = fields.get(name).cloned();
    fields.retain(|own, _| own != name);
    taken
}

/// The same, or null.
pub(super) fn or_null(mut schema: Value) -> Value {
    let Some(fields) = schema.as_object_mut() else {
        return schema;
    };
    if let Some(Value::String(kind)) = fields.get("type") {
        let kinds = json!([kind, "null"]);
        fields.insert("type".to_string(), kinds);
    } else if let Some(Value::Array(words)) = fields.get_mut("enum") {
        words.push(Value::Null);
    } else if let Some(Value::Array(any)) = fields.get_mut("anyOf") {
        any.push(json!({ "type": "null" }));
    } else if let Some(reference) = take(fields, "$ref") {
        let either = Vec::from([json!({ "$ref": reference }), json!({ "type": "null" })]);
        fields.insert("anyOf".to_string(), Value::Array(either));
    } else {
        // A constant: null says nothing, so it may stand for it.
        if let Some(only) = take(fields, "const") {
            fields.insert("enum".to_string(), json!([only, null]));
        }
    }
    schema
}
