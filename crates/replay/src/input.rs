//! Inputs, their statistics, and the lines that could not be parsed.

use std::fmt;
use std::io::{self, Read};

use serde::Serialize;

use super::encode::{Place, flag};
use super::format::LogFormat;
use super::record::OtherLine;

/// Maximum number of bad lines that are kept for display.
const SHOWN: usize = 5;
/// Maximum size of the excerpt from a bad line, in bytes.
const EXCERPT: usize = 120;
/// Number of bytes before the error that an excerpt from a bad line includes.
const BEFORE: usize = 60;

/// Opens an [`Input`].
pub type Open<'a> = Box<dyn FnOnce() -> io::Result<Box<dyn Read + 'a>> + 'a>;

/// A file or stream to read. Gzip and Zstandard compression is detected.
pub struct Input<'a> {
    /// Name of the input in messages.
    pub name: String,
    /// Opens the input. Called after all earlier inputs have been read.
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
    /// Name of the input's format, or `None` if no line was recognised.
    pub format: Option<&'static str>,
    /// Number of lines read.
    pub lines: u64,
    /// Number of lines that are requests.
    pub requests: u64,
    /// Number of lines that could not be parsed.
    pub bad_lines: u64,
    /// Error message if the rest of the input could not be read because the compressed data is
    /// truncated or damaged.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub damaged: Option<String>,
}

/// Statistics of all inputs read so far.
#[derive(Debug, Default)]
pub struct Intake {
    /// Inputs, in the order in which they were read.
    pub inputs: Vec<InputIntake>,
    /// Distinct formats of the inputs.
    pub forms: Vec<LogFormat>,
    /// Number of lines read.
    pub lines: u64,
    /// Number of bytes read, after decompression.
    pub bytes: u64,
    /// Number of lines that are requests or edits.
    pub records: u64,
    /// Number of lines that could not be parsed.
    pub bad: u64,
    /// Number of bad lines that are valid except for their timestamp.
    pub untimed: u64,
    /// The first few bad lines.
    pub first_bad: Vec<BadLine>,
    /// Number of lines of each kind that are not requests, in the order of [`OtherLine::ALL`].
    pub others: [u64; OtherLine::ALL.len()],
    /// Number of lines whose timestamp is earlier than the latest timestamp before them in the same
    /// input.
    pub steps_back: u64,
    /// Largest difference between the timestamp of a line that is out of order and the latest
    /// timestamp before it, in nanoseconds.
    pub longest_step_back_ns: u64,
    /// True if all start times or all end times in an input are whole seconds.
    pub is_coarse: bool,
    /// Number of requests outside the replayed time window.
    pub outside: u64,
    /// Number of requests in the window whose response status was 429.
    pub answered_429: u64,
    /// Number of bytes that were written to disk for sorting.
    pub spilled: u64,
    /// Value of the option `--source`, which selects the client address. `None` for the default.
    pub source: Option<String>,
    pub(crate) seen: Seen,
}

/// Request parts that occurred in at least one request.
#[derive(Debug, Default)]
pub(crate) struct Seen {
    /// Request parts, as [`flag`] bits.
    pub(crate) parts: u16,
    /// Header names in lower case. If the format writes `_` for `-` in header names, `_` is
    /// replaced with `-`.
    pub(crate) headers: Vec<String>,
    /// True if any log contains the length of request bodies.
    pub(crate) has_lengths: bool,
    /// True if the inputs contained more header names than are kept.
    pub(crate) more_headers: bool,
    /// Number of requests in the window without a client address.
    pub(crate) without_source: u64,
    /// Number of requests whose client address was taken from `x-forwarded-for` because the log had
    /// none.
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

/// A line that could not be parsed. The message and the excerpt contain untrusted input.
#[derive(Clone, Debug, PartialEq, Eq, Serialize)]
pub struct BadLine {
    /// Name of the input, if there are several inputs.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub file: Option<String>,
    /// Line number (1-based).
    #[serde(rename = "line")]
    pub number: u64,
    /// Reason why the line could not be parsed.
    pub message: String,
    /// Excerpt: the beginning of the line, or the part around the error.
    pub text: String,
}

impl BadLine {
    /// Creates a `BadLine` with an excerpt of `text` around the offset `at`.
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
    /// Returns the name of the format, or `mixed` if the inputs have different formats.
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

    /// Counts an invalid edit, such as an edit of a rule that does not exist, as a bad line.
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

    /// Returns the number of lines of each kind that are not requests.
    pub fn other_lines(&self) -> impl Iterator<Item = (OtherLine, u64)> {
        OtherLine::ALL.into_iter().zip(self.others)
    }
}
