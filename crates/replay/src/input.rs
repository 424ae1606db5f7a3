//! The input: what was read, and the lines that could not be read.

use std::fmt;
use std::io::{self, Read};

use serde::Serialize;

use super::encode::{Place, flag};
use super::format::LogFormat;
use super::record::OtherLine;

/// The number of bad lines that are kept to be shown.
const SHOWN: usize = 5;
/// The kept part of a bad line, in bytes.
const EXCERPT: usize = 120;
/// How much of a bad line is kept from before its mistake.
const BEFORE: usize = 60;

/// Opens an [`Input`].
pub type Open<'a> = Box<dyn FnOnce() -> io::Result<Box<dyn Read + 'a>> + 'a>;

/// One file or stream to read; gzip and Zstandard are recognised.
pub struct Input<'a> {
    /// Its name in messages.
    pub name: String,
    /// Called when it is its turn.
    pub open: Open<'a>,
}

impl fmt::Debug for Input<'_> {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.debug_struct("Input")
            .field("name", &self.name)
            .finish_non_exhaustive()
    }
}

impl<'a> Input<'a> {
    /// The input that `reader` has.
    pub fn new(name: &str, reader: impl Read + 'a) -> Self {
        Self {
            name: name.to_owned(),
            open: Box::new(|| Ok(Box::new(reader))),
        }
    }
}

/// One input as it was read.
#[derive(Clone, Debug, Default, Serialize)]
pub struct InputIntake {
    /// Its name.
    pub name: String,
    /// The name of its format; `None` when no line showed it.
    pub format: Option<&'static str>,
    /// Lines read.
    pub lines: u64,
    /// Requests among them.
    pub requests: u64,
    /// Lines that could not be read.
    pub bad_lines: u64,
    /// The reason why its end could not be read: it is cut off or damaged.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub damaged: Option<String>,
}

/// All inputs read so far.
#[derive(Debug, Default)]
pub struct Intake {
    /// The inputs, in the order in which they were read.
    pub inputs: Vec<InputIntake>,
    /// The formats of the inputs, without repeats.
    pub forms: Vec<LogFormat>,
    /// Lines read.
    pub lines: u64,
    /// Bytes read, decompressed.
    pub bytes: u64,
    /// Requests and edits among the lines.
    pub records: u64,
    /// Lines that could not be read.
    pub bad: u64,
    /// Bad lines that only lack a time, so that they have no place in the order.
    pub untimed: u64,
    /// The first of the bad lines.
    pub first_bad: Vec<BadLine>,
    /// Lines that are no requests, by [`OtherLine::ALL`].
    pub others: [u64; OtherLine::ALL.len()],
    /// Lines with an earlier time than a preceding line of their input.
    pub steps_back: u64,
    /// The largest such difference, in nanoseconds.
    pub longest_step_back_ns: u64,
    /// Whether the times of an input are whole seconds.
    pub is_coarse: bool,
    /// Requests outside of the window.
    pub outside: u64,
    /// Requests of the window that were answered with 429.
    pub answered_429: u64,
    /// Bytes of records that were sorted on disk.
    pub spilled: u64,
    /// The choice of clients, in the words of the option.
    pub source: Option<String>,
    pub(crate) seen: Seen,
}

/// What any request of the input had.
#[derive(Debug, Default)]
pub(crate) struct Seen {
    /// By [`flag`].
    pub(crate) parts: u16,
    /// Names of headers, in lower case and with `-` for `_` where the format writes it so.
    pub(crate) headers: Vec<String>,
    /// Whether any log has the length of bodies.
    pub(crate) has_lengths: bool,
    /// Whether there were more names than are kept.
    pub(crate) more_headers: bool,
    /// Requests of the window without a client's address.
    pub(crate) without_source: u64,
    /// Requests whose client is taken from `x-forwarded-for`, for want of a column.
    pub(crate) forwarded: u64,
}

impl Seen {
    pub(crate) fn has(&self, part: u16) -> bool {
        self.parts & part != 0
    }

    pub(crate) fn header(&self, name: &str) -> bool {
        match name {
            ":method" => self.has(flag::METHOD),
            ":path" => self.has(flag::PATH),
            ":authority" | "host" => self.has(flag::HOST),
            _ => self.more_headers || self.headers.iter().any(|seen| seen == name),
        }
    }
}

/// A line that could not be read. All of it is untrusted.
#[derive(Clone, Debug, PartialEq, Eq, Serialize)]
pub struct BadLine {
    /// Its input, if there are several.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub file: Option<String>,
    /// Its number, from 1.
    #[serde(rename = "line")]
    pub number: u64,
    /// Why it could not be read.
    pub message: String,
    /// Its beginning, or the part around the mistake.
    pub text: String,
}

impl BadLine {
    /// A bad line with the part of `text` around the offset `at`.
    pub(crate) fn new(number: u64, message: String, text: &[u8], at: usize) -> Self {
        let start = if at < EXCERPT {
            0
        } else {
            at.saturating_sub(BEFORE)
        };
        let rest = text.get(start..).unwrap_or_default();
        let excerpt = rest.get(..EXCERPT).unwrap_or(rest);
        let mut text = String::from_utf8_lossy(excerpt).into_owned();
        if start > 0 {
            text.insert(0, '…');
        }
        if excerpt.len() < rest.len() || excerpt.len() == EXCERPT {
            text.push('…');
        }
        Self {
            file: None,
            number,
            message,
            text,
        }
    }
}

impl fmt::Display for BadLine {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        if let Some(file) = &self.file {
            write!(f, "{file} ")?;
        }
        write!(f, "line {}: {}", self.number, self.message)
    }
}

impl Intake {
    /// The name of the format, if all inputs have the same.
    pub fn format_name(&self) -> Option<&'static str> {
        match self.forms.as_slice() {
            [] => None,
            [form] => Some(form.name()),
            _ => Some("mixed"),
        }
    }

    pub(crate) fn bad(&mut self, line: BadLine) {
        self.bad += 1;
        if self.first_bad.len() < SHOWN {
            self.first_bad.push(line);
        }
    }

    /// Counts the edit of a rule that does not exist.
    pub(crate) fn bad_edit(&mut self, place: Place, wrong: String, text: &[u8]) -> BadLine {
        let several = self.inputs.len() > 1;
        let mut line = BadLine::new(place.line, wrong, text, 0);
        let input = usize::try_from(place.input).unwrap_or(usize::MAX);
        if let Some(about) = self.inputs.get_mut(input) {
            about.bad_lines += 1;
            line.file = several.then(|| about.name.clone());
        }
        self.bad(line.clone());
        line
    }

    pub(crate) fn other(&mut self, other: OtherLine) {
        let kinds = OtherLine::ALL.iter().zip(&mut self.others);
        for (_, count) in kinds.filter(|(kind, _)| **kind == other) {
            *count += 1;
        }
    }

    /// The lines of each kind that are no requests.
    pub fn other_lines(&self) -> impl Iterator<Item = (OtherLine, u64)> {
        OtherLine::ALL.into_iter().zip(self.others)
    }
}
