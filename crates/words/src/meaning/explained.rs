//! Describes how the decision for a request was reached: the outcome of each rule, and the conditions that the request
//! did not meet.

use loudou_api::{
    ExplainAnswer, ExplainedBan, ExplainedLimit, ExplainedNumber, ExplainedRule, NumberOrigin,
    Says, UnmetPart,
};
use loudou_rules::config::parse_rule;
use serde_json::{Map, Value, json};

use super::leased::outage;
use crate::text::{counted, escape, humanise};

/// Path to a rule's negated match.
const NOT: &str = "match.not";

/// Colour class of an outcome, based on its effect on the request.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Tone {
    /// Neutral.
    Plain,
    /// The rule does not apply to the request.
    Dim,
    /// The request is admitted.
    Good,
    /// The request is held, the outcome is unknown, or the request is admitted only because the rule is not enforced.
    Warn,
    /// The request is refused.
    Bad,
}

/// Returns the tone of an outcome.
pub const fn tone(says: Says, is_shadow: bool) -> Tone {
    match says {
        Says::Admit => Tone::Good,
        Says::Hold | Says::Unknown => Tone::Warn,
        Says::Refuse if is_shadow => Tone::Warn,
        Says::Refuse => Tone::Bad,
        Says::Skip | Says::NoMatch | Says::NotNow | Says::Off | Says::Stopped | Says::NotAsked => {
            Tone::Dim
        }
    }
}

/// Returns the symbol to show before an outcome, so that it can be recognised without colour.
pub const fn mark(says: Says) -> char {
    match says {
        Says::Admit => '✓',
        Says::Hold => '~',
        Says::Refuse => '✗',
        Says::Skip | Says::NoMatch | Says::NotNow | Says::Off | Says::Stopped | Says::NotAsked => {
            '-'
        }
        Says::Unknown => '?',
    }
}

/// Describes the combined verdict of all rules on the request, which is referred to as `title`.
pub fn verdict(answer: &ExplainAnswer, title: &str) -> String {
    let has_say = |rule: &ExplainedRule| matches!(rule.says, Says::Admit | Says::Hold);
    match answer.verdict {
        Says::Refuse => {
            let by = answer.refused_by.as_deref().unwrap_or("a rule");
            let rule = answer.rules.iter().find(|rule| rule.rule == by);
            let why = rule.and_then(refusal).unwrap_or_default();
            format!("{title} is refused by {by}{why}")
        }
        Says::Hold => format!(
            "{title} is held for {}, then admitted",
            humanise(answer.wait_ns)
        ),
        Says::Admit if answer.rules.iter().any(has_say) => format!("{title} is admitted"),
        Says::Admit => format!("{title} is admitted: no rule applies"),
        _ => format!("{title} has a verdict that this loudou does not know; see --output json"),
    }
}

/// Describes why a rule refuses the request, and when the refusal ends.
fn refusal(rule: &ExplainedRule) -> Option<String> {
    if rule.missing.is_some() && rule.key.is_none() {
        return Some(": the request has no key".to_owned());
    }
    if rule.too_long.is_some() && rule.key.is_none() {
        return Some(": a value is too long".to_owned());
    }
    if rule.repeated.is_some() && rule.key.is_none() {
        return Some(": the request has several values for the key".to_owned());
    }
    if let Some(error) = &rule.error {
        return Some(format!(": {error}"));
    }
    if let Some(ban) = &rule.ban {
        return Some(format!(": its key is banned {}", lasts(ban)));
    }
    let limit = rule.limits.get(rule.reported)?;
    Some(again(limit, rule.cost).map_or_else(String::new, |when| format!("; {when}")))
}

/// Describes how much longer a ban lasts.
pub fn lasts(ban: &ExplainedBan) -> String {
    ban.lasts_ns.map_or_else(
        || "permanently".to_owned(),
        |wait| format!("for {}", humanise(wait)),
    )
}

/// Describes when an identical request would be admitted.
fn again(limit: &ExplainedLimit, cost: Option<u64>) -> Option<String> {
    let now = &limit.now;
    match now.retry_after_ns {
        Some(wait) => Some(format!("the same request passes in {}", humanise(wait))),
        None if cost.is_some_and(|cost| cost > now.capacity) => {
            Some(format!("its cost exceeds the capacity of {}", now.name))
        }
        None => None,
    }
}

/// Describes a rule's outcome. The caller prints the description after the rule's name.
pub fn outcome(rule: &ExplainedRule, answer: &ExplainAnswer) -> String {
    let earlier = rule.behind.as_deref().unwrap_or("another rule");
    let is_shadow = rule.mode == "shadow";
    let mut outcome = match rule.says {
        Says::Admit if rule.overruled => {
            let by = answer.refused_by.as_deref().unwrap_or("another rule");
            format!("admits, but {by} refuses, so nothing is taken")
        }
        Says::Admit => "admits".to_owned(),
        Says::Hold => {
            let waits = rule.limits.iter().map(|limit| limit.wait_ns);
            format!("holds for {}", humanise(waits.max().unwrap_or(0)))
        }
        Says::Refuse if is_shadow => "would refuse".to_owned(),
        Says::Refuse => "refuses".to_owned(),
        Says::Skip => "does not apply: the request has no key".to_owned(),
        Says::NoMatch => "does not match".to_owned(),
        Says::NotNow => {
            "does not apply now: `when` requires a failing upstream (see --cluster)".to_owned()
        }
        Says::Off => "is off".to_owned(),
        Says::Stopped => format!("was skipped: {earlier} is the last rule for this request"),
        Says::NotAsked => format!("was skipped: {earlier} refused"),
        Says::Unknown => {
            "has an outcome that this loudou does not know; see --output json".to_owned()
        }
    };
    if is_shadow {
        outcome.push_str(" (shadow: not enforced)");
    }
    if let Some(error) = &rule.error {
        outcome.push_str(": ");
        outcome.push_str(error);
    }
    outcome
}

/// Returns the names and values to show for a rule: the conditions that the request does not meet, or the bucket and
/// its state.
pub fn rows(rule: &ExplainedRule) -> Vec<(String, String)> {
    let mut rows = Vec::new();
    let mut row = |name: &str, value: String| rows.push((name.to_owned(), value));
    let parts = rule.failing.iter().chain(&rule.too_long);
    for part in parts.chain(&rule.missing) {
        row(&part.place, format!("requires {}", requirement(part)));
        if part.place.starts_with("match.") {
            row("found", found(part));
        }
        if let Some(longest) = part.longest {
            row(
                "too long",
                format!("longer than the {longest} bytes that it tests, so on_long_value applies"),
            );
        }
    }
    if let Some(part) = &rule.repeated {
        row(&part.place, format!("several: {}", requirement(part)));
        row("found", found(part));
    }
    if let Some(key) = &rule.key {
        row("key", key.clone());
    }
    if let Some(ban) = &rule.ban {
        row("banned", lasts(ban));
    }
    if rule.unlimited {
        row("unlimited", "this key has no limits".to_owned());
    }
    if let Some(out) = rule.outage {
        row("outage", outage(out));
    }
    if let Some(reason) = &rule.not_held {
        let words = match reason.as_str() {
            "deadline" => "its deadline would expire first",
            _ => "the worker holds its maximum of requests",
        };
        row("not held", words.to_owned());
    }
    if let Some(reserved) = rule.reserved {
        let odd = if rule.invalid_cost {
            ", after a source without a valid number"
        } else {
            ""
        };
        let units = counted(reserved, "unit");
        row(
            "reserves",
            format!("{units}{odd}; its end decides what it costs"),
        );
    }
    if let Some(cost) = rule.cost.filter(|cost| *cost != 1 || rule.invalid_cost) {
        let odd = if rule.invalid_cost {
            ", the default: the request has no cost that is a whole number from 1"
        } else {
            ""
        };
        row("cost", format!("{cost}{odd}"));
    }
    for number in &rule.numbers {
        row(&number.field, brought(number));
    }
    rows
}

/// Describes where a limit's number comes from.
fn brought(number: &ExplainedNumber) -> String {
    let path = escape(&number.metadata.join(".")).into_owned();
    let why = match number.origin {
        NumberOrigin::Missing => format!(", the default: the request has no metadata {path}"),
        NumberOrigin::Invalid => format!(", the default: metadata {path} is no whole number"),
        NumberOrigin::TooSmall => format!(", the minimum: metadata {path} is 0"),
        NumberOrigin::TooLarge => format!(", the maximum: metadata {path} is larger"),
        NumberOrigin::Request | NumberOrigin::Unknown => format!(", from metadata {path}"),
    };
    format!("{} for {}{why}", number.number, escape(&number.limit))
}

/// Describes a limit's outcome, and the number of units that would remain.
pub fn limit(limit: &ExplainedLimit, cost: Option<u64>) -> String {
    let left = limit.remaining;
    match limit.says {
        Says::Refuse => {
            let when = again(limit, cost);
            when.map_or_else(|| "refuses".to_owned(), |when| format!("refuses; {when}"))
        }
        Says::Hold => format!("holds for {}, then {left} left", humanise(limit.wait_ns)),
        _ => format!("then {left}"),
    }
}

/// Describes a condition of a rule, or a part of its key: `requests with x-plan: free`, `header x-user-id`.
pub fn requirement(part: &UnmetPart) -> String {
    if part.place.starts_with("key[") {
        return super::key_in_json(&json!({ "key": [part.asked] }));
    }
    let required = matches(part).and_then(|matches| {
        let limits = json!([{ "algorithm": "concurrency", "capacity": 1 }]);
        let rule = json!({ "name": "r", "key": [], "limits": limits, "match": matches });
        let rule = parse_rule(&rule).ok()?;
        Some(super::requests(&rule.matches))
    });
    // A newer server may return a condition that this version cannot parse.
    let required = required.unwrap_or_else(|| part.asked.to_string());
    if part.place == NOT {
        format!("anything but {required}")
    } else {
        required
    }
}

/// Returns a JSON match that contains only this condition. For `match.not`, returns the negated match.
fn matches(part: &UnmetPart) -> Option<Value> {
    let place = part.place.strip_prefix("match.")?;
    if place == "not" {
        return Some(part.asked.clone());
    }
    // The path contains `not.` if a value is too long for a pattern inside a `not`.
    let place = place.trim_start_matches("not.");
    let (name, required) = match place.split_once('[') {
        Some((list, _)) => (list, json!([part.asked])),
        None => (place, part.asked.clone()),
    };
    Some(Value::Object(Map::from_iter([(name.to_owned(), required)])))
}

/// Describes the request value that the rule tested.
pub fn found(part: &UnmetPart) -> String {
    match part.found.as_deref() {
        None if part.place == NOT => "a request that matches".to_owned(),
        None => "nothing".to_owned(),
        Some("") => "an empty string".to_owned(),
        Some(found) => found.to_owned(),
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_reservation_is_no_cost() {
        let of = |reserved, invalid_cost| {
            let rule = ExplainedRule {
                reserved: Some(reserved),
                invalid_cost,
                ..ExplainedRule::default()
            };
            rows(&rule)
        };
        let row = |text: &str| vec![("reserves".to_owned(), text.to_owned())];
        assert_eq!(
            of(300, false),
            row("300 units; its end decides what it costs")
        );
        assert_eq!(
            of(1, true),
            row("1 unit, after a source without a valid number; its end decides what it costs")
        );
    }

    #[test]
    fn numbers_state_their_origin() {
        let row = |number, origin| {
            let metadata = ["jwt", "q\u{1b}[1m"].map(str::to_owned).to_vec();
            let rule = ExplainedRule {
                numbers: vec![ExplainedNumber {
                    limit: "burst".to_owned(),
                    field: "capacity".to_owned(),
                    metadata,
                    number,
                    origin,
                }],
                ..ExplainedRule::default()
            };
            rows(&rule)
                .pop()
                .map(|(name, value)| format!("{name}: {value}"))
        };
        for (number, origin, expected) in [
            (
                500,
                NumberOrigin::Request,
                "500 for burst, from metadata jwt.q\\u{1b}[1m",
            ),
            (
                10,
                NumberOrigin::Missing,
                "10 for burst, the default: the request has no metadata jwt.q\\u{1b}[1m",
            ),
            (
                10,
                NumberOrigin::Invalid,
                "10 for burst, the default: metadata jwt.q\\u{1b}[1m is no whole number",
            ),
            (
                1,
                NumberOrigin::TooSmall,
                "1 for burst, the minimum: metadata jwt.q\\u{1b}[1m is 0",
            ),
            (
                900,
                NumberOrigin::TooLarge,
                "900 for burst, the maximum: metadata jwt.q\\u{1b}[1m is larger",
            ),
        ] {
            assert_eq!(row(number, origin), Some(format!("capacity: {expected}")));
        }
    }
}
