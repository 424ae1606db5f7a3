//! The loop: passes every line of a trace or log through a run.

use std::io::{self, Read};
use std::{error, fmt};

use loudou_limiter::Nanos;

use super::engine::Reported;
use super::format::LogFormat;
use super::input::{BadLine, Intake};
use super::lines::{self, Lines, RawLine};
use super::record::LogLine;
use super::run::Run;

/// The number of unrecognised lines after which a file is given up.
const MAX_UNKNOWN: u64 = 100;
/// The number of lines between two progress reports.
const PROGRESS_LINES: u64 = 4_096;

/// Receives the decisions and the progress of a run.
pub trait Observer {
    /// A request's instant, and its outcome under the first rule file.
    fn decided(&mut self, at: Nanos, reported: &Reported<'_>) -> io::Result<()>;
    /// Called every few thousand lines with the bytes and requests so far.
    fn progress(&mut self, bytes: u64, requests: u64) -> io::Result<()>;
}

/// The reason for which a run ended before its input.
#[derive(Debug)]
pub enum Error {
    /// The input could not be read.
    Read(io::Error),
    /// The [`Observer`] failed.
    Observer(io::Error),
    /// The first bad line of a strict run.
    Bad(BadLine),
    /// Too many lines, none in a known format.
    Unknown,
}

impl fmt::Display for Error {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        match self {
            Self::Read(_) => f.write_str("cannot read the trace"),
            Self::Observer(error) => error.fmt(f),
            Self::Bad(line) => line.fmt(f),
            Self::Unknown => f.write_str("the format of the trace is not recognised"),
        }
    }
}

impl error::Error for Error {
    fn source(&self) -> Option<&(dyn error::Error + 'static)> {
        match self {
            Self::Read(error) => Some(error),
            Self::Observer(error) => error.source(),
            Self::Bad(_) | Self::Unknown => None,
        }
    }
}

/// Passes all lines of `reader` through `run`. With `strict`, the first bad line ends the run.
pub fn replay(
    reader: &mut dyn Read,
    form: Option<LogFormat>,
    strict: bool,
    run: &mut Run,
    observer: &mut dyn Observer,
) -> Result<Intake, Error> {
    let mut lines = Lines::new(reader);
    let mut input = Intake::new(form);
    loop {
        let number = lines.number() + 1;
        if number.is_multiple_of(PROGRESS_LINES) {
            let (bytes, requests) = (lines.bytes_done(), run.requests());
            observer
                .progress(bytes, requests)
                .map_err(Error::Observer)?;
        }
        let Some(line) = lines.next().map_err(Error::Read)? else {
            break;
        };
        let done = one(line, &mut input, run, observer).map_err(Error::Observer)?;
        if let Err(wrong) = done {
            let text = match line {
                RawLine::Bytes(text) => text,
                RawLine::TooLong => &[],
            };
            if strict {
                return Err(Error::Bad(BadLine::new(number, wrong, text)));
            }
            input.bad(number, wrong, text);
            if input.form.is_none() && input.bad >= MAX_UNKNOWN {
                return Err(Error::Unknown);
            }
        }
    }
    input.lines = lines.number();
    input.bytes = lines.bytes_done();
    Ok(input)
}

/// Passes one line through `run`. The inner error describes a bad line.
fn one(
    line: RawLine<'_>,
    input: &mut Intake,
    run: &mut Run,
    observer: &mut dyn Observer,
) -> io::Result<Result<(), String>> {
    let line = match line {
        RawLine::TooLong => {
            return Ok(Err(format!("longer than {} KiB", lines::MAX_LINE >> 10)));
        }
        RawLine::Bytes(line) if line.trim_ascii().is_empty() => return Ok(Ok(())),
        RawLine::Bytes(line) => line,
    };
    let Some(form) = input.form_of(line) else {
        return Ok(Err(unknown(line)));
    };
    match form.parse(line) {
        Err(wrong) => Ok(Err(wrong)),
        Ok(LogLine::Edit(set)) => Ok(run.set(&set)),
        Ok(LogLine::Request(mut record)) => {
            let at = record.at;
            run.request(&mut record, |reported| observer.decided(at, reported))?;
            Ok(Ok(()))
        }
    }
}

fn unknown(line: &[u8]) -> String {
    if line.starts_with(b"\x1f\x8b") {
        return "compressed; pipe it through `gunzip -c`".to_owned();
    }
    "neither a trace nor a log in a known format".to_owned()
}
