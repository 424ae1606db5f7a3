//! Regular expressions, in linear time and within a budget of size.
//!
//! A value matches as a whole, as with Envoy's `safe_regex`. The engine is regex-lite's, which tries all
//! alternatives side by side: no value takes longer than its length times the pattern's, with its repetitions
//! written out. Bytes that are not UTF-8 count as the replacement character, so that a client cannot bypass
//! a rule by adding one.

use alloc::format;
use alloc::string::{String, ToString};

use regex_lite::{Regex, RegexBuilder};

/// The longest pattern, in bytes.
pub const MAX_PATTERN: usize = 256;
/// The maximum memory of a compiled pattern, in bytes.
const MAX_SIZE: usize = 8 * 1024;
/// The maximum nesting depth of groups.
const MAX_DEPTH: u32 = 16;

/// A compiled regular expression.
#[derive(Clone, Debug)]
pub struct Pattern {
    text: String,
    whole: Regex,
}

impl Pattern {
    /// Reads a pattern; `Err` describes the problem.
    pub fn new(text: &str) -> Result<Self, String> {
        if text.len() > MAX_PATTERN {
            return Err(format!("longer than {MAX_PATTERN} bytes"));
        }
        // Alone first: an invalid pattern may become valid with text around it.
        compile(text)?;
        Ok(Self {
            text: String::from(text),
            whole: compile(&format!(r"\A(?:{text})\z"))?,
        })
    }

    /// The pattern as written.
    pub fn text(&self) -> &str {
        &self.text
    }

    /// Whether all of a value matches.
    pub fn holds(&self, value: &[u8]) -> bool {
        self.whole.is_match(&String::from_utf8_lossy(value))
    }
}

fn compile(text: &str) -> Result<Regex, String> {
    let mut builder = RegexBuilder::new(text);
    builder.size_limit(MAX_SIZE).nest_limit(MAX_DEPTH);
    builder.build().map_err(|error| error.to_string())
}

impl PartialEq for Pattern {
    fn eq(&self, other: &Self) -> bool {
        self.text == other.text
    }
}

impl Eq for Pattern {}
