//! `loudou replay`: a rule file over recorded traffic, with the filter's own decision code.
//!
//! [`lines`] cuts the input into lines in bounded memory, [`mod@format`] and the modules below it read
//! them as [`record`]s, [`run`] gives each to one or two [`engine`]s, and [`tally`] keeps what came of
//! it in structures whose size does not depend on the input: [`top`], [`timeline`], [`waits`].
//! [`summary`] is all of it as a document.

use std::io::Read;

use anyhow::{Context as _, Result, bail};

pub(crate) mod access;
pub(crate) mod changes;
pub(crate) mod decisions;
pub(crate) mod engine;
pub(crate) mod envoy_json;
pub(crate) mod flight;
pub(crate) mod format;
pub(crate) mod input;
pub(crate) mod instant;
pub(crate) mod json;
pub(crate) mod lines;
pub(crate) mod missing;
mod notes;
pub(crate) mod record;
pub(crate) mod run;
pub(crate) mod summary;
pub(crate) mod tally;
pub(crate) mod timeline;
pub(crate) mod top;
pub(crate) mod trace;
pub(crate) mod waits;

use loudou_limiter::Nanos;

use engine::Reported;
use format::Form;
use input::{BadLine, Input};
use lines::{Lines, RawLine};
use record::Line;
use run::Run;

/// After how many lines of no known form a file is given up.
const MAX_UNKNOWN: u64 = 100;
/// How many lines pass between two looks at the progress.
const PROGRESS_LINES: u64 = 4_096;

/// Who is told of a run as it goes on.
pub(crate) trait Observer {
    /// A request that came at an instant, and what the first rule file made of it.
    fn decided(&mut self, at: Nanos, reported: &Reported<'_>) -> Result<()>;
    /// Every few thousand lines: the bytes and the requests so far.
    fn progress(&mut self, bytes: u64, requests: u64) -> Result<()>;
}

/// Runs all lines of `reader` through `run`. With `strict` the first bad line ends it.
pub(crate) fn replay(
    reader: &mut dyn Read,
    form: Option<Form>,
    strict: bool,
    run: &mut Run,
    observer: &mut dyn Observer,
) -> Result<Input> {
    let mut lines = Lines::new(reader);
    let mut input = Input::new(form);
    loop {
        let number = lines.number() + 1;
        if number.is_multiple_of(PROGRESS_LINES) {
            observer.progress(lines.bytes_done(), run.requests())?;
        }
        let Some(line) = lines.next().context("cannot read the trace")? else {
            break;
        };
        if let Err(wrong) = one(line, &mut input, run, observer)? {
            let text = match line {
                RawLine::Bytes(text) => text,
                RawLine::TooLong => &[],
            };
            input.bad(number, wrong, text);
            if strict {
                bail!("{}", BadLine::said(&input.first_bad));
            }
            if input.form.is_none() && input.bad >= MAX_UNKNOWN {
                let names = Form::ALL.map(Form::name).join(", ");
                bail!(
                    "the form of the trace is not recognised; write --format with one of {names}"
                );
            }
        }
    }
    input.lines = lines.number();
    input.bytes = lines.bytes_done();
    Ok(input)
}

/// Runs a line. The inner error is what is wrong with the line.
fn one(
    line: RawLine<'_>,
    input: &mut Input,
    run: &mut Run,
    observer: &mut dyn Observer,
) -> Result<Result<(), String>> {
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
        Ok(Line::Set(set)) => Ok(run.set(&set)),
        Ok(Line::Request(mut record)) => {
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
    "neither a trace nor a log of a known form".to_owned()
}
