//! What was read, and what of it could not be.

use super::format::Form;
use crate::text::escape;

/// How many bad lines are kept to be shown.
const SHOWN: usize = 5;
/// How much of a bad line is kept, in bytes.
const EXCERPT: usize = 120;

/// The input as far as it was read.
#[derive(Debug, Default)]
pub(crate) struct Input {
    /// `None` until a line tells.
    pub(crate) form: Option<Form>,
    pub(crate) lines: u64,
    pub(crate) bytes: u64,
    /// Lines that could not be read, and the first of them.
    pub(crate) bad: u64,
    pub(crate) first_bad: Vec<BadLine>,
}

/// A line that could not be read. All of it is hostile.
#[derive(Clone, Debug, PartialEq, Eq)]
pub(crate) struct BadLine {
    pub(crate) number: u64,
    pub(crate) message: String,
    /// How it begins.
    pub(crate) text: String,
}

impl BadLine {
    /// The lines and what is wrong with them, safe to print.
    pub(crate) fn said(lines: &[Self]) -> String {
        let said = lines.iter().map(|line| {
            let Self {
                number, message, ..
            } = line;
            format!("line {number}: {}", escape(message))
        });
        said.collect::<Vec<_>>().join("\n")
    }
}

impl Input {
    pub(crate) fn new(form: Option<Form>) -> Self {
        Self {
            form,
            ..Self::default()
        }
    }

    /// The form of all lines, as far as it is known when `line` is there too.
    pub(crate) fn form_of(&mut self, line: &[u8]) -> Option<Form> {
        if self.form.is_none() {
            self.form = Form::of(line);
        }
        self.form
    }

    pub(crate) fn bad(&mut self, number: u64, message: String, text: &[u8]) {
        self.bad += 1;
        if self.first_bad.len() < SHOWN {
            let excerpt = text.get(..EXCERPT).unwrap_or(text);
            let mut text = String::from_utf8_lossy(excerpt).into_owned();
            if excerpt.len() == EXCERPT {
                text.push('…');
            }
            self.first_bad.push(BadLine {
                number,
                message,
                text,
            });
        }
    }
}
