//! Fields of Envoy's messages in JSON.

use serde_json::{Map, Value};

/// Returns a field by its name in Envoy files, or by its protobuf JSON name, which Envoy accepts as
/// well.
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

/// Returns a field that is a string.
pub fn text<'a>(fields: &'a Map<String, Value>, name: &str) -> Option<&'a str> {
    get(fields, name).and_then(|(_, value)| value.as_str())
}

/// Returns the type of a value that carries it, without its address prefix.
pub fn type_of(value: &Value) -> Option<&str> {
    value.get("@type").and_then(Value::as_str).map(short)
}

/// Returns a type without its address prefix.
pub(super) fn short(url: &str) -> &str {
    url.rsplit('/').next().unwrap_or(url)
}
