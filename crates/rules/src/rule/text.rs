//! Tests of single values of a request, and their results.

use alloc::string::String;
use alloc::vec::Vec;

use serde_json::{Map, Value};

use super::pattern::Pattern;

/// The test of a value, compared byte by byte.
#[derive(Clone, Debug, PartialEq, Eq)]
pub enum Test {
    /// The value is present, or absent.
    Present(bool),
    /// The value is this text.
    Exact(String),
    /// The value starts with this text.
    Prefix(String),
    /// The value ends with this text.
    Suffix(String),
    /// The whole value matches this pattern.
    Regex(Pattern),
}

impl Test {
    /// Whether the test passes. For an absent value, only the test for absence passes.
    pub fn holds(&self, value: Option<&[u8]>) -> Truth {
        if let Self::Present(present) = self {
            return Truth::from(value.is_some() == *present);
        }
        let Some(value) = value else { return Truth::No };
        Truth::from(match self {
            Self::Present(_) => true,
            Self::Exact(text) => value == text.as_bytes(),
            Self::Prefix(text) => value.starts_with(text.as_bytes()),
            Self::Suffix(text) => value.ends_with(text.as_bytes()),
            Self::Regex(pattern) => return pattern.holds(value),
        })
    }

    /// Its regular expression, if it is one.
    pub const fn pattern(&self) -> Option<&Pattern> {
        match self {
            Self::Regex(pattern) => Some(pattern),
            _ => None,
        }
    }

    /// The name in rule files.
    pub const fn kind(&self) -> &'static str {
        match self {
            Self::Present(_) => "present",
            Self::Exact(_) => "exact",
            Self::Prefix(_) => "prefix",
            Self::Suffix(_) => "suffix",
            Self::Regex(_) => "regex",
        }
    }

    /// The requirement, as in rule files.
    pub fn asked(&self) -> Value {
        match self {
            Self::Present(present) => Value::from(*present),
            Self::Exact(text) | Self::Prefix(text) | Self::Suffix(text) => {
                Value::from(text.as_str())
            }
            Self::Regex(pattern) => Value::from(pattern.text()),
        }
    }

    /// As in a rule file, after another field.
    pub(super) fn value(&self, first: Option<(&str, Value)>) -> Value {
        object(first, (self.kind(), self.asked()))
    }
}

/// An object of one field, or of two. Field by field: collecting them would sort them, which takes some
/// KiB of the filter.
pub(super) fn object(first: Option<(&str, Value)>, last: (&str, Value)) -> Value {
    let mut fields = Map::new();
    for (name, value) in first.into_iter().chain([last]) {
        fields.insert(String::from(name), value);
    }
    Value::Object(fields)
}

/// A test of each line of a header, or of the value of a query parameter or a cookie that counts.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct NamedTest {
    /// The name; for a header, in lower case.
    pub name: String,
    /// The test.
    pub test: Test,
}

impl NamedTest {
    /// As in a rule file.
    pub(super) fn value(&self) -> Value {
        let name = Value::from(self.name.as_str());
        self.test.value(Some(("name", name)))
    }
}

/// A test of a value in Envoy's dynamic metadata.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct MetadataTest {
    /// The namespace and the keys below it.
    pub path: Vec<String>,
    /// The test.
    pub test: Test,
}

impl MetadataTest {
    /// As in a rule file.
    pub(super) fn value(&self) -> Value {
        let path = self.path.iter().map(String::as_str).collect();
        self.test.value(Some(("path", path)))
    }
}

// Whether a test passes: yes, no, or open because the value is longer than the test reads.

/// The result of a test.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Truth {
    /// It passes.
    Yes,
    /// It fails.
    No,
    /// The value is longer than a regular expression tests, and its beginning decides nothing.
    TooLong,
}

impl From<bool> for Truth {
    fn from(holds: bool) -> Self {
        if holds { Self::Yes } else { Self::No }
    }
}
