//! Implements `loudou replay`, which shows how a rule file would have decided recorded traffic.

use std::io::{self, Write};
use std::path::{Path, PathBuf};

use anyhow::{Result, anyhow, bail};
use clap::Args;
use loudou_print::replay::{self as printed, RuleText, first_lines, no_requests, unknown_format};
use loudou_replay::decisions::Decided;
use loudou_replay::format::LogFormat;
use loudou_replay::input::Intake;
use loudou_replay::run::Run;
use loudou_replay::sort::Scratch;
use loudou_replay::source::ClientSource;
use loudou_replay::suggest::suggest;
use loudou_replay::summary::RunSummary;
use loudou_replay::window::{Bound, Window};
use loudou_replay::{Error, Input, Observer, Pattern, Progress, Reading, decisions, replay};
use loudou_rules::rule::RuleFile;

use super::check::rules_of_text;
use super::context::Context;
use super::files::{bytes_of, name_of};
use super::options::{Format, every_output};
use super::outcome::Outcome;
use super::world::{Io, Usage, json};
use loudou_print::style::Style;
use loudou_words::num::typed;
use loudou_words::text::{escape, json_safe};

mod form;
mod progress;
mod records;
mod suggest;
pub(super) mod traces;

use form::FormArg;
use records::CsvTable;
use suggest::SuggestArgs;

use progress::ProgressBar;
use traces::Traces;

/// Number of buffered bytes after which the decisions are written out.
const CHUNK: usize = 64 << 10;

/// Default number of keys in a list. CSV output lists all keys by default.
const KEYS: usize = 10;
/// Maximum number of rule files to compare with. Each file needs memory for its own buckets.
const MOST_COMPARED: usize = 7;

const EXAMPLES: &str = "\
Examples:
  loudou replay --config rules.yaml --trace access.log
  loudou replay --config rules.yaml --trace access.log --compare stricter.yaml
  loudou replay --config rules.yaml --trace 'access.log*'    rotated, also compressed
  loudou replay --config rules.yaml --trace a.log --trace b.log --source xff:2
  kubectl logs -l app=envoy --prefix | loudou replay --config rules.yaml
  loudou replay --config rules.yaml --trace trace.jsonl --output jsonl    every decision
  loudou replay --config rules.yaml --trace access.log --output html > report.html
  loudou replay --config rules.yaml --trace access.log --suggest --at-most 0.1%users
  loudou replay --key source --match '{ path: { prefix: /api } }' --trace access.log --suggest";

#[derive(Debug, Args)]
#[command(before_long_help = EXAMPLES, arg(every_output()))]
pub(crate) struct ReplayArgs {
    /// Rule file, or envoy.yaml; - for standard input
    ///
    /// JSON or YAML
    #[arg(long, value_name = "FILE", required_unless_present_any = ["key_part", "suggest"])]
    config: Option<PathBuf>,
    /// Access logs or traces, or 'access.log*'
    ///
    /// Also compressed (gzip, Zstandard), or patterns of names; - for standard input. All requests
    /// are sorted by their start time
    #[arg(long, value_name = "FILE", default_value = "-", num_args = 1..)]
    trace: Vec<PathBuf>,
    #[command(flatten)]
    log: LogArgs,
    /// Another rule file to compare with; up to 7
    #[arg(long, value_name = "FILE")]
    compare: Vec<PathBuf>,
    /// With --output csv: rules, keys or timeline
    ///
    /// rules are the verdicts of each rule, keys the most refused keys, timeline the requests over time [default: rules]
    #[arg(
        long,
        value_enum,
        value_name = "TABLE",
        hide_possible_values = true,
        conflicts_with = "suggest"
    )]
    table: Option<CsvTable>,
    /// How many keys to list [default: 10]
    ///
    /// Of the most refused and the most changed; with --output csv the default is all that are counted
    #[arg(long, value_name = "N", value_parser = keys, conflicts_with = "suggest", allow_hyphen_values = true)]
    keys: Option<u32>,
    #[command(flatten)]
    suggest: SuggestArgs,
    /// Fail at the first invalid line
    #[arg(long)]
    strict: bool,
}

/// Options that determine how a log is read.
#[derive(Clone, Debug, Default, Args)]
pub(super) struct LogArgs {
    /// Format of the traces; see --help [default: detected]
    ///
    /// Detected for each file from its lines: trace (JSON Lines with `at_ns`), envoy (Envoy's default access log, or
    /// Istio's), envoy-json (Envoy's access log as JSON, also Istio's and Envoy Gateway's), combined (NGINX's `combined`
    /// or `main`, Apache's `common` or `combined`), vhost-combined (Apache's `vhost_combined`, or `combined` after a
    /// host), ingress-nginx (its default), caddy (Caddy's JSON), alb (AWS's application load balancer)
    #[arg(
        long,
        value_enum,
        value_name = "FORM",
        hide_possible_values = true,
        conflicts_with = "log_format"
    )]
    format: Option<FormArg>,
    /// Your own format, in NGINX's notation or Envoy's
    ///
    /// NGINX's: `$remote_addr [$time_local] "$request"`, Envoy's: `[%START_TIME%] "%REQ(:METHOD)% %REQ(:PATH)%"`
    #[arg(long, value_name = "TEXT", value_parser = Pattern::parse)]
    log_format: Option<Pattern>,
    /// The client: remote, xff, xff:N or header:NAME
    ///
    /// remote is the log's column, xff the last address of x-forwarded-for, xff:N the Nth from its end [default: remote, else xff]
    #[arg(long, value_name = "WHERE", value_parser = ClientSource::parse)]
    source: Option<ClientSource>,
    /// Leave out requests before this time: RFC 3339, +10m
    ///
    /// The log's time format is accepted, too. +10m means after the first request, and -10m before
    /// the last
    #[arg(long, value_name = "TIME", value_parser = Bound::parse, allow_hyphen_values = true)]
    from: Option<Bound>,
    /// Leave out requests from this time on
    #[arg(long, value_name = "TIME", value_parser = Bound::parse, allow_hyphen_values = true)]
    to: Option<Bound>,
}

impl LogArgs {
    const fn window(&self) -> Window {
        Window {
            from: self.from,
            to: self.to,
        }
    }

    /// Fails if the range from `--from` to `--to` is empty.
    pub(super) fn check_use(&self) -> Result<()> {
        if self.window().is_empty() {
            let wrong = "--from has to be before --to";
            bail!(Usage(wrong.to_owned()));
        }
        Ok(())
    }

    /// Returns true if none of these options is set.
    pub(super) const fn is_default(&self) -> bool {
        self.format.is_none()
            && self.log_format.is_none()
            && self.source.is_none()
            && self.from.is_none()
            && self.to.is_none()
    }
}

fn keys(text: &str) -> Result<u32, String> {
    let number = typed(text)?;
    if number == 0 {
        return Err("at least 1".to_owned());
    }
    Ok(number)
}

pub(super) fn run(context: &mut Context<'_, '_>, args: &ReplayArgs) -> Result<Outcome> {
    check_use(context, args)?;
    let read = match &args.config {
        Some(config) => rules(context, config)?,
        None => args.suggest.rules(context)?,
    };
    let Some((text, file)) = read else {
        return Ok(Outcome::Failed);
    };
    if args.suggest.suggest {
        let tried = args.suggest.tried()?;
        let traces = traces::expand(&args.trace)?;
        let found = with_inputs(
            context,
            (&args.log, args.strict),
            &traces,
            |inputs, reading, watch| suggest(inputs, reading, (&file, tried), watch),
        )?;
        nothing(&traces, &found.intake)?;
        let source = (traces.name(), text);
        suggest::print(context, source, &found, args.suggest.at_most)?;
        return Ok(Outcome::Done);
    }
    let mut texts = vec![text];
    let mut others: Vec<(String, RuleFile)> = Vec::new();
    for path in &args.compare {
        let Some((text, other)) = rules(context, path)? else {
            return Ok(Outcome::Failed);
        };
        others.push((text.name.clone(), other));
        texts.push(text);
    }
    let name = args.config.as_deref().map(name_of).unwrap_or_default();
    let run = Run::new((&name, &file), &others);
    let mut run = run.map_err(|gave_up| anyhow!("no room for buckets: {gave_up:?}"))?;
    let traces = traces::expand(&args.trace)?;
    let input = with_inputs(
        context,
        (&args.log, args.strict),
        &traces,
        |inputs, reading, watch| replay(inputs, reading, &mut run, watch),
    )?;
    nothing(&traces, &input)?;
    let summary = RunSummary::new(&traces.name(), &input, &run, most_keys(context, args));
    if context.is_html() {
        let page = printed::page(&summary, &texts);
        context.io.out.write_all(page.as_bytes())?;
    } else {
        print(context, &summary, args.table.unwrap_or_default())?;
    }
    Ok(Outcome::Done)
}

/// Reads a rule file, and returns its text and its rules. If the file has problems, prints them and returns `None`.
fn rules(context: &mut Context<'_, '_>, path: &Path) -> Result<Option<(RuleText, RuleFile)>> {
    let (name, bytes) = (name_of(path), bytes_of(context, path)?);
    let file = rules_of_text(context, &name, &bytes)?;
    let text = String::from_utf8_lossy(&bytes).into_owned();
    Ok(file.map(|file| (RuleText { name, text }, file)))
}

/// Fails if the traces contain invalid lines but no requests.
pub(super) fn nothing(traces: &Traces, input: &Intake) -> Result<()> {
    if input.records > 0 {
        return Ok(());
    }
    if input.bad > 0 {
        bail!(no_requests(&traces.name(), &input.first_bad));
    }
    Ok(())
}

fn check_use(context: &Context<'_, '_>, args: &ReplayArgs) -> Result<()> {
    args.suggest.check_use(args.config.is_some())?;
    let dash = Path::new("-");
    let mut inputs: Vec<&PathBuf> = args.config.iter().chain(&args.trace).collect();
    inputs.extend(&args.compare);
    if inputs.iter().filter(|path| **path == dash).count() > 1 {
        let wrong = "only one of --config, --trace and --compare can be standard input";
        bail!(Usage(wrong.to_owned()));
    }
    if args.trace.iter().any(|trace| trace == dash) && context.io.input_terminal {
        bail!(Usage(
            "write --trace FILE, or pipe a trace into standard input".to_owned()
        ));
    }
    if args.compare.len() > MOST_COMPARED {
        let count = args.compare.len();
        bail!(Usage(format!(
            "--compare takes at most {MOST_COMPARED} files, not {count}"
        )));
    }
    args.log.check_use()?;
    if args.table.is_some() && context.format() != Format::Csv {
        let wrong = "--table chooses a table of --output csv";
        bail!(Usage(wrong.to_owned()));
    }
    let lists_keys = match context.format() {
        Format::Table | Format::Json => true,
        Format::Jsonl => false,
        Format::Csv => args.table == Some(CsvTable::Keys),
    };
    if args.keys.is_some() && !lists_keys {
        let wrong = "--keys is a length of lists of keys, which --output jsonl and other tables of --output csv \
                     do not have";
        bail!(Usage(wrong.to_owned()));
    }
    if !args.compare.is_empty() && context.format() == Format::Jsonl {
        let wrong = "--compare prints no decisions; write --output table, json, csv or html";
        bail!(Usage(wrong.to_owned()));
    }
    Ok(())
}

/// Returns the maximum number of keys in a list.
fn most_keys(context: &Context<'_, '_>, args: &ReplayArgs) -> usize {
    let named = args
        .keys
        .map(|keys| usize::try_from(keys).unwrap_or(usize::MAX));
    let all = context.format() == Format::Csv;
    named.unwrap_or(if all { usize::MAX } else { KEYS })
}

/// Opens the traces, runs `work` on them, and shows the progress of `work`.
pub(super) fn with_inputs<T>(
    context: &mut Context<'_, '_>,
    (log, strict): (&LogArgs, bool),
    traces: &Traces,
    work: impl FnOnce(Vec<Input<'_>>, &Reading<'_>, &mut dyn Observer) -> Result<T, Error>,
) -> Result<T> {
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
    // If the decisions go to the same terminal, a progress bar would disrupt them.
    let shows = *err_terminal && !(jsonl && *out_terminal);
    let (inputs, total) = traces.open(&mut **input)?;
    let reading = Reading {
        format: log.format.map(LogFormat::from),
        pattern: log.log_format.clone(),
        source: log.source.clone().unwrap_or_default(),
        window: log.window(),
        strict,
        scratch: &scratch,
        ..Reading::default()
    };
    let mut watch = Watch {
        out: jsonl.then_some(&mut **out),
        buffer: Vec::with_capacity(if jsonl { 2 * CHUNK } else { 0 }),
        progress: shows.then(|| ProgressBar::new(&mut **err, total, style)),
    };
    let played = work(inputs, &reading, &mut watch);
    // Decisions that were made before a failure are still written.
    watch.finish()?;
    played.map_err(explained)
}

/// Returns an unnamed temporary file for sorting. The file disappears however this process ends.
fn scratch() -> io::Result<Box<dyn Scratch>> {
    Ok(Box::new(tempfile::tempfile()?))
}

/// Returns an escaped error message that explains why a run ended early, and which option or variable helps.
fn explained(error: Error) -> anyhow::Error {
    match error {
        Error::Bad(line) => anyhow!("{}", first_lines(&[line])),
        Error::Unknown(ref name, ref line) => {
            anyhow!(unknown_format(name, line.as_ref()))
        }
        Error::Sort(error) => {
            let folder = std::env::temp_dir();
            let folder = escape(&folder.to_string_lossy()).into_owned();
            anyhow::Error::new(error).context(format!(
                "cannot sort the requests in {folder}; TMPDIR chooses another folder"
            ))
        }
        Error::Read(name, error) => {
            anyhow::Error::new(error).context(format!("cannot read {}", escape(&name)))
        }
        Error::Observer(error) => error.into(),
    }
}

/// Writes the decisions and shows the progress.
struct Watch<'a> {
    out: Option<&'a mut dyn Write>,
    buffer: Vec<u8>,
    progress: Option<ProgressBar<'a>>,
}

impl Observer for Watch<'_> {
    fn decided(&mut self, decided: &Decided<'_>) -> io::Result<()> {
        let Some(out) = &mut self.out else {
            return Ok(());
        };
        decisions::write(&mut self.buffer, decided)?;
        if self.buffer.len() >= CHUNK {
            write_safe(out, std::mem::take(&mut self.buffer))?;
            self.buffer.reserve(2 * CHUNK);
        }
        Ok(())
    }

    fn progress(&mut self, progress: Progress) -> io::Result<()> {
        if let Some(bar) = &mut self.progress {
            bar.show(progress)?;
        }
        Ok(())
    }
}

/// Writes JSON Lines. Unsafe characters are escaped, because clients choose the keys and paths in the lines.
fn write_safe(out: &mut dyn Write, lines: Vec<u8>) -> io::Result<()> {
    let is_plain = |byte: &u8| (b' '..=b'~').contains(byte) || *byte == b'\n';
    if lines.iter().all(is_plain) {
        return out.write_all(&lines);
    }
    let text = String::from_utf8(lines).map_err(io::Error::other)?;
    out.write_all(json_safe(text).as_bytes())
}

impl Watch<'_> {
    fn finish(self) -> io::Result<()> {
        if let Some(out) = self.out {
            write_safe(out, self.buffer)?;
        }
        self.progress.map_or(Ok(()), ProgressBar::finish)
    }
}

fn print(context: &mut Context<'_, '_>, summary: &RunSummary, table: CsvTable) -> Result<()> {
    let style = context.style;
    match context.format() {
        Format::Jsonl => {}
        Format::Json => return Ok(json(context.io.out, Format::Json, summary)?),
        Format::Csv => records::print(summary, table, context.io.out)?,
        Format::Table => return Ok(printed::print(summary, context.io.out, style)?),
    }
    // The output format has no field for warnings and invalid lines, so they are printed to standard error.
    for warning in &summary.warnings {
        context.note(&format!("warning: {}", escape(warning)))?;
    }
    let trace = &summary.trace;
    if trace.bad_lines > 0 {
        let lines = first_lines(&trace.first_bad_lines);
        let bad = printed::bad_lines(trace.bad_lines);
        context.note(&format!("{bad}\n{lines}"))?;
    }
    Ok(())
}
