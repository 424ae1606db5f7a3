//! Writes rule files as YAML with comments.
//!
//! The module does not use a YAML library, because no YAML library writes comments, and people read
//! and edit these files. Values are written in flow style, as in the documentation.

use loudou_words::text::{escape, is_unsafe};
use serde_json::Value;

use crate::out::{Place, Rule};

/// Maximum width of a comment, in characters.
const WIDTH: usize = 100;

/// Fields of a rule, in the order that the documentation uses.
const ORDER: [&str; 12] = [
    "mode",
    "scope",
    "stop",
    "match",
    "on_missing_key",
    "key",
    "cost",
    "limits",
    "overrides",
    "refuse",
    "respond",
    "on_long_value",
];

/// Name of the relay's Envoy cluster, as in the examples.
const CLUSTER: &str = "loudou-relay";

/// Returns the text of a rule file.
pub(crate) fn file(rules: &[Rule], notes: &[(Place, String)], denies_on_outage: bool) -> String {
    let mut out = String::new();
    for (place, message) in notes {
        comment(&mut out, "", &format!("{place}: {message}"));
    }
    out.push_str("version: 1\n");
    if rules.iter().any(|rule| rule.fields.contains_key("scope")) {
        let outage = if denies_on_outage { "refuse" } else { "admit" };
        comment(
            &mut out,
            "",
            "The relay that the rules below ask, and the verdict while it does not answer, as in the source. With `local`, \
             each Envoy would then limit alone.",
        );
        line(
            &mut out,
            &format!("fleet: {{ cluster: {CLUSTER}, on_outage: {outage} }}"),
        );
    }
    out.push_str("rules:\n");
    for rule in rules {
        for (place, original) in &rule.originals {
            comment(&mut out, "  ", &format!("{place}: {original}"));
        }
        for remark in &rule.remarks {
            comment(&mut out, "  ", remark);
        }
        for difference in &rule.differences {
            comment(&mut out, "  ", &format!("Differs: {difference}"));
        }
        line(&mut out, &format!("  - name: {}", scalar(&rule.name)));
        for field in ORDER {
            if let Some(value) = rule.fields.get(field) {
                entry(&mut out, field, value);
            }
        }
    }
    out
}

fn line(out: &mut String, text: &str) {
    out.push_str(text);
    out.push('\n');
}

/// Writes a field of a rule. Each limit and each override is on its own line.
fn entry(out: &mut String, field: &str, value: &Value) {
    match value {
        Value::Array(values) if field == "limits" => {
            line(out, "    limits:");
            for value in values {
                line(out, &format!("      - {}", flow(value)));
            }
        }
        Value::Object(values) if field == "overrides" => {
            line(out, "    overrides:");
            for (key, value) in values {
                line(out, &format!("      {}: {}", quoted(key), flow(value)));
            }
        }
        // Each condition of a long match is on its own line.
        Value::Object(values) if field == "match" && flow(value).len() > WIDTH => {
            line(out, "    match:");
            for (name, value) in values {
                line(out, &format!("      {name}: {}", flow(value)));
            }
        }
        value => line(out, &format!("    {field}: {}", flow(value))),
    }
}

/// Writes a comment, wrapped to the maximum width.
fn comment(out: &mut String, indent: &str, text: &str) {
    let start = format!("{indent}#");
    let mut current = start.clone();
    for word in escape(text).split_whitespace() {
        let width = current.chars().count().saturating_add(word.chars().count());
        if width >= WIDTH && current.len() > start.len() {
            line(out, &current);
            current.clone_from(&start);
        }
        current.push(' ');
        current.push_str(word);
    }
    line(out, &current);
}

/// Formats a value in YAML flow style.
fn flow(value: &Value) -> String {
    match value {
        Value::String(text) => scalar(text),
        Value::Array(values) if values.is_empty() => "[]".to_owned(),
        Value::Array(values) => {
            let values: Vec<String> = values.iter().map(flow).collect();
            format!("[ {} ]", values.join(", "))
        }
        Value::Object(fields) => {
            let fields = fields
                .iter()
                .map(|(name, value)| format!("{}: {}", scalar(name), flow(value)));
            let fields: Vec<String> = fields.collect();
            format!("{{ {} }}", fields.join(", "))
        }
        other => other.to_string(),
    }
}

/// Formats a string. It is not quoted if every YAML reader would read it as a string.
fn scalar(text: &str) -> String {
    let is_rate = text.starts_with(|c: char| c.is_ascii_digit())
        && (text.contains('/') || text.ends_with(|c: char| c.is_ascii_alphabetic()))
        && text
            .chars()
            .all(|c| c.is_ascii_digit() || c.is_ascii_lowercase() || c == '/');
    let is_word = text.starts_with(|c: char| c.is_ascii_alphabetic())
        && text
            .chars()
            .all(|c| c.is_ascii_alphanumeric() || "_-./".contains(c));
    let is_path = text.len() > 1
        && text.starts_with('/')
        && text
            .chars()
            .all(|c| c.is_ascii_alphanumeric() || "_-./".contains(c));
    let is_reserved = matches!(
        text.to_ascii_lowercase().as_str(),
        "true" | "false" | "null" | "yes" | "no" | "on" | "off" | "y" | "n"
    );
    // A number may have an exponent: `1e5` is a number, but `1e5s` is not.
    let is_number = text.parse::<f64>().is_ok() || text.starts_with("0x") || text.starts_with("0o");
    // `off` in `mode: off` is also quoted, because Envoy would read it as false.
    if (is_rate || is_word || is_path) && !is_reserved && !is_number {
        text.to_owned()
    } else {
        quoted(text)
    }
}

/// Returns a string in quotes. In single quotes, a backslash needs no escape.
fn quoted(text: &str) -> String {
    if text.contains('\\') && !text.contains('\'') && !text.chars().any(is_unsafe) {
        return format!("'{text}'");
    }
    let mut out = String::from("\"");
    for c in text.chars() {
        match c {
            '"' => out.push_str("\\\""),
            '\\' => out.push_str("\\\\"),
            c if is_unsafe(c) => out.extend(format!("\\U{:08X}", u32::from(c)).chars()),
            c => out.push(c),
        }
    }
    out.push('"');
    out
}
