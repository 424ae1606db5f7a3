//! What a command reads from and writes to, and how: so that tests can stand in for a terminal.

use std::borrow::Cow;
use std::ffi::OsString;
use std::fmt;
use std::io::{self, BufRead, Write};

use loudou_limiter::Nanos;
use serde::Serialize;

use super::options::{ColorWhen, Format, Global};
use crate::cells::fit;
use crate::text::is_unsafe;

/// The world of one run.
pub(crate) struct Io<'a> {
    pub(crate) out: &'a mut dyn Write,
    pub(crate) err: &'a mut dyn Write,
    pub(crate) input: &'a mut dyn BufRead,
    /// Whether `out` is a terminal, and how wide.
    pub(crate) out_terminal: bool,
    pub(crate) width: Option<usize>,
    /// Whether `err` is a terminal.
    pub(crate) err_terminal: bool,
    /// Whether `input` is a terminal, so that there is somebody to ask.
    pub(crate) input_terminal: bool,
    pub(crate) env: Env,
    /// How long a follower waits for an Envoy that is gone.
    pub(crate) patience: Nanos,
}

/// The environment variables that are not options.
#[derive(Debug, Default)]
pub(crate) struct Env {
    /// `LOUDOU_TOKEN`.
    pub(crate) token: Option<OsString>,
    /// `LOUDOU_TOKEN_FILE`.
    pub(crate) token_file: Option<OsString>,
    /// `NO_COLOR`.
    pub(crate) no_color: Option<OsString>,
    /// `TERM`.
    pub(crate) term: Option<OsString>,
}

impl Env {
    /// That of this process. A variable that is empty counts as not set.
    pub(crate) fn read() -> Self {
        let var = |name| std::env::var_os(name).filter(|value| !value.is_empty());
        Self {
            token: var("LOUDOU_TOKEN"),
            token_file: var("LOUDOU_TOKEN_FILE"),
            no_color: var("NO_COLOR"),
            term: var("TERM"),
        }
    }
}

/// How tables are drawn.
#[derive(Clone, Copy, Debug, Default)]
pub(crate) struct Style {
    pub(crate) color: bool,
    pub(crate) ascii: bool,
    /// The most columns; `None` for as many as it takes.
    pub(crate) width: Option<usize>,
}

impl Style {
    pub(crate) fn new(global: &Global, io: &Io<'_>) -> Self {
        let plain = io.env.no_color.is_some() || io.env.term.as_ref().is_some_and(|t| t == "dumb");
        Self {
            color: match global.color {
                ColorWhen::Always => true,
                ColorWhen::Never => false,
                ColorWhen::Auto => io.out_terminal && !plain,
            },
            ascii: global.ascii,
            width: io.width.filter(|_| io.out_terminal),
        }
    }

    /// `text` with our own marks in ASCII, if that is wanted.
    pub(crate) fn marks(self, text: &str) -> String {
        if self.ascii {
            text.replace('→', "->").replace('…', "...")
        } else {
            text.to_owned()
        }
    }

    /// `text` in at most `width` cells, with a mark where something was cut off.
    pub(crate) fn fit(self, text: &str, width: usize) -> Cow<'_, str> {
        fit(text, width, if self.ascii { '~' } else { '…' })
    }
}

/// How a command ended.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) enum Outcome {
    Done,
    Failed,
    Misused,
}

impl Outcome {
    pub(crate) const fn code(self) -> u8 {
        match self {
            Self::Done => 0,
            Self::Failed => 1,
            Self::Misused => 2,
        }
    }
}

/// A wrong use that only shows when running: exit code 2.
#[derive(Debug)]
pub(crate) struct Usage(pub(crate) String);

impl std::error::Error for Usage {}

impl fmt::Display for Usage {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str(&self.0)
    }
}

/// Prints one document as JSON: over many lines, or for `jsonl` on one.
pub(crate) fn json(out: &mut dyn Write, format: Format, value: &impl Serialize) -> io::Result<()> {
    let text = if format == Format::Jsonl {
        serde_json::to_string(value)?
    } else {
        serde_json::to_string_pretty(value)?
    };
    writeln!(out, "{}", json_safe(text))
}

/// Prints a list: the whole as one document, or its items one per line.
pub(crate) fn json_list<T: Serialize>(
    out: &mut dyn Write,
    format: Format,
    whole: &impl Serialize,
    items: &[T],
) -> io::Result<()> {
    if format != Format::Jsonl {
        return json(out, format, whole);
    }
    items.iter().try_for_each(|item| json(out, format, item))
}

/// JSON writers escape control characters below 32 alone; a terminal acts on more than those. All
/// that is not ASCII is inside strings, so it can be escaped without looking.
fn json_safe(text: String) -> String {
    if text.chars().all(|c| c == '\n' || !is_unsafe(c)) {
        return text;
    }
    text.chars().flat_map(json_char).collect()
}

fn json_char(c: char) -> Vec<char> {
    if c == '\n' || !is_unsafe(c) {
        return vec![c];
    }
    let mut buffer = [0; 2];
    let units = c.encode_utf16(&mut buffer).iter();
    units
        .flat_map(|unit| format!("\\u{unit:04x}").chars().collect::<Vec<_>>())
        .collect()
}

#[cfg(test)]
mod tests {
    use super::*;
    use proptest::prelude::*;

    proptest! {
        #[test]
        fn json_is_safe_and_the_same(text in any::<String>()) {
            let mut out = Vec::new();
            json(&mut out, Format::Jsonl, &text).expect("writes");
            let out = String::from_utf8(out).expect("UTF-8");
            prop_assert!(out.trim_end_matches('\n').chars().all(|c| !is_unsafe(c)));
            prop_assert_eq!(serde_json::from_str::<String>(&out).expect("JSON"), text);
        }
    }
}
