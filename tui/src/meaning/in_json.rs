//! The parts of a key in words, as they are in JSON: also those that this version does not know.

use serde_json::Value;

/// The parts of a rule's key in JSON: `header x-user-id : path`.
pub(crate) fn key_in_json(rule: &Value) -> String {
    let parts = rule.get("key").and_then(Value::as_array);
    let words: Vec<String> = parts
        .into_iter()
        .flatten()
        .map(|part| match (part.as_str(), part.as_object()) {
            (Some(word), _) => word.to_owned(),
            (_, Some(fields)) => {
                let words = fields.iter().map(|(name, value)| {
                    let value = value
                        .as_str()
                        .map_or_else(|| value.to_string(), str::to_owned);
                    format!("{name} {value}")
                });
                words.collect::<Vec<_>>().join(" ")
            }
            _ => part.to_string(),
        })
        .collect();
    words.join(" : ")
}
