//! Formats limits for display and for edit forms, omitting fields that have their default value.

use alloc::format;
use alloc::string::{String, ToString as _};
use alloc::vec::Vec;

use loudou_limiter::{Limit, Nanos, Rate};
use serde_json::{Map, Value};

use super::reader::written;
use super::{Field, limit_fields, parse_limits};
use crate::joined::joined;

/// Returns the fields of a limit, except those with their default value.
pub fn spoken(limit: &Limit) -> Map<String, Value> {
    spoken_value(&written(limit))
}

/// Like [`spoken`], but for a limit as JSON. An invalid limit is returned unchanged.
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

/// Formats a limit in a short notation: `15 at 30/m` if the capacity and rate describe it
/// completely, and otherwise with its algorithm and fields, such as `fixed_window 1000, window 1d`.
/// Accepts any algorithm, including algorithms unsupported by this version.
pub fn short(limit: &Map<String, Value>) -> String {
    let fields = spoken_value(limit);
    if is_plain(&fields) {
        return numbers(&fields);
    }
    with_algorithm(&fields)
}

/// Like [`short`], but always includes the algorithm, for comparing two algorithms.
pub fn short_with_algorithm(limit: &Map<String, Value>) -> String {
    with_algorithm(&spoken_value(limit))
}

/// Like [`short`], but with the limit's name: `burst 15 at 30/m`,
/// `daily: fixed_window 1000, window 1d`.
pub fn short_with_name(limit: &Map<String, Value>) -> String {
    let name = limit.get("name").and_then(Value::as_str);
    let mut words = String::from(name.unwrap_or_default());
    let is_plain = is_plain(&spoken_value(limit));
    words.push_str(if is_plain { " " } else { ": " });
    words.push_str(&short(limit));
    words
}

/// Returns true if the capacity and rate describe the limit completely.
fn is_plain(fields: &Map<String, Value>) -> bool {
    let mut names = fields.keys().map(String::as_str);
    let is_known = |name| matches!(name, "name" | "algorithm" | "capacity" | "rate");
    ["capacity", "rate"]
        .iter()
        .all(|name| fields.contains_key(*name))
        && names.all(is_known)
}

fn with_algorithm(fields: &Map<String, Value>) -> String {
    let mut words = fields
        .get("algorithm")
        .map_or_else(|| String::from("?"), text);
    words.push(' ');
    words.push_str(&numbers(fields));
    words
}

/// Formats the numbers of a limit, such as `1000 at 1000/d, refill interval`.
fn numbers(fields: &Map<String, Value>) -> String {
    let [capacity, rate] = ["capacity", "rate"].map(|name| fields.get(name).map(text));
    let mut parts: Vec<String> = Vec::new();
    parts.extend(match (capacity, rate) {
        (Some(capacity), Some(rate)) => Some(joined(&[capacity, rate], " at ")),
        (capacity, rate) => capacity.or(rate),
    });
    for (name, value) in fields {
        if !matches!(name.as_str(), "name" | "algorithm" | "capacity" | "rate") {
            parts.push(joined(&[name, &text(value)], " "));
        }
    }
    joined(&parts, ", ")
}

/// Formats the value of a limit field. A number taken from each request is shown as the last step of its metadata path,
/// followed by its default: `quota (10)`.
pub fn text(value: &Value) -> String {
    if let Some(text) = value.as_str() {
        return String::from(text);
    }
    let sourced = || {
        let path = value.get("metadata")?.as_array()?;
        let name = path.last()?.as_str()?;
        Some(format!("{name} ({})", value.get("default")?))
    };
    let rate = || {
        let one = Rate::new(1, Nanos::parse(value.get("per")?.as_str()?)?)?.to_string();
        let per = one.split_once('/').map(|(_, per)| String::from(per))?;
        Some(joined(&[text(value.get("amount")?), per], "/"))
    };
    let words = sourced().or_else(rate);
    words.unwrap_or_else(|| serde_json::to_string(value).unwrap_or_default())
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
        // An invalid limit is returned unchanged.
        for unreadable in [json!({ "algorithm": "newer", "n": 1 }), bucket("greedy", 6)] {
            assert_eq!(spoken_of(&unreadable), unreadable);
        }
    }

    #[test]
    fn one_notation_for_every_limit() {
        for (limit, words, named) in [
            (
                json!({ "name": "a", "algorithm": "funnel", "capacity": 15, "rate": "30/m" }),
                "15 at 30/m",
                "a 15 at 30/m",
            ),
            (
                json!({ "name": "b", "algorithm": "token_bucket", "capacity": 9, "rate": "1/s",
                    "refill": "greedy", "initial": 9 }),
                "9 at 1/s",
                "b 9 at 1/s",
            ),
            (
                json!({ "name": "b", "algorithm": "token_bucket", "capacity": 9, "rate": "1/s",
                    "refill": "interval" }),
                "token_bucket 9 at 1/s, refill interval",
                "b: token_bucket 9 at 1/s, refill interval",
            ),
            (
                json!({ "name": "c", "algorithm": "fixed_window", "capacity": 9, "window": "1d" }),
                "fixed_window 9, window 1d",
                "c: fixed_window 9, window 1d",
            ),
            (
                json!({ "name": "c", "algorithm": "funnel",
                    "capacity": { "metadata": ["jwt", "quota"], "default": 9, "max": 90 },
                    "rate": { "amount": { "metadata": ["jwt", "pace"], "default": 2, "max": 20 }, "per": "1m" } }),
                "quota (9) at pace (2)/m",
                "c quota (9) at pace (2)/m",
            ),
            (
                json!({ "name": "d", "algorithm": "concurrency", "capacity": 9 }),
                "concurrency 9",
                "d: concurrency 9",
            ),
            (
                json!({ "name": "e", "algorithm": "smooth_bursty", "rate": "5/s", "burst_seconds": 2 }),
                "smooth_bursty 5/s, burst_seconds 2",
                "e: smooth_bursty 5/s, burst_seconds 2",
            ),
            (
                json!({ "name": "f", "algorithm": "newer", "n": 3 }),
                "newer n 3",
                "f: newer n 3",
            ),
        ] {
            let limit = limit.as_object().expect("an object");
            assert_eq!(
                (short(limit).as_str(), short_with_name(limit).as_str()),
                (words, named)
            );
            assert!(short_with_algorithm(limit).ends_with(words));
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
