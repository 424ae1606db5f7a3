//! `loudou set`, `unset` and `reset`: changes, with what was before and what is after.

use std::path::Path;

use anyhow::{Context as _, Result, bail};
use loudou_api::{EditAnswer, RuleView};
use loudou_limiter::{Carry, Nanos};
use loudou_rules::config::{self, Problem};
use serde_json::{Map, Value, json};

use super::args::{EditArgs, Format, ResetArgs, SetArgs, UnsetArgs};
use super::context::Context;
use super::report::Report;
use super::world::{Usage, json as print_json};
use super::{Outcome, buckets, check, rules};
use crate::client::{ClientError, DropRequest, EditRequest};
use crate::limit_edit::{self, full_later};
use crate::text::escape;

const BEFORE_AFTER: [&str; 2] = ["BEFORE", "AFTER"];

pub(super) fn set(context: &mut Context<'_, '_>, args: &SetArgs) -> Result<Outcome> {
    context.no_csv()?;
    if !args.dry_run {
        context.may_change()?;
    }
    let client = context.client()?;
    let rule = client.rule(&args.rule)?;
    let Some(body) = body(context, args, &rule)? else {
        return Ok(Outcome::Failed);
    };
    let mut request = EditRequest {
        body,
        if_match: rule.etag(),
        carry: args.edit.carry.0,
        expires_after: args.expires_after,
        reason: args.edit.ask.reason.clone(),
        dry_run: true,
    };
    let asks = context.asks(&args.edit.ask) && !args.dry_run;
    if asks {
        match client.put_rule(&args.rule, &request) {
            Ok(preview) => {
                let after = &preview.after.rule;
                preview_of(context, &preview.before, after, args.edit.carry.0)?;
            }
            Err(error) => return stale(context, error, &rule),
        }
        if !context.confirmed(&format!("Change {}?", escape(&args.rule)))? {
            context.note("nothing was changed")?;
            return Ok(Outcome::Failed);
        }
    }
    request.dry_run = args.dry_run;
    match client.put_rule(&args.rule, &request) {
        Ok(answer) => {
            print(context, &answer, (args.expires_after, request.carry), asks)?;
            let was_for_a_time = rule.edit.is_some_and(|edit| edit.expires_at_ns.is_some());
            if was_for_a_time && args.expires_after.is_none() {
                let advice =
                    "the earlier edit was to run out by itself; this one is not (see --for)";
                context.note(advice)?;
            }
            Ok(Outcome::Done)
        }
        Err(error) => stale(context, error, &rule),
    }
}

pub(super) fn unset(context: &mut Context<'_, '_>, args: &UnsetArgs) -> Result<Outcome> {
    let UnsetArgs { rule: name, edit } = args;
    let EditArgs { carry, ask } = edit;
    context.no_csv()?;
    context.may_change()?;
    let client = context.client()?;
    let rule = client.rule(name)?;
    let asks = context.asks(ask);
    if asks {
        preview_of(context, &rule.rule, &rule.base, carry.0)?;
        if !context.confirmed(&format!("Drop the edit of {}?", escape(name)))? {
            context.note("nothing was changed")?;
            return Ok(Outcome::Failed);
        }
    }
    let request = DropRequest {
        if_match: rule.etag(),
        carry: carry.0,
        reason: ask.reason.clone(),
    };
    match client.delete_rule(name, &request) {
        Ok(answer) => {
            print(context, &answer, (None, carry.0), asks)?;
            Ok(Outcome::Done)
        }
        Err(error) => stale(context, error, &rule),
    }
}

pub(super) fn reset(context: &mut Context<'_, '_>, args: &ResetArgs) -> Result<Outcome> {
    context.no_csv()?;
    context.may_change()?;
    let client = context.client()?;
    let (rule, key) = (escape(&args.rule), escape(&args.key));
    if context.asks(&args.ask) && !context.confirmed(&format!("Reset {key} of {rule}?"))? {
        context.note("nothing was changed")?;
        return Ok(Outcome::Failed);
    }
    let answer = client.reset(&args.rule, &args.key, &args.ask.reason)?;
    let format = context.format();
    if format != Format::Table {
        print_json(context.io.out, format, &answer)?;
        return Ok(Outcome::Done);
    }
    if !answer.existed {
        writeln!(
            context.io.out,
            "{key} of {rule} has no bucket: it is as good as new"
        )?;
        return Ok(Outcome::Done);
    }
    writeln!(
        context.io.out,
        "{key} of {rule} is as good as new; it was:\n"
    )?;
    if let Some(before) = &answer.before {
        buckets::one(before, None, context.style, context.io.out)?;
    }
    Ok(Outcome::Done)
}

/// The body of the edit, or `None` when it has problems, which were printed.
fn body(context: &mut Context<'_, '_>, args: &SetArgs, rule: &RuleView) -> Result<Option<Value>> {
    let mut body = Map::new();
    let mut report = None;
    if let Some(file) = &args.file {
        let read = from_file(context, file)?;
        let Some(document) = &read.document else {
            return problems(context, read, &[]);
        };
        match &document.value {
            // A list alone is the limits.
            Value::Array(_) => {
                body.insert("limits".to_owned(), document.value.clone());
            }
            Value::Object(fields) => body.clone_from(fields),
            _ => bail!(Usage("the file is neither a list nor an object".to_owned())),
        }
        report = Some(read);
    } else {
        let changes = changes(args);
        if !changes.is_empty() {
            body.insert(
                "limits".to_owned(),
                changed_limits(args.limit.as_deref(), &changes, &rule.rule)?,
            );
        } else if args.limit.is_some() {
            bail!(Usage(
                "--limit says which; add --capacity, --rate or FIELD=VALUE".to_owned()
            ));
        }
    }
    if let Some(mode) = args.mode {
        body.insert("mode".to_owned(), json!(mode.name()));
    }
    let body = Value::Object(body);
    match config::parse_edit(&body) {
        Ok(_) if report.as_ref().is_none_or(|read| !read.has_errors()) => Ok(Some(body)),
        Ok(_) => problems(context, report.unwrap_or_default(), &[]),
        Err(wrong) => problems(context, report.unwrap_or_default(), &wrong),
    }
}

pub(super) fn problems(
    context: &mut Context<'_, '_>,
    mut read: Report,
    wrong: &[Problem],
) -> Result<Option<Value>> {
    read.add(wrong);
    let text = read.lines(context.style);
    context.note(text.trim_end())?;
    Ok(None)
}

pub(super) fn from_file(context: &mut Context<'_, '_>, file: &Path) -> Result<Report> {
    let bytes = check::bytes_of(context, file)?;
    Ok(Report::of_text(&check::name_of(file), &bytes))
}

/// The fields to change, and what to.
fn changes(args: &SetArgs) -> Vec<(&str, String)> {
    let capacity = args.capacity.map(|n| ("capacity", n.to_string()));
    let rate = args.rate.map(|rate| ("rate", rate.to_string()));
    let others = args.fields.iter();
    let others = others.map(|change| (change.field.as_str(), change.value.trim().to_owned()));
    capacity.into_iter().chain(rate).chain(others).collect()
}

/// The rule's limits with the fields of the chosen one changed.
pub(super) fn changed_limits(
    wanted: Option<&str>,
    changes: &[(&str, String)],
    rule: &Value,
) -> Result<Value> {
    let limits = rule.get("limits").and_then(Value::as_array);
    let mut limits = limits
        .cloned()
        .context("the rule as answered has no limits")?;
    let name_of = |limit: &Value| {
        let name = limit.get("name").and_then(Value::as_str);
        name.unwrap_or_default().to_owned()
    };
    let names: Vec<String> = limits.iter().map(name_of).collect();
    let listed = escape(&names.join(", ")).into_owned();
    let wanted = match (wanted, names.as_slice()) {
        (Some(name), _) => name,
        (None, [only]) => only,
        (None, _) => {
            bail!(Usage(format!(
                "the rule has several limits; choose one with --limit: {listed}"
            )))
        }
    };
    let limit = limits.iter_mut().find(|limit| name_of(limit) == *wanted);
    let Some(Value::Object(fields)) = limit else {
        let name = escape(wanted);
        bail!(Usage(format!(
            "the rule has no limit `{name}`; it has {listed}"
        )));
    };
    change(fields, changes)?;
    Ok(Value::Array(limits))
}

/// Changes a limit, by the core's table of its algorithm's fields.
fn change(limit: &mut Map<String, Value>, changes: &[(&str, String)]) -> Result<()> {
    let algorithm = limit.get("algorithm").and_then(Value::as_str);
    let algorithm = algorithm.unwrap_or_default().to_owned();
    let names: Vec<&str> = config::limit_fields(&algorithm)
        .iter()
        .map(|f| f.name)
        .collect();
    if names.is_empty() {
        let name = escape(&algorithm);
        bail!(Usage(format!("this loudou is too old to edit {name}")));
    }
    // What only follows from other numbers goes on to do so.
    *limit = config::spoken_value(limit);
    for (index, (name, value)) in changes.iter().enumerate() {
        let Some(field) = limit_edit::field(&algorithm, name) else {
            let (name, names) = (escape(name), names.join(", "));
            bail!(Usage(format!(
                "{algorithm} has no field `{name}`; it has {names}"
            )));
        };
        if changes
            .iter()
            .take(index)
            .any(|(earlier, _)| earlier == name)
        {
            bail!(Usage(format!("{name} is given twice")));
        }
        limit_edit::put(limit, field, value);
    }
    let set: Vec<&str> = changes.iter().map(|(name, _)| *name).collect();
    limit_edit::settle(limit, &set);
    Ok(())
}

/// Prints what an edit did, or would do; without the numbers if they were `seen` before.
fn print(
    context: &mut Context<'_, '_>,
    answer: &EditAnswer,
    (expires_after, carry): (Option<Nanos>, Carry),
    seen: bool,
) -> Result<()> {
    let format = context.format();
    if format != Format::Table {
        print_json(context.io.out, format, answer)?;
        return Ok(());
    }
    let change = if answer.change.is_empty() {
        "no difference"
    } else {
        &answer.change
    };
    let (name, change) = (
        escape(&answer.after.name),
        context.style.marks(&escape(change)),
    );
    writeln!(context.io.out, "{name}: {change}")?;
    if !seen {
        let table = rules::differences(&answer.before, &answer.after.rule, BEFORE_AFTER);
        writeln!(context.io.out)?;
        table.print(context.io.out, context.style)?;
        writeln!(context.io.out)?;
        for line in full_later(&answer.before, &answer.after.rule, carry) {
            writeln!(context.io.out, "{line}")?;
        }
    }
    if answer.dry_run {
        writeln!(context.io.out, "a dry run: nothing was changed")?;
    } else {
        let span = expires_after.map(|span| format!(", for {span}"));
        let (generation, span) = (answer.after.generation, span.unwrap_or_default());
        writeln!(
            context.io.out,
            "in force with generation {generation}{span}"
        )?;
    }
    Ok(())
}

/// Shows what is about to change to whoever is asked, beside the output.
fn preview_of(
    context: &mut Context<'_, '_>,
    before: &Value,
    after: &Value,
    carry: Carry,
) -> Result<()> {
    let mut text = Vec::new();
    let style = context.style;
    rules::differences(before, after, BEFORE_AFTER).print(&mut text, style)?;
    context.note(&String::from_utf8_lossy(&text))?;
    for line in full_later(before, after, carry) {
        context.note(&line)?;
    }
    Ok(())
}

/// When somebody else or a restart was faster, shows what the rule is now; passes other errors on.
pub(super) fn stale(
    context: &mut Context<'_, '_>,
    error: ClientError,
    seen: &RuleView,
) -> Result<Outcome> {
    let Some(current) = error.current().filter(|_| error.status() == Some(412)) else {
        return Err(error.into());
    };
    let mut text = Vec::new();
    let style = context.style;
    rules::one(current, None, style, &mut text)?;
    let text = String::from_utf8_lossy(&text).into_owned();
    let happened = if current.instance == seen.instance {
        "somebody else changed the rule"
    } else {
        "Envoy restarted, without the edits that it had,"
    };
    context.note(&format!(
        "loudou: {happened} in the meantime; nothing was changed. It is now:\n\n{text}\nrun the command \
         again to change that"
    ))?;
    Ok(Outcome::Failed)
}
