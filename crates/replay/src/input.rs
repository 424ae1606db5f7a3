//! Inputs, their statistics, and the lines that could not be read.

use std::fmt;
use std::io::{self, Read};

use serde::Serialize;

use super::encode::{Place, flag};
use super::format::LogFormat;
use super::record::OtherLine;

/// Number of invalid lines that are kept for display.
const SHOWN: usize = 5;
/// Size of the kept part of a bad line, in bytes.
const EXCERPT: usize = 120;
/// Number of bytes that are kept from before the mistake in a bad line.
const BEFORE: usize = 60;

/// Opens an [`Input`].
pub type Open<'a> = Box<dyn FnOnce() -> io::Result<Box<dyn Read + 'a>> + 'a>;

/// A file or stream to read. Gzip and Zstandard are recognised.
pub struct Input<'a> {
    /// Name in messages.
    pub name: String,
    /// Opens the input. It is called when all earlier inputs are read.
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
    /// Creates an input that reads from `reader`.
    pub fn new(name: &str, reader: impl Read + 'a) -> Self {
        Self {
            name: name.to_owned(),
            open: Box::new(|| Ok(Box::new(reader))),
        }
    }
}

/// Statistics of one input.
#[derive(Clone, Debug, Default, Serialize)]
pub struct InputIntake {
    /// Name of the input.
    pub name: String,
    /// Name of its format; `None` when no line showed it.
    pub format: Option<&'static str>,
    /// Number of lines read.
    pub lines: u64,
    /// Number of requests among the lines.
    pub requests: u64,
    /// Number of lines that could not be read.
    pub bad_lines: u64,
    /// Reason why the end of the input could not be read: it is truncated or damaged.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub damaged: Option<String>,
}

/// Statistics of all inputs read so far.
#[derive(Debug, Default)]
pub struct Intake {
    /// Inputs, in the order in which they were read.
    pub inputs: Vec<InputIntake>,
    /// Formats of the inputs, without duplicates.
    pub forms: Vec<LogFormat>,
    /// Number of lines read.
    pub lines: u64,
    /// Number of bytes read, after decompression.
    pub bytes: u64,
    /// Number of requests and edits among the lines.
    pub records: u64,
    /// Number of lines that could not be read.
    pub bad: u64,
    /// Number of bad lines that only lack a time, so they cannot be ordered.
    pub untimed: u64,
    /// First bad lines.
    pub first_bad: Vec<BadLine>,
    /// Numbers of lines that are not requests, by [`OtherLine::ALL`].
    pub others: [u64; OtherLine::ALL.len()],
    /// Number of lines with an earlier time than a preceding line of their input.
    pub steps_back: u64,
    /// Largest such difference, in nanoseconds.
    pub longest_step_back_ns: u64,
    /// True if the times of an input are whole seconds.
    pub is_coarse: bool,
    /// Number of requests outside of the window.
    pub outside: u64,
    /// Number of requests in the window that were answered with 429.
    pub answered_429: u64,
    /// Number of record bytes that were sorted on disk.
    pub spilled: u64,
    /// Part of a line that names the client, as given by the option `--source`.
    pub source: Option<String>,
    pub(crate) seen: Seen,
}

/// Parts that at least one request of the input had.
#[derive(Debug, Default)]
pub(crate) struct Seen {
    /// Parts by [`flag`].
    pub(crate) parts: u16,
    /// Header names, in lower case, and with `-` for `_` where the format writes `_`.
    pub(crate) headers: Vec<String>,
    /// True if any log has the length of request bodies.
    pub(crate) has_lengths: bool,
    /// True if there were more names than are kept.
    pub(crate) more_headers: bool,
    /// Number of requests in the window without a client address.
    pub(crate) without_source: u64,
    /// Number of requests whose client is taken from `x-forwarded-for`, because the log has no
    /// column for it.
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

/// A line that could not be read. All of its text is untrusted.
#[derive(Clone, Debug, PartialEq, Eq, Serialize)]
pub struct BadLine {
    /// Name of its input, if there are several.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub file: Option<String>,
    /// Line number, from 1.
    #[serde(rename = "line")]
    pub number: u64,
    /// Reason why it could not be read.
    pub message: String,
    /// Beginning of the line, or the part around the mistake.
    pub text: String,
}

impl BadLine {
    /// Creates a bad line with the part of `text` around the offset `at`.
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
    /// Returns the format's name, if all inputs have the same format.
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

    /// Counts an edit of a rule that does not exist.
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

    /// Returns the numbers of lines that are not requests, by kind.
    pub fn other_lines(&self) -> impl Iterator<Item = (OtherLine, u64)> {
        OtherLine::ALL.into_iter().zip(self.others)
    }
}
