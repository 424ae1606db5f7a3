//! Generates Markdown tables of the rule file fields from the grammar.

use alloc::format;
use alloc::string::{String, ToString};
use alloc::vec::Vec;

use super::grammar::{Field, Form, Object, alias_of};
use super::limits;
use super::rules::NEEDED;
use super::schema::{default_value, defined};

const HEAD: &str = "| field | values | default | meaning |\n| --- | --- | --- | --- |\n";

/// Returns Markdown tables of the fields of a rule, of the enclosing file, of the admin role's
/// configuration, and of each algorithm.
pub fn fields_markdown() -> String {
    let mut out = String::new();
    for (title, name) in [
        ("A rule", "rule"),
        ("The file around the rules", "rule_file"),
        ("The admin role", "admin_file"),
    ] {
        out.extend([format!("## {title}\n\n{HEAD}")]);
        if let Some(Form::Object(object)) = defined(name) {
            rows(object, "", &[name], &mut out);
        }
        out.push('\n');
    }
    out.push_str("## Limits\n\nA limit has a `name`, by default the name of its algorithm, an `algorithm` and:\n");
    for (name, doc) in limits::docs() {
        let alias = alias_of(name).map(|alias| format!(" Alias: `{alias}`."));
        let alias = alias.unwrap_or_default();
        out.extend([format!("\n### {name}\n\n{doc}{alias}\n\n{HEAD}")]);
        for field in limits::fields(name) {
            row(field, field.name, &mut out);
            below(field.form, field.name, &[], &mut out);
        }
    }
    out.push_str("\n### Numbers that come with each request\n");
    for (place, name) in [
        ("capacity", "number_from_metadata"),
        ("rate", "rate_from_metadata"),
    ] {
        out.extend([format!("\nIn place of a `{place}`:\n\n{HEAD}")]);
        if let Some(Form::Object(object)) = defined(name) {
            rows(object, "", &["number_from_metadata"], &mut out);
        }
    }
    out
}

/// Adds a row for each field of an object, and for its nested fields.
fn rows(object: &Object, place: &str, within: &[&str], out: &mut String) {
    for field in object.fields {
        let mut name = String::from(place);
        name.push_str(field.name);
        row(field, &name, out);
        below(field.form, &name, within, out);
    }
}

/// Adds rows for the fields nested in a form, unless they are already listed elsewhere.
fn below(form: Form, place: &str, within: &[&str], out: &mut String) {
    match form {
        // `not` contains a match, whose fields are already listed. Limits and rules have their own
        // tables, and `defaults` has the fields of a rule.
        Form::Defined(name) if within.contains(&name) => {}
        Form::Defined("limits" | "rule" | "defaults") => {}
        Form::Defined(name) => {
            let within = [within, &[name]].concat();
            if let Some(form) = defined(name) {
                below(form, place, &within, out);
            }
        }
        Form::Object(object) => rows(object, &format!("{place}."), within, out),
        Form::List(list) => below(list.item.form, &format!("{place}[]"), within, out),
        Form::Map(names) => below(names.value, &format!("{place}.KEY"), within, out),
        Form::Or(any) | Form::OneOf(any) => {
            for one in any {
                below(one.form, place, within, out);
            }
        }
        _ => {}
    }
}

fn row(field: &Field, place: &str, out: &mut String) {
    let mut values = values(field.form);
    if let Some(Form::Object(object)) = field.sourced.and_then(defined) {
        let names = object.names.join("`, `");
        values.extend([format!(", or an object with `{names}`")]);
    }
    let default = match field.default {
        None => String::from("required"),
        Some("") if NEEDED.iter().any(|(name, _)| *name == place) => String::from("required"),
        Some("") => String::from("none"),
        Some(text) if default_value(field.form, text).is_some() => code(text),
        Some(text) => text.to_string(),
    };
    let alias = alias_of(field.name).map(|alias| format!(" Alias: `{alias}`."));
    let meaning = [field.doc.text(), &alias.unwrap_or_default()].concat();
    let cells = [format!("`{place}`"), values, default, meaning];
    let cells = cells.map(|cell| cell.replace('|', "\\|"));
    out.extend([format!("| {} |\n", cells.join(" | "))]);
}

/// Formats a string as inline code in Markdown. A string that contains a backtick is enclosed in
/// double backticks.
fn code(text: &str) -> String {
    if text.contains('`') {
        format!("`` {text} ``")
    } else {
        format!("`{text}`")
    }
}

/// Describes the allowed values of a form.
fn values(form: Form) -> String {
    match form {
        Form::Integer(least, most) => format!("a whole number, {least} to {most}"),
        Form::Decimal(least, most) => format!("{least} to {most}, at most 3 decimals"),
        Form::Rate => String::from("a rate: `30/60s`"),
        Form::Duration([least, most]) => format!("a duration, `{least}` to `{most}`"),
        Form::Word(words) => {
            let aliases = words.iter().filter_map(|word| alias_of(word));
            let words: Vec<String> = words
                .iter()
                .map(|word| code(word))
                .chain(aliases.map(|alias| format!("`{alias}` (alias)")))
                .collect();
            words.join(", ")
        }
        Form::Boolean => String::from("`true`, `false`"),
        Form::Only(number) => format!("`{number}`"),
        Form::Text(text) if text.some => format!("a text of up to {} bytes", text.longest),
        Form::Text(text) => {
            let (pattern, longest) = (code(text.pattern.text()), text.longest);
            match longest {
                0 => format!("a text like {pattern}"),
                _ => format!("a text of up to {longest} bytes like {pattern}"),
            }
        }
        Form::List(list) => {
            let item = values(list.item.form);
            match (list.fewest, list.most) {
                (_, 0) => format!("a list; each: {item}"),
                (0, most) => format!("a list of up to {most}; each: {item}"),
                (fewest, most) => format!("a list of {fewest} to {most}; each: {item}"),
            }
        }
        Form::Map(names) => {
            let value = values(names.value);
            format!("an object of up to {} names; each: {value}", names.most)
        }
        Form::Object(object) if !object.choice.is_empty() => {
            let names = object.choice.join("`, `");
            format!("an object with exactly one of `{names}`")
        }
        Form::Defined(name) => match defined(name) {
            Some(form @ (Form::List(_) | Form::Map(_))) => values(form),
            Some(Form::Object(object)) if !object.choice.is_empty() => values(Form::Object(object)),
            _ => String::from("an object"),
        },
        Form::Object(_) => String::from("an object"),
        Form::Or(any) | Form::OneOf(any) => {
            let mut each: Vec<String> = Vec::new();
            for one in any.iter().filter(|one| one.form != Form::Null) {
                let words = values(one.form);
                if !each.contains(&words) {
                    each.push(words);
                }
            }
            each.join(", or ")
        }
        Form::Null => String::new(),
    }
}
