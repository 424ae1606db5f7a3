//! Implements `loudou set` and `unset`, which edit a rule.

use std::path::PathBuf;

use anyhow::{Result, bail};
use clap::Args;
use loudou_api::RuleView;
use loudou_limiter::{Carry, Nanos, RATE_FORM, Rate};
use loudou_rules::config;
use loudou_rules::rule::{Mode, TRIAL, tried};
use serde_json::{Map, Value, json};

use super::changes;
use super::complete;
use super::context::Context;
use super::files::{problems, report_of};
use super::options::{AskArgs, FieldValue, field_value, span};
use super::outcome::Outcome;
use super::typed_limits::changed_limits;
use super::world::Usage;
use loudou_client::change::Change;
use loudou_client::change::edit::{Edit, EditTo};
use loudou_words::num::typed;

const SET_EXAMPLES: &str = "\
Examples:
  loudou set per-user --capacity 100 --rate 200/60s
  loudou set per-user --limit burst --capacity 30 --for 30m --reason 'launch day'
  loudou set per-user --limit daily window=1h slots=6
  loudou set per-user --mode shadow --dry-run
  loudou set per-user --capacity 50 --trial --for 1d
  loudou set per-user --file limits.yaml --carry proportional";

#[derive(Debug, Args)]
#[command(before_long_help = SET_EXAMPLES)]
#[command(override_usage = "loudou set [OPTIONS] <RULE> [FIELD=VALUE]...")]
#[command(group = clap::ArgGroup::new("change").required(true).multiple(true)
    .args(["fields", "capacity", "rate", "mode", "file"]))]
pub(crate) struct SetArgs {
    /// The rule
    #[arg(add = complete::rules())]
    pub(crate) rule: String,
    /// Fields of the limit, as in a rule file: window=2m
    ///
    /// FIELD= restores its default
    #[arg(value_name = "FIELD=VALUE", value_parser = field_value, conflicts_with = "file")]
    pub(crate) fields: Vec<FieldValue>,
    /// The capacity of the limit (burst size)
    #[arg(long, value_name = "N", conflicts_with = "file")]
    #[arg(value_parser = typed::<u64>, allow_hyphen_values = true)]
    pub(crate) capacity: Option<u64>,
    /// The rate of the limit: 30/60s, 10/s, 1000/d
    #[arg(long, value_parser = rate, conflicts_with = "file")]
    pub(crate) rate: Option<Rate>,
    /// The limit to edit, if the rule has several
    #[arg(long, value_name = "NAME", conflicts_with = "file")]
    pub(crate) limit: Option<String>,
    /// enforce, shadow (count refusals, but admit) or off
    #[arg(long, value_parser = mode, add = complete::words(&MODES))]
    pub(crate) mode: Option<Mode>,
    /// Try the limits in shadow mode beside the rule
    ///
    /// The rule stays as it is. The trial is listed as RULE~trial with the requests that it would refuse; `unset RULE
    /// --trial` ends it
    #[arg(long, conflicts_with = "mode")]
    pub(crate) trial: bool,
    /// File with all limits; - for standard input
    ///
    /// JSON or YAML: a list, or an object with `limits`
    #[arg(long)]
    pub(crate) file: Option<PathBuf>,
    /// Revert automatically after this time, such as 30m
    #[arg(long = "for", value_name = "TIME", value_parser = span, allow_hyphen_values = true)]
    pub(crate) expires_after: Option<Nanos>,
    #[command(flatten)]
    pub(crate) edit: EditArgs,
    /// Show what would change, without changing anything
    #[arg(long)]
    pub(crate) dry_run: bool,
}

const MODES: [&str; 3] = [Mode::Enforce.name(), Mode::Shadow.name(), Mode::Off.name()];

const UNSET_EXAMPLES: &str = "\
Examples:
  loudou unset per-user
  loudou unset per-user --carry reset --reason 'launch is over'
  loudou unset per-user --trial";

#[derive(Debug, Args)]
#[command(before_long_help = UNSET_EXAMPLES)]
pub(crate) struct UnsetArgs {
    /// The rule
    #[arg(add = complete::rules())]
    pub(crate) rule: String,
    /// End the trial that runs beside the rule
    #[arg(long)]
    pub(crate) trial: bool,
    #[command(flatten)]
    pub(crate) edit: EditArgs,
    /// Show what would change, without changing anything
    #[arg(long)]
    pub(crate) dry_run: bool,
}

/// Options of commands that change a rule.
#[derive(Debug, Args)]
pub(crate) struct EditArgs {
    /// keep, proportional or reset
    ///
    /// What live buckets keep: the used units (keep), the used share (proportional), or nothing (reset)
    #[arg(long, default_value = Carry::default().name(), value_parser = carry)]
    #[arg(add = complete::words(&Carry::NAMES))]
    pub(crate) carry: CarryArg,
    #[command(flatten)]
    pub(crate) ask: AskArgs,
}

/// A [`Carry`] that clap can print as a default value.
#[derive(Clone, Copy, Debug)]
pub(crate) struct CarryArg(pub(crate) Carry);

pub(super) fn set(context: &mut Context<'_, '_>, args: &SetArgs) -> Result<Outcome> {
    changes::allowed(context, args.dry_run)?;
    let name = target(&args.rule, args.trial);
    let client = context.client()?;
    // If a trial is running, the edit starts from the trial's limits, so that fields which this
    // command does not set keep their values.
    let rule = match client.rule(&name) {
        Err(error) if args.trial && error.status() == Some(404) => client.rule(&args.rule)?,
        rule => rule?,
    };
    let Some(body) = body(context, args, &rule)? else {
        return Ok(Outcome::Misused);
    };
    let was_for_a_time = rule
        .edit
        .as_ref()
        .is_some_and(|e| e.expires_at_ns.is_some());
    let change = Change::Edit(Edit {
        rule: name,
        to: EditTo::Put {
            body,
            expires_after: args.expires_after,
            keeps_end: false,
        },
        seen: Box::new(rule),
        carry: args.edit.carry.0,
        reason: args.edit.ask.reason.clone(),
    });
    let outcome = changes::run(context, change, &args.edit.ask, args.dry_run)?;
    if outcome == Outcome::Done && was_for_a_time && args.expires_after.is_none() {
        context.note("the earlier edit had an end; this one has none (see --for)")?;
    }
    Ok(outcome)
}

pub(super) fn unset(context: &mut Context<'_, '_>, args: &UnsetArgs) -> Result<Outcome> {
    changes::allowed(context, args.dry_run)?;
    let name = target(&args.rule, args.trial);
    let change = Change::Edit(Edit {
        seen: Box::new(context.client()?.rule(&name)?),
        rule: name,
        to: EditTo::Drop,
        carry: args.edit.carry.0,
        reason: args.edit.ask.reason.clone(),
    });
    changes::run(context, change, &args.edit.ask, args.dry_run)
}

/// Returns the name of the rule to edit or, if `trial`, the name of its trial.
fn target(rule: &str, trial: bool) -> String {
    match tried(rule) {
        None if trial => [rule, TRIAL].concat(),
        _ => rule.to_owned(),
    }
}

/// Returns the request body of the edit. If the edit has problems, prints them and returns `None`.
fn body(context: &mut Context<'_, '_>, args: &SetArgs, rule: &RuleView) -> Result<Option<Value>> {
    let mut body = Map::new();
    let mut report = None;
    if let Some(file) = &args.file {
        let read = report_of(context, file)?;
        let Some(document) = &read.document else {
            problems(context, read, &[])?;
            return Ok(None);
        };
        match &document.value {
            // If the file contains only a list, the list contains the limits.
            Value::Array(_) => {
                body.insert("limits".to_owned(), document.value.clone());
            }
            Value::Object(fields) => body.clone_from(fields),
            _ => bail!(Usage("the file must be a list or an object".to_owned())),
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
                "--limit only selects a limit; add --capacity, --rate or FIELD=VALUE".to_owned()
            ));
        }
    }
    if let Some(mode) = args.mode {
        body.insert("mode".to_owned(), json!(mode.name()));
    }
    let body = Value::Object(body);
    let wrong = config::parse_edit(&body).err().unwrap_or_default();
    if wrong.is_empty() && report.as_ref().is_none_or(|read| !read.has_errors()) {
        return Ok(Some(body));
    }
    problems(context, report.unwrap_or_default(), &wrong)?;
    Ok(None)
}

/// Returns the fields to change, with their new values.
fn changes(args: &SetArgs) -> Vec<(&str, String)> {
    let capacity = args.capacity.map(|n| ("capacity", n.to_string()));
    let rate = args.rate.map(|rate| ("rate", rate.to_string()));
    let others = args.fields.iter();
    let others = others.map(|change| (change.field.as_str(), change.value.trim().to_owned()));
    capacity.into_iter().chain(rate).chain(others).collect()
}

fn rate(text: &str) -> Result<Rate, String> {
    Rate::parse(text).ok_or_else(|| format!("invalid rate; write {RATE_FORM}"))
}

fn mode(text: &str) -> Result<Mode, String> {
    [Mode::Enforce, Mode::Shadow, Mode::Off]
        .into_iter()
        .find(|mode| mode.name() == text)
        .ok_or_else(|| "unknown mode; write enforce, shadow or off".to_owned())
}

fn carry(text: &str) -> Result<CarryArg, String> {
    Carry::parse(text)
        .map(CarryArg)
        .ok_or_else(|| format!("unknown value; write {}", Carry::NAMES.join(", ")))
}
