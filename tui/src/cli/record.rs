//! `loudou record`: what the live screen would show, into a file for `loudou top --play`.

use std::fs::{File, OpenOptions};
use std::io::{self, ErrorKind, Write};
use std::os::unix::fs::OpenOptionsExt as _;
use std::path::{Path, PathBuf};

use anyhow::{Context as _, Result, bail};
use clap::Args;
use loudou_limiter::Nanos;

use super::context::Context;
use super::options::span;
use super::targets;
use super::world::{Style, Usage};
use crate::client::Client;
use crate::clock::unix_ms;
use crate::num::count;
use crate::runtime::record::{self, Progress};
use crate::tape::{End, FORMAT, Head, Writer};
use crate::text::{bytes, counted, escape, humanise};

/// The shortest interval: more polls serve no reader.
const SHORTEST: Nanos = Nanos::from_millis(100);
/// The least size of a file: less has no room for an answer.
const LEAST_SIZE: u64 = 64 << 10;

const EXAMPLES: &str = "\
Examples:
  loudou record incident.jsonl.gz                 until Ctrl-C; compressed, because of its name
  loudou record incident.jsonl.gz --for 1h --max-size 200MiB
  loudou top --play incident.jsonl.gz             play it on the screen
  loudou record - --for 10s | jq -c .snapshot.status.rules";

#[derive(Debug, Args)]
#[command(before_help = EXAMPLES)]
pub(crate) struct RecordArgs {
    /// The file to write, - for standard output; a name that ends with .gz is compressed
    file: PathBuf,
    /// End after this time [default: Ctrl-C ends]
    #[arg(long = "for", value_name = "TIME", value_parser = span, allow_hyphen_values = true)]
    time: Option<Nanos>,
    /// End before the file is larger, such as 200MiB
    #[arg(long, value_name = "SIZE", value_parser = size)]
    max_size: Option<u64>,
    /// Time between two polls of an Envoy
    #[arg(long, value_name = "TIME", default_value = "1s", value_parser = interval)]
    interval: Nanos,
}

fn interval(text: &str) -> Result<Nanos, String> {
    let every = span(text)?;
    if every < SHORTEST {
        return Err(format!("too short; at least {}", humanise(SHORTEST.get())));
    }
    Ok(every)
}

/// A size with its unit: `500KiB`, `200MiB`, `1GiB`.
fn size(text: &str) -> Result<u64, String> {
    let units = [("KiB", 10), ("MiB", 20), ("GiB", 30)];
    let read = units.iter().find_map(|(unit, bits)| {
        let number: u64 = text.strip_suffix(unit)?.trim_end().parse().ok()?;
        number
            .checked_shl(*bits)
            .filter(|size| size >> bits == number)
    });
    let read = read.ok_or("expected a whole number of KiB, MiB or GiB, such as 200MiB")?;
    if read < LEAST_SIZE {
        return Err(format!("too small; at least {}", LEAST_SIZE >> 10) + "KiB");
    }
    Ok(read)
}

pub(super) fn run(context: &mut Context<'_, '_>, args: &RecordArgs) -> Result<()> {
    let clients = clients(context, args)?;
    let head = Head {
        loudou_recording: FORMAT,
        version: env!("CARGO_PKG_VERSION").to_owned(),
        unix_ms: unix_ms(),
        interval_ns: args.interval.get(),
        urls: clients
            .iter()
            .map(|client| client.url().to_owned())
            .collect(),
    };
    let options = record::Options {
        clients,
        interval: args.interval,
        time: args.time,
    };
    let envoys = counted(count(head.urls.len()), "Envoy");
    let style = context.style;
    let shows = context.io.err_terminal;
    let name = escape(&args.file.display().to_string()).into_owned();
    let is_stdout = args.file == Path::new("-");
    let out: Box<dyn Write> = if is_stdout {
        Box::new(&mut *context.io.out)
    } else {
        Box::new(created(&args.file)?)
    };
    let is_compressed = args.file.extension().is_some_and(|end| end == "gz");
    let writer = Writer::new(out, is_compressed, args.max_size, &head);
    let cannot = || format!("cannot write {name}");
    let writer = writer.with_context(cannot)?;
    let err = &mut *context.io.err;
    let mut report = |done: &Progress| -> io::Result<()> {
        if !shows {
            return Ok(());
        }
        let line = format!("recording {envoys}: {}; Ctrl-C ends it", words(done));
        let room = style.width.unwrap_or(usize::MAX).saturating_sub(1);
        write!(err, "\r{}\u{1b}[K", style.fit(&line, room))?;
        err.flush()
    };
    let (done, end) = record::run(options, writer, &mut report).with_context(cannot)?;
    if shows {
        write!(context.io.err, "\r\u{1b}[K")?;
    }
    context.note(&summary(&done, end, &envoys, &args.file, style))?;
    if done.answers == 0 {
        bail!("no Envoy answered: there is nothing to play in {name}");
    }
    Ok(())
}

/// The clients of the Envoys to record, of which one answers: a wrong address or token shows before the file exists.
fn clients(context: &mut Context<'_, '_>, args: &RecordArgs) -> Result<Vec<Client>> {
    let addresses = targets::watched(&context.global.connect)?;
    let clients = targets::clients(context, &addresses, args.interval.max(super::top::INTERVAL))?;
    let mut reached = clients.iter().map(|client| client.status().map(drop));
    let first = reached.next().unwrap_or(Ok(()));
    if first.is_err() && !reached.any(|status| status.is_ok()) {
        first?;
    }
    drop(reached);
    Ok(clients)
}

/// A new file that only its owner can read: keys can be names of customers.
fn created(path: &Path) -> Result<File> {
    let name = escape(&path.display().to_string()).into_owned();
    let file = OpenOptions::new()
        .write(true)
        .create_new(true)
        .mode(0o600)
        .open(path);
    match file {
        Err(error) if error.kind() == ErrorKind::AlreadyExists => bail!(Usage(format!(
            "{name} exists; remove it or choose another name"
        ))),
        file => file.with_context(|| format!("cannot write {name}")),
    }
}

fn words(done: &Progress) -> String {
    let time = humanise(done.time.get() / 1_000_000_000 * 1_000_000_000);
    let answers = counted(done.answers, "answer");
    let failures = match done.failures {
        0 => String::new(),
        many => format!(", {} without an answer", counted(many, "poll")),
    };
    format!("{time}, {answers}{failures}, {}", bytes(done.bytes))
}

fn summary(done: &Progress, end: End, envoys: &str, file: &Path, style: Style) -> String {
    let why = match end {
        End::Full => "; the file has reached its size",
        End::Done | End::Interrupted | End::Other => "",
    };
    let play = if file == Path::new("-") {
        String::new()
    } else {
        let name = file.display().to_string();
        format!("; play it: loudou top --play {}", escape(&name))
    };
    style.marks(&format!("recorded {envoys}: {}{why}{play}", words(done)))
}
