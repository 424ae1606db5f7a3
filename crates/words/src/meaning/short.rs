//! Limits in few words, for tables.

use loudou_limiter::Limits;
use loudou_rules::config::spoken_value;
use serde_json::{Value, json};

use crate::limit_edit::text;

/// A limit of a rule in JSON: `funnel 15, 30/m`. Reads any algorithm, including ones newer than this
/// program.
pub fn limit(limit: &Value) -> String {
    let Some(fields) = limit.as_object() else {
        return limit.to_string();
    };
    let mut words = fields.get("algorithm").map_or_else(|| "?".to_owned(), text);
    let mut mark = " ";
    for (name, value) in &spoken_value(fields) {
        match name.as_str() {
            "name" | "algorithm" => continue,
            "capacity" | "rate" => words.extend([mark, text(value).as_str()]),
            _ => words.extend([mark, name, " ", text(value).as_str()]),
        }
        mark = ", ";
    }
    words
}

/// The name and the words of each limit of a rule in JSON.
pub fn limits(rule: &Value) -> Vec<(String, String)> {
    let limits = rule.get("limits").and_then(Value::as_array);
    limits
        .into_iter()
        .flatten()
        .map(|value| {
            let name = value.get("name").and_then(Value::as_str);
            (name.unwrap_or_default().to_owned(), limit(value))
        })
        .collect()
}

/// The limits of a rule in JSON, in even fewer words: `burst 15 at 30/m, steady: fixed_window 1000,
/// window 1d`.
pub fn line(rule: &Value) -> String {
    let limits = rule.get("limits").and_then(Value::as_array);
    let each = limits.into_iter().flatten().map(|value| {
        let fields = value.as_object().map(spoken_value).unwrap_or_default();
        let name = fields.get("name").map(text).unwrap_or_default();
        let is_plain = fields.len() == 4;
        match (fields.get("capacity"), fields.get("rate")) {
            (Some(capacity), Some(rate)) if is_plain => {
                format!("{name} {} at {}", text(capacity), text(rate))
            }
            _ => format!("{name}: {}", limit(value)),
        }
    });
    each.collect::<Vec<_>>().join(", ")
}

/// The value of an override in JSON: `scale 10`, `banned`, `burst: funnel 15, 30/m`.
pub fn gives(value: &Value) -> String {
    if let Some(word) = value.as_str() {
        return word.to_owned();
    }
    if let Some(scale) = value.get("scale") {
        return format!("scale {scale}");
    }
    named(value)
}

/// Limits of this version, in the form of [`gives`].
pub fn of_limits(limits: &Limits) -> String {
    let limits = serde_json::to_value(limits).unwrap_or_default();
    named(&json!({ "limits": limits }))
}

/// `burst: funnel 15, 30/m; daily: fixed_window 1000, window 1d`.
fn named(value: &Value) -> String {
    let limits = limits(value).into_iter();
    let words: Vec<String> = limits
        .map(|(name, limit)| format!("{name}: {limit}"))
        .collect();
    words.join("; ")
}

/// The fields of a penalty in JSON: `after 20, within 1m, ban 5m`.
pub fn penalty(penalty: &Value) -> Option<String> {
    let fields = penalty.as_object()?.iter();
    let words: Vec<String> = fields
        .map(|(name, value)| format!("{name} {}", text(value)))
        .collect();
    Some(words.join(", "))
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn limits_of_unknown_algorithms_are_shown_too() {
        let new = json!({"name": "x", "algorithm": "log", "capacity": 3, "window": "1m"});
        assert_eq!(limit(&new), "log 3, window 1m");
        assert_eq!(limit(&json!(7)), "7");
        let tokens = json!({"algorithm": "token_bucket", "capacity": 9, "rate": "3/s",
            "refill": "greedy", "initial": 9});
        assert_eq!(limit(&tokens), "token_bucket 9, 3/s");
    }

    #[test]
    fn lines_are_short() {
        let rule = json!({ "limits": [
            { "name": "a", "algorithm": "funnel", "capacity": 15, "rate": "30/m" },
            { "name": "b", "algorithm": "token_bucket", "capacity": 9, "rate": "1/s", "initial": 9 },
            { "name": "c", "algorithm": "fixed_window", "capacity": 9, "window": "1d", "align": "first" },
            { "name": "d", "algorithm": "concurrency", "capacity": 9 },
        ] });
        assert_eq!(
            line(&rule),
            "a 15 at 30/m, b 9 at 1/s, c: fixed_window 9, window 1d, d: concurrency 9"
        );
    }
}
