//! The parts of a match or a key that a request does not have, as people are told of them: where the
//! part stands, what it asks for, and what there is.
//!
//! Which part it is comes from [`Match::first_failing`] and [`Rule::key_or_missing`], by which requests
//! are decided, too. Here it is only put into words.

use alloc::borrow::Cow;
use alloc::format;
use alloc::string::String;

use serde_json::Value;

use super::matcher::{Match, Part};
use super::{Rule, parts};
use crate::request::{Request, without_query};

/// The most characters that are told of a value that was found.
const MOST: usize = 200;

/// The first part of a match that does not hold.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Failing {
    /// Which.
    pub part: Part,
    /// Where it stands in its rule: `match.headers[1]`.
    pub place: String,
    /// What it asks for, as in a rule file.
    pub asked: Value,
    /// What the request has.
    pub found: Found,
}

/// What a request has where a part does not hold.
#[derive(Clone, Debug, PartialEq, Eq)]
pub enum Found {
    /// Nothing.
    Nothing,
    /// This: bytes that are no UTF-8 as `\xNN`, and of a long one the beginning, with an `…` after it.
    Text(String),
    /// Everything that must not hold together.
    AllOfIt,
}

/// The first part of a key that a request lacks.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Missing {
    /// Where it stands in its rule: `key[0]`.
    pub place: String,
    /// What it asks for, as in a rule file.
    pub asked: Value,
}

impl Match {
    /// The first part that does not hold, told in full.
    pub fn explain(&self, request: &mut dyn Request) -> Option<Failing> {
        let part = self.first_failing(request)?;
        Some(Failing {
            part,
            place: part.place(),
            asked: self.asked(part).unwrap_or_default(),
            found: self.found(part, request),
        })
    }

    /// What the request has of what a part asks for.
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
                header.and_then(|header| request.header(&header.name))
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
                test.and_then(|test| request.metadata(&test.path))
            }
            Part::Not => return Found::AllOfIt,
        };
        found.map_or(Found::Nothing, |found| Found::of(&found))
    }
}

impl Part {
    /// Where it stands in its rule.
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
    /// The part of its key at `index`, of which a request has nothing.
    pub fn missing(&self, index: usize) -> Missing {
        let part = self.key.get(index);
        // By way of the text: it takes no second serialiser in the filter, whose module has to be small.
        let text = part.and_then(|part| serde_json::to_vec(part).ok());
        let asked = text.and_then(|text| serde_json::from_slice(&text).ok());
        Missing {
            place: format!("key[{index}]"),
            asked: asked.unwrap_or_default(),
        }
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
                if count == MOST {
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
