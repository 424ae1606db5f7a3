//! Options that commands share, and the readers of their values.

use std::path::PathBuf;

use clap::{Args, ValueEnum};
use loudou_limiter::{DURATION_FORM, Nanos};

/// The default address of the admin listener.
pub(crate) const URL: &str = "http://127.0.0.1:9911";

/// Options of every sub-command.
#[derive(Debug, Args)]
pub(crate) struct Global {
    /// Address of the admin listener
    #[arg(
        long,
        global = true,
        env = "LOUDOU_URL",
        hide_env_values = true,
        value_name = "URL"
    )]
    #[arg(default_value = URL, help_heading = "Connection")]
    pub(crate) url: String,

    #[arg(long, global = true, value_name = "FILE", help_heading = "Connection")]
    #[arg(
        help = "File with the bearer token [default: LOUDOU_TOKEN, or the file named by \
                  LOUDOU_TOKEN_FILE]"
    )]
    pub(crate) token_file: Option<PathBuf>,

    /// Time limit of each call [default: 5s]
    #[arg(long, global = true, value_name = "TIME", help_heading = "Connection")]
    #[arg(value_parser = span)]
    pub(crate) timeout: Option<Nanos>,

    /// Refuse every command that would change something
    #[arg(long, global = true, help_heading = "Connection")]
    pub(crate) read_only: bool,

    /// Output format; with `top`, print once without the screen [default: table]
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
    #[arg(help = "When to use colours; NO_COLOR and TERM=dumb also disable them")]
    pub(crate) color: ColorWhen,

    /// Draw with ASCII characters only
    #[arg(long, global = true, help_heading = "Output")]
    pub(crate) ascii: bool,
}

/// The output format.
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

/// Options of commands that change something.
#[derive(Debug, Args)]
pub(crate) struct AskArgs {
    /// Reason, recorded with the event
    #[arg(
        long,
        value_name = "TEXT",
        default_value = "",
        hide_default_value = true
    )]
    #[arg(value_parser = reason, allow_hyphen_values = true)]
    pub(crate) reason: String,
    /// Do not ask for confirmation
    #[arg(short, long)]
    pub(crate) yes: bool,
}

/// A field of a limit, with its new value.
#[derive(Clone, Debug)]
pub(crate) struct FieldValue {
    pub(crate) field: String,
    pub(crate) value: String,
}

pub(crate) fn span(text: &str) -> Result<Nanos, String> {
    Nanos::parse(text)
        .filter(|span| *span > Nanos::ZERO)
        .ok_or_else(|| format!("invalid duration; write {DURATION_FORM}"))
}

pub(crate) fn field_value(text: &str) -> Result<FieldValue, String> {
    let (field, value) = text
        .split_once('=')
        .filter(|(field, _)| !field.is_empty())
        .ok_or_else(|| "expected a field and a value, such as window=2m".to_owned())?;
    Ok(FieldValue {
        field: field.to_owned(),
        value: value.to_owned(),
    })
}

fn reason(text: &str) -> Result<String, String> {
    if text.len() > loudou_api::MAX_REASON {
        return Err(format!("longer than {} bytes", loudou_api::MAX_REASON));
    }
    Ok(text.to_owned())
}
