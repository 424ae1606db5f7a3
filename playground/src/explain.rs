//! Checks rules as `loudou check` does, and explains a request as `loudou explain --config` does.

use loudou_api::{ExplainAnswer, ExplainedRule, Says};
use loudou_check::{FileProblem, check, check_around, describe, only_rules};
use loudou_print::explain::{by_file, notes, print};
use loudou_print::style::Style;
use loudou_rules::config::{self, parse_sample};
use loudou_rules::rule::RuleFile;
use loudou_words::meaning::explained::{self as words, Tone};
use serde::{Deserialize, Serialize};
use serde_json::{Value, json};

use crate::edit::{Limit, limits_of};

/// Rules to check, and a request to explain.
#[derive(Debug, Deserialize)]
pub(crate) struct Question {
    /// Name of the rule file, as shown in messages.
    pub(crate) name: String,
    /// A rule file, or a configuration or manifest that contains rules.
    pub(crate) rules: String,
    /// The request, in the format of the admin API.
    pub(crate) request: Value,
}

/// Problems in the rules, and the explanation of the request.
#[derive(Debug, Serialize)]
pub(crate) struct Answer {
    problems: Vec<FileProblem>,
    /// Output of `loudou check` for the rules.
    check: String,
    /// Limits that the page can edit.
    limits: Vec<Limit>,
    /// Problems in the request.
    request_problems: Vec<String>,
    explanation: Option<Explanation>,
}

#[derive(Debug, Serialize)]
struct Explanation {
    /// Output of `loudou explain` for the request.
    text: String,
    notes: Vec<&'static str>,
    tone: &'static str,
    verdict: String,
    rules: Vec<Value>,
}

pub(crate) fn answer(question: &Question) -> Result<Answer, String> {
    let Question {
        name,
        rules,
        request,
    } = question;
    let mut texts = vec![check(name, rules.as_bytes(), config::preflight_advice)];
    check_around(&mut texts);
    let mut printed = Vec::new();
    let mut problems = Vec::new();
    for (report, found) in texts.iter().flatten() {
        problems.extend(report.problems());
        printed.extend(report.lines(&plain).into_bytes());
        match found {
            Some(found) => describe(&report.name(), found, &mut printed).map_err(text_of)?,
            None => printed.extend(format!("{}\n", report.count()).into_bytes()),
        }
    }
    let request_problems = match parse_sample(request) {
        Ok(_) => Vec::new(),
        Err(problems) => problems.iter().map(ToString::to_string).collect(),
    };
    let file = rules_of(name, rules).ok();
    let explanation = match &file {
        Some(file) if request_problems.is_empty() => Some(explanation(file, request)?),
        _ => None,
    };
    Ok(Answer {
        problems,
        check: String::from_utf8_lossy(&printed).into_owned(),
        limits: limits_of(rules),
        request_problems,
        explanation,
    })
}

/// Parses the rules from `rules`. The error contains the problems as `loudou` prints them.
pub(crate) fn rules_of(name: &str, rules: &str) -> Result<RuleFile, String> {
    let mut printed = Vec::new();
    let checked = check(name, rules.as_bytes(), |_| Vec::new());
    let file = only_rules(name, &checked, &plain, &mut printed).map_err(text_of)?;
    file.ok_or_else(|| String::from_utf8_lossy(&printed).into_owned())
}

fn explanation(file: &RuleFile, request: &Value) -> Result<Explanation, String> {
    let answer = by_file(file, request)?;
    let part = |name, default| request.get(name).and_then(Value::as_str).unwrap_or(default);
    let title = format!("{} {}", part("method", "GET"), part("path", "/"));
    let mut text = Vec::new();
    print(&answer, &title, &mut text, Style::default()).map_err(text_of)?;
    Ok(Explanation {
        text: String::from_utf8_lossy(&text).into_owned(),
        notes: notes(file).collect(),
        tone: tone(answer.verdict, false),
        verdict: words::verdict(&answer, &title),
        rules: answer.rules.iter().map(|it| rule(it, &answer)).collect(),
    })
}

/// Returns the outcome of a rule in the JSON format of the page.
fn rule(rule: &ExplainedRule, answer: &ExplainAnswer) -> Value {
    let limits = rule.limits.iter().map(|limit| {
        let (part, whole) = limit.now.level(0);
        json!({
            "name": limit.now.name, "algorithm": limit.now.algorithm, "rate": limit.now.rate,
            "capacity": limit.now.capacity, "remaining": limit.now.remaining,
            "after": limit.remaining, "part": part, "whole": whole,
            "tone": tone(limit.says, false),
            "words": words::limit(limit, rule.cost.or(rule.reserved)),
        })
    });
    json!({
        "name": rule.rule, "mark": words::mark(rule.says),
        "tone": tone(rule.says, rule.mode == "shadow"),
        "outcome": words::outcome(rule, answer), "rows": words::rows(rule),
        "limits": limits.collect::<Vec<_>>(),
    })
}

const fn tone(says: Says, is_shadow: bool) -> &'static str {
    match words::tone(says, is_shadow) {
        Tone::Plain => "plain",
        Tone::Dim => "dim",
        Tone::Good => "good",
        Tone::Warn => "warn",
        Tone::Bad => "bad",
    }
}

/// Returns the word for a severity unchanged, without colour codes.
fn plain(_: config::Severity, text: &str) -> String {
    text.to_owned()
}

#[expect(clippy::needless_pass_by_value, reason = "for `map_err`")]
pub(crate) fn text_of(error: impl ToString) -> String {
    error.to_string()
}

#[cfg(test)]
mod tests {
    use super::*;

    fn asked(rules: &str, request: Value) -> Answer {
        let question = Question {
            name: "rules.yaml".to_owned(),
            rules: rules.to_owned(),
            request,
        };
        answer(&question).expect("an answer")
    }

    #[test]
    fn mistakes_have_a_line_and_a_column() {
        let rules = "version: 1\nrules:\n- name: a\n  key: [source]\n  limits:\n  - { name: l, algorithm: funel, capacity: 1, rate: 1/s }\n";
        let found = asked(rules, json!({}));
        let place = |it: &FileProblem| (it.problem.line, it.problem.column);
        let places: Vec<_> = found.problems.iter().map(place).collect();
        assert_eq!(places, [(Some(6), Some(27))]);
        assert!(found.explanation.is_none());
        assert!(found.check.contains("did you mean"), "{}", found.check);
    }

    #[test]
    fn an_invalid_request_is_not_explained() {
        let rules = "version: 1\nrules: []\n";
        let found = asked(rules, json!({ "source": "nowhere" }));
        assert!(found.explanation.is_none());
        let problems = found.request_problems.join("\n");
        assert!(problems.contains("source"), "{problems}");
    }
}
