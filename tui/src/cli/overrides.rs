//! `loudou override`: other limits for one key.

use std::path::PathBuf;

use anyhow::{Result, bail};
use clap::Args;
use loudou_api::{EditAnswer, RuleView};
use loudou_limiter::Nanos;
use loudou_rules::config;
use serde_json::{Map, Value, json};

use super::Outcome;
use super::args::{AskArgs, FieldValue, Format, field_value, span};
use super::context::Context;
use super::edit::{changed_limits, from_file, problems, stale};
use super::report::Report;
use super::world::{Usage, json as print_json};
use crate::client::OverrideRequest;
use crate::text::escape;

#[derive(Debug, Args)]
#[command(
    override_usage = "loudou override [OPTIONS] <RULE> <KEY> <scale=N|unlimited|banned|FIELD=VALUE...>\n       \
                            loudou override [OPTIONS] <RULE> <KEY> --limits <FILE>\n       \
                            loudou override [OPTIONS] <RULE> <KEY> --remove"
)]
#[command(group = clap::ArgGroup::new("gives").required(true).multiple(false)
    .args(["what", "limits", "remove"]))]
pub(crate) struct OverrideArgs {
    /// The rule
    pub(crate) rule: String,
    /// The key, as `loudou buckets` prints it, or the beginning of keys and *
    #[arg(allow_hyphen_values = true)]
    pub(crate) key: String,
    /// scale=10 (the rule's limits, that many times as large), unlimited, banned, or fields of the
    /// limit that are to differ: capacity=100 rate=5/s
    #[arg(value_name = "WHAT")]
    pub(crate) what: Vec<String>,
    /// Which limit the fields are of, when the rule has several
    #[arg(long, value_name = "NAME", conflicts_with_all = ["limits", "remove"])]
    pub(crate) limit: Option<String>,
    /// All limits from a file, JSON or YAML: a list, or an object with `limits`; - for standard
    /// input
    #[arg(long, value_name = "FILE")]
    pub(crate) limits: Option<PathBuf>,
    /// Drop what was edited: back to what the rule says of the key
    #[arg(long, conflicts_with = "expires_after")]
    pub(crate) remove: bool,
    /// Take it back by itself after this time, such as 30m
    #[arg(long = "for", value_name = "TIME", value_parser = span)]
    pub(crate) expires_after: Option<Nanos>,
    #[command(flatten)]
    pub(crate) ask: AskArgs,
    /// Say what would change, and change nothing
    #[arg(long)]
    pub(crate) dry_run: bool,
}

pub(super) fn run(context: &mut Context<'_, '_>, args: &OverrideArgs) -> Result<Outcome> {
    context.no_csv()?;
    if !args.dry_run {
        context.may_change()?;
    }
    let client = context.client()?;
    let rule = client.rule(&args.rule)?;
    let body = if args.remove {
        None
    } else {
        let Some(body) = body(context, args, &rule)? else {
            return Ok(Outcome::Failed);
        };
        Some(body)
    };
    let mut request = OverrideRequest {
        body,
        if_match: rule.etag(),
        expires_after: args.expires_after,
        reason: args.ask.reason.clone(),
        dry_run: true,
    };
    if context.asks(&args.ask) && !args.dry_run {
        match client.set_override(&args.rule, &args.key, &request) {
            Ok(preview) => {
                let change = change(context, &preview);
                context.note(&change)?;
            }
            Err(error) => return stale(context, error, &rule),
        }
        let (rule, key) = (escape(&args.rule), escape(&args.key));
        if !context.confirmed(&format!("Change what {key} gets of {rule}?"))? {
            context.note("nothing was changed")?;
            return Ok(Outcome::Failed);
        }
    }
    request.dry_run = args.dry_run;
    match client.set_override(&args.rule, &args.key, &request) {
        Ok(answer) => print(context, args, &answer),
        Err(error) => stale(context, error, &rule),
    }
}

/// What the key is to get, or `None` when that has problems, which were printed.
fn body(
    context: &mut Context<'_, '_>,
    args: &OverrideArgs,
    rule: &RuleView,
) -> Result<Option<Value>> {
    let mut report = Report::default();
    let body = if let Some(file) = &args.limits {
        report = from_file(context, file)?;
        let Some(document) = &report.document else {
            return problems(context, report, &[]).map(|_: Option<Value>| None);
        };
        match &document.value {
            Value::Array(_) => json!({ "limits": document.value }),
            fields => fields.clone(),
        }
    } else {
        given(args, rule)?
    };
    let limits = rule.rule.get("limits");
    let limits = limits.and_then(|limits| config::parse_limits(limits).ok());
    match config::parse_override(&args.key, &body, limits.as_ref()) {
        Ok(_) if !report.has_errors() => Ok(Some(body)),
        Ok(_) => problems(context, report, &[]),
        Err(wrong) => problems(context, report, &wrong),
    }
}

/// What the words of the command line say.
fn given(args: &OverrideArgs, rule: &RuleView) -> Result<Value> {
    let words: Vec<&str> = args.what.iter().map(String::as_str).collect();
    match words.as_slice() {
        ["unlimited" | "banned"] if args.limit.is_none() => Ok(json!(args.what.concat())),
        [word] if word.starts_with("scale=") && args.limit.is_none() => {
            let text = word.trim_start_matches("scale=");
            let scale: Value = serde_json::from_str(text).unwrap_or_else(|_| json!(text));
            Ok(json!({ "scale": scale }))
        }
        words => {
            let fields: Result<Vec<FieldValue>, String> =
                words.iter().map(|word| field_value(word)).collect();
            let Ok(fields) = fields else {
                let forms = "write scale=10, unlimited, banned, or fields of a limit: capacity=100";
                bail!(Usage(forms.to_owned()));
            };
            let changes: Vec<(&str, String)> = fields
                .iter()
                .map(|field| (field.field.as_str(), field.value.trim().to_owned()))
                .collect();
            let limits = limits_of(&args.key, &rule.rule);
            let limits = changed_limits(args.limit.as_deref(), &changes, &limits)?;
            Ok(json!({ "limits": limits }))
        }
    }
}

/// The limits that the fields change: the key's own, or the rule's. As an object with `limits`.
fn limits_of(key: &str, rule: &Value) -> Value {
    let own = rule.get("overrides").and_then(|all| all.get(key));
    let limits = own.and_then(|own| own.get("limits"));
    let limits = limits.or_else(|| rule.get("limits")).cloned();
    Value::Object(Map::from_iter([(
        "limits".to_owned(),
        limits.unwrap_or_default(),
    )]))
}

fn change(context: &Context<'_, '_>, answer: &EditAnswer) -> String {
    let change = if answer.change.is_empty() {
        "no difference"
    } else {
        &answer.change
    };
    let (name, change) = (escape(&answer.after.name), escape(change));
    format!("{name}: {}", context.style.marks(&change))
}

fn print(
    context: &mut Context<'_, '_>,
    args: &OverrideArgs,
    answer: &EditAnswer,
) -> Result<Outcome> {
    let format = context.format();
    if format != Format::Table {
        print_json(context.io.out, format, answer)?;
        return Ok(Outcome::Done);
    }
    let change = change(context, answer);
    writeln!(context.io.out, "{change}")?;
    if answer.dry_run {
        writeln!(context.io.out, "a dry run: nothing was changed")?;
    } else {
        let span = args.expires_after.map(|span| format!(", for {span}"));
        let (generation, span) = (answer.after.generation, span.unwrap_or_default());
        writeln!(
            context.io.out,
            "in force with generation {generation}{span}"
        )?;
    }
    Ok(Outcome::Done)
}
