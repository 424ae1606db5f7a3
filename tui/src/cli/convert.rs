//! Implements `loudou convert`, which converts the limits of other rate limiters to a rule file.

use std::fs::{File, OpenOptions};
use std::io::{ErrorKind, Write as _};
use std::path::{Path, PathBuf};

use anyhow::{Context as _, Result, bail};
use clap::{Args, ValueEnum};
use loudou_check::form::Form;
use loudou_check::severity;
use loudou_convert::{Problem, Source, convert};
use loudou_words::text::escape;

use super::context::Context;
use super::files::{bytes_of, name_of, painted};
use super::outcome::Outcome;
use super::replay::LogArgs;
use super::world::Usage;

mod prove;

const EXAMPLES: &str = "\
Examples:
  kubectl get ingress -A -o yaml | loudou convert - > rules.yaml    limits of ingress-nginx
  loudou convert nginx.conf > rules.yaml          limit_req and limit_conn
  loudou convert envoy.yaml                       Envoy's local_ratelimit
  loudou convert ratelimit.yaml envoy.yaml        a rate limit service, with the actions in Envoy
  loudou convert kong.yaml > rules.yaml           rate-limiting of Kong
  loudou convert nginx.conf | loudou check -      the result in words
  loudou convert nginx.conf --as wasmplugin --write loudou.yaml
  loudou convert nginx.conf --prove access.log    where the rules differ from nginx";

#[derive(Debug, Args)]
#[command(before_long_help = EXAMPLES)]
pub(crate) struct ConvertArgs {
    /// Files of one installation; - for standard input
    ///
    /// Ingress objects with annotations of ingress-nginx, nginx.conf, envoy.yaml with a local rate
    /// limit, files of Envoy's rate limit service, backend traffic policies of Envoy Gateway, routes
    /// of Spring Cloud Gateway, a declarative file of Kong, or CL.THROTTLE of redis-cell
    #[arg(required = true, value_name = "FILE")]
    pub(crate) files: Vec<PathBuf>,
    /// Write the rules in this form [default: rules]
    ///
    /// rules is a rule file, envoy a filter for `http_filters`, wasmplugin and trafficextension a manifest for Istio,
    /// envoyextensionpolicy one for Envoy Gateway
    #[arg(
        long = "as",
        value_enum,
        value_name = "FORM",
        hide_possible_values = true
    )]
    pub(crate) form: Option<FormArg>,
    /// Write to this file instead of standard output
    #[arg(long, value_name = "FILE")]
    pub(crate) write: Option<PathBuf>,
    /// Replace the file of --write if it exists
    #[arg(long, requires = "write")]
    pub(crate) force: bool,
    /// Compare the rules with their source over logs
    ///
    /// Prints where they differ instead of the rules, and fails if they differ. Logs are access logs or traces, as
    /// `loudou replay --trace` reads them
    #[arg(long, value_name = "LOG", num_args = 1..)]
    pub(crate) prove: Vec<PathBuf>,
    #[command(flatten)]
    pub(crate) log: LogArgs,
}

/// Format in which the rules are written.
#[derive(Clone, Copy, Debug, PartialEq, Eq, ValueEnum)]
pub(crate) enum FormArg {
    /// A rule file
    Rules,
    /// An entry of `http_filters` in envoy.yaml
    Envoy,
    /// A `WasmPlugin` of Istio
    #[value(name = "wasmplugin")]
    WasmPlugin,
    /// A `TrafficExtension` of Istio 1.30 and newer
    #[value(name = "trafficextension")]
    TrafficExtension,
    /// An `EnvoyExtensionPolicy` of Envoy Gateway
    #[value(name = "envoyextensionpolicy")]
    EnvoyExtensionPolicy,
}

impl FormArg {
    /// Returns the rules in this format.
    fn around(self, rules: &str) -> String {
        let form = match self {
            Self::Rules => return rules.to_owned(),
            Self::Envoy => Form::Envoy,
            Self::WasmPlugin => Form::WasmPlugin,
            Self::TrafficExtension => Form::TrafficExtension,
            Self::EnvoyExtensionPolicy => Form::EnvoyExtensionPolicy,
        };
        form.around(rules)
    }
}

pub(super) fn run(context: &mut Context<'_, '_>, args: &ConvertArgs) -> Result<Outcome> {
    context.only_text()?;
    check_use(context, args)?;
    let mut texts = Vec::new();
    for path in &args.files {
        texts.push((name_of(path), bytes_of(context, path)?));
    }
    let sources: Vec<Source<'_>> = texts
        .iter()
        .map(|(name, bytes)| Source { name, bytes })
        .collect();
    match convert(&sources) {
        Ok(converted) => {
            print(context, &converted.warnings)?;
            let form = args.form.unwrap_or(FormArg::Rules);
            let text = form.around(&converted.text);
            if let Some(path) = &args.write {
                write_new(path, &text, args.force)?;
            }
            if !args.prove.is_empty() {
                return prove::run(context, &converted, &args.prove, &args.log);
            }
            if args.write.is_none() {
                write!(context.io.out, "{text}")?;
            }
            Ok(Outcome::Done)
        }
        Err(problems) => {
            print(context, &problems)?;
            Ok(Outcome::Failed)
        }
    }
}

/// Writes a file. Replaces an existing file only if `force` is true.
fn write_new(path: &Path, text: &str, force: bool) -> Result<()> {
    let name = name_of(path);
    let mut options = OpenOptions::new();
    options.write(true).create(true).truncate(true);
    options.create_new(!force);
    let file = options.open(path);
    if let Err(error) = &file
        && error.kind() == ErrorKind::AlreadyExists
    {
        bail!("{} exists; --force replaces it", escape(&name));
    }
    let write = |mut file: File| file.write_all(text.as_bytes());
    file.and_then(write)
        .with_context(|| format!("cannot write {}", escape(&name)))
}

fn check_use(context: &Context<'_, '_>, args: &ConvertArgs) -> Result<()> {
    let dash = Path::new("-");
    let inputs = args.files.iter().chain(&args.prove);
    if inputs.filter(|path| *path == dash).count() > 1 {
        let wrong = "only one of FILE and --prove can be standard input";
        bail!(Usage(wrong.to_owned()));
    }
    if args.prove.iter().any(|path| path == dash) && context.io.input_terminal {
        let wrong = "write --prove LOG, or pipe a log into standard input";
        bail!(Usage(wrong.to_owned()));
    }
    if args.form.is_some() && args.write.is_none() && !args.prove.is_empty() {
        let wrong = "--prove prints no rules; --write FILE writes them in the form of --as";
        bail!(Usage(wrong.to_owned()));
    }
    if args.prove.is_empty() && !args.log.is_default() {
        let wrong = "--format, --log-format, --source, --from and --to are options of --prove";
        bail!(Usage(wrong.to_owned()));
    }
    args.log.check_use()
}

/// Prints problems like compiler messages, with file, line and column, so that editors can jump to
/// them.
fn print(context: &mut Context<'_, '_>, problems: &[Problem]) -> Result<()> {
    let mut lines = Vec::new();
    let paint = painted(context.style);
    for problem in problems {
        let position = problem.place.position;
        let mut place = escape(&problem.place.file).into_owned();
        if position.line > 0 {
            place = format!("{place}:{}:{}", position.line, position.column);
        }
        let severity = paint(problem.severity, severity(problem.severity));
        lines.push(format!("{place}: {severity}: {}", problem.message));
    }
    if !lines.is_empty() {
        context.note(&lines.join("\n"))?;
    }
    Ok(())
}
