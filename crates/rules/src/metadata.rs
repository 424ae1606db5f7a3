//! Reads values from Envoy's dynamic metadata, encoded as protobuf.
//!
//! If a filter reads a single value, Envoy returns the raw bytes of the value without its type.
//! Eight bytes could be a number or a string of eight letters. One byte could be a boolean or a
//! string. A list or an object is serialized as a length-prefixed block, which a string can
//! imitate. A user could therefore choose a string, for example a user name, that would be read as
//! a number. The protobuf message for the whole metadata includes the types, so this module reads
//! that message instead.
//!
//! The messages are `envoy.config.core.v3.Metadata` and `google.protobuf.Struct`, `Value` and
//! `ListValue`. Unknown fields are skipped. A malformed message is read up to the first error. The
//! parser allocates nothing for skipped values, and runs in time linear in the size of the
//! metadata.

use alloc::string::{String, ToString};

use serde_json::Number;

/// Field number of the namespaces in `Metadata`.
const FILTER_METADATA: u64 = 1;
/// Field numbers of map entries.
const ENTRY_KEY: u64 = 1;
const ENTRY_VALUE: u64 = 2;
/// Field number of the entries in `Struct`, and of the elements in `ListValue`.
const ITEMS: u64 = 1;
/// Field numbers of `Value`.
const NUMBER: u64 = 2;
const TEXT: u64 = 3;
const BOOLEAN: u64 = 4;
const OBJECT: u64 = 5;
const LIST: u64 = 6;

/// Calls `see` with the text of each value at `path`, which consists of a namespace and the keys
/// below it.
///
/// Strings are passed on unchanged. Numbers and booleans are written as in JSON: `42`, `0.5`,
/// `true`. For a list, `see` is called with each element, in order, except nested objects and
/// lists. An object or an empty list counts as present and yields one empty string. A null counts
/// as absent.
pub fn each_text(metadata: &[u8], path: &[String], see: &mut dyn FnMut(&[u8])) {
    let Some((namespace, keys)) = path.split_first() else {
        return;
    };
    let mut object = entry(metadata, FILTER_METADATA, namespace);
    let mut value = None;
    for key in keys {
        value = object.and_then(|object| entry(object, ITEMS, key));
        object = value.and_then(|value| match kind(value) {
            Some((OBJECT, Wire::Bytes(object))) => Some(object),
            _ => None,
        });
    }
    let Some((number, wire)) = value.and_then(kind) else {
        return;
    };
    match (number, wire) {
        (LIST, Wire::Bytes(list)) => {
            let mut is_empty = true;
            for (_, element) in Fields(list).filter(|(number, _)| *number == ITEMS) {
                if let Wire::Bytes(element) = element
                    && let Some((number, wire)) = kind(element)
                {
                    is_empty &= !text(number, wire, see);
                }
            }
            if is_empty {
                see(b"");
            }
        }
        (OBJECT, _) => see(b""),
        (number, wire) => {
            text(number, wire, see);
        }
    }
}

/// Calls `see` with the text of a value that is neither a list nor an object. Returns false if the
/// value has no text.
fn text(number: u64, wire: Wire<'_>, see: &mut dyn FnMut(&[u8])) -> bool {
    match (number, wire) {
        (TEXT, Wire::Bytes(text)) => see(text),
        (BOOLEAN, Wire::Number(value)) => see(if value == 0 { b"false" } else { b"true" }),
        (NUMBER, Wire::Fixed(bits)) => match number_text(f64::from_bits(bits)) {
            Some(text) => see(text.as_bytes()),
            None => return false,
        },
        _ => return false,
    }
    true
}

/// Formats a number as in JSON: whole numbers below 10²¹ are written without a fraction or an exponent. Returns `None`
/// if the number is not finite, because JSON cannot represent it.
pub fn number_text(number: f64) -> Option<String> {
    let text = Number::from_f64(number)?.to_string();
    let (sign, digits) = match text.strip_prefix('-') {
        Some(digits) => ("-", digits),
        None => ("", &*text),
    };
    if digits == "0.0" {
        return Some(String::from("0"));
    }
    if let Some(digits) = digits.strip_suffix(".0") {
        return Some([sign, digits].concat());
    }
    // Written out, `1.5e16` has 17 digits before the decimal point. JSON writers use an exponent
    // only for numbers of 10²¹ and above.
    let Some((mantissa, exponent)) = digits.split_once('e') else {
        return Some(text);
    };
    let exponent = exponent.trim_start_matches('+').parse::<usize>().ok();
    let (whole, fraction) = mantissa.split_once('.').unwrap_or((mantissa, ""));
    match exponent.filter(|exponent| (fraction.len()..21).contains(exponent)) {
        Some(exponent) => {
            let zeros = "0".repeat(exponent.saturating_sub(fraction.len()));
            Some([sign, whole, fraction, &zeros].concat())
        }
        None => Some(text),
    }
}

/// Returns the value of the entry `key` in a message's map field with the number `map`. If the key
/// is repeated, the last entry wins, as in any protobuf parser.
fn entry<'a>(message: &'a [u8], map: u64, key: &str) -> Option<&'a [u8]> {
    let mut found = None;
    for (number, wire) in Fields(message) {
        let (true, Wire::Bytes(entry)) = (number == map, wire) else {
            continue;
        };
        let (mut own, mut value) = (&b""[..], &b""[..]);
        for (number, wire) in Fields(entry) {
            match (number, wire) {
                (ENTRY_KEY, Wire::Bytes(bytes)) => own = bytes,
                (ENTRY_VALUE, Wire::Bytes(bytes)) => value = bytes,
                _ => {}
            }
        }
        if own == key.as_bytes() {
            found = Some(value);
        }
    }
    found
}

/// Returns the number and content of the field that is set in a `Value`. If several fields are set, the last one wins.
/// Returns `None` if no field is set, which means null.
fn kind(value: &[u8]) -> Option<(u64, Wire<'_>)> {
    Fields(value).last()
}

/// A field's content.
#[derive(Clone, Copy)]
pub(crate) enum Wire<'a> {
    /// A varint.
    Number(u64),
    /// Eight bytes.
    Fixed(u64),
    /// A string, or an embedded message.
    Bytes(&'a [u8]),
    /// Four bytes. No field of these messages has this wire type.
    Short,
}

/// The fields of a message, in order.
pub(crate) struct Fields<'a>(pub(crate) &'a [u8]);

impl<'a> Iterator for Fields<'a> {
    type Item = (u64, Wire<'a>);

    fn next(&mut self) -> Option<Self::Item> {
        if self.0.is_empty() {
            return None;
        }
        let tag = varint(&mut self.0)?;
        let wire = match tag & 7 {
            0 => Wire::Number(varint(&mut self.0)?),
            1 => Wire::Fixed(u64::from_le_bytes(*take(&mut self.0)?)),
            2 => {
                let len = usize::try_from(varint(&mut self.0)?).ok()?;
                let (bytes, rest) = self.0.split_at_checked(len)?;
                self.0 = rest;
                Wire::Bytes(bytes)
            }
            5 => {
                let _: &[u8; 4] = take(&mut self.0)?;
                Wire::Short
            }
            _ => return None,
        };
        Some((tag >> 3, wire))
    }
}

fn take<'a, const N: usize>(bytes: &mut &'a [u8]) -> Option<&'a [u8; N]> {
    let (first, rest) = bytes.split_first_chunk()?;
    *bytes = rest;
    Some(first)
}

/// Reads a protobuf varint: 7 bits per byte, the lowest bits first.
fn varint(bytes: &mut &[u8]) -> Option<u64> {
    let mut number = 0_u64;
    for shift in (0..64_u32).step_by(7) {
        let (byte, rest) = bytes.split_first()?;
        *bytes = rest;
        number |= u64::from(byte & 0x7f).checked_shl(shift)?;
        if byte & 0x80 == 0 {
            return Some(number);
        }
    }
    None
}
