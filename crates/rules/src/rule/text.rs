//! Tests of individual request values, and the results of these tests.

use alloc::string::String;
use alloc::vec::Vec;

use serde_json::{Map, Value};

use super::pattern::Pattern;

/// A test of a value, compared byte by byte.
#[derive(Clone, Debug, PartialEq, Eq)]
pub enum Test {
    /// The value is present (`true`) or absent (`false`).
    Present(bool),
    /// The value equals this string.
    Exact(String),
    /// The value starts with this string.
    Prefix(String),
    /// The value ends with this string.
    Suffix(String),
    /// The whole value matches this pattern.
    Regex(Pattern),
}

impl Test {
    /// Tests a value. If the value is absent, only the test for absence passes.
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

    /// Returns the regular expression, if the test has one.
    pub const fn pattern(&self) -> Option<&Pattern> {
        match self {
            Self::Regex(pattern) => Some(pattern),
            _ => None,
        }
    }

    /// Name of the test in rule files.
    pub const fn kind(&self) -> &'static str {
        match self {
            Self::Present(_) => "present",
            Self::Exact(_) => "exact",
            Self::Prefix(_) => "prefix",
            Self::Suffix(_) => "suffix",
            Self::Regex(_) => "regex",
        }
    }

    /// Returns the requirement as written in rule files.
    pub fn asked(&self) -> Value {
        match self {
            Self::Present(present) => Value::from(*present),
            Self::Exact(text) | Self::Prefix(text) | Self::Suffix(text) => {
                Value::from(text.as_str())
            }
            Self::Regex(pattern) => Value::from(pattern.text()),
        }
    }

    /// Returns the test as written in a rule file, preceded by the field `first`.
    pub(super) fn value(&self, first: Option<(&str, Value)>) -> Value {
        object(first, (self.kind(), self.asked()))
    }
}

/// Creates a JSON object with one or two fields. Inserts the fields one by one, because `collect`
/// would sort them, and the sorting code would add several KiB to the filter.
pub(super) fn object(first: Option<(&str, Value)>, last: (&str, Value)) -> Value {
    let mut fields = Map::new();
    for (name, value) in first.into_iter().chain([last]) {
        fields.insert(String::from(name), value);
    }
    Value::Object(fields)
}

/// A test of each line of a header, or of the first non-empty value of a query parameter or a
/// cookie.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct NamedTest {
    /// Name of the value. A header name is in lower case.
    pub name: String,
    /// The test.
    pub test: Test,
}

impl NamedTest {
    /// Returns the test as written in a rule file.
    pub(super) fn value(&self) -> Value {
        let name = Value::from(self.name.as_str());
        self.test.value(Some(("name", name)))
    }
}

/// A test of a value in Envoy's dynamic metadata.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct MetadataTest {
    /// The namespace, and the keys below it.
    pub path: Vec<String>,
    /// The test.
    pub test: Test,
}

impl MetadataTest {
    /// Returns the test as written in a rule file.
    pub(super) fn value(&self) -> Value {
        let path = self.path.iter().map(String::as_str).collect();
        self.test.value(Some(("path", path)))
    }
}

// A test may be undecided, because the value may be too long for the test to read.

/// Result of a test.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Truth {
    /// The test passes.
    Yes,
    /// The test fails.
    No,
    /// The value is too long for a regular expression to test, and its beginning does not decide
    /// the test.
    TooLong,
}

impl From<bool> for Truth {
    fn from(holds: bool) -> Self {
        if holds { Self::Yes } else { Self::No }
    }
}
