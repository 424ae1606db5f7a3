//! Keys of overrides that no request can have.

use alloc::format;
use alloc::vec::Vec;

use serde_json::Value;

use super::problem::{Path, Problem};
use crate::rule::{Impossible, Rule};

/// The keys of overrides that no request can have.
pub(super) fn impossible_keys(rule: &Rule, at: &Path) -> Vec<Problem> {
    let mut problems = Vec::new();
    for (pattern, _) in rule.overrides.iter() {
        let Some(problem) = impossible_key(rule, &pattern) else {
            continue;
        };
        problems.push(Problem {
            path: at.field("overrides").field(&pattern),
            at_name: true,
            ..problem
        });
    }
    problems
}

/// The problem with the key of an override of `rule`, if no request can have that key.
pub fn impossible_key(rule: &Rule, pattern: &str) -> Option<Problem> {
    let beginning = pattern.strip_suffix('*');
    let possible = rule.may_have(beginning.unwrap_or(pattern), beginning.is_some());
    let Impossible { why, meant } = possible.err()?;
    let star = if beginning.is_some() { "*" } else { "" };
    let meant = meant.map(|meant| format!("{meant}{star}"));
    let key = Value::from(pattern);
    let problem = Problem::error(Path::root(), &key, "no request can have this key");
    Some(problem.allowed(why).suggest(meant.as_deref()))
}
