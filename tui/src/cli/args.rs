//! The command line as it is typed: sub-commands, options, their help.

use std::path::PathBuf;

use clap::builder::styling::{AnsiColor, Styles};
use clap::{Args, Parser, Subcommand, ValueEnum};
use clap_complete::Shell;
use loudou_api::BucketState;
use loudou_limiter::{Carry, DURATION_FORM, Nanos, RATE_FORM, Rate};
use loudou_rules::rule::Mode;

use super::bans::{BanArgs, UnbanArgs};
use super::events::EventsArgs;
use super::examples;
use super::explain::ExplainArgs;
use super::import::ImportArgs;
use super::overrides::OverrideArgs;
use super::replay::ReplayArgs;
use super::top::TopArgs;

const STYLES: Styles = Styles::styled()
    .header(AnsiColor::Green.on_default().bold())
    .usage(AnsiColor::Green.on_default().bold())
    .literal(AnsiColor::Cyan.on_default().bold())
    .placeholder(AnsiColor::Cyan.on_default());

/// Watch and edit the limits that Loudou enforces inside Envoy
#[derive(Debug, Parser)]
#[command(name = "loudou", version, styles = STYLES, before_help = examples::LOUDOU)]
#[command(disable_help_subcommand = true, max_term_width = 100)]
pub(crate) struct Cli {
    #[command(subcommand)]
    pub(crate) command: Option<Command>,
    #[command(flatten)]
    pub(crate) global: Global,
}

/// Options of every sub-command.
#[derive(Debug, Args)]
pub(crate) struct Global {
    /// The admin listener
    #[arg(
        long,
        global = true,
        env = "LOUDOU_URL",
        hide_env_values = true,
        value_name = "URL"
    )]
    #[arg(default_value = "http://127.0.0.1:9911", help_heading = "Connection")]
    pub(crate) url: String,

    #[arg(long, global = true, value_name = "FILE", help_heading = "Connection")]
    #[arg(
        help = "A file with the bearer token; else LOUDOU_TOKEN, else the file that \
                  LOUDOU_TOKEN_FILE names"
    )]
    pub(crate) token_file: Option<PathBuf>,

    /// How long one call may take [default: 5s]
    #[arg(long, global = true, value_name = "TIME", help_heading = "Connection")]
    #[arg(value_parser = span)]
    pub(crate) timeout: Option<Nanos>,

    /// Refuse to change anything
    #[arg(long, global = true, help_heading = "Connection")]
    pub(crate) read_only: bool,

    /// The form of what is printed; with `top`, print once [default: table]
    #[arg(
        short,
        long,
        global = true,
        value_enum,
        value_name = "FORM",
        help_heading = "Output"
    )]
    pub(crate) output: Option<Format>,

    #[arg(
        long,
        global = true,
        value_enum,
        value_name = "WHEN",
        help_heading = "Output"
    )]
    #[arg(default_value = "auto")]
    #[arg(help = "Colours; NO_COLOR and TERM=dumb switch them off too")]
    pub(crate) color: ColorWhen,

    /// Draw with ASCII characters alone
    #[arg(long, global = true, help_heading = "Output")]
    pub(crate) ascii: bool,
}

/// The form of what is printed.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq, ValueEnum)]
pub(crate) enum Format {
    #[default]
    Table,
    Json,
    Jsonl,
    Csv,
}

/// When to use colours.
#[derive(Clone, Copy, Debug, PartialEq, Eq, ValueEnum)]
pub(crate) enum ColorWhen {
    Auto,
    Always,
    Never,
}

#[derive(Debug, Subcommand)]
pub(crate) enum Command {
    /// Watch the buckets on a live screen (the default); not on a terminal: list the most refused keys
    #[command(before_help = examples::TOP)]
    Top(TopArgs),
    /// Check rule files, and say in words what they do
    #[command(before_help = examples::CHECK)]
    Check(CheckArgs),
    /// Run a rule file over recorded traffic, and say what it would have done
    #[command(before_help = examples::REPLAY)]
    Replay(ReplayArgs),
    /// Show how the filter and its store do
    #[command(before_help = examples::STATUS)]
    Status,
    /// List the rules, or show one
    #[command(before_help = examples::RULES)]
    Rules(RulesArgs),
    /// List live buckets
    #[command(before_help = examples::BUCKETS)]
    Buckets(BucketsArgs),
    /// Show one bucket
    #[command(before_help = examples::GET)]
    Get(GetArgs),
    /// Say what would be made of a request, rule by rule, without taking anything
    #[command(before_help = examples::EXPLAIN)]
    Explain(ExplainArgs),
    /// Edit the limits or the mode of a rule, live
    #[command(before_help = examples::SET)]
    Set(SetArgs),
    /// Drop the edit of a rule: back to the plugin configuration
    #[command(before_help = examples::UNSET)]
    Unset(UnsetArgs),
    /// Make a bucket as good as new
    #[command(before_help = examples::RESET)]
    Reset(ResetArgs),
    /// Refuse all requests of a key, for a while or until it is let free
    #[command(before_help = examples::BAN)]
    Ban(BanArgs),
    /// Lift the ban of a key, and forget what led to it
    #[command(before_help = examples::UNBAN)]
    Unban(UnbanArgs),
    /// Give one key, or all that begin alike, other limits than its rule has
    #[command(before_help = examples::OVERRIDE)]
    Override(OverrideArgs),
    /// Show who changed what, and warnings
    #[command(before_help = examples::EVENTS)]
    Events(EventsArgs),
    /// Print the effective rule file as JSON, to commit it; or all that a restart would lose
    #[command(before_help = examples::EXPORT)]
    Export(ExportArgs),
    /// Apply edits, overrides and bans that `export --live` has kept
    #[command(before_help = examples::IMPORT)]
    Import(ImportArgs),
    /// Print the JSON Schema of rule files, for editors and pipelines
    #[command(before_help = examples::SCHEMA)]
    Schema {
        /// Print the fields as tables in Markdown instead
        #[arg(long)]
        markdown: bool,
    },
    /// Print a completion script
    #[command(before_help = examples::COMPLETIONS)]
    Completions {
        /// The shell it is for
        shell: Shell,
    },
}

#[derive(Debug, Args)]
pub(crate) struct CheckArgs {
    /// Rule files, JSON or YAML; - for standard input
    #[arg(required = true, value_name = "FILE")]
    pub(crate) files: Vec<PathBuf>,
}

#[derive(Debug, Args)]
pub(crate) struct RulesArgs {
    /// Only this rule, in full
    pub(crate) rule: Option<String>,
}

#[derive(Debug, Args)]
pub(crate) struct BucketsArgs {
    /// Only buckets of this rule
    #[arg(long)]
    pub(crate) rule: Option<String>,
    /// Only keys with this text in them
    #[arg(long, value_name = "TEXT")]
    pub(crate) key: Option<String>,
    /// Only buckets in this state: idle, busy, refusing, banned
    #[arg(long, value_parser = state)]
    pub(crate) state: Option<BucketState>,
    /// What comes first
    #[arg(long, value_enum, value_name = "BY", default_value = "refused")]
    pub(crate) sort: Sort,
    /// The most buckets to print
    #[arg(long, value_name = "N", default_value_t = 50)]
    pub(crate) limit: usize,
}

impl Default for BucketsArgs {
    fn default() -> Self {
        Self {
            rule: None,
            key: None,
            state: None,
            sort: Sort::Refused,
            limit: 50,
        }
    }
}

/// What comes first in a list of buckets.
#[derive(Clone, Copy, Debug, PartialEq, Eq, ValueEnum)]
pub(crate) enum Sort {
    Refused,
    Admitted,
    Level,
    Retry,
    Seen,
    Key,
}

#[derive(Debug, Args)]
pub(crate) struct GetArgs {
    /// The rule
    pub(crate) rule: String,
    /// The key, as `loudou buckets` prints it
    #[arg(allow_hyphen_values = true)]
    pub(crate) key: String,
}

#[derive(Debug, Args)]
#[command(override_usage = "loudou set [OPTIONS] <RULE> [FIELD=VALUE]...")]
#[command(group = clap::ArgGroup::new("change").required(true).multiple(true)
    .args(["fields", "capacity", "rate", "mode", "file"]))]
pub(crate) struct SetArgs {
    /// The rule
    pub(crate) rule: String,
    /// Any field of the limit, as in a rule file: window=2m, slots=6; FIELD= for its default
    #[arg(value_name = "FIELD=VALUE", value_parser = field_value, conflicts_with = "file")]
    pub(crate) fields: Vec<FieldValue>,
    /// The most the limit holds
    #[arg(long, value_name = "N", conflicts_with = "file")]
    pub(crate) capacity: Option<u32>,
    /// The rate at which it empties: 30/60s, 10/s, 1000/d
    #[arg(long, value_parser = rate, conflicts_with = "file")]
    pub(crate) rate: Option<Rate>,
    /// Which limit, when the rule has several
    #[arg(long, value_name = "NAME", conflicts_with = "file")]
    pub(crate) limit: Option<String>,
    /// enforce, shadow (count but let pass) or off
    #[arg(long, value_parser = mode)]
    pub(crate) mode: Option<Mode>,
    /// All limits from a file, JSON or YAML: a list, or an object with `limits`; - for standard
    /// input
    #[arg(long)]
    pub(crate) file: Option<PathBuf>,
    /// Take it back by itself after this time, such as 30m
    #[arg(long = "for", value_name = "TIME", value_parser = span)]
    pub(crate) expires_after: Option<Nanos>,
    #[command(flatten)]
    pub(crate) edit: EditArgs,
    /// Say what would change, and change nothing
    #[arg(long)]
    pub(crate) dry_run: bool,
}

/// A field of a limit, and what it is to be.
#[derive(Clone, Debug)]
pub(crate) struct FieldValue {
    pub(crate) field: String,
    pub(crate) value: String,
}

/// Options of what changes a rule.
#[derive(Debug, Args)]
pub(crate) struct EditArgs {
    /// What live buckets keep: keep (what is used), proportional (how full they are), reset (nothing)
    #[arg(long, default_value = "proportional", value_parser = carry)]
    pub(crate) carry: CarryArg,
    #[command(flatten)]
    pub(crate) ask: AskArgs,
}

/// Options of everything that changes something.
#[derive(Debug, Args)]
pub(crate) struct AskArgs {
    /// Why, for the trail
    #[arg(
        long,
        value_name = "TEXT",
        default_value = "",
        hide_default_value = true
    )]
    #[arg(value_parser = reason, allow_hyphen_values = true)]
    pub(crate) reason: String,
    /// Do not ask on a terminal
    #[arg(short, long)]
    pub(crate) yes: bool,
}

/// A [`Carry`] that can be shown as a default.
#[derive(Clone, Copy, Debug)]
pub(crate) struct CarryArg(pub(crate) Carry);

#[derive(Debug, Args)]
pub(crate) struct UnsetArgs {
    /// The rule
    pub(crate) rule: String,
    #[command(flatten)]
    pub(crate) edit: EditArgs,
}

#[derive(Debug, Args)]
pub(crate) struct ResetArgs {
    /// The rule
    pub(crate) rule: String,
    /// The key, as `loudou buckets` prints it
    #[arg(allow_hyphen_values = true)]
    pub(crate) key: String,
    #[command(flatten)]
    pub(crate) ask: AskArgs,
}

#[derive(Debug, Args)]
pub(crate) struct ExportArgs {
    /// Print what lives only in Envoy's memory, for `loudou import`: edits, edited overrides, operators' bans
    #[arg(long)]
    pub(crate) live: bool,
}

pub(super) fn span(text: &str) -> Result<Nanos, String> {
    Nanos::parse(text)
        .filter(|span| *span > Nanos::ZERO)
        .ok_or_else(|| format!("not a time; write {DURATION_FORM}"))
}

fn rate(text: &str) -> Result<Rate, String> {
    Rate::parse(text).ok_or_else(|| format!("not a rate; write {RATE_FORM}"))
}

pub(super) fn field_value(text: &str) -> Result<FieldValue, String> {
    let (field, value) = text
        .split_once('=')
        .filter(|(field, _)| !field.is_empty())
        .ok_or_else(|| "not a field with a value; write it like window=2m".to_owned())?;
    Ok(FieldValue {
        field: field.to_owned(),
        value: value.to_owned(),
    })
}

fn mode(text: &str) -> Result<Mode, String> {
    [Mode::Enforce, Mode::Shadow, Mode::Off]
        .into_iter()
        .find(|mode| mode.name() == text)
        .ok_or_else(|| "not a mode; write enforce, shadow or off".to_owned())
}

fn state(text: &str) -> Result<BucketState, String> {
    use BucketState::{Banned, Busy, Idle, Refusing};
    [Idle, Busy, Refusing, Banned]
        .into_iter()
        .find(|state| state.name() == text)
        .ok_or_else(|| format!("not a state; write {}", BucketState::NAMES.join(", ")))
}

fn carry(text: &str) -> Result<CarryArg, String> {
    Carry::parse(text)
        .map(CarryArg)
        .ok_or_else(|| format!("not a way; write {}", Carry::NAMES.join(", ")))
}

fn reason(text: &str) -> Result<String, String> {
    if text.len() > loudou_api::MAX_REASON {
        return Err(format!("longer than {} bytes", loudou_api::MAX_REASON));
    }
    Ok(text.to_owned())
}
