//! Short descriptions of limits, for tables.

use loudou_limiter::Limits;
use loudou_rules::config::short_with_name;
use serde_json::{Value, json};

use crate::limit_edit::text;

/// Describes the limits of a rule given as JSON: `burst 15 at 30/m, steady: fixed_window 1000, window 1d`. Algorithms
/// unknown to this version are also accepted.
pub fn line(rule: &Value) -> String {
    let limits = rule.get("limits").and_then(Value::as_array);
    let limits = limits.into_iter().flatten();
    let each = limits.map(|limit| match limit.as_object() {
        Some(fields) => short_with_name(fields),
        None => limit.to_string(),
    });
    each.collect::<Vec<_>>().join(", ")
}

/// Describes an override given as JSON: `scale 10`, `banned`, `burst 15 at 30/m`.
pub fn gives(value: &Value) -> String {
    if let Some(word) = value.as_str() {
        return word.to_owned();
    }
    if let Some(scale) = value.get("scale") {
        return format!("scale {scale}");
    }
    line(value)
}

/// Describes parsed limits, in the same form as [`line()`].
pub fn of_limits(limits: &Limits) -> String {
    let limits = serde_json::to_value(limits).unwrap_or_default();
    line(&json!({ "limits": limits }))
}

/// Describes a penalty given as JSON: `after 20, within 1m, ban 5m`.
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
    fn lines_are_short() {
        let rule = json!({ "limits": [
            { "name": "a", "algorithm": "funnel", "capacity": 15, "rate": "30/m" },
            { "name": "b", "algorithm": "token_bucket", "capacity": 9, "rate": "1/s", "initial": 9 },
            { "name": "c", "algorithm": "fixed_window", "capacity": 9, "window": "1d", "align": "first" },
            7,
        ] });
        assert_eq!(
            line(&rule),
            "a 15 at 30/m, b 9 at 1/s, c: fixed_window 9, window 1d, 7"
        );
    }
}
