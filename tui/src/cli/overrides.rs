//! Implements `loudou override`, which gives one key other limits.

use std::path::PathBuf;

use anyhow::{Result, bail};
use clap::Args;
use loudou_api::RuleView;
use loudou_limiter::Nanos;
use loudou_rules::config;
use serde_json::{Map, Value, json};

use super::changes;
use super::complete;
use super::context::Context;
use super::files::{problems, report_of};
use super::options::{self, AskArgs, FieldValue, field_value, span};
use super::outcome::Outcome;
use super::typed_limits::changed_limits;
use super::world::Usage;
use loudou_check::Report;
use loudou_client::change::Change;
use loudou_client::change::key_override::Override;

const EXAMPLES: &str = "\
Examples:
  loudou override per-user alice scale=10 --for 30m --reason 'launch day'
  loudou override per-user 'team-*' unlimited
  loudou override per-user alice capacity=100 rate=5/s --limit burst --dry-run
  loudou override per-user alice --limits limits.yaml
  loudou override per-user alice --remove";

#[derive(Debug, Args)]
#[command(before_long_help = EXAMPLES)]
#[command(
    override_usage = "loudou override [OPTIONS] <RULE> <KEY> <scale=N|unlimited|banned|FIELD=VALUE...>\n       \
                            loudou override [OPTIONS] <RULE> <KEY> --limits <FILE>\n       \
                            loudou override [OPTIONS] <RULE> <KEY> --remove"
)]
#[command(group = clap::ArgGroup::new("gives").required(true).multiple(false)
    .args(["what", "limits", "remove"]))]
pub(crate) struct OverrideArgs {
    /// The rule
    #[arg(add = complete::rules())]
    pub(crate) rule: String,
    /// The key, as `loudou buckets` prints it, or a PREFIX*
    #[arg(allow_hyphen_values = true, value_parser = options::key, add = complete::keys_of_rule())]
    pub(crate) key: String,
    /// scale=10, unlimited, banned, or fields: capacity=100 rate=5/s
    ///
    /// scale=10 is ten times the rule's limits; fields change one of the limits
    #[arg(value_name = "WHAT", add = complete::words(&["scale=", "unlimited", "banned"]))]
    pub(crate) what: Vec<String>,
    /// The limit of the fields, if the rule has several
    #[arg(long, value_name = "NAME", conflicts_with_all = ["limits", "remove"])]
    pub(crate) limit: Option<String>,
    /// File with all limits; - for standard input
    ///
    /// JSON or YAML: a list, or an object with `limits`
    #[arg(long, value_name = "FILE")]
    pub(crate) limits: Option<PathBuf>,
    /// Drop the edited override
    ///
    /// The key returns to the limits in the configuration
    #[arg(long, conflicts_with = "expires_after")]
    pub(crate) remove: bool,
    /// Revert automatically after this time, such as 30m
    #[arg(long = "for", value_name = "TIME", value_parser = span, allow_hyphen_values = true)]
    pub(crate) expires_after: Option<Nanos>,
    #[command(flatten)]
    pub(crate) ask: AskArgs,
    /// Show what would change, without changing anything
    #[arg(long)]
    pub(crate) dry_run: bool,
}

pub(super) fn run(context: &mut Context<'_, '_>, args: &OverrideArgs) -> Result<Outcome> {
    changes::allowed(context, args.dry_run)?;
    let rule = context.client()?.rule(&args.rule)?;
    let gives = if args.remove {
        None
    } else {
        let Some(gives) = gives(context, args, &rule)? else {
            return Ok(Outcome::Misused);
        };
        Some(gives)
    };
    let change = Change::Override(Override {
        rule: args.rule.clone(),
        key: args.key.clone(),
        gives,
        expires_after: args.expires_after,
        seen: Box::new(rule),
        reason: args.ask.reason.clone(),
    });
    changes::run(context, change, &args.ask, args.dry_run)
}

/// Returns the new override. If the override has problems, prints them and returns `None`.
fn gives(
    context: &mut Context<'_, '_>,
    args: &OverrideArgs,
    rule: &RuleView,
) -> Result<Option<Value>> {
    let mut report = Report::default();
    let body = if let Some(file) = &args.limits {
        report = report_of(context, file)?;
        let Some(document) = &report.document else {
            problems(context, report, &[])?;
            return Ok(None);
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
    let wrong = config::parse_override(&args.key, &body, limits.as_ref());
    let wrong = wrong.err().unwrap_or_default();
    if wrong.is_empty() && !report.has_errors() {
        return Ok(Some(body));
    }
    problems(context, report, &wrong)?;
    Ok(None)
}

/// Returns the override that the command-line arguments describe.
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

/// Returns an object whose field `limits` contains the limits that the fields modify. These are the
/// limits in the key's override or, if it has none, the rule's limits.
fn limits_of(key: &str, rule: &Value) -> Value {
    let current = rule.get("overrides").and_then(|all| all.get(key));
    let limits = current.and_then(|current| current.get("limits"));
    let limits = limits.or_else(|| rule.get("limits")).cloned();
    Value::Object(Map::from_iter([(
        "limits".to_owned(),
        limits.unwrap_or_default(),
    )]))
}
