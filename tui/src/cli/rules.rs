//! Implements `loudou rules`, which prints the rules in effect, and their edits.

use std::io::{self, Write};

use anyhow::Result;
use clap::Args;
use loudou_api::{EditView, RuleView, Rules};
use loudou_rules::config::{parse_rule, short, short_with_algorithm};
use serde_json::{Map, Value};

use super::complete;
use super::context::Context;
use super::options::Format;
use super::watch::{self, WatchArgs};
use super::world::{json, json_list};
use loudou_print::style::Style;
use loudou_print::table::{Paint, Set, TextTable, csv};
use loudou_words::meaning::short::{gives, line, penalty};
use loudou_words::meaning::{self, key_in_json};
use loudou_words::text::{date, escape, humanise};

const RULES_EXAMPLES: &str = "\
Examples:
  loudou rules
  loudou rules per-user                           in full, including its edit";

#[derive(Debug, Args)]
#[command(before_long_help = RULES_EXAMPLES)]
pub(crate) struct RulesArgs {
    /// Show only this rule, in full
    #[arg(add = complete::rules())]
    pub(crate) rule: Option<String>,
    #[command(flatten)]
    pub(super) watch: WatchArgs,
}

pub(super) fn run(context: &mut Context<'_, '_>, args: &RulesArgs) -> Result<()> {
    watch::run(context, &args.watch, |context| once(context, args))
}

fn once(context: &mut Context<'_, '_>, args: &RulesArgs) -> Result<()> {
    let client = context.client()?;
    let format = context.format();
    let Some(name) = &args.rule else {
        let rules = client.rules()?;
        print(&rules, format, context.style, context.io.out)?;
        return Ok(());
    };
    let rule = client.rule(name)?;
    match format {
        Format::Table => {
            let now = client.status().ok().map(|status| status.now_ns);
            one(&rule, now, context.style, context.io.out)?;
        }
        Format::Json | Format::Jsonl => json(context.io.out, format, &rule)?,
        Format::Csv => lines(std::slice::from_ref(&rule), context.io.out)?,
    }
    Ok(())
}

pub(super) fn print(
    rules: &Rules,
    format: Format,
    style: Style,
    out: &mut dyn Write,
) -> io::Result<()> {
    match format {
        Format::Table => {
            table(rules).print(out, style)?;
            let totals = rules.rules.iter().map(|rule| &rule.totals);
            super::status::upstreams(totals, rules.now_ns, style, out)
        }
        Format::Json | Format::Jsonl => json_list(out, format, rules, &rules.rules),
        Format::Csv => lines(&rules.rules, out),
    }
}

fn table(rules: &Rules) -> TextTable {
    let mut table = TextTable::new(&[
        ("RULE", Set::Left),
        ("MODE", Set::Left),
        ("KEY", Set::Shrink),
        ("LIMITS", Set::Shrink),
        ("ADMITTED", Set::Right),
        ("REFUSED", Set::Right),
        ("SHADOW", Set::Right),
        ("EDIT", Set::Shrink),
    ]);
    for rule in &rules.rules {
        table.row(vec![
            rule.name.as_str().into(),
            rule.totals.mode.as_str().into(),
            key_in_json(&rule.rule).into(),
            line(&rule.rule).into(),
            rule.totals.admitted.into(),
            rule.totals.refused.into(),
            rule.totals.shadow_refused.into(),
            edits(rule, rules.now_ns).into(),
        ]);
    }
    table
}

/// Describes the edit of a rule and the number of its edited overrides: `by ops, 18m left; 2
/// overrides`.
fn edits(rule: &RuleView, now_ns: u64) -> Option<String> {
    let edit = rule.edit.as_ref();
    let edit = edit.map(|edit| edit_words(edit, Some(now_ns)));
    let overrides = match rule.overrides.len() {
        0 => None,
        1 => Some("1 override".to_owned()),
        count => Some(format!("{count} overrides")),
    };
    let words: Vec<String> = edit.into_iter().chain(overrides).collect();
    (!words.is_empty()).then(|| words.join("; "))
}

/// Describes an edit briefly: `by ops, 18m left`.
fn edit_words(edit: &EditView, now_ns: Option<u64>) -> String {
    let by = &edit.by;
    match (edit.expires_at_ns, now_ns) {
        (None, _) => format!("by {by}"),
        (Some(_), None) => format!("by {by}, temporary"),
        (Some(at), Some(now)) => format!("by {by}, {} left", humanise(at.saturating_sub(now))),
    }
}

/// Prints one rule in full.
pub(super) fn one(
    rule: &RuleView,
    now_ns: Option<u64>,
    style: Style,
    out: &mut dyn Write,
) -> io::Result<()> {
    let totals = &rule.totals;
    let mut lines = vec![
        ("rule", rule.name.clone()),
        ("generation", rule.generation.to_string()),
        ("mode", totals.mode.clone()),
        ("match", matches(&rule.rule)),
        ("key", key_in_json(&rule.rule)),
        (
            "so far",
            format!(
                "{} admitted, {} held, {} refused, {} refused in shadow, {} skipped, {} errors",
                totals.admitted,
                totals.held,
                totals.refused,
                totals.shadow_refused,
                totals.skipped,
                totals.errors
            ),
        ),
    ];
    let upstreams = now_ns.map(|now| meaning::upstreams(totals, now));
    let upstreams = upstreams.into_iter().flatten();
    lines.extend(upstreams.map(|line| ("now", line)));
    if let Some(shadows) = rule.rule.get("shadows").and_then(Value::as_str) {
        lines.push(("shadows", shadows.to_owned()));
    }
    lines.extend(
        rule.rule
            .get("penalty")
            .and_then(penalty)
            .map(|penalty| ("penalty", penalty)),
    );
    let edit = rule.edit.as_ref();
    lines.extend(edit.map(|edit| ("edit", edit_in_full(edit, now_ns))));
    for (name, value) in lines {
        let name = Paint::Heading.on(&format!("{name:12}"), style);
        let value = if value.is_empty() { "-" } else { &value };
        writeln!(out, "{name}{}", escape(value))?;
    }
    writeln!(out)?;
    differences(&rule.base, &rule.rule, ["BASE", "IN FORCE"]).print(out, style)?;
    overrides(rule, now_ns, style, out)
}

/// Describes the requests that match a rule. If this version cannot parse the rule, returns the
/// rule's `match` as JSON.
fn matches(rule: &Value) -> String {
    match parse_rule(rule) {
        Ok(rule) => meaning::requests(&rule.matches),
        Err(_) => rule.get("match").map(Value::to_string).unwrap_or_default(),
    }
}

/// Prints the overrides of a rule, with their edits.
fn overrides(
    rule: &RuleView,
    now_ns: Option<u64>,
    style: Style,
    out: &mut dyn Write,
) -> io::Result<()> {
    let overrides = rule.rule.get("overrides").and_then(Value::as_object);
    let Some(overrides) = overrides.filter(|overrides| !overrides.is_empty()) else {
        return Ok(());
    };
    writeln!(out)?;
    let mut table = TextTable::new(&[
        ("OVERRIDE OF", Set::Left),
        ("GIVES", Set::Left),
        ("EDIT", Set::Left),
    ]);
    for (key, value) in overrides {
        let edited = rule.overrides.iter().find(|edited| edited.key == *key);
        let edited = edited.map(|edited| edit_in_full(&edited.edit, now_ns));
        table.row(vec![
            key.as_str().into(),
            gives(value).into(),
            edited.into(),
        ]);
    }
    table.print(out, style)
}

/// Describes an edit in full: `by ops, 18m left, made 2026-11-21 14:03:07Z: launch day`.
fn edit_in_full(edit: &EditView, now_ns: Option<u64>) -> String {
    let reason = if edit.reason.is_empty() {
        "no reason given"
    } else {
        &edit.reason
    };
    let (edited, at) = (edit_words(edit, now_ns), date(edit.at_unix_ms));
    format!("{edited}, made {at}: {reason}")
}

/// Fields of a limit.
type Fields = Map<String, Value>;

/// Returns the name and the fields of each limit of a rule.
fn limits(rule: &Value) -> Vec<(&str, &Fields)> {
    let limits = rule.get("limits").and_then(Value::as_array);
    let limits = limits.into_iter().flatten().filter_map(Value::as_object);
    let named = limits.map(|limit| (word(limit, "name"), limit));
    named.collect()
}

fn word<'a>(limit: &'a Fields, field: &str) -> &'a str {
    limit.get(field).and_then(Value::as_str).unwrap_or_default()
}

fn find<'a>(limits: &[(&str, &'a Fields)], name: &str) -> Option<&'a Fields> {
    let found = limits.iter().find(|(other, _)| *other == name);
    found.map(|(_, limit)| *limit)
}

/// Returns a table that compares the limits, mode and penalty of two versions of a rule.
pub(super) fn differences(before: &Value, after: &Value, names: [&'static str; 2]) -> TextTable {
    let [first, second] = names;
    let mut table = TextTable::new(&[
        ("LIMIT", Set::Left),
        (first, Set::Left),
        (second, Set::Left),
    ]);
    let (old, new) = (limits(before), limits(after));
    let gone = old.iter().filter(|(name, _)| find(&new, name).is_none());
    for (name, _) in new.iter().chain(gone) {
        let (was, is) = (find(&old, name), find(&new, name));
        let words = match (was, is) {
            (Some(was), Some(is)) if word(was, "algorithm") != word(is, "algorithm") => {
                short_with_algorithm
            }
            _ => short,
        };
        table.row(vec![
            (*name).into(),
            was.map(words).into(),
            is.map(words).into(),
        ]);
    }
    let mode = |rule: &Value| {
        let mode = rule.get("mode").and_then(Value::as_str);
        mode.map(str::to_owned)
    };
    if mode(before) != mode(after) {
        table.row(vec![
            "(mode)".into(),
            mode(before).into(),
            mode(after).into(),
        ]);
    }
    let penalty = |rule: &Value| rule.get("penalty").and_then(penalty);
    if penalty(before) != penalty(after) {
        let (was, is) = (penalty(before), penalty(after));
        table.row(vec!["(penalty)".into(), was.into(), is.into()]);
    }
    table
}

fn lines(rules: &[RuleView], out: &mut dyn Write) -> io::Result<()> {
    let heading = "name,mode,generation,key,limits,admitted,refused,shadow_refused,skipped,errors,\
                   held,edited,edited_by,edit_expires_at_ns";
    csv(out, heading.split(','))?;
    for rule in rules {
        let (totals, edit) = (&rule.totals, rule.edit.as_ref());
        let expires = edit.and_then(|edit| edit.expires_at_ns);
        let record = [
            rule.name.clone(),
            totals.mode.clone(),
            rule.generation.to_string(),
            key_in_json(&rule.rule),
            line(&rule.rule),
            totals.admitted.to_string(),
            totals.refused.to_string(),
            totals.shadow_refused.to_string(),
            totals.skipped.to_string(),
            totals.errors.to_string(),
            totals.held.to_string(),
            totals.edited.to_string(),
            edit.map(|edit| edit.by.clone()).unwrap_or_default(),
            expires.map(|at| at.to_string()).unwrap_or_default(),
        ];
        csv(out, record.iter().map(String::as_str))?;
    }
    Ok(())
}
