//! Exceptions for single keys, in words: overrides, and penalties for too many refusals.

use loudou_limiter::Penalty;
use loudou_rules::config::{phrase, scaled};
use loudou_rules::rule::{Override, Rule};

use super::list::list;
use super::short;

/// The number of overrides that are listed.
const TOLD: usize = 8;

/// The overrides of a rule, one sentence each.
pub(super) fn overrides(rule: &Rule) -> Vec<String> {
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

/// The condition and the duration of bans by a penalty.
pub(super) fn penalty(penalty: &Penalty) -> String {
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
