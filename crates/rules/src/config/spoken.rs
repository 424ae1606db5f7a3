//! A limit without the fields that repeat a default: for people, and for forms.

use alloc::string::String;
use alloc::vec::Vec;

use loudou_limiter::Limit;
use serde_json::{Map, Value};

use super::reader::written;
use super::{Field, limit_fields, parse_limits};

/// The fields of a limit without those that repeat a default.
pub fn spoken(limit: &Limit) -> Map<String, Value> {
    spoken_value(&written(limit))
}

/// The same for a limit as JSON. A limit that cannot be read stays unchanged.
pub fn spoken_value(limit: &Map<String, Value>) -> Map<String, Value> {
    let mut fields = limit.clone();
    let Some(whole) = read(&fields) else {
        return fields;
    };
    let algorithm = fields.get("algorithm").and_then(Value::as_str);
    let table = limit_fields(algorithm.unwrap_or_default());
    for Field { name, .. } in table.iter().filter(|field| field.default.is_some()) {
        let mut without = Map::new();
        let others = fields.iter().filter(|(own, _)| own != name);
        without.extend(others.map(|(own, value)| (own.clone(), value.clone())));
        if without.len() < fields.len() && read(&without).as_ref() == Some(&whole) {
            fields = without;
        }
    }
    fields
}

fn read(fields: &Map<String, Value>) -> Option<Limit> {
    let list = Value::from(Vec::from([Value::from(fields.clone())]));
    let limits = parse_limits(&list).ok()?;
    limits.iter().next().cloned()
}

#[cfg(test)]
mod tests {
    use serde_json::json;

    use super::*;

    fn spoken_of(limit: &Value) -> Value {
        spoken_value(limit.as_object().expect("an object")).into()
    }

    #[test]
    fn only_what_matters_is_said() {
        let bucket = |refill: &str, initial: u64| {
            json!({
                "name": "n", "algorithm": "token_bucket", "capacity": 5, "rate": "1/s",
                "refill": refill, "initial": initial
            })
        };
        let bare =
            json!({ "name": "n", "algorithm": "token_bucket", "capacity": 5, "rate": "1/s" });
        assert_eq!(spoken_of(&bucket("greedy", 5)), bare);
        assert_eq!(spoken_of(&bucket("interval", 4)), bucket("interval", 4));
        assert_eq!(spoken_of(&bare), bare);
        // An unreadable limit stays unchanged.
        for unreadable in [json!({ "algorithm": "newer", "n": 1 }), bucket("greedy", 6)] {
            assert_eq!(spoken_of(&unreadable), unreadable);
        }
    }

    #[test]
    fn what_is_said_means_the_same() {
        let limits = json!([{ "algorithm": "token_bucket", "capacity": 5, "rate": "1/s" }]);
        let limits = parse_limits(&limits).expect("valid");
        let limit = limits.iter().next().expect("one");
        let written = serde_json::to_value(limit).expect("serialises");
        assert_eq!(written["initial"], 5);
        let short = spoken(limit);
        assert!(!short.contains_key("initial"));
        assert_eq!(read(&short).as_ref(), Some(limit));
    }
}
