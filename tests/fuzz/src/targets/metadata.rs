//! Envoy's dynamic metadata in protobuf form, with claims of any type.

use loudou_rules::metadata::each_text;

use super::{Bounds, Target};

pub(super) const METADATA: Target = Target {
    name: "metadata",
    about: "dynamic metadata: claims of every type, in protobuf form",
    run,
    seeds,
    words: &[
        b"\x0a\x03jwt",
        b"\x0a\x03sub",
        b"\x0a\x01a",
        b"\x12",
        b"\x08\x00",
        b"\x11\0\0\0\0\0\0\x45\x40",
        b"\x1a\x05alice",
        b"\x20\x01",
        b"\x2a",
        b"\x32",
        b"\xff\xff\xff\xff\xff\xff\xff\xff\xff\x01",
    ],
    longest: 64 * 1024,
    bounds: Bounds {
        us: 5_000,
        ns_per_byte: 100,
        kib: 64,
        bytes_per_byte: 8,
    },
};

fn run(input: &[u8]) {
    for path in [&["jwt", "sub"][..], &["jwt", "a", "b", "c"], &["jwt"], &[]] {
        let path: Vec<String> = path.iter().map(|step| (*step).to_owned()).collect();
        let mut bytes = 0_usize;
        each_text(input, &path, &mut |text| {
            bytes = bytes.saturating_add(text.len());
        });
        // A number of eight bytes has at most 24 characters.
        assert!(
            bytes <= input.len().saturating_mul(3),
            "{bytes} bytes of text"
        );
    }
}

/// Returns metadata with one text, as `envoy.config.core.v3.Metadata`.
pub(super) fn of_text(namespace: &str, key: &str, text: &[u8]) -> Vec<u8> {
    of(namespace, key, &field(3, text))
}

/// Returns metadata with one `google.protobuf.Value`.
fn of(namespace: &str, key: &str, value: &[u8]) -> Vec<u8> {
    let entry =
        |key: &str, value: &[u8]| field(1, &[field(1, key.as_bytes()), field(2, value)].concat());
    entry(namespace, &entry(key, value))
}

/// Returns a field with a length.
fn field(number: u8, content: &[u8]) -> Vec<u8> {
    let mut bytes = vec![number << 3 | 2];
    let mut len = content.len();
    while len > 0x7f {
        bytes.push(u8::try_from(len & 0x7f).unwrap_or(0x7f) | 0x80);
        len >>= 7;
    }
    bytes.push(u8::try_from(len).unwrap_or(0));
    bytes.extend_from_slice(content);
    bytes
}

fn seeds() -> Vec<Vec<u8>> {
    let number = [&[0x11][..], &42.0_f64.to_le_bytes()].concat();
    let list = field(6, &[field(1, &field(3, b"a")), field(1, &number)].concat());
    let object = field(5, &field(1, &[field(1, b"b"), field(2, &list)].concat()));
    vec![
        of_text("jwt", "sub", b"alice"),
        of("jwt", "sub", &number),
        of("jwt", "sub", &list),
        of("jwt", "sub", &[0x20, 1]),
        [of("jwt", "a", &object), of_text("other", "x", b"y")].concat(),
    ]
}
