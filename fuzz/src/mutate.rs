//! Makes new inputs of known ones.

use crate::random::Random;

/// Numbers at which readers fail: ends of ranges, and the first beyond them.
const NUMBERS: &[&[u8]] = &[
    b"0",
    b"-1",
    b"1e999",
    b"4294967295",
    b"4294967296",
    b"9007199254740993",
    b"18446744073709551615",
    b"18446744073709551616",
    b"\xff\xff\xff\xff\xff\xff\xff\xff",
    b"\xff\xff\xff\xff\x0f",
    b"\0\0\0\0\0\0\0\0",
    b"\0\0\0\x80",
];
/// Bytes that mean something to most readers.
const BYTES: &[u8] = b"\0\t\n\r \"#%&*+,-./:;<=>?[\\]_{}~\x1b\x7f\x80\xc2\xff";
/// The most repetitions of a part.
const REPEATS: usize = 2_000;

/// A new input of at most `longest` bytes: some changes to `input`, with parts of `other` and `words`.
pub fn mutated(
    random: &mut Random,
    input: &[u8],
    other: &[u8],
    words: &[&[u8]],
    longest: usize,
) -> Vec<u8> {
    let mut bytes = input.to_vec();
    let changes = random.below(4).saturating_add(1);
    for _ in 0..changes {
        change(random, &mut bytes, other, words);
        bytes.truncate(longest);
    }
    bytes
}

fn change(random: &mut Random, bytes: &mut Vec<u8>, other: &[u8], words: &[&[u8]]) {
    let at = random.below(bytes.len().saturating_add(1));
    match random.below(10) {
        0 => flip(random, bytes, at),
        1 => set(bytes, at, random.byte()),
        2 => insert(bytes, at, &[*random.pick(BYTES).unwrap_or(&b' ')]),
        3 => {
            let part = range(random, bytes.len(), 64);
            bytes.drain(part);
        }
        4 => insert(bytes, at, random.pick(words).copied().unwrap_or_default()),
        5 => insert(bytes, at, random.pick(NUMBERS).copied().unwrap_or_default()),
        6 => {
            let part = range(random, other.len(), 256);
            insert(bytes, at, other.get(part).unwrap_or_default());
        }
        7 => {
            let part = range(random, bytes.len(), 256);
            let part = bytes.get(part).unwrap_or_default().to_vec();
            insert(bytes, at, &part);
        }
        8 => repeat(random, bytes),
        _ => number(random, bytes, at),
    }
}

fn flip(random: &mut Random, bytes: &mut [u8], at: usize) {
    if let Some(byte) = bytes.get_mut(at) {
        *byte ^= 1_u8.rotate_left(u32::from(random.byte() % 8));
    }
}

fn set(bytes: &mut [u8], at: usize, value: u8) {
    if let Some(byte) = bytes.get_mut(at) {
        *byte = value;
    }
}

fn insert(bytes: &mut Vec<u8>, at: usize, part: &[u8]) {
    bytes.splice(at..at, part.iter().copied());
}

/// Repeats a short part many times: long lists, and deep nesting.
fn repeat(random: &mut Random, bytes: &mut Vec<u8>) {
    let part = range(random, bytes.len(), 12);
    let end = part.end;
    let Some(part) = bytes.get(part) else {
        return;
    };
    // Mostly few times.
    let most = random.below(REPEATS).saturating_add(1);
    let repeated = part.repeat(random.below(most));
    insert(bytes, end, &repeated);
}

/// Changes the decimal number at or after `at`.
fn number(random: &mut Random, bytes: &mut Vec<u8>, at: usize) {
    let rest = bytes.get(at..).unwrap_or_default();
    let Some(first) = rest.iter().position(u8::is_ascii_digit) else {
        return;
    };
    let start = at.saturating_add(first);
    let digits = bytes.iter().skip(start);
    let length = digits.take_while(|byte| byte.is_ascii_digit()).count();
    let new = match random.below(3) {
        0 => random.pick(NUMBERS).copied().unwrap_or_default().to_vec(),
        1 => random.bits().to_string().into_bytes(),
        _ => random.below(1_000).to_string().into_bytes(),
    };
    bytes.splice(start..start.saturating_add(length), new);
}

/// A range below `length`, at most `most` long.
fn range(random: &mut Random, length: usize, most: usize) -> std::ops::Range<usize> {
    let start = random.below(length);
    let room = length.saturating_sub(start).min(most);
    let end = start.saturating_add(random.below(room.saturating_add(1)));
    start..end
}
