//! Reads all inputs, and sorts their lines by time.

use std::cell::Cell;
use std::fmt;
use std::io::{self, Cursor, Read};
use std::rc::Rc;

use loudou_limiter::Nanos;

use super::decompress;
use super::encode::{self, Names, Place, flag};
use super::envelope::{Envelope, Unwrapped};
use super::error::{Error, Observer, Progress};
use super::format::{LineParser, LogFormat};
use super::input::{BadLine, Input, InputIntake, Intake};
use super::lines::{Lines, MAX_LINE, RawLine};
use super::pattern::Pattern;
use super::record::{FAR, LogLine, LoggedRequest, Unread};
use super::recording::Recording;
use super::sort::{NewScratch, Sorter};
use super::source::ClientSource;
use super::window::{Part, Window};
use loudou_words::num::count;

/// Number of unrecognised lines after which reading an input fails. The number is high because a
/// proxy can log many messages before its first request.
const MAX_UNKNOWN: u64 = 1_000;
/// Number of lines between progress reports.
const PROGRESS_LINES: u64 = 4_096;
/// Default memory for records, in bytes. If more is needed, records are sorted on disk.
const MEMORY: usize = 64 << 20;

/// Options for reading inputs.
pub struct Reading<'a> {
    /// Format of all inputs, or `None` to detect the format of each input.
    pub format: Option<LogFormat>,
    /// Custom format specified by the user, which takes precedence over `format`.
    pub pattern: Option<Pattern>,
    /// Source of the client address.
    pub source: ClientSource,
    /// Time window of the log to replay.
    pub window: Window,
    /// True if the first bad line ends the run.
    pub strict: bool,
    /// Maximum size of the records kept in memory, in bytes.
    pub memory: usize,
    /// Opens scratch files for records that do not fit into memory.
    pub scratch: &'a NewScratch,
}

impl Default for Reading<'_> {
    fn default() -> Self {
        Self {
            format: None,
            pattern: None,
            source: ClientSource::Auto,
            window: Window::default(),
            strict: false,
            memory: MEMORY,
            scratch: &|| Ok(Box::new(Cursor::new(Vec::new()))),
        }
    }
}

impl fmt::Debug for Reading<'_> {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.debug_struct("Reading")
            .field("format", &self.format)
            .field("source", &self.source)
            .field("window", &self.window)
            .finish_non_exhaustive()
    }
}

/// Wraps a reader and counts the bytes read.
struct Counted<'a> {
    reader: Box<dyn Read + 'a>,
    bytes: Rc<Cell<u64>>,
}

impl Read for Counted<'_> {
    fn read(&mut self, into: &mut [u8]) -> io::Result<usize> {
        let read = self.reader.read(into)?;
        self.bytes.set(self.bytes.get() + count(read));
        Ok(read)
    }
}

/// Reads all inputs and sorts their lines.
pub fn read(
    inputs: Vec<Input<'_>>,
    reading: &Reading<'_>,
    observer: &mut dyn Observer,
) -> Result<Recording, Error> {
    let mut reader = Reader {
        sorter: Sorter::new(reading.memory, reading.scratch),
        part: reading.window.known(),
        reading,
        observer,
        names: Names::default(),
        intake: Intake::default(),
        bytes: Rc::default(),
        times: None,
        several: inputs.len() > 1,
    };
    reader.intake.source = reading.source.words();
    for (input, index) in inputs.into_iter().zip(0..) {
        reader.input(index, input)?;
    }
    reader.finish()
}

/// State of reading all inputs.
struct Reader<'a> {
    reading: &'a Reading<'a>,
    observer: &'a mut dyn Observer,
    sorter: Sorter<'a>,
    names: Names,
    intake: Intake,
    /// Number of bytes read before decompression.
    bytes: Rc<Cell<u64>>,
    /// Times of the earliest and the latest request.
    times: Option<(Nanos, Nanos)>,
    /// Time range to replay, with the bounds that are known before the log is read.
    part: Part,
    /// True if there are several inputs.
    several: bool,
}

/// State of reading one input.
struct Current {
    index: u32,
    parser: LineParser,
    envelope: Envelope,
    about: InputIntake,
    /// Latest timestamp so far.
    newest: Nanos,
    /// Two flags: whether any request started, and whether any ended, at a time that is not a whole
    /// second.
    is_fine: [bool; 2],
}

impl Reader<'_> {
    fn input(&mut self, index: u32, input: Input<'_>) -> Result<(), Error> {
        let failed = |name: &str| {
            let name = name.to_owned();
            |error| Error::Read(name, error)
        };
        let Input { name, open } = input;
        let reader = open().map_err(failed(&name))?;
        let bytes = Rc::clone(&self.bytes);
        let reader = decompress::plain(Box::new(Counted { reader, bytes }));
        let mut lines = Lines::new(reader.map_err(failed(&name))?);
        let mut current = Current {
            index,
            parser: LineParser::new(self.reading.format, self.reading.pattern.as_ref()),
            envelope: Envelope::new(self.reading.pattern.is_some()),
            about: InputIntake {
                name,
                ..InputIntake::default()
            },
            newest: Nanos::ZERO,
            is_fine: [false; 2],
        };
        loop {
            let number = lines.number() + 1;
            if number.is_multiple_of(PROGRESS_LINES) {
                self.report()?;
            }
            match lines.next() {
                Ok(None) => break,
                Ok(Some(line)) => self.line(&mut current, number, line)?,
                Err(error) if is_damage(&error) && !self.reading.strict => {
                    current.about.damaged = Some(error.to_string());
                    break;
                }
                Err(error) => return Err(Error::Read(current.about.name, error)),
            }
        }
        if let Some(last) = current.envelope.last() {
            self.whole_line(&mut current, lines.number(), &last)?;
        }
        self.intake.lines += lines.number();
        self.intake.bytes += lines.bytes_done();
        current.about.lines = lines.number();
        self.end_input(current);
        Ok(())
    }

    fn report(&mut self) -> Result<(), Error> {
        let progress = Progress::Reading {
            bytes: self.bytes.get(),
            records: self.intake.records,
        };
        self.observer.progress(progress).map_err(Error::Observer)
    }

    fn end_input(&mut self, current: Current) {
        let Current {
            parser,
            mut about,
            is_fine,
            newest,
            ..
        } = current;
        // A single request does not reveal the resolution of the timestamps. In a trace that starts
        // at zero, the timestamps are not wall-clock times.
        let has_seconds = about.requests > 1 && newest >= FAR;
        self.intake.is_coarse |= has_seconds && is_fine != [true; 2];
        about.format = parser.form.map(LogFormat::name);
        if let Some(form) = parser.form
            && !self.intake.forms.contains(&form)
        {
            self.intake.forms.push(form);
        }
        self.intake.inputs.push(about);
    }

    fn line(&mut self, current: &mut Current, number: u64, line: RawLine<'_>) -> Result<(), Error> {
        let RawLine::Bytes(line) = line else {
            return self.too_long(&mut current.about, number, &current.parser);
        };
        // Move the envelope out of `current`, because the line borrows from it while `current` is
        // modified.
        let mut envelope = std::mem::take(&mut current.envelope);
        let read = match envelope.unwrap(line) {
            Unwrapped::Line(line) => self.whole_line(current, number, line),
            Unwrapped::Part => Ok(()),
            Unwrapped::TooLong => self.too_long(&mut current.about, number, &current.parser),
        };
        current.envelope = envelope;
        read
    }

    fn too_long(
        &mut self,
        about: &mut InputIntake,
        number: u64,
        parser: &LineParser,
    ) -> Result<(), Error> {
        let wrong = format!("longer than {} KiB", MAX_LINE >> 10);
        let line = BadLine::new(number, wrong, &[], 0);
        self.bad(about, line, parser.form.is_some())
    }

    fn whole_line(&mut self, current: &mut Current, number: u64, line: &[u8]) -> Result<(), Error> {
        if line.trim_ascii().is_empty() {
            return Ok(());
        }
        let place = Place {
            input: current.index,
            line: number,
        };
        let (newest, about) = (&mut current.newest, &mut current.about);
        let is_fine = &mut current.is_fine;
        match current.parser.parse(line) {
            Ok(LogLine::Request(request)) => {
                about.requests += 1;
                for (is_fine, is_too) in is_fine.iter_mut().zip(request.is_fine()) {
                    *is_fine |= is_too;
                }
                self.order(newest, request.at);
                self.request(place, request)
            }
            Ok(LogLine::Edit(edit)) => {
                self.order(newest, edit.at);
                let at = edit.at.get();
                let pushed = self.sorter.push(at, |out| encode::edit(out, place, line));
                pushed.map_err(Error::Sort)
            }
            Err(Unread::Other(other)) => {
                self.intake.other(other);
                Ok(())
            }
            Err(Unread::Bad {
                message,
                at,
                untimed,
            }) => {
                self.intake.untimed += u64::from(untimed);
                let bad = BadLine::new(number, message, line, at);
                self.bad(about, bad, current.parser.form.is_some())
            }
        }
    }

    fn bad(&mut self, about: &mut InputIntake, line: BadLine, is_known: bool) -> Result<(), Error> {
        let line = BadLine {
            file: self.several.then(|| about.name.clone()),
            ..line
        };
        if self.reading.strict {
            return Err(Error::Bad(line));
        }
        about.bad_lines += 1;
        self.intake.bad(line);
        if !is_known && about.bad_lines >= MAX_UNKNOWN {
            let first = self.intake.first_bad.first().cloned();
            return Err(Error::Unknown(about.name.clone(), first));
        }
        Ok(())
    }

    /// Counts a request or edit. If its timestamp is earlier than the latest timestamp so far, the
    /// line also counts as out of order.
    fn order(&mut self, newest: &mut Nanos, at: Nanos) {
        self.intake.records += 1;
        if at < *newest {
            self.intake.steps_back += 1;
            let longest = &mut self.intake.longest_step_back_ns;
            *longest = newest.since(at).get().max(*longest);
        } else {
            *newest = at;
        }
    }

    fn request(&mut self, place: Place, mut logged: LoggedRequest<'_>) -> Result<(), Error> {
        let at = logged.at;
        let (first, last) = self.times.unwrap_or((at, at));
        self.times = Some((first.min(at), last.max(at)));
        if !self.part.has(at) {
            self.intake.outside += 1;
            return Ok(());
        }
        let had_source = logged.request.source.is_some();
        self.reading.source.apply(&mut logged.request);
        let has_length = logged.take_length();
        let (request, seen) = (&logged.request, &mut self.intake.seen);
        seen.has_lengths |= has_length;
        if self.reading.source == ClientSource::Auto {
            seen.forwarded += u64::from(!had_source && request.source.is_some());
        }
        let names = &mut self.names;
        let write = |out: &mut Vec<u8>| encode::request(out, names, place, &logged);
        self.sorter.push(at.get(), write).map_err(Error::Sort)
    }

    fn finish(mut self) -> Result<Recording, Error> {
        self.intake.forms.sort_unstable();
        self.intake.spilled = self.sorter.spilled();
        let sorted = self.sorter.finish().map_err(Error::Sort)?;
        self.intake.seen.parts = self.names.parts;
        let has_underscores = self.intake.seen.has(flag::UNDERSCORES);
        let names = self.names.list().iter();
        self.intake.seen.headers = names
            .map(|name| {
                let name = name.to_ascii_lowercase();
                if has_underscores {
                    name.replace('_', "-")
                } else {
                    name
                }
            })
            .collect();
        self.intake.seen.more_headers = self.names.is_full;
        let (first, last) = self.times.unwrap_or_default();
        Ok(Recording {
            sorted,
            names: self.names,
            part: self.reading.window.resolve(first, last),
            intake: self.intake,
        })
    }
}

/// Returns true if the error means that compressed input is truncated or damaged.
fn is_damage(error: &io::Error) -> bool {
    use io::ErrorKind::{InvalidData, InvalidInput, UnexpectedEof};
    matches!(error.kind(), InvalidData | InvalidInput | UnexpectedEof)
}

#[cfg(test)]
mod tests;
