use std::io::Write as _;

use flate2::Compression;
use flate2::write::GzEncoder;
use ruzstd::encoding::{CompressionLevel, compress_to_vec};

use super::*;

fn gzip(bytes: &[u8]) -> Vec<u8> {
    let mut encoder = GzEncoder::new(Vec::new(), Compression::default());
    encoder.write_all(bytes).expect("writes");
    encoder.finish().expect("writes")
}

fn zstd(bytes: &[u8]) -> Vec<u8> {
    compress_to_vec(bytes, CompressionLevel::Fastest)
}

/// What can be read, and the error after it.
fn read(bytes: &[u8]) -> (Vec<u8>, Option<io::ErrorKind>) {
    let mut out = Vec::new();
    let read = plain(Box::new(bytes)).and_then(|mut reader| reader.read_to_end(&mut out));
    (out, read.err().map(|error| error.kind()))
}

fn text() -> Vec<u8> {
    (0..50_000)
        .flat_map(|n: u32| format!("line {n}\n").into_bytes())
        .collect()
}

#[test]
fn every_compression_of_one_or_several_parts() {
    let text = text();
    let (first, second) = text.split_at(100_000);
    for bytes in [
        text.clone(),
        gzip(&text),
        zstd(&text),
        [gzip(first), gzip(second)].concat(),
        [zstd(first), zstd(second)].concat(),
        // Padded, as on a tape.
        [gzip(&text), vec![0; 100_000]].concat(),
        [gzip(first), vec![0; 512], gzip(second)].concat(),
        // A frame that is to be skipped, as pzstd writes it.
        [
            b"\x50\x2a\x4d\x18\x04\x00\x00\x00abcd",
            &*zstd(first),
            &*zstd(second),
        ]
        .concat(),
    ] {
        let (out, error) = read(&bytes);
        assert_eq!(error, None);
        assert!(out == text);
    }
    for short in [&b""[..], b"\x1f", b"\x28\xb5\x2f", b"ab"] {
        assert_eq!(read(short), (short.to_vec(), None));
    }
}

#[test]
fn cut_off_and_damaged_input_is_an_error() {
    let text = text();
    for whole in [gzip(&text), zstd(&text)] {
        let (head, _) = whole.split_at(whole.len() / 2);
        let (out, error) = read(head);
        assert!(text.starts_with(&out) && error.is_some(), "{error:?}");
        let mut wrong = whole.clone();
        for byte in wrong.iter_mut().skip(100).step_by(50) {
            *byte ^= 0x55;
        }
        assert!(read(&wrong).1.is_some());
        assert!(read(&[&whole[..], b"trailing"].concat()).1.is_some());
    }
}

/// Memory stays bounded however much the input expands to.
#[test]
fn a_bomb_is_read_in_small_parts() {
    let zeros = vec![0; 64 << 20];
    for bomb in [gzip(&zeros), zstd(&zeros)] {
        assert!(bomb.len() < 1 << 20);
        let mut reader = plain(Box::new(&bomb[..])).expect("a reader");
        let (mut part, mut total) = (vec![0; 1 << 16], 0);
        loop {
            let read = reader.read(&mut part).expect("reads");
            if read == 0 {
                break;
            }
            total += read;
        }
        assert_eq!(total, zeros.len());
    }
}

/// What cannot be read is named, with advice.
#[test]
fn other_files_are_named() {
    let tar = [&vec![b'a'; 257][..], b"ustar\x0000"].concat();
    for (bytes, expected) in [
        (&b"BZh91AY&SY"[..], "bzip2 -dc"),
        (b"\xfd7zXZ\0\0\x04", "xz -dc"),
        (b"\x04\x22\x4d\x18\x64", "lz4 -dc"),
        (b"PK\x03\x04\x14", "unzip -p"),
        (b"\xff\xfe1\0", "UTF-16"),
        (b"\xfe\xff\x001", "UTF-16"),
        (&tar, "tar -xO"),
    ] {
        let error = plain(Box::new(bytes)).err().expect(expected).to_string();
        assert!(error.contains(expected), "{error}");
    }
}

/// Nobody has to know the words of a decoder.
#[test]
fn damage_is_said_in_words() {
    let mut words = Vec::new();
    for whole in [gzip(&text()), zstd(&text())] {
        let mut wrong = whole.clone();
        for byte in wrong.iter_mut().skip(100).step_by(50) {
            *byte ^= 0x55;
        }
        for bytes in [whole.get(..6).expect("a part"), &wrong] {
            let mut out = Vec::new();
            let read = plain(Box::new(bytes)).and_then(|mut reader| reader.read_to_end(&mut out));
            words.push(read.expect_err("damage").to_string());
        }
    }
    let expected = [
        "the gzip data is cut off",
        "the gzip data is damaged",
        "the Zstandard data is cut off or damaged",
        "the Zstandard data is cut off or damaged",
    ];
    assert_eq!(words, expected);
}
