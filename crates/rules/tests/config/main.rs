//! Tests of the rule file: reading, writing, and the problems of invalid files.
#![cfg(test)]

use loudou_rules::config::{Parsed, parse};
use loudou_rules::rule::{Rule, RuleFile};
use serde_json::{Value, json};

mod advice;
mod aliases;
mod arbitrary;
mod defaults;
mod editing;
mod fleet;
mod overrides;
mod parts;
mod requests;
mod right;
mod sample;
mod scaling;
mod schema;
mod settled;
mod shaping;
mod valid;
mod when;
mod windows;
mod wrong;

/// Returns a valid rule, with the given fields replaced or added. A null removes a field.
fn rule(fields: &Value) -> Value {
    let mut rule = json!({
        "name": "r",
        "key": ["source"],
        "limits": [{ "algorithm": "funnel", "capacity": 5, "rate": "1/s" }],
    });
    for (name, value) in fields.as_object().expect("an object") {
        rule[name] = value.clone();
    }
    rule
}

fn file(rules: &[Value]) -> Value {
    json!({ "version": 1, "rules": rules })
}

fn read(document: &Value) -> RuleFile {
    schema::agrees(document);
    let Parsed { file, problems, .. } = parse(document);
    let lines: Vec<String> = problems.iter().map(ToString::to_string).collect();
    assert_eq!(lines, [""; 0]);
    file.expect("a file without problems")
}

/// The only rule of a file with `fields`.
fn read_rule(fields: &Value) -> Rule {
    read(&file(&[rule(fields)])).rules.remove(0)
}

/// All problems, as they are shown.
fn problems(document: &Value) -> Vec<String> {
    schema::agrees(document);
    let parsed = parse(document);
    parsed.problems.iter().map(ToString::to_string).collect()
}

/// The problems of a rule with these fields, by their places in the rule.
fn of_rule(fields: &Value) -> Vec<String> {
    let lines = problems(&file(&[rule(fields)]));
    let local = lines
        .iter()
        .map(|line| line.strip_prefix("rules[0].").unwrap_or(line));
    local.map(str::to_string).collect()
}

/// The problems of a match, by their places in it.
fn of_match(fields: &Value) -> Vec<String> {
    let lines = of_rule(&json!({ "match": fields }));
    let local = lines
        .iter()
        .map(|line| line.strip_prefix("match.").unwrap_or(line));
    local.map(str::to_string).collect()
}
