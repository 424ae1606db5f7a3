//! Converts a `google.protobuf.Struct` to JSON.
//!
//! Envoy unwraps a `StringValue` but passes a `Struct` (inline YAML) to the plugin as encoded
//! protobuf. The encoding is simple: objects are maps, lists are repeated values, and all numbers
//! are doubles.

use serde_json::{Map, Number, Value};

/// Maximum nesting depth. No rule file is nested this deeply, and the stack is large enough for
/// this depth.
const MAX_DEPTH: u32 = 32;

/// Parses a `Struct` as a JSON object. Returns `None` if the bytes are not a valid `Struct`.
pub(crate) fn read_struct(bytes: &[u8]) -> Option<Value> {
    object(bytes, MAX_DEPTH)
}

/// Parses `map<string, Value> fields = 1`. In each map entry, field 1 is the key, and field 2 is
/// the value.
fn object(bytes: &[u8], depth: u32) -> Option<Value> {
    let mut map = Map::new();
    let mut fields = Fields(bytes);
    while let Some((number, content)) = fields.next()? {
        let (1, Content::Bytes(entry)) = (number, content) else {
            return None;
        };
        let (mut key, mut value) = (String::new(), Value::Null);
        let mut parts = Fields(entry);
        while let Some(part) = parts.next()? {
            match part {
                (1, Content::Bytes(text)) => key = text_of(text)?,
                (2, Content::Bytes(inner)) => value = self::value(inner, depth)?,
                _ => return None,
            }
        }
        map.insert(key, value);
    }
    Some(Value::Object(map))
}

/// Parses a `Value`. The field number determines the type: 1 is null, 2 is a number, 3 a string, 4
/// a bool, 5 an object, and 6 a list.
fn value(bytes: &[u8], depth: u32) -> Option<Value> {
    let deeper = depth.checked_sub(1)?;
    let mut value = Value::Null;
    let mut fields = Fields(bytes);
    while let Some(field) = fields.next()? {
        value = match field {
            (1, Content::Number(_)) => Value::Null,
            (2, Content::Double(double)) => number(double)?,
            (3, Content::Bytes(text)) => Value::String(text_of(text)?),
            (4, Content::Number(bit)) => Value::Bool(bit != 0),
            (5, Content::Bytes(inner)) => object(inner, deeper)?,
            (6, Content::Bytes(inner)) => list(inner, deeper)?,
            _ => return None,
        };
    }
    Some(value)
}

/// Parses `repeated Value values = 1`.
fn list(bytes: &[u8], depth: u32) -> Option<Value> {
    let mut values = Vec::new();
    let mut fields = Fields(bytes);
    while let Some(field) = fields.next()? {
        let (1, Content::Bytes(inner)) = field else {
            return None;
        };
        values.push(value(inner, depth)?);
    }
    Some(Value::Array(values))
}

/// Converts a double to a JSON number. Integral values are converted back to integers, as they were
/// in the YAML.
fn number(double: f64) -> Option<Value> {
    match whole(double) {
        Some(magnitude) if double < 0.0 => Some(Value::from(magnitude.checked_neg()?)),
        Some(magnitude) => Some(Value::from(magnitude)),
        None => Number::from_f64(double).map(Value::Number),
    }
}

/// Returns a double's absolute value if it is an integer below 2^53. The bits are decoded directly,
/// because formatting the double as text would add tens of KiB of code.
fn whole(double: f64) -> Option<i64> {
    if double == 0.0 {
        return Some(0);
    }
    let bits = double.to_bits();
    let exponent = u32::try_from(bits >> 52 & 0x7ff).ok()?;
    let mantissa = bits & ((1 << 52) - 1) | 1 << 52;
    // The double's absolute value is `mantissa` × 2^(`exponent` - 1075).
    let fraction_bits = 1075_u32.checked_sub(exponent).filter(|bits| *bits <= 52)?;
    let is_whole = mantissa.trailing_zeros() >= fraction_bits;
    is_whole.then(|| i64::try_from(mantissa >> fraction_bits).ok())?
}

fn text_of(bytes: &[u8]) -> Option<String> {
    core::str::from_utf8(bytes).ok().map(str::to_owned)
}

/// Content of a protobuf field, by wire type.
enum Content<'a> {
    Number(u64),
    Double(f64),
    Bytes(&'a [u8]),
}

/// Iterates over the fields of a protobuf message.
struct Fields<'a>(&'a [u8]);

impl<'a> Fields<'a> {
    /// Returns the next field. The outer `None` means that the bytes are malformed, and the inner
    /// `None` means that there are no more fields.
    #[expect(clippy::option_option, reason = "broken and ended are different")]
    fn next(&mut self) -> Option<Option<(u64, Content<'a>)>> {
        if self.0.is_empty() {
            return Some(None);
        }
        let tag = self.varint()?;
        let content = match tag & 7 {
            0 => Content::Number(self.varint()?),
            1 => Content::Double(f64::from_le_bytes(self.take(8)?.try_into().ok()?)),
            2 => {
                let length = usize::try_from(self.varint()?).ok()?;
                Content::Bytes(self.take(length)?)
            }
            _ => return None,
        };
        Some(Some((tag >> 3, content)))
    }

    fn varint(&mut self) -> Option<u64> {
        let mut value = 0;
        for shift in (0..64).step_by(7) {
            let byte = *self.take(1)?.first()?;
            value |= u64::from(byte & 0x7f) << shift;
            if byte & 0x80 == 0 {
                return Some(value);
            }
        }
        None
    }

    fn take(&mut self, count: usize) -> Option<&'a [u8]> {
        let (taken, rest) = self.0.split_at_checked(count)?;
        self.0 = rest;
        Some(taken)
    }
}

#[cfg(test)]
mod tests {
    use serde_json::json;

    use super::*;

    fn field(number: u8, content: &[u8]) -> Vec<u8> {
        let length = u8::try_from(content.len()).expect("short");
        [&[number << 3 | 2, length], content].concat()
    }

    fn entry(key: &str, value: &[u8]) -> Vec<u8> {
        field(1, &[field(1, key.as_bytes()), field(2, value)].concat())
    }

    fn double(number: f64) -> Vec<u8> {
        [&[0x11][..], &number.to_le_bytes()].concat()
    }

    #[test]
    fn every_kind_of_value() {
        let list = field(
            6,
            &[field(1, &double(65_536.0)), field(1, &field(3, b"a"))].concat(),
        );
        let bytes = [
            entry("list", &list),
            entry("inner", &field(5, &entry("yes", &[0x20, 1]))),
            entry("nothing", &[8, 0]),
            entry("half", &double(0.5)),
        ]
        .concat();
        let expected = json!({ "list": [65_536, "a"], "inner": { "yes": true }, "nothing": null, "half": 0.5 });
        assert_eq!(read_struct(&bytes), Some(expected));
        assert_eq!(read_struct(b""), Some(json!({})));
    }

    #[test]
    fn numbers_are_as_in_the_yaml() {
        let read = |number| read_struct(&entry("n", &double(number))).map(|map| map["n"].clone());
        for n in [
            0_i64,
            1,
            -1,
            15,
            65_536,
            1_000_000_000,
            -86_400_000_000_000,
            (1 << 53) - 1,
        ] {
            #[expect(
                clippy::cast_precision_loss,
                clippy::as_conversions,
                reason = "below 2^53"
            )]
            let double = n as f64;
            assert_eq!(read(double), Some(json!(n)));
        }
        assert_eq!(read(0.1), Some(json!(0.1)));
        assert_eq!(read(-2.5), Some(json!(-2.5)));
        assert_eq!(read(1e300), Some(json!(1e300)));
        assert_eq!(read(f64::INFINITY), None);
    }

    #[test]
    fn broken_bytes_are_no_struct() {
        let whole = entry("key", &double(1.0));
        for end in 1..whole.len() {
            assert_eq!(read_struct(&whole[..end]), None, "{end} bytes");
        }
        assert_eq!(read_struct(b"\n{ \"version\": 1 }"), None);
        assert_eq!(read_struct(&entry("key", &double(f64::NAN))), None);
        let deep = (0..40).fold(vec![8, 0], |inner, _| field(6, &field(1, &inner)));
        assert_eq!(read_struct(&entry("key", &deep[..])), None);
    }
}
