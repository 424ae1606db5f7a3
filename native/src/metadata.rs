//! Dynamic metadata in protobuf form.
//!
//! The filter reads the form that Wasm filters get, in which types are certain. Envoy tells a module
//! the values one by one, and only of the outermost keys. So an object is written without its
//! contents, and rules that would read them are refused.

/// A value.
#[derive(Clone, Debug, PartialEq)]
pub(crate) enum Value {
    Text(Vec<u8>),
    Number(f64),
    Boolean(bool),
    List(Vec<Self>),
    /// An object, or a null.
    Unknown,
}

/// Keys of a namespace with their values.
pub(crate) type Keys = Vec<(Vec<u8>, Value)>;

// Fields of the messages `Metadata`, `Struct`, `ListValue` and `Value`, and of entries of maps.
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

/// Encodes namespaces as the message `Metadata`.
pub(crate) fn encode(namespaces: &[(Vec<u8>, Keys)]) -> Vec<u8> {
    let mut metadata = Vec::new();
    for (namespace, keys) in namespaces {
        let mut object = Vec::new();
        for (key, value) in keys {
            put_entry(&mut object, key, &of_value(value));
        }
        put_entry(&mut metadata, namespace, &object);
    }
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
        let keys = vec![
            (b"text".to_vec(), text(&long)),
            (b"number".to_vec(), Value::Number(0.5)),
            (b"flag".to_vec(), Value::Boolean(true)),
            (b"list".to_vec(), list),
            (b"object".to_vec(), Value::Unknown),
        ];
        let metadata = encode(&[(b"other".to_vec(), Vec::new()), (b"ns".to_vec(), keys)]);
        let read = |key: &str| {
            let mut found = Vec::new();
            let path = ["ns".to_owned(), key.to_owned()];
            each_text(&metadata, &path, &mut |text| {
                found.push(String::from_utf8(text.to_vec()).expect("a text"));
            });
            found
        };
        assert_eq!(read("text"), [String::from_utf8(long).expect("a text")]);
        assert_eq!(read("number"), ["0.5"]);
        assert_eq!(read("flag"), ["true"]);
        assert_eq!(read("list"), ["a", "2", "false"]);
        assert_eq!(read("object"), [""]);
        assert!(read("missing").is_empty());
    }
}
