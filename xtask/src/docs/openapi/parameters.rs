//! The parameters of calls: of the path, of the query, and `If-Match`.

use anyhow::{Result, bail};
use loudou_api::{
    BODY_HEADER, BucketState, DEFAULT_PAGE, DEFAULT_TOP, EventSource, MAX_BODY_HEADER, MAX_PAGE,
    MAX_REASON, MAX_TOP, TopBy,
};
use loudou_filter::admin::Route;
use loudou_limiter::Carry;
use serde_json::{Value, json};

/// A duration that is not zero.
const DURATION: &str = "^0*[1-9][0-9]*(d|h|m|s|ms|us|ns)$";

/// The parameters of a route.
pub(super) fn of(route: &Route) -> Result<Vec<Value>> {
    let mut all = Vec::new();
    for (step, name, about) in [
        ("RULE", "rule", "The name of the rule."),
        (
            "KEY",
            "key",
            "The key as buckets show it, percent-encoded: `a%3Ab` is `a%253Ab`.",
        ),
    ] {
        if route.path.split('/').any(|part| part == step) {
            all.push(json!({
                "name": name, "in": "path", "required": true, "description": about,
                "schema": { "type": "string" },
            }));
        }
    }
    for name in route.query {
        let (schema, about) = of_query(route, name)?;
        all.push(json!({ "name": name, "in": "query", "description": about, "schema": schema }));
    }
    if route.takes_if_match {
        all.push(json!({
            "name": "If-Match", "in": "header", "required": needs_if_match(route),
            "description": "The `ETag` of what was read, or `*`.",
            "schema": { "type": "string" },
        }));
    }
    if route.takes_body {
        let about = "The body as ASCII (`\\u00e9` for é), in place of a body: for listeners whose plugin gets none.";
        all.push(json!({
            "name": BODY_HEADER, "in": "header", "description": about,
            "schema": { "type": "string", "maxLength": MAX_BODY_HEADER },
        }));
    }
    Ok(all)
}

/// Whether the call is refused without `If-Match`.
pub(super) fn needs_if_match(route: &Route) -> bool {
    route.takes_if_match && matches!(route.method, "PUT" | "DELETE")
}

fn of_query(route: &Route, name: &str) -> Result<(Value, String)> {
    let text = json!({ "type": "string" });
    let flag = json!({ "enum": ["true", "false", ""], "type": "string", "default": "false" });
    let (schema, about) = match name {
        "carry" => (
            json!({ "enum": Carry::NAMES, "default": carry() }),
            "What live buckets keep.",
        ),
        "for" => (
            json!({ "type": "string", "pattern": DURATION }),
            "How long it lasts, such as `30m`; without it, until it is taken back.",
        ),
        "reason" => (
            json!({ "type": "string", "maxLength": MAX_REASON }),
            "Why, in one line, for the audit.",
        ),
        "dry_run" => (
            flag,
            "Answer as if, and change nothing. The name alone sets it.",
        ),
        "replace" => (
            flag,
            "A ban that ends earlier replaces the one in force. The name alone sets it.",
        ),
        "with_temporary" => (flag, "With the edits and overrides that end."),
        "rule" => (text, "Only of this rule."),
        "key" => (text, "Only keys that contain this text."),
        "state" => (
            json!({ "enum": BucketState::NAMES }),
            "Only buckets in this state.",
        ),
        "by" => (
            json!({ "enum": TopBy::NAMES, "default": TopBy::default().name() }),
            "The counted outcome.",
        ),
        "of" => (
            json!({ "enum": EventSource::NAMES }),
            "Only events from this source.",
        ),
        "after" => (
            text,
            "The last event that was seen: `INSTANCE-SEQ`, or its number alone.",
        ),
        "cursor" => (text, "The `next_cursor` of the page before."),
        "limit" => {
            let (default, most) = match route.path {
                "/v1/top" => (DEFAULT_TOP, MAX_TOP),
                _ => (DEFAULT_PAGE, MAX_PAGE),
            };
            (
                json!({ "type": "integer", "minimum": 1, "maximum": most, "default": default }),
                "The most entries in the answer.",
            )
        }
        other => bail!(
            "no description of the query parameter `{other}` of {}",
            route.path
        ),
    };
    Ok((schema, about.to_owned()))
}

/// The part of a bucket that stays without `carry`.
fn carry() -> Option<&'static str> {
    let is_default = |name: &&str| Carry::parse(name) == Some(Carry::default());
    Carry::NAMES.into_iter().find(is_default)
}
