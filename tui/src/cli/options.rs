//! Options that several commands share, and the parsers of their values.

use std::collections::BTreeMap;
use std::ffi::OsStr;
use std::path::PathBuf;

use clap::builder::{PossibleValuesParser, Resettable, TypedValueParser as _};
use clap::{Arg, Args, Command, ValueEnum};
use loudou_limiter::{DURATION_FORM, Nanos};

use crate::config::{Config, NamedTarget};
use crate::draw::theme::Base;
use loudou_words::text::as_key;

/// Returns the command without the environment variables for which `is_unset` returns true.
pub(super) fn without_variables(command: Command, is_unset: impl Fn(&OsStr) -> bool) -> Command {
    command.mut_args(|arg| match arg.get_env() {
        Some(name) if is_unset(name) => arg.env(Resettable::<clap::builder::OsStr>::Reset),
        _ => arg,
    })
}

/// Returns true if a variable is set to an empty value.
pub(super) fn is_empty_variable(name: &OsStr) -> bool {
    std::env::var_os(name).is_some_and(|value| value.is_empty())
}

/// Default address of the admin listener.
pub(crate) const URL: &str = "http://127.0.0.1:9911";

/// Heading of the connection options.
pub(super) const CONNECTION: &str = "Connection";
/// Heading of the output options.
pub(super) const OUTPUT: &str = "Output";

/// Connection options.
#[derive(Clone, Debug, Default, Args)]
pub(crate) struct ConnectArgs {
    #[arg(
        help = "Address of the admin listener: http://HOST:PORT, https://HOST:PORT or unix:/PATH; \
                dns:http://HOST:PORT for all addresses of a name, @NAME for a target of the config file; may be \
                repeated [default: http://127.0.0.1:9911]",
        long,
        global = true,
        env = "LOUDOU_URL",
        hide_env_values = true,
        value_name = "URL"
    )]
    #[arg(help_heading = CONNECTION, value_delimiter = ',')]
    pub(crate) url: Vec<String>,

    /// File with the addresses of more Envoys, one per line; # begins a comment
    #[arg(long, global = true, value_name = "FILE", help_heading = CONNECTION)]
    pub(crate) targets: Option<PathBuf>,

    /// Shell command that prints the addresses of more Envoys, one per line
    #[arg(long, global = true, value_name = "CMD", help_heading = CONNECTION)]
    pub(crate) targets_from: Option<String>,

    /// True if neither `--url` nor the environment names an Envoy.
    #[arg(skip)]
    pub(crate) is_default: bool,

    /// Targets in the config file.
    #[arg(skip)]
    pub(crate) named: BTreeMap<String, NamedTarget>,

    #[arg(long, global = true, value_name = "FILE", help_heading = CONNECTION)]
    #[arg(
        help = "File with the bearer token [default: LOUDOU_TOKEN, or the file named by \
                  LOUDOU_TOKEN_FILE]"
    )]
    pub(crate) token_file: Option<PathBuf>,

    /// With https://: PEM file with the CA of the server's certificate, instead of the system's CAs
    #[arg(long, global = true, env = "LOUDOU_TLS_CA", hide_env_values = true)]
    #[arg(value_name = "FILE", help_heading = CONNECTION)]
    pub(crate) tls_ca: Option<PathBuf>,

    /// With https://: PEM file with the certificate of this client
    #[arg(long, global = true, env = "LOUDOU_TLS_CERT", hide_env_values = true)]
    #[arg(value_name = "FILE", help_heading = CONNECTION)]
    pub(crate) tls_cert: Option<PathBuf>,

    /// With https://: PEM file with the private key of this client
    #[arg(long, global = true, env = "LOUDOU_TLS_KEY", hide_env_values = true)]
    #[arg(value_name = "FILE", help_heading = CONNECTION)]
    pub(crate) tls_key: Option<PathBuf>,

    /// With https://: name in the server's certificate, if it differs from the address
    #[arg(long, global = true, env = "LOUDOU_TLS_NAME", hide_env_values = true)]
    #[arg(value_name = "NAME", help_heading = CONNECTION)]
    pub(crate) tls_name: Option<String>,
}

/// Options that every subcommand accepts.
#[derive(Debug, Args)]
pub(crate) struct Global {
    #[command(flatten)]
    pub(crate) connect: ConnectArgs,

    #[arg(help = "Config file [default: ~/.config/loudou/config.toml, or below XDG_CONFIG_HOME]")]
    #[arg(
        long,
        global = true,
        env = "LOUDOU_CONFIG_FILE",
        hide_env_values = true
    )]
    #[arg(value_name = "FILE", help_heading = CONNECTION)]
    pub(crate) config_file: Option<PathBuf>,

    /// Contents of the config file.
    #[arg(skip)]
    pub(crate) config: Config,

    /// Time limit of each call [default: 5s; of a poll of top, 1s or its interval]
    #[arg(long, global = true, value_name = "TIME", help_heading = CONNECTION)]
    #[arg(value_parser = span, allow_hyphen_values = true)]
    pub(crate) timeout: Option<Nanos>,

    /// Refuse every command that would change something
    #[arg(long, global = true, help_heading = CONNECTION)]
    pub(crate) read_only: bool,

    /// table, json, jsonl or csv [default: table]
    ///
    /// With `top`, print once without the screen
    #[arg(
        short,
        long,
        global = true,
        value_enum,
        value_name = "FORM",
        hide_possible_values = true,
        help_heading = OUTPUT
    )]
    pub(crate) output: Option<Output>,

    #[arg(
        long,
        global = true,
        value_enum,
        value_name = "WHEN",
        help_heading = OUTPUT
    )]
    #[arg(default_value = "auto")]
    #[arg(help = "When to use colours; NO_COLOR and TERM=dumb also disable them")]
    pub(crate) color: ColorWhen,

    /// Theme of the screen [default: by the terminal's background]
    #[arg(long, global = true, env = "LOUDOU_THEME", hide_env_values = true)]
    #[arg(value_enum, value_name = "NAME", help_heading = OUTPUT)]
    pub(crate) theme: Option<Base>,

    /// Draw with ASCII characters only, or with all (--ascii=false) [default: by TERM and locale]
    #[arg(long, global = true, value_name = "BOOL", help_heading = OUTPUT)]
    #[arg(num_args = 0..=1, require_equals = true, default_missing_value = "true")]
    #[arg(hide_possible_values = true)]
    pub(crate) ascii: Option<bool>,
}

/// Value of `--output`.
#[derive(Clone, Copy, Debug, PartialEq, Eq, ValueEnum)]
pub(crate) enum Output {
    Table,
    Json,
    Jsonl,
    Csv,
    // Only `replay` can write HTML pages, so only its help lists this value.
    #[value(hide = true)]
    Html,
}

impl Output {
    /// Returns the format, or `None` for HTML, which not every command supports.
    pub(crate) const fn format(self) -> Option<Format> {
        match self {
            Self::Table => Some(Format::Table),
            Self::Json => Some(Format::Json),
            Self::Jsonl => Some(Format::Jsonl),
            Self::Csv => Some(Format::Csv),
            Self::Html => None,
        }
    }
}

/// Returns the `--output` option with all values, for a command that supports all of them.
pub(crate) fn every_output() -> Arg {
    let values = Output::value_variants().iter();
    let values = values.filter_map(|output| Some(output.to_possible_value()?.hide(false)));
    let parser = PossibleValuesParser::new(values.collect::<Vec<_>>());
    // Replaces the global option of the same name.
    Arg::new("output")
        .short('o')
        .long("output")
        .value_name("FORM")
        .help("table, json, jsonl, csv or html [default: table]")
        .long_help("table, json, jsonl, csv, or html: a page to send, in one file [default: table]")
        .hide_possible_values(true)
        .help_heading(OUTPUT)
        .value_parser(parser.try_map(|text| <Output as ValueEnum>::from_str(&text, false)))
}

/// Output format.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
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

/// Options of commands that make changes.
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
    ///
    /// Without a terminal on standard input, as in scripts, nothing is asked
    #[arg(short, long)]
    pub(crate) yes: bool,
}

/// A field of a limit, with its new value.
#[derive(Clone, Debug)]
pub(crate) struct FieldValue {
    pub(crate) field: String,
    pub(crate) value: String,
}

/// Parses a duration above zero, or returns an error message.
pub(crate) fn span(text: &str) -> Result<Nanos, String> {
    let is_time = |text: &str| Nanos::parse(text).is_some();
    let is_number = !text.is_empty() && text.bytes().all(|byte| byte.is_ascii_digit());
    let unit = text.trim_start_matches(|c: char| c.is_ascii_digit());
    Err(match Nanos::parse(text) {
        Some(span) if span > Nanos::ZERO => return Ok(span),
        Some(_) => format!("must be longer than 0; write {DURATION_FORM}"),
        None if is_number && text.trim_start_matches('0').is_empty() => {
            format!("must be longer than 0; write {DURATION_FORM}")
        }
        None if is_number => format!("it has no unit; did you mean `{text}s` or `{text}m`?"),
        None if unit.len() < text.len() && is_time(&format!("1{unit}")) => {
            "too long; at most 213503d".to_owned()
        }
        None => match text.strip_prefix('-').filter(|rest| is_time(rest)) {
            Some(rest) => format!("it is negative; did you mean `{rest}`?"),
            None => format!("invalid duration; write {DURATION_FORM}"),
        },
    })
}

/// Escapes a key, or a part of a key, in the same way as the filter. Characters that are already
/// escaped stay as they are.
#[expect(clippy::unnecessary_wraps, reason = "clap expects a result")]
pub(crate) fn key(text: &str) -> Result<String, String> {
    Ok(as_key(text).into_owned())
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

#[cfg(test)]
mod tests {
    use super::*;
    use crate::cli::command_line;

    /// `LOUDOU_URL= loudou …` is how a shell unsets a variable for one command.
    #[test]
    fn an_empty_variable_is_not_asked() {
        let names = |is_empty: fn(&OsStr) -> bool| -> Vec<String> {
            let command = without_variables(command_line(), is_empty);
            let names = command.get_arguments().filter_map(Arg::get_env);
            names
                .map(|name| name.to_string_lossy().into_owned())
                .collect()
        };
        let all = names(|_| false);
        assert!(
            all.len() > 5 && all.iter().any(|name| name == "LOUDOU_URL"),
            "{all:?}"
        );
        let without: Vec<String> = all
            .iter()
            .filter(|name| *name != "LOUDOU_URL")
            .cloned()
            .collect();
        assert_eq!(names(|name| name == "LOUDOU_URL"), without);
    }
}
