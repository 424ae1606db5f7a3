//! Regular expressions with bounded time and memory.
//!
//! A pattern must match the whole value, as with Envoy's `safe_regex`. Values are decoded as UTF-8.
//! Invalid bytes are treated as the replacement character, so that a client cannot bypass a rule by
//! adding an invalid byte.
//!
//! Values are controlled by clients, so no value may take longer than [`BUDGET`]. The maximum time
//! per character is the time needed for the pattern's most expensive character, which is known once
//! the pattern has been parsed. This time determines the maximum size of the values that a pattern
//! can test. The result for a longer value is undecided, unless its beginning already rules out a
//! match.

use alloc::format;
use alloc::string::String;
use alloc::sync::Arc;
use alloc::vec::Vec;

use automaton::Automaton;
use positions::Positions;

use super::matcher::{Match, Part};
use super::text::Truth;

mod automaton;
mod bits;
mod class;
mod positions;
mod syntax;
mod tree;

/// Maximum size of a pattern, in bytes.
pub const MAX_PATTERN: usize = 256;
/// Maximum time for testing a value, in nanoseconds on a typical processor.
pub const BUDGET: usize = 100_000;
/// Maximum size, in bytes, of the values that any pattern can test.
pub const MAX_VALUE: usize = 8192;
/// Size, in bytes, up to which every pattern must be able to test values. Patterns that cannot do
/// so are rejected.
pub const MIN_VALUE: usize = 128;
/// Maximum memory used by a pattern, in bytes.
const MAX_BYTES: usize = 24 * 1024;

/// A regular expression.
#[derive(Clone, Debug)]
pub struct Pattern {
    text: String,
    whole: Arc<Automaton>,
    longest: usize,
}

impl Pattern {
    /// Parses a pattern. An `Err` describes the problem.
    pub fn new(text: &str) -> Result<Self, String> {
        if text.len() > MAX_PATTERN {
            return Err(format!("longer than {MAX_PATTERN} bytes"));
        }
        let tree = syntax::parse(text)?;
        let positions = Positions::of(&tree, syntax::MAX_POSITIONS);
        let positions = positions.ok_or(syntax::TOO_LARGE)?;
        let whole = Automaton::new(&tree, &positions).ok_or("too many different characters")?;
        let cost = whole.cost_per_byte();
        let longest = BUDGET.checked_div(cost).unwrap_or(MAX_VALUE).min(MAX_VALUE);
        let (bytes, count) = (whole.bytes(), positions.each.len());
        if longest < MIN_VALUE || bytes > MAX_BYTES {
            return Err(format!(
                "too large: with its repetitions written out it has {count} characters, takes {bytes} bytes of memory, \
                 and could test values of up to {longest} bytes in {} µs; allowed: at most {MAX_BYTES} bytes of memory, \
                 and values of at least {MIN_VALUE}; write shorter repetitions",
                BUDGET / 1_000
            ));
        }
        Ok(Self {
            text: String::from(text),
            whole: Arc::new(whole),
            longest,
        })
    }

    /// Returns the pattern as written.
    pub fn text(&self) -> &str {
        &self.text
    }

    /// Returns the maximum size, in bytes, of the values that the pattern can test.
    pub const fn longest(&self) -> usize {
        self.longest
    }

    /// Returns the maximum time for testing a value, in nanoseconds on a typical processor.
    pub fn worst_ns(&self) -> usize {
        self.whole.cost_per_byte().saturating_mul(self.longest)
    }

    /// Returns the memory used by the pattern, in bytes.
    pub fn bytes(&self) -> usize {
        self.whole.bytes().saturating_add(self.text.len())
    }

    /// Checks whether the whole value matches.
    pub fn holds(&self, value: &[u8]) -> Truth {
        match value.get(..self.longest) {
            Some(beginning) if beginning.len() < value.len() => {
                if self.whole.run(beginning, true).is_open {
                    Truth::TooLong
                } else {
                    Truth::No
                }
            }
            _ => Truth::from(self.whole.run(value, false).matches),
        }
    }
}

impl PartialEq for Pattern {
    fn eq(&self, other: &Self) -> bool {
        self.text == other.text
    }
}

impl Eq for Pattern {}

// The regular expressions of a match.

/// The path of parts that leads to a regular expression in a match, and the expression itself.
/// Within `not`, the path starts with [`Part::Not`].
pub type PatternAt<'a> = (Vec<Part>, &'a Pattern);

impl Match {
    /// Returns all regular expressions, including any within `not`.
    pub fn patterns(&self) -> Vec<PatternAt<'_>> {
        let parts = [Part::Path].into_iter();
        let parts = parts
            .chain((0..self.headers.len()).map(Part::Header))
            .chain((0..self.query.len()).map(Part::Query))
            .chain((0..self.cookies.len()).map(Part::Cookie))
            .chain((0..self.metadata.len()).map(Part::Metadata));
        let own = parts.filter_map(|part| Some((Vec::from([part]), self.pattern(part)?)));
        let mut patterns: Vec<PatternAt<'_>> = own.collect();
        let below = self.not.as_ref().map(|not| not.patterns());
        patterns.extend(
            below
                .unwrap_or_default()
                .into_iter()
                .map(|(parts, pattern)| {
                    let parts = [Part::Not].into_iter().chain(parts).collect();
                    (parts, pattern)
                }),
        );
        patterns
    }
}
