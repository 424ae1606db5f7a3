//! Tests of single values of a request.

use alloc::string::String;
use alloc::vec::Vec;

use serde::{Serialize, Serializer};
use serde_json::{Map, Value};

/// What must hold of a value, compared byte by byte.
#[derive(Clone, Debug, PartialEq, Eq)]
pub enum Test {
    /// It is there, or it is not.
    Present(bool),
    /// It is this text.
    Exact(String),
    /// It starts with this text.
    Prefix(String),
    /// It ends with this text.
    Suffix(String),
}

impl Test {
    /// Whether it holds. Of an absent value nothing holds but that it is absent.
    pub fn holds(&self, value: Option<&[u8]>) -> bool {
        if let Self::Present(present) = self {
            return value.is_some() == *present;
        }
        let Some(value) = value else { return false };
        match self {
            Self::Present(_) => true,
            Self::Exact(text) => value == text.as_bytes(),
            Self::Prefix(text) => value.starts_with(text.as_bytes()),
            Self::Suffix(text) => value.ends_with(text.as_bytes()),
        }
    }

    /// Its name in rule files.
    pub const fn kind(&self) -> &'static str {
        match self {
            Self::Present(_) => "present",
            Self::Exact(_) => "exact",
            Self::Prefix(_) => "prefix",
            Self::Suffix(_) => "suffix",
        }
    }

    /// What it asks for, as in rule files.
    pub fn asked(&self) -> Value {
        match self {
            Self::Present(present) => Value::from(*present),
            Self::Exact(text) | Self::Prefix(text) | Self::Suffix(text) => {
                Value::from(text.as_str())
            }
        }
    }

    /// The fields of a rule file, after one more.
    fn fields(&self, name: &str, value: Value) -> Map<String, Value> {
        let fields = [(name, value), (self.kind(), self.asked())];
        fields
            .into_iter()
            .map(|(name, value)| (String::from(name), value))
            .collect()
    }
}

impl Serialize for Test {
    fn serialize<S: Serializer>(&self, serializer: S) -> Result<S::Ok, S::Error> {
        serializer.collect_map([(self.kind(), self.asked())])
    }
}

/// A test of the first value of a header, a query parameter or a cookie.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct NamedTest {
    /// The name; of a header in lower case.
    pub name: String,
    /// What must hold.
    pub test: Test,
}

impl Serialize for NamedTest {
    fn serialize<S: Serializer>(&self, serializer: S) -> Result<S::Ok, S::Error> {
        let fields = self.test.fields("name", self.name.as_str().into());
        fields.serialize(serializer)
    }
}

/// A test of a value in Envoy's dynamic metadata.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct MetadataTest {
    /// The name space and the keys below it.
    pub path: Vec<String>,
    /// What must hold.
    pub test: Test,
}

impl Serialize for MetadataTest {
    fn serialize<S: Serializer>(&self, serializer: S) -> Result<S::Ok, S::Error> {
        let path = self.path.iter().map(String::as_str);
        let path: Vec<Value> = path.map(Value::from).collect();
        self.test.fields("path", path.into()).serialize(serializer)
    }
}
