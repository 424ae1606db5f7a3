//! Describes rules in sentences, with exact numbers.

use key::{ambiguous, missing};
use loudou_limiter::Penalty;
use loudou_rules::config::{phrase, scaled};
use loudou_rules::rule::{Mode, OnError, OnLongValue, Override, Rule};
use serde_json::Value;

pub use bucket::BAN_OFF;
pub use bucket::Origins;
pub use bucket::Standing;
pub use bucket::WOULD_REFUSE;
pub use bucket::banned;
pub use bucket::brought;
pub use bucket::enforced_ban;
pub use bucket::imposed;
pub use bucket::main_limit;
pub use bucket::refusals;
pub use bucket::refuses_now;
pub use bucket::stands_out;
pub use bucket::state_word;
pub use fleet::Sharing;
pub use fleet::sharing;
pub use key::group;
pub use requests::requests;
pub use upstream::upstreams;

mod answers;
mod bucket;
mod cost;
pub mod explained;
mod fleet;
mod key;
pub mod leased;
mod requests;
pub mod short;
mod upstream;

/// Describes a rule's limits in one sentence, which may span several lines.
pub fn limits(rule: &Rule) -> Vec<String> {
    let group = group(rule);
    let phrases: Vec<(&str, String)> = rule
        .limits
        .iter()
        .map(|limit| (limit.name(), phrase(limit, &rule.cost)))
        .collect();
    match phrases.as_slice() {
        [(_, phrase)] => vec![format!("{group} {phrase}")],
        phrases => {
            let lines = phrases.iter().enumerate();
            let mut lines: Vec<String> = lines
                .map(|(index, (name, phrase))| match index {
                    0 => format!("{group} {phrase} ({name})"),
                    _ => format!("and {phrase} ({name})"),
                })
                .collect();
            let all = if phrases.len() == 2 {
                "both or takes from neither"
            } else {
                "all of them or takes from none"
            };
            lines.push(format!("a request passes {all}"));
            lines
        }
    }
}

/// Describes a rule's other non-default settings, in one sentence each.
pub fn notes(rule: &Rule) -> Vec<String> {
    let mut notes = Vec::new();
    match rule.mode {
        Mode::Enforce => {}
        Mode::Shadow => notes.push("in shadow mode: refusals are counted, not enforced".to_owned()),
        Mode::Off => notes.push("off: this rule does nothing".to_owned()),
    }
    notes.extend(rule.when.as_ref().map(upstream::condition));
    notes.extend(long_values(rule));
    notes.extend(cost::cost(&rule.cost));
    notes.extend(missing(rule));
    notes.extend(ambiguous(rule));
    if rule.on_error == OnError::Refuse {
        notes.push("if the store fails, requests are refused".to_owned());
    }
    if let Some(other) = &rule.shadows {
        notes.push(format!("shadows rule {other}"));
    }
    match (rule.stop, rule.mode) {
        (true, Mode::Enforce) => {
            notes.push(
                "later rules are skipped for the requests it limits, except rules in shadow mode"
                    .to_owned(),
            );
        }
        (true, _) => notes.push("`last` has no effect unless the rule is enforced".to_owned()),
        (false, _) => {}
    }
    notes.extend(overrides(rule));
    notes.extend(rule.penalty.as_ref().map(penalty));
    if rule.mode == Mode::Enforce {
        notes.extend(answers::refuse(&rule.refuse));
        notes.extend(answers::respond(rule.respond));
    }
    notes
}

/// Describes `on_long_value`. Returns `None` if the rule does not use any regular expressions.
fn long_values(rule: &Rule) -> Option<String> {
    let patterns = rule.matches.patterns();
    let longest = patterns
        .iter()
        .map(|(_, pattern)| pattern.longest())
        .min()?;
    let does = match (rule.on_long_value, rule.mode) {
        (OnLongValue::Apply, _) => {
            "the rule applies, unless their beginning shows that it does not"
        }
        (OnLongValue::Skip, _) => "the rule does not apply",
        (OnLongValue::Refuse, Mode::Enforce) => "requests are refused",
        (OnLongValue::Refuse, _) => "requests count as refused",
    };
    Some(format!(
        "values of more than {longest} bytes are too long for its regular expressions: {does}"
    ))
}

/// Formats the key of a rule given as JSON: `header x-user-id : path`.
pub fn key_in_json(rule: &Value) -> String {
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

// Descriptions of overrides and penalties.

/// Maximum number of overrides to describe.
const TOLD: usize = 8;

/// Describes a rule's overrides, in one sentence each.
fn overrides(rule: &Rule) -> Vec<String> {
    let mut lines: Vec<String> = rule
        .overrides
        .iter()
        .take(TOLD)
        .map(|(pattern, value)| one(rule, &pattern, value))
        .collect();
    match rule.overrides.len().saturating_sub(TOLD) {
        0 => {}
        1 => lines.push("and 1 more override".to_owned()),
        more => lines.push(format!("and {more} more overrides")),
    }
    lines
}

fn one(rule: &Rule, pattern: &str, value: &Override) -> String {
    let subject = match pattern.strip_suffix('*') {
        None => format!("key {pattern}"),
        Some("") => "every other key".to_owned(),
        Some(beginning) => format!("each key with prefix {beginning}"),
    };
    match value {
        Override::Scale(scale) => {
            let limits = scaled(&rule.limits, *scale);
            let numbers = limits.map(|limits| format!(": {}", short::of_limits(&limits)));
            let numbers = numbers.unwrap_or_default();
            format!("{subject} has {scale} times the limits{numbers}")
        }
        Override::Unlimited => format!("{subject} has no limits"),
        Override::Banned => format!("{subject} is banned"),
        Override::Limits(limits) => {
            let phrases = limits.iter().map(|limit| phrase(limit, &rule.cost));
            let phrases: Vec<String> = phrases.collect();
            format!("{subject} {}", list(&phrases, "and"))
        }
    }
}

/// Describes when a penalty causes a key to be banned, and for how long.
fn penalty(penalty: &Penalty) -> String {
    let Penalty {
        after,
        within,
        ban,
        factor,
        max,
    } = penalty;
    let first = match after {
        1 => format!("a key that is refused is banned for {ban}"),
        _ => format!(
            "a key that is refused {after} times within {within} of a first refusal is banned for {ban}"
        ),
    };
    if factor.thousandths() <= 1_000 || max <= ban {
        return first;
    }
    format!(
        "{first}; each further ban is {factor} times as long, at most {max}, until the key was not banned for {max}"
    )
}

// Lists.

/// Joins items into a list: `a, b and c`.
fn list<T: AsRef<str>>(items: &[T], last: &str) -> String {
    match items {
        [] => String::new(),
        [only] => only.as_ref().to_owned(),
        [first @ .., end] => {
            let first: Vec<&str> = first.iter().map(AsRef::as_ref).collect();
            format!("{} {last} {}", first.join(", "), end.as_ref())
        }
    }
}

#[cfg(test)]
mod tests {
    use loudou_rules::config::parse_rule;
    use serde_json::{Value, json};

    use super::*;

    fn rule(fields: &Value) -> Rule {
        let mut rule = json!({
            "name": "r", "key": ["source"],
            "limits": [{ "algorithm": "funnel", "capacity": 15, "rate": "30/60s" }],
        });
        for (name, value) in fields.as_object().expect("an object") {
            rule[name] = value.clone();
        }
        parse_rule(&rule).expect("valid")
    }

    #[test]
    fn keys_in_words() {
        let say = |key: Value| group(&rule(&json!({ "key": key })));
        assert_eq!(say(json!([])), "all requests together");
        assert_eq!(say(json!([{ "literal": "v2" }])), "all requests together");
        assert_eq!(
            say(json!(["source", { "literal": "v2" }])),
            "each client address"
        );
        assert_eq!(
            say(json!([{ "header": "X-User" }, "path", "route"])),
            "each combination of x-user, path and route"
        );
    }

    #[test]
    fn limits_are_joined() {
        assert_eq!(
            limits(&rule(&json!({}))),
            ["each client address may do 15 at once, then one every 2s"]
        );
        let day = json!({ "name": "daily", "algorithm": "fixed_window", "capacity": 99, "window": "1d", "align": "clock" });
        let burst =
            json!({ "name": "burst", "algorithm": "funnel", "capacity": 15, "rate": "1/s" });
        assert_eq!(
            limits(&rule(&json!({ "limits": [burst, day] }))),
            [
                "each client address may do 15 at once, then one every second (burst)",
                "and may do 99 in each day, from midnight UTC (daily)",
                "a request passes both or takes from neither",
            ]
        );
    }

    #[test]
    fn notes_show_incomplete_requests() {
        let say = |fields: Value| notes(&rule(&fields));
        assert_eq!(say(json!({})), [""; 0]);
        let when = say(json!({ "when": { "upstream_error_rate_over": 0.2 } }));
        assert!(
            when[0].starts_with("only while an upstream fails"),
            "{when:?}"
        );
        let header = json!([{ "header": "x-a" }, "path", "route"]);
        for (policy, mode, expected) in [
            ("skip", "enforce", "are not limited by this rule"),
            ("refuse", "enforce", "are refused"),
            ("refuse", "shadow", "count as refused"),
            ("share", "enforce", "share one bucket"),
        ] {
            let notes = say(json!({ "key": header, "on_missing_key": policy, "mode": mode }));
            let last = notes.last().expect("a note");
            assert_eq!(*last, format!("requests without x-a or a route {expected}"));
        }
        let parts = json!(["path", { "header": "x-a" }, { "cookie": "c" }]);
        assert_eq!(
            say(json!({ "key": parts, "on_ambiguous_key": "refuse" }))[1],
            "requests with several values of x-a or cookie c are refused"
        );
        let refuse = say(json!({ "on_missing_key": "refuse", "on_error": "refuse", "cost": 2 }));
        assert_eq!(
            refuse,
            [
                "a request takes 2 units",
                "requests without a client address are refused",
                "if the store fails, requests are refused",
            ]
        );
        assert_eq!(
            say(json!({ "mode": "shadow" })),
            ["in shadow mode: refusals are counted, not enforced"]
        );
        assert_eq!(
            say(json!({ "mode": "off" })),
            ["off: this rule does nothing"]
        );
    }

    #[test]
    fn notes_show_single_keys() {
        let say = |fields: Value| notes(&rule(&fields));
        let limits = json!([
            { "name": "a", "algorithm": "funnel", "capacity": 9, "rate": "1/s" },
            { "name": "b", "algorithm": "fixed_window", "capacity": 99, "window": "1d", "align": "clock" },
        ]);
        let overrides = json!({
            "10.0.0.1": { "scale": 2.5 }, "10.0.0.2": "unlimited", "10.0.0.3": "banned",
            "10.1.*": { "limits": limits }, "*": "banned",
        });
        assert_eq!(
            say(json!({ "overrides": overrides })),
            [
                "key 10.0.0.1 has 2.5 times the limits: funnel 38 at 75/m",
                "key 10.0.0.2 has no limits",
                "key 10.0.0.3 is banned",
                "every other key is banned",
                "each key with prefix 10.1. may do 9 at once, then one every second and may do \
                 99 in each day, from midnight UTC",
            ]
        );
        let many: serde_json::Map<String, Value> = (0..20)
            .map(|n| (format!("k{n:02}"), json!("banned")))
            .collect();
        let expected = say(json!({ "overrides": many }));
        assert_eq!(
            (expected.len(), expected[8].as_str()),
            (9, "and 12 more overrides")
        );
        let penalty = |after: u32, factor: u32, max: &str| {
            let penalty = json!({ "after": after, "within": "60s", "ban": "5m", "factor": factor, "max": max });
            say(json!({ "penalty": penalty }))
        };
        assert_eq!(
            penalty(20, 2, "1h"),
            [
                "a key that is refused 20 times within 1m of a first refusal is banned for 5m; each \
              further ban is 2 times as long, at most 1h, until the key was not banned for 1h"
            ]
        );
        assert_eq!(
            penalty(1, 2, "5m"),
            ["a key that is refused is banned for 5m"]
        );
    }

    #[test]
    fn notes_show_answers_and_other_rules() {
        let say = |fields: Value| notes(&rule(&fields));
        let refuse = json!({
            "status": 503, "body": { "text": "later", "content_type": "text/plain" },
            "headers": { "x-a": "1", "x-b": "2" }, "grpc": "unavailable",
        });
        let respond = json!({
            "ratelimit_headers": "both", "retry_after_jitter": 0.5, "explain_header": true,
        });
        assert_eq!(
            say(json!({ "refuse": refuse, "respond": respond, "stop": true })),
            [
                "later rules are skipped for the requests it limits, except rules in shadow mode",
                "refused requests get status 503, a custom body (text/plain) and the headers \
                 x-a and x-b",
                "refused gRPC calls get the status unavailable",
                "responses carry RateLimit and RateLimit-Policy, and X-RateLimit headers",
                "Retry-After is longer than the wait by up to 0.5 times the wait",
                "its decisions are visible to upstreams and access logs",
            ]
        );
        assert_eq!(
            say(
                json!({ "refuse": { "body": "none" }, "respond": { "ratelimit_headers": "none" } })
            ),
            [
                "refused requests get no body",
                "refusals carry only Retry-After"
            ]
        );
        assert_eq!(
            say(json!({ "mode": "shadow", "shadows": "other", "stop": true })),
            [
                "in shadow mode: refusals are counted, not enforced",
                "shadows rule other",
                "`last` has no effect unless the rule is enforced",
            ]
        );
    }
}
