//! Finds the numbers of the limits in a rule file's text, and replaces one number. The rest of the text, including
//! comments, does not change.

use loudou_check::document::{self, Document, Kind};
use loudou_rules::config::Path;
use serde::{Deserialize, Serialize};
use serde_json::Value;

/// Selects one number of a limit, and gives the new value of this number.
#[derive(Debug, Deserialize)]
pub(crate) struct Question {
    rules: String,
    /// Index of the rule in the file.
    rule: usize,
    limit: usize,
    field: String,
    /// Index of the number within the field: in `30/60s`, 0 is the amount and 1 is the period.
    number: usize,
    value: u32,
}

/// A limit in a rule file.
#[derive(Debug, Serialize)]
#[expect(clippy::struct_field_names, reason = "the page uses these names")]
pub(crate) struct Limit {
    pub(crate) rule: usize,
    pub(crate) limit: usize,
    name: String,
    pub(crate) config: Value,
    numbers: Vec<Number>,
}

/// A number in a field of a limit.
#[derive(Debug, Serialize)]
#[expect(clippy::struct_field_names, reason = "the page uses these names")]
struct Number {
    field: String,
    number: usize,
    value: u32,
    /// Text of the field before the number.
    before: String,
    after: String,
}

/// Returns the limits of a rule file. Returns no limits if the text is not a rule file.
pub(crate) fn limits_of(rules: &str) -> Vec<Limit> {
    let document = document::read(rules.as_bytes()).ok();
    let document = document.filter(|document| document.kind == Kind::Loudou);
    let list = |value: &Value, name: &str| value.get(name).and_then(Value::as_array).cloned();
    let rules = document.and_then(|document| list(&document.value, "rules"));
    let mut found = Vec::new();
    for (number, rule) in rules.unwrap_or_default().iter().enumerate() {
        let limits = list(rule, "limits").unwrap_or_default();
        found.extend(limits.into_iter().enumerate().map(|(limit, config)| {
            let name = |value: &Value| value.get("name")?.as_str().map(str::to_owned);
            let names = [name(rule), name(&config)].into_iter().flatten();
            Limit {
                rule: number,
                limit,
                name: names.collect::<Vec<_>>().join("."),
                numbers: numbers(&config),
                config,
            }
        }));
    }
    found
}

/// Returns the numbers in the fields of a limit, in field order.
fn numbers(limit: &Value) -> Vec<Number> {
    let fields = limit.as_object().into_iter().flatten();
    let texts = fields.filter_map(|(field, value)| {
        let text = match value {
            Value::Number(number) => number.to_string(),
            Value::String(text) if text.starts_with(|c: char| c.is_ascii_digit()) => text.clone(),
            _ => return None,
        };
        Some((field, text))
    });
    let mut found = Vec::new();
    for (field, text) in texts {
        for (number, (before, digits, after)) in split(&text).into_iter().enumerate() {
            let Ok(value) = digits.parse() else { continue };
            found.push(Number {
                field: field.clone(),
                number,
                value,
                before: before.to_owned(),
                after: after.to_owned(),
            });
        }
    }
    found
}

/// Returns each run of digits in `text`, with the text before and after it.
fn split(text: &str) -> Vec<(&str, &str, &str)> {
    let mut found = Vec::new();
    let mut from = 0;
    while let Some((at, rest)) = text.get(from..).and_then(|rest| {
        let at = from + rest.find(|c: char| c.is_ascii_digit())?;
        Some((at, text.get(at..)?))
    }) {
        let end = rest.find(|c: char| !c.is_ascii_digit());
        let end = at + end.unwrap_or(rest.len());
        if let (Some(before), Some(digits), Some(after)) =
            (text.get(..at), text.get(at..end), text.get(end..))
        {
            found.push((before, digits, after));
        }
        from = end;
    }
    found
}

/// Returns the text of the rule file with the new number.
pub(crate) fn answer(question: &Question) -> Result<String, String> {
    let Question { rules, .. } = question;
    let read = |text: &str| document::read(text.as_bytes()).map_err(|fault| fault.message);
    let document = read(rules)?;
    let path = Path::root().field("rules").index(question.rule);
    let path = path.field("limits").index(question.limit);
    let path = path.field(&question.field);
    let old = scalar(&document, question).ok_or("no such number")?;
    let (before, _, after) = split(&old)
        .get(question.number)
        .copied()
        .ok_or("no such number")?;
    let new = format!("{before}{}{after}", question.value);
    let at = document.locate(&path, false);
    let edited = replaced(rules, at.line, at.column, &old, &new).ok_or("no such number")?;
    // The new text must have the new value in this field. Otherwise the edit changed another place, for example a YAML
    // anchor to which the field refers.
    let again = read(&edited)?;
    let is_new = scalar(&again, question).is_some_and(|text| text == new);
    is_new.then_some(edited).ok_or_else(|| {
        format!(
            "{} of this limit is not written here; edit the text",
            question.field
        )
    })
}

/// Returns the text of the field that the question names.
fn scalar(document: &Document, question: &Question) -> Option<String> {
    let rule = document.value.get("rules")?.get(question.rule)?;
    let limit = rule.get("limits")?.get(question.limit)?;
    match limit.get(&question.field)? {
        Value::Number(number) => Some(number.to_string()),
        Value::String(text) => Some(text.clone()),
        _ => None,
    }
}

/// Replaces `old` with `new` at this line and column.
fn replaced(text: &str, line: usize, column: usize, old: &str, new: &str) -> Option<String> {
    let mut lines: Vec<String> = text.split('\n').map(str::to_owned).collect();
    let line = lines.get_mut(line.checked_sub(1)?)?;
    let at = line.char_indices().nth(column.checked_sub(1)?)?.0;
    let (before, rest) = line.split_at_checked(at)?;
    let quote = rest.chars().next().filter(|c| matches!(c, '"' | '\''));
    let quote = quote.map(String::from).unwrap_or_default();
    let after = rest.strip_prefix(&quote)?.strip_prefix(old)?;
    *line = format!("{before}{quote}{new}{after}");
    Some(lines.join("\n"))
}

#[cfg(test)]
mod tests {
    use super::*;

    const RULES: &str = "version: 1\nrules:\n- name: 用户\n  key: []\n  limits:\n  - { name: l, algorithm: funnel, rate: \"30/60s\", capacity: 15 } # 15\n  - algorithm: fixed_window\n    name: day\n    capacity: 100 # a day\n    window: 1d\n";

    fn edited(limit: usize, field: &str, number: usize, value: u32) -> String {
        let field = field.to_owned();
        let rules = RULES.to_owned();
        answer(&Question {
            rules,
            rule: 0,
            limit,
            field,
            number,
            value,
        })
        .expect("edited")
    }

    #[test]
    fn only_the_number_changes() {
        assert_eq!(
            edited(0, "capacity", 0, 7),
            RULES.replace("capacity: 15", "capacity: 7")
        );
        assert_eq!(edited(0, "rate", 1, 5), RULES.replace("30/60s", "30/5s"));
        assert_eq!(edited(1, "capacity", 0, 9), RULES.replace("100 #", "9 #"));
        assert_eq!(edited(1, "window", 0, 2), RULES.replace("1d", "2d"));
    }

    #[test]
    fn a_number_of_an_alias_is_not_edited() {
        let rules = "version: 1\nrules:\n- name: a\n  key: []\n  limits: &l [{ name: l, algorithm: funnel, capacity: 2, rate: 1/s }]\n- name: b\n  key: []\n  limits: *l\n";
        let question = Question {
            rules: rules.to_owned(),
            rule: 1,
            limit: 0,
            field: "capacity".to_owned(),
            number: 0,
            value: 3,
        };
        let edited = answer(&question);
        assert!(edited.is_err(), "{edited:?}");
    }
}
