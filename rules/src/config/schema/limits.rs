//! The schema of limits: one for each algorithm.

use alloc::format;
use alloc::string::ToString;
use alloc::vec::Vec;

use loudou_limiter::MAX_LIMITS;
use loudou_limiter::algorithm::Algorithm;
use serde_json::{Value, json};

use super::form::{describe, form};
use super::{list, object};
use crate::config::limits::{COMMON, fields as limit_fields};

pub(super) fn limits() -> Value {
    let algorithms = Algorithm::NAMES.iter();
    let each = algorithms.map(|name| json!({ "$ref": format!("#/$defs/{name}") }));
    let mut limits = list(
        "One to eight limits in one bucket.",
        MAX_LIMITS,
        &json!({ "oneOf": each.collect::<Vec<_>>() }),
    );
    if let Some(limits) = limits.as_object_mut() {
        limits.insert("minItems".to_string(), Value::from(1));
    }
    limits
}

/// A limit of one algorithm.
pub(super) fn limit(algorithm: &str) -> Value {
    let table = limit_fields(algorithm);
    let own = table.iter().map(|field| field.name);
    let names: Vec<&str> = COMMON.into_iter().chain(own).collect();
    let needed = table.iter().filter(|field| field.default.is_none());
    let required: Vec<&str> = core::iter::once("algorithm")
        .chain(needed.map(|field| field.name))
        .collect();
    let mut schema = object(&names, &required, |name| match name {
        "name" => json!({
            "description": format!("Its name, unique in the rule. Without: {algorithm}."),
            "type": "string", "pattern": "^[a-z0-9_-]{1,63}$",
        }),
        "algorithm" => json!({ "const": algorithm }),
        _ => {
            let field = table.iter().find(|field| field.name == name);
            field.map_or(Value::Null, |field| form(*field))
        }
    });
    describe(&mut schema, about(algorithm));
    schema
}

/// What an algorithm does, in a sentence or two.
fn about(algorithm: &str) -> &'static str {
    match algorithm {
        "funnel" => {
            "A leaky bucket as a meter (GCRA): each request is water that leaks away at the rate, and \
             passes if it still fits."
        }
        "token_bucket" => {
            "Tokens that come back, continuously or in lumps; each request takes some."
        }
        "fixed_window" => {
            "Counts requests per window, which starts with the first request or by the clock."
        }
        "sliding_window" => {
            "Counts requests over a window that moves on slot by slot; the count in the current slot \
             is limited, too."
        }
        "sliding_log" => "Remembers the time of each request: exact over any window.",
        "sliding_counter" => {
            "Two counters, the earlier one weighted by its overlap with the window: cheap and nearly \
             right."
        }
        "leaky_queue" => {
            "A leaky bucket as a queue: requests pass one at a time at the rate, and wait their turn."
        }
        "smooth_bursty" => {
            "Pay later: a request of any cost passes once the debt of those before is paid off; idle \
             time is saved up."
        }
        "smooth_warmup" => {
            "Pay later, and slower after idle time: for what has to warm up before it is fast."
        }
        "concurrency" => "Requests under way at the same time; given back when they end.",
        _ => "",
    }
}
