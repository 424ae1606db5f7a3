//! Describes, for display, the failing part of a match, and the part of a key that a request lacks
//! or repeats. A description consists of the part's location, its requirement, and the value found.
//!
//! The parts are found by [`Match::first_failing`], [`Rule::find_key`] and
//! [`Rule::first_ambiguous`], which are also used to decide on requests. This module only describes
//! the parts.

use alloc::borrow::Cow;
use alloc::format;
use alloc::string::String;
use alloc::vec::Vec;

use serde_json::Value;

use super::matcher::{Fit, Match, Part};
use super::pattern::Pattern;
use super::{MetadataTest, NamedTest, Rule, parts};
use crate::request::{Request, without_query};

/// Maximum number of characters shown of a value.
const MAX_SHOWN: usize = 200;

/// First part of a match that fails, or that is undecided because its value is too long.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Failing {
    /// The part.
    pub part: Part,
    /// Location in the rule, such as `match.headers[1]`.
    pub place: String,
    /// Requirement of the part, as written in a rule file.
    pub asked: Value,
    /// Value in the request.
    pub found: Found,
    /// If the value is too long, the maximum size, in bytes, that the regular expression can test.
    pub longest: Option<usize>,
}

/// Value found in a request for a part of a match or key.
#[derive(Clone, Debug, PartialEq, Eq)]
pub enum Found {
    /// No value.
    Nothing,
    /// A value. Bytes that are not valid UTF-8 are shown as `\xNN`, and a long value is truncated
    /// and ends with `…`.
    Text(String),
    /// The whole request, because a `not` excludes it.
    AllOfIt,
}

/// First part of a key that a request lacks.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Missing {
    /// Location in the rule, such as `key[0]`.
    pub place: String,
    /// Requirement of the part, as written in a rule file.
    pub asked: Value,
}

/// First part of a key that a request contains more than once.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Repeated {
    /// Location in the rule, such as `key[0]`.
    pub place: String,
    /// Requirement of the part, as written in a rule file.
    pub asked: Value,
    /// The non-empty values of the part, in request order.
    pub values: Found,
}

/// Converts a location in a nested match, such as `match.path`, to the location within `not`.
/// Avoids the standard library's string search, which would add 6 KiB to the module.
fn within_not(place: &str) -> String {
    let rest = place.strip_prefix("match").unwrap_or(place);
    format!("match.not{rest}")
}

impl Match {
    /// Describes the part because of which the match fails or is undecided.
    pub fn explain(&self, request: &mut dyn Request) -> Option<Failing> {
        match self.fit(request) {
            Fit::Yes => None,
            Fit::No(part) => Some(self.describe(part, request)),
            Fit::TooLong(Part::Not) => {
                let not = self.not.as_ref();
                let inner = not.and_then(|not| not.explain(request));
                let inner = inner.map(|inner| Failing {
                    place: within_not(&inner.place),
                    ..inner
                });
                Some(inner.unwrap_or_else(|| self.describe(Part::Not, request)))
            }
            Fit::TooLong(part) => Some(Failing {
                longest: self.pattern(part).map(Pattern::longest),
                ..self.describe(part, request)
            }),
        }
    }

    fn describe(&self, part: Part, request: &mut dyn Request) -> Failing {
        Failing {
            part,
            place: part.place(),
            asked: self.asked(part).unwrap_or_default(),
            found: self.found(part, request),
            longest: None,
        }
    }

    /// Returns the request value that a part tests.
    fn found(&self, part: Part, request: &mut dyn Request) -> Found {
        let found = match part {
            Part::Methods => request.method(),
            Part::Path => {
                let path = request.path();
                return path.map_or(Found::Nothing, |path| Found::of(without_query(&path)));
            }
            Part::Host => parts::host(request).map(Cow::Owned),
            Part::Header(at) => {
                let header = self.headers.get(at);
                let lines = |header: &NamedTest| {
                    parts::all_values(|see| request.each_line(&header.name, see))
                };
                header.and_then(lines).map(Cow::Owned)
            }
            Part::Query(at) => {
                let test = self.query.get(at);
                test.and_then(|test| parts::query(request, &test.name))
            }
            Part::Cookie(at) => {
                let test = self.cookies.get(at);
                test.and_then(|test| parts::cookie(request, &test.name))
            }
            Part::Source => request.source(),
            Part::Route => request.route(),
            Part::Metadata(at) => {
                let test = self.metadata.get(at);
                let values = |test: &MetadataTest| {
                    parts::all_values(|see| request.each_metadata(&test.path, see))
                };
                test.and_then(values).map(Cow::Owned)
            }
            Part::Not => return Found::AllOfIt,
        };
        found.map_or(Found::Nothing, |found| Found::of(&found))
    }
}

impl Part {
    /// Returns the part's location in the rule.
    fn place(self) -> String {
        let (list, at) = match self {
            Self::Methods => return String::from("match.methods"),
            Self::Path => return String::from("match.path"),
            Self::Host => return String::from("match.host"),
            Self::Source => return String::from("match.source"),
            Self::Route => return String::from("match.route"),
            Self::Not => return String::from("match.not"),
            Self::Header(at) => ("headers", at),
            Self::Query(at) => ("query", at),
            Self::Cookie(at) => ("cookies", at),
            Self::Metadata(at) => ("metadata", at),
        };
        format!("match.{list}[{at}]")
    }
}

impl Rule {
    /// Describes the key part at `index`, which a request lacks.
    pub fn missing(&self, index: usize) -> Missing {
        let part = self.key.get(index);
        // Goes through JSON text, because a second serializer would increase the size of the
        // filter's module.
        let text = part.and_then(|part| serde_json::to_vec(part).ok());
        let asked = text.and_then(|text| serde_json::from_slice(&text).ok());
        Missing {
            place: format!("key[{index}]"),
            asked: asked.unwrap_or_default(),
        }
    }

    /// Describes the first key part that a request contains more than once.
    pub fn repeated(&self, request: &mut dyn Request) -> Option<Repeated> {
        let index = self.first_ambiguous(request)?;
        let mut values = Vec::new();
        self.key.get(index)?.each_value(request, &mut |value| {
            if !values.is_empty() {
                values.extend_from_slice(b", ");
            }
            values.extend_from_slice(value);
        });
        let Missing { place, asked } = self.missing(index);
        Some(Repeated {
            place,
            asked,
            values: Found::of(&values),
        })
    }
}

impl Found {
    fn of(bytes: &[u8]) -> Self {
        let mut text = String::new();
        let mut count: usize = 0;
        for chunk in bytes.utf8_chunks() {
            let invalid = chunk.invalid().iter();
            let escaped = invalid.map(|byte| format!("\\x{byte:02x}"));
            let valid = chunk.valid().chars().map(String::from);
            for piece in valid.chain(escaped) {
                if count == MAX_SHOWN {
                    text.push('…');
                    return Self::Text(text);
                }
                text.push_str(&piece);
                count = count.saturating_add(1);
            }
        }
        Self::Text(text)
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn what_was_found_is_text_of_bounded_length() {
        let of = |bytes: &[u8]| match Found::of(bytes) {
            Found::Text(text) => text,
            other => panic!("{other:?}"),
        };
        assert_eq!(of(b""), "");
        assert_eq!(of("漏斗\u{1b}".as_bytes()), "漏斗\u{1b}");
        assert_eq!(of(b"a\xff\xc3b"), "a\\xff\\xc3b");
        assert_eq!(of(&[b'x'; 200]), "x".repeat(200));
        assert_eq!(of(&[b'x'; 201]), "x".repeat(200) + "…");
        assert_eq!(of(&[0xff; 9_000]).chars().count(), 801);
    }
}
