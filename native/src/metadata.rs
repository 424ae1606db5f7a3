//! Encodes Envoy's dynamic metadata in protobuf form.
//!
//! The filter expects metadata in the protobuf form that Wasm filters receive, which includes the type of each value. A
//! module, however, can read only values of top-level keys, one at a time. An object is therefore encoded as empty, and
//! rules that would read its contents are rejected.
//!
//! A module must request a value with a type, and Envoy logs an error if the value has another type. Each thread
//! therefore remembers the type of each value, and requests the last known type first.

use std::cell::RefCell;
use std::collections::HashMap;

/// Maximum number of keys for which a thread remembers types. Only keys that occur in rules are read.
const MAX_KINDS: usize = 4_096;

/// The type of a value.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) enum Kind {
    Text,
    Number,
    Boolean,
    List,
    Unknown,
}

thread_local! {
    static KINDS: RefCell<HashMap<Vec<u8>, Kind>> = RefCell::default();
}

/// Returns the types to try, in order, with the most likely type first. `key` identifies a value or the elements of a
/// list.
pub(crate) fn kinds(key: &[u8]) -> [Kind; 5] {
    let last = KINDS.with_borrow(|kinds| kinds.get(key).copied());
    let mut kinds = [
        Kind::Text,
        Kind::Number,
        Kind::Boolean,
        Kind::List,
        Kind::Unknown,
    ];
    let place = kinds.iter().position(|kind| Some(*kind) == last);
    if let Some(before) = kinds.get_mut(..=place.unwrap_or(0)) {
        before.rotate_right(1);
    }
    kinds
}

/// Remembers the type of a value, for the next read. `Kind::Unknown` is not remembered, so the next read tries all
/// types.
pub(crate) fn remember(key: Vec<u8>, kind: Kind) {
    if kind == Kind::Unknown {
        return;
    }
    KINDS.with_borrow_mut(|kinds| {
        if kinds.len() < MAX_KINDS {
            kinds.insert(key, kind);
        }
    });
}

/// A value.
#[derive(Clone, Debug, PartialEq)]
pub(crate) enum Value {
    Text(Vec<u8>),
    Number(f64),
    Boolean(bool),
    List(Vec<Self>),
    /// An object or null.
    Unknown,
}

// Field numbers of the messages `Metadata`, `Struct`, `ListValue` and `Value`, and of map entries.
const ITEMS: u8 = 1;
const KEY: u8 = 1;
const ENTRY: u8 = 2;
const NUMBER: u8 = 2;
const TEXT: u8 = 3;
const BOOLEAN: u8 = 4;
const OBJECT: u8 = 5;
const LIST: u8 = 6;
// Wire types.
const VARINT: u8 = 0;
const FIXED: u8 = 1;
const BYTES: u8 = 2;

/// Encodes a single value as a `Metadata` message.
pub(crate) fn encode(namespace: &str, key: &str, value: &Value) -> Vec<u8> {
    let (mut metadata, mut object) = (Vec::new(), Vec::new());
    put_entry(&mut object, key.as_bytes(), &of_value(value));
    put_entry(&mut metadata, namespace.as_bytes(), &object);
    metadata
}

fn of_value(value: &Value) -> Vec<u8> {
    let mut out = Vec::new();
    match value {
        Value::Text(text) => put_bytes(&mut out, TEXT, text),
        Value::Number(number) => {
            out.push(tag(NUMBER, FIXED));
            out.extend(number.to_le_bytes());
        }
        Value::Boolean(value) => out.extend([tag(BOOLEAN, VARINT), u8::from(*value)]),
        Value::List(values) => {
            let mut list = Vec::new();
            for value in values {
                put_bytes(&mut list, ITEMS, &of_value(value));
            }
            put_bytes(&mut out, LIST, &list);
        }
        Value::Unknown => put_bytes(&mut out, OBJECT, &[]),
    }
    out
}

fn put_entry(out: &mut Vec<u8>, key: &[u8], value: &[u8]) {
    let mut entry = Vec::new();
    put_bytes(&mut entry, KEY, key);
    put_bytes(&mut entry, ENTRY, value);
    put_bytes(out, ITEMS, &entry);
}

fn put_bytes(out: &mut Vec<u8>, field: u8, bytes: &[u8]) {
    out.push(tag(field, BYTES));
    let mut length = bytes.len();
    while length > 0x7f {
        out.push(u8::try_from(length & 0x7f).unwrap_or(0) | 0x80);
        length >>= 7;
    }
    out.push(u8::try_from(length).unwrap_or(0));
    out.extend_from_slice(bytes);
}

const fn tag(field: u8, wire: u8) -> u8 {
    field << 3 | wire
}

#[cfg(test)]
mod tests {
    use loudou_rules::metadata::each_text;

    use super::*;

    #[test]
    fn the_filter_reads_what_is_written() {
        let long = vec![b'x'; 300];
        let text = |text: &[u8]| Value::Text(text.to_vec());
        let list = Value::List(vec![text(b"a"), Value::Number(2.0), Value::Boolean(false)]);
        let read = |value: &Value| {
            let metadata = encode("ns", "key", value);
            let mut found = Vec::new();
            let path = ["ns".to_owned(), "key".to_owned()];
            each_text(&metadata, &path, &mut |text| {
                found.push(String::from_utf8(text.to_vec()).expect("a text"));
            });
            found
        };
        assert_eq!(
            read(&text(&long)),
            [String::from_utf8(long).expect("a text")]
        );
        assert_eq!(read(&Value::Number(0.5)), ["0.5"]);
        assert_eq!(read(&Value::Boolean(true)), ["true"]);
        assert_eq!(read(&list), ["a", "2", "false"]);
        assert_eq!(read(&Value::Unknown), [""]);
    }

    #[test]
    fn the_last_type_of_a_value_comes_first() {
        let first = |key: &[u8]| kinds(key)[0];
        assert_eq!(first(b"k"), Kind::Text);
        remember(b"k".to_vec(), Kind::Boolean);
        assert_eq!(first(b"k"), Kind::Boolean);
        assert_eq!(first(b"other"), Kind::Text);
        remember(b"other".to_vec(), Kind::Unknown);
        assert_eq!(
            first(b"other"),
            Kind::Text,
            "it would hide every other type"
        );
        let mut all = kinds(b"k").map(|kind| format!("{kind:?}"));
        all.sort();
        assert_eq!(all, ["Boolean", "List", "Number", "Text", "Unknown"]);
    }
}
