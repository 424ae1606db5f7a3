//! JSON strings and scalars that borrow from the parsed line.

use std::borrow::Cow;
use std::fmt;

use serde::de::{Deserialize, Deserializer, IgnoredAny, MapAccess, SeqAccess, Visitor};

use super::record::Text;

/// Maximum number of characters of a string that are quoted in a message.
const EXCERPT: usize = 40;

/// A string, borrowed from the line unless it contains escapes.
#[derive(Debug, Default, PartialEq, Eq)]
pub(crate) struct JsonStr<'a>(pub(crate) Cow<'a, str>);

impl<'a> JsonStr<'a> {
    pub(crate) fn bytes(self) -> Text<'a> {
        match self.0 {
            Cow::Borrowed(text) => Cow::Borrowed(text.as_bytes()),
            Cow::Owned(text) => Cow::Owned(text.into_bytes()),
        }
    }
}

struct StrVisitor;

impl<'a> Visitor<'a> for StrVisitor {
    type Value = JsonStr<'a>;

    fn expecting(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str("a string")
    }

    fn visit_borrowed_str<E>(self, text: &'a str) -> Result<JsonStr<'a>, E> {
        Ok(JsonStr(Cow::Borrowed(text)))
    }

    fn visit_str<E>(self, text: &str) -> Result<JsonStr<'a>, E> {
        Ok(JsonStr(Cow::Owned(text.to_owned())))
    }
}

impl<'de: 'a, 'a> Deserialize<'de> for JsonStr<'a> {
    fn deserialize<D: Deserializer<'de>>(deserializer: D) -> Result<Self, D::Error> {
        deserializer.deserialize_str(StrVisitor)
    }
}

/// Header names and values, in file order.
#[derive(Debug, Default, PartialEq, Eq)]
pub(crate) struct HeaderList<'a>(pub(crate) Vec<(Cow<'a, str>, Text<'a>)>);

struct HeadersVisitor;

impl<'a> Visitor<'a> for HeadersVisitor {
    type Value = HeaderList<'a>;

    fn expecting(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str("an object of strings")
    }

    fn visit_map<A: MapAccess<'a>>(self, mut map: A) -> Result<HeaderList<'a>, A::Error> {
        let mut headers = Vec::new();
        while let Some((name, value)) = map.next_entry::<JsonStr<'a>, JsonStr<'a>>()? {
            headers.push((name.0, value.bytes()));
        }
        Ok(HeaderList(headers))
    }
}

impl<'de: 'a, 'a> Deserialize<'de> for HeaderList<'a> {
    fn deserialize<D: Deserializer<'de>>(deserializer: D) -> Result<Self, D::Error> {
        deserializer.deserialize_map(HeadersVisitor)
    }
}

/// Value of a JSON member.
#[derive(Debug, PartialEq)]
pub(crate) enum Scalar<'a> {
    Text(Cow<'a, str>),
    Whole(u64),
    Float(f64),
    /// `null`, or a value of a type that no log column needs.
    Other,
}

impl Scalar<'_> {
    /// Returns a short excerpt of the value for messages. The excerpt is untrusted input.
    pub(crate) fn excerpt(&self) -> String {
        match self {
            Self::Text(text) => format!("`{}`", text.chars().take(EXCERPT).collect::<String>()),
            Self::Whole(number) => format!("`{number}`"),
            Self::Float(number) => format!("`{number}`"),
            Self::Other => "another value".to_owned(),
        }
    }
}

struct ScalarVisitor;

impl<'a> Visitor<'a> for ScalarVisitor {
    type Value = Scalar<'a>;

    fn expecting(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str("a value")
    }

    fn visit_borrowed_str<E>(self, text: &'a str) -> Result<Scalar<'a>, E> {
        Ok(Scalar::Text(Cow::Borrowed(text)))
    }

    fn visit_str<E>(self, text: &str) -> Result<Scalar<'a>, E> {
        Ok(Scalar::Text(Cow::Owned(text.to_owned())))
    }

    fn visit_u64<E>(self, number: u64) -> Result<Scalar<'a>, E> {
        Ok(Scalar::Whole(number))
    }

    fn visit_i64<E>(self, _: i64) -> Result<Scalar<'a>, E> {
        Ok(Scalar::Other)
    }

    fn visit_f64<E>(self, number: f64) -> Result<Scalar<'a>, E> {
        Ok(Scalar::Float(number))
    }

    fn visit_bool<E>(self, _: bool) -> Result<Scalar<'a>, E> {
        Ok(Scalar::Other)
    }

    fn visit_unit<E>(self) -> Result<Scalar<'a>, E> {
        Ok(Scalar::Other)
    }

    fn visit_map<A: MapAccess<'a>>(self, mut map: A) -> Result<Scalar<'a>, A::Error> {
        while map.next_entry::<IgnoredAny, IgnoredAny>()?.is_some() {}
        Ok(Scalar::Other)
    }

    fn visit_seq<A: SeqAccess<'a>>(self, mut list: A) -> Result<Scalar<'a>, A::Error> {
        while list.next_element::<IgnoredAny>()?.is_some() {}
        Ok(Scalar::Other)
    }
}

impl<'de: 'a, 'a> Deserialize<'de> for Scalar<'a> {
    fn deserialize<D: Deserializer<'de>>(deserializer: D) -> Result<Self, D::Error> {
        deserializer.deserialize_any(ScalarVisitor)
    }
}

/// Parses a line that contains one JSON value.
pub(crate) fn read<'a, T: Deserialize<'a>>(line: &'a [u8]) -> Result<T, String> {
    serde_json::from_slice(line).map_err(|error| message(&error))
}

/// Returns the error message with the column. The line number is removed, because the caller adds
/// the number of the line in the log.
fn message(error: &serde_json::Error) -> String {
    let column = error.column();
    let text = error.to_string();
    let place = format!(" at line {} column {column}", error.line());
    let text = text.strip_suffix(&place).unwrap_or(&text);
    if column > 0 {
        format!("{text} (column {column})")
    } else {
        text.to_owned()
    }
}
