//! The regular expressions of a match.

use alloc::vec::Vec;

use super::matcher::{Match, Part};
use super::pattern::Pattern;

/// A regular expression, and its part of the match: below `not`, the part within it.
pub type PatternAt<'a> = (Vec<Part>, &'a Pattern);

impl Match {
    /// All regular expressions, also those below `not`.
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
