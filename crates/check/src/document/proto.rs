//! Access to the fields of Envoy's protobuf messages, parsed as JSON values.

use serde_json::{Map, Value};

/// Returns a field with its actual name. Envoy accepts the snake-case `name` and its camel-case
/// form, which is the protobuf JSON name.
pub fn get<'a>(fields: &'a Map<String, Value>, name: &str) -> Option<(&'a str, &'a Value)> {
    let camel = || {
        let mut words = name.split('_');
        let first = words.next().unwrap_or_default().to_owned();
        words.fold(first, |name, word| {
            let mut letters = word.chars();
            let first = letters.next().map(|c| c.to_ascii_uppercase());
            name + &first.into_iter().chain(letters).collect::<String>()
        })
    };
    let field = fields
        .get_key_value(name)
        .or_else(|| fields.get_key_value(&camel()));
    field.map(|(name, value)| (name.as_str(), value))
}

/// Returns the value of a string field, or `None` if the field is missing or not a string.
pub fn text<'a>(fields: &'a Map<String, Value>, name: &str) -> Option<&'a str> {
    get(fields, name).and_then(|(_, value)| value.as_str())
}

/// Returns the `@type` of a value without the URL prefix, or `None` if the value has no `@type`.
pub fn type_of(value: &Value) -> Option<&str> {
    value.get("@type").and_then(Value::as_str).map(short)
}

/// Returns the type name from a type URL.
pub(super) fn short(url: &str) -> &str {
    url.rsplit('/').next().unwrap_or(url)
}
