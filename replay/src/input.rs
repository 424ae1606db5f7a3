//! The input: what was read, and the lines that could not be read.

use std::fmt;

use serde::Serialize;

use super::format::LogFormat;

/// The number of bad lines that are kept to be shown.
const SHOWN: usize = 5;
/// The kept part of a bad line, in bytes.
const EXCERPT: usize = 120;

/// The input read so far.
#[derive(Debug, Default)]
pub struct Intake {
    /// `None` until a line shows the format.
    pub form: Option<LogFormat>,
    /// Lines read.
    pub lines: u64,
    /// Bytes read.
    pub bytes: u64,
    /// Lines that could not be read.
    pub bad: u64,
    /// The first of the bad lines.
    pub first_bad: Vec<BadLine>,
}

/// A line that could not be read. All of it is untrusted.
#[derive(Clone, Debug, PartialEq, Eq, Serialize)]
pub struct BadLine {
    /// Its number, from 1.
    #[serde(rename = "line")]
    pub number: u64,
    /// Why it could not be read.
    pub message: String,
    /// Its beginning.
    pub text: String,
}

impl BadLine {
    pub(crate) fn new(number: u64, message: String, text: &[u8]) -> Self {
        let excerpt = text.get(..EXCERPT).unwrap_or(text);
        let mut text = String::from_utf8_lossy(excerpt).into_owned();
        if excerpt.len() == EXCERPT {
            text.push('…');
        }
        Self {
            number,
            message,
            text,
        }
    }
}

impl fmt::Display for BadLine {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        write!(f, "line {}: {}", self.number, self.message)
    }
}

impl Intake {
    pub(crate) fn new(form: Option<LogFormat>) -> Self {
        Self {
            form,
            ..Self::default()
        }
    }

    /// The format of all lines, as far as it is known once `line` is read.
    pub(crate) fn form_of(&mut self, line: &[u8]) -> Option<LogFormat> {
        if self.form.is_none() {
            self.form = LogFormat::of(line);
        }
        self.form
    }

    pub(crate) fn bad(&mut self, number: u64, message: String, text: &[u8]) {
        self.bad += 1;
        if self.first_bad.len() < SHOWN {
            self.first_bad.push(BadLine::new(number, message, text));
        }
    }
}
