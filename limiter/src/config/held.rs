//! What this version cannot do yet: hold requests. A replay can; the filter refuses such limits.

use alloc::format;
use alloc::vec::Vec;

use serde_json::Value;

use super::problem::{Path, Problem};
use super::{RuleEdit, parse_limits};
use crate::limit::Limit;
use crate::rule::{Mode, Rule, RuleFile};

/// The limits of a file that would hold requests, as errors. Rules that are off hold nothing.
pub fn held_by_file(file: &RuleFile) -> Vec<Problem> {
    let at = Path::root().field("rules");
    let rules = file.rules.iter().enumerate();
    rules
        .flat_map(|(index, rule)| held_by(rule, &at.index(index)))
        .collect()
}

/// The same of an edit that makes `after` of a rule, at the places of the edit's body.
pub fn held_by_edit(edit: &RuleEdit, after: &Rule) -> Vec<Problem> {
    let problems = held_by(after, &Path::root());
    if edit.limits.is_some() {
        return problems;
    }
    // The limits are in the rule already: it is the mode that brings them to work.
    let first = problems.into_iter().take(1);
    first
        .map(|problem| Problem {
            path: Path::root().field("mode"),
            value: format!("\"{}\"", after.mode.name()),
            ..problem
        })
        .collect()
}

fn held_by(rule: &Rule, at: &Path) -> Vec<Problem> {
    if rule.mode == Mode::Off {
        return Vec::new();
    }
    let at = at.field("limits");
    let limits = rule.limits.iter().enumerate();
    limits
        .filter(|(_, limit)| limit.algorithm().may_hold())
        .map(|(index, limit)| held(limit, &at.index(index)))
        .collect()
}

fn held(limit: &Limit, at: &Path) -> Problem {
    let mut fields = serde_json::to_value(limit).unwrap_or_default();
    let max_wait = fields
        .as_object_mut()
        .and_then(|fields| fields.remove("max_wait"));
    let refuses = |fields: Value| {
        let limits = parse_limits(&Value::from(Vec::from([fields])));
        limits.is_ok_and(|limits| !limits.may_hold())
    };
    let message = "this version of the filter cannot hold requests yet";
    let (field, value, instead) = match max_wait {
        Some(value) if refuses(fields) => ("max_wait", value, "no max_wait"),
        _ => (
            "algorithm",
            limit.algorithm().name().into(),
            "algorithm funnel",
        ),
    };
    let allowed = format!("{instead} (what is over the limit is refused then), or mode off");
    Problem::error(at.field(field), &value, message).allowed(allowed)
}
