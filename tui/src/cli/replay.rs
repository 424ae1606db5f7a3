//! `loudou replay`: how a rule file would have decided recorded traffic.

use std::fs::File;
use std::io::{self, Read, Write};
use std::path::{Path, PathBuf};

use anyhow::{Context as _, Result, anyhow, bail};
use clap::{Args, ValueEnum};
use loudou_limiter::Nanos;
use loudou_replay::engine::Reported;
use loudou_replay::format::LogFormat;
use loudou_replay::input::{BadLine, Intake};
use loudou_replay::run::Run;
use loudou_replay::summary::RunSummary;
use loudou_replay::{Error, Observer, decisions, replay};

use super::check::rules_of;
use super::context::Context;
use super::files::name_of;
use super::options::Format;
use super::outcome::Outcome;
use super::world::{Io, Style, Usage, json};
use crate::text::escape;

mod compared;
mod over_time;
mod plot;
mod progress;
mod view;

use progress::Progress;

/// The number of bytes of decisions that are written at once.
const CHUNK: usize = 64 << 10;

const EXAMPLES: &str = "\
Examples:
  loudou replay --config rules.yaml --trace access.log
  loudou replay --config rules.yaml --trace access.log --compare stricter.yaml
  zcat access.log.gz | loudou replay --config rules.yaml --output json
  loudou replay --config rules.yaml --trace trace.jsonl --output jsonl    every decision";

#[derive(Debug, Args)]
#[command(before_help = EXAMPLES)]
pub(crate) struct ReplayArgs {
    /// The rule file or Envoy configuration, JSON or YAML; - for standard input
    #[arg(long, value_name = "FILE")]
    config: PathBuf,
    /// The trace or access log; - for standard input
    #[arg(long, value_name = "FILE", default_value = "-")]
    trace: PathBuf,
    /// Format of the trace [default: detected from its first lines]
    #[arg(long, value_enum, value_name = "FORM")]
    format: Option<FormArg>,
    /// A second rule file to compare the first with
    #[arg(long, value_name = "FILE")]
    compare: Option<PathBuf>,
    /// Fail at the first invalid line instead of skipping it
    #[arg(long)]
    strict: bool,
}

/// The format of a trace or log.
#[derive(Clone, Copy, Debug, ValueEnum)]
enum FormArg {
    /// JSON Lines with `at_ns`
    Trace,
    /// Envoy's default access log, or Istio's
    Envoy,
    /// Envoy's access log as JSON
    EnvoyJson,
    /// NGINX's `combined` or `main`
    Nginx,
}

impl From<FormArg> for LogFormat {
    fn from(form: FormArg) -> Self {
        match form {
            FormArg::Trace => Self::Trace,
            FormArg::Envoy => Self::Envoy,
            FormArg::EnvoyJson => Self::EnvoyJson,
            FormArg::Nginx => Self::Nginx,
        }
    }
}

pub(super) fn run(context: &mut Context<'_, '_>, args: &ReplayArgs) -> Result<Outcome> {
    check_use(context, args)?;
    let Some(file) = rules_of(context, &args.config)? else {
        return Ok(Outcome::Failed);
    };
    let other = match &args.compare {
        None => None,
        Some(path) => match rules_of(context, path)? {
            None => return Ok(Outcome::Failed),
            Some(other) => Some((name_of(path), other)),
        },
    };
    let name = name_of(&args.config);
    let compare = other.as_ref().map(|(name, other)| (name.as_str(), other));
    let run = Run::new((&name, &file), compare);
    let mut run = run.map_err(|gave_up| anyhow!("no room for buckets: {gave_up:?}"))?;
    let input = play(context, args, &mut run)?;
    if run.requests() == 0 && input.bad > 0 {
        let lines = first_lines(&input.first_bad);
        bail!("no line of {} is a request\n{lines}", shown(&args.trace));
    }
    print(context, args, &input, &run)?;
    Ok(Outcome::Done)
}

fn shown(path: &Path) -> String {
    escape(&name_of(path)).into_owned()
}

fn check_use(context: &Context<'_, '_>, args: &ReplayArgs) -> Result<()> {
    let dash = Path::new("-");
    let mut inputs = vec![&args.config, &args.trace];
    inputs.extend(&args.compare);
    if inputs.iter().filter(|path| **path == dash).count() > 1 {
        let wrong = "only one of --config, --trace and --compare can be standard input";
        bail!(Usage(wrong.to_owned()));
    }
    if args.trace == dash && context.io.input_terminal {
        bail!(Usage(
            "write --trace FILE, or pipe a trace into standard input".to_owned()
        ));
    }
    if args.compare.is_some() && context.format() == Format::Jsonl {
        let wrong = "--compare prints no decisions; write --output table, json or csv";
        bail!(Usage(wrong.to_owned()));
    }
    Ok(())
}

/// Runs the trace.
fn play(context: &mut Context<'_, '_>, args: &ReplayArgs, run: &mut Run) -> Result<Intake> {
    let jsonl = context.format() == Format::Jsonl;
    let style = Style {
        width: context.io.width,
        ..context.style
    };
    let Io {
        out,
        err,
        input,
        out_terminal,
        err_terminal,
        ..
    } = &mut *context.io;
    // A bar would disrupt decisions on the same terminal.
    let shows = *err_terminal && !(jsonl && *out_terminal);
    let is_input = args.trace == Path::new("-");
    let (reader, total): (Box<dyn Read + '_>, Option<u64>) = if is_input {
        (Box::new(&mut **input), None)
    } else {
        let name = || format!("cannot read {}", shown(&args.trace));
        let file = File::open(&args.trace).with_context(name)?;
        let about = file.metadata().with_context(name)?;
        let total = Some(about.len()).filter(|_| about.is_file());
        (Box::new(file), total)
    };
    let mut watch = Watch {
        out: jsonl.then_some(&mut **out),
        buffer: Vec::with_capacity(if jsonl { 2 * CHUNK } else { 0 }),
        progress: shows.then(|| Progress::new(&mut **err, total, style)),
    };
    let mut reader = reader;
    let form = args.format.map(LogFormat::from);
    let played = replay(&mut reader, form, args.strict, run, &mut watch);
    // Decisions from before a failure are kept.
    watch.finish()?;
    played
        .map_err(explained)
        .with_context(|| shown(&args.trace))
}

/// The reason why a run ended early, safe to print, with the option that helps.
fn explained(error: Error) -> anyhow::Error {
    match error {
        Error::Bad(line) => anyhow!("{}", first_lines(&[line])),
        Error::Unknown => {
            let names = LogFormat::ALL.map(LogFormat::name).join(", ");
            anyhow!("{error}; write --format with one of {names}")
        }
        Error::Observer(error) => error.into(),
        Error::Read(_) => error.into(),
    }
}

/// Invalid lines, safe to print.
fn first_lines(lines: &[BadLine]) -> String {
    let lines = lines
        .iter()
        .map(|line| escape(&line.to_string()).into_owned());
    lines.collect::<Vec<_>>().join("\n")
}

/// Writes decisions and shows the progress.
struct Watch<'a> {
    out: Option<&'a mut dyn Write>,
    buffer: Vec<u8>,
    progress: Option<Progress<'a>>,
}

impl Observer for Watch<'_> {
    fn decided(&mut self, at: Nanos, reported: &Reported<'_>) -> io::Result<()> {
        let Some(out) = &mut self.out else {
            return Ok(());
        };
        decisions::write(&mut self.buffer, at, reported)?;
        if self.buffer.len() >= CHUNK {
            out.write_all(&self.buffer)?;
            self.buffer.clear();
        }
        Ok(())
    }

    fn progress(&mut self, bytes: u64, requests: u64) -> io::Result<()> {
        if let Some(progress) = &mut self.progress {
            progress.show(bytes, requests)?;
        }
        Ok(())
    }
}

impl Watch<'_> {
    fn finish(self) -> io::Result<()> {
        if let Some(out) = self.out {
            out.write_all(&self.buffer)?;
        }
        self.progress.map_or(Ok(()), Progress::finish)
    }
}

fn print(
    context: &mut Context<'_, '_>,
    args: &ReplayArgs,
    input: &Intake,
    run: &Run,
) -> Result<()> {
    let summary = RunSummary::new(&name_of(&args.trace), input, run);
    let style = context.style;
    match context.format() {
        Format::Jsonl => {}
        Format::Json => return Ok(json(context.io.out, Format::Json, &summary)?),
        Format::Csv => view::csv_lines(&summary, context.io.out)?,
        Format::Table => return Ok(view::print(&summary, context.io.out, style)?),
    }
    bad_lines(context, input)
}

/// Reports skipped lines on standard error, if standard output has no place for them.
fn bad_lines(context: &mut Context<'_, '_>, input: &Intake) -> Result<()> {
    if input.bad > 0 {
        let lines = first_lines(&input.first_bad);
        let bad = view::bad_lines(input.bad);
        context.note(&format!("{bad}\n{lines}"))?;
    }
    Ok(())
}
