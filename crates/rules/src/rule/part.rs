//! Parts of a key, as written in rule files.

use alloc::string::String;
use alloc::vec::Vec;

use serde::ser::SerializeMap as _;
use serde::{Serialize, Serializer};

use super::cidr::SourcePrefix;

/// A part of a key.
#[derive(Clone, Debug, PartialEq, Eq)]
pub enum KeyPart {
    /// First non-empty line of this header. The header name is in lower case.
    Header(String),
    /// First non-empty value of this query parameter, decoded.
    Query(String),
    /// First non-empty value of this cookie, without the surrounding quotes.
    Cookie(String),
    /// A fixed string.
    Literal(String),
    /// A value in Envoy's dynamic metadata, specified by the namespace and the keys below it.
    Metadata(Vec<String>),
    /// Network of the trusted client address, as determined by Envoy, without the port.
    Source(SourcePrefix),
    /// The path, without its query.
    Path {
        /// Number of leading segments; `None` for all segments.
        segments: Option<u8>,
        /// True if equivalent spellings of a path produce the same key.
        normalize: bool,
    },
    /// Name of the Envoy route.
    Route,
    /// The method.
    Method,
    /// Host, without its port and in lower case.
    Host,
    /// Identity from the client's certificate: its first URI or, if it has none, its first DNS
    /// name.
    ClientCert,
}

impl KeyPart {
    /// Parts that take the form of a single word in rule files.
    pub const WORDS: [(&str, Self); 6] = [
        ("source", Self::Source(SourcePrefix::DEFAULT)),
        (
            "path",
            Self::Path {
                segments: None,
                normalize: true,
            },
        ),
        ("route", Self::Route),
        ("method", Self::Method),
        ("host", Self::Host),
        ("client_cert", Self::ClientCert),
    ];

    /// Returns the word for the part in rule files; `None` for a part in object form.
    pub fn word(&self) -> Option<&'static str> {
        let mut words = Self::WORDS.into_iter();
        words.find_map(|(word, part)| (part == *self).then_some(word))
    }

    /// Returns the part represented by this word.
    pub fn of_word(word: &str) -> Option<Self> {
        let mut words = Self::WORDS.into_iter();
        words.find_map(|(other, part)| (other == word).then_some(part))
    }
}

impl Serialize for KeyPart {
    fn serialize<S: Serializer>(&self, serializer: S) -> Result<S::Ok, S::Error> {
        if let Some(word) = self.word() {
            return serializer.serialize_str(word);
        }
        let (name, text) = match self {
            Self::Source(prefix) => return one(serializer, "source", prefix),
            Self::Path {
                segments,
                normalize,
            } => {
                let path = PathFields {
                    segments: *segments,
                    normalize: (!normalize).then_some(false),
                };
                return one(serializer, "path", &path);
            }
            Self::Metadata(path) => return one(serializer, "metadata", path),
            Self::Header(name) => ("header", name),
            Self::Query(name) => ("query", name),
            Self::Cookie(name) => ("cookie", name),
            Self::Literal(text) => ("literal", text),
            // These parts are words, which have already been serialised above.
            Self::Route | Self::Method | Self::Host | Self::ClientCert => {
                return serializer.serialize_unit();
            }
        };
        one(serializer, name, text)
    }
}

#[derive(Serialize)]
struct PathFields {
    #[serde(skip_serializing_if = "Option::is_none")]
    segments: Option<u8>,
    #[serde(skip_serializing_if = "Option::is_none")]
    normalize: Option<bool>,
}

/// Serialises an object with one field.
fn one<S: Serializer>(
    serializer: S,
    name: &'static str,
    value: &(impl Serialize + ?Sized),
) -> Result<S::Ok, S::Error> {
    let mut fields = serializer.serialize_map(Some(1))?;
    fields.serialize_entry(name, value)?;
    fields.end()
}
