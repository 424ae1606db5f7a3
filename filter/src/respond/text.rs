//! Builds strings for responses without the standard library's formatting, which would take longer
//! than the rest of a refusal.

/// Maximum number of decimal digits in a `u64`.
const MAX_DIGITS: usize = 20;
/// Lookup table with the two-digit representations of all numbers below 100. Most numbers in
/// responses are below 100.
const PAIRS: &str = concat!(
    "00010203040506070809101112131415161718192021222324",
    "25262728293031323334353637383940414243444546474849",
    "50515253545556575859606162636465666768697071727374",
    "75767778798081828384858687888990919293949596979899",
);

/// A number in decimal representation.
pub(super) enum Digits {
    Few(&'static str),
    Many {
        bytes: [u8; MAX_DIGITS],
        /// Index of the first digit in `bytes`.
        from: usize,
    },
}

impl Digits {
    pub(super) fn of(number: u64) -> Self {
        if number < 100 {
            let end = usize::try_from(number).unwrap_or(0).saturating_mul(2);
            let end = end.saturating_add(2);
            let begin = end.saturating_sub(if number < 10 { 1 } else { 2 });
            return Self::Few(PAIRS.get(begin..end).unwrap_or_default());
        }
        let mut bytes = [b'0'; MAX_DIGITS];
        let mut from = MAX_DIGITS;
        let mut rest = number;
        for (place, byte) in bytes.iter_mut().enumerate().rev() {
            *byte = b'0'.saturating_add(u8::try_from(rest % 10).unwrap_or(0));
            from = place;
            rest /= 10;
            if rest == 0 {
                break;
            }
        }
        Self::Many { bytes, from }
    }

    pub(super) fn as_str(&self) -> &str {
        match self {
            Self::Few(digits) => digits,
            Self::Many { bytes, from } => {
                let digits = bytes.get(*from..).unwrap_or_default();
                str::from_utf8(digits).unwrap_or_default()
            }
        }
    }
}

/// Initial string capacity, which is large enough to avoid reallocating most strings while they
/// grow.
const USUAL_LENGTH: usize = 96;

/// Concatenates strings into a new string with spare capacity.
pub(super) fn text(parts: &[&str]) -> String {
    let mut out = String::with_capacity(USUAL_LENGTH);
    push(&mut out, parts);
    out
}

/// Appends strings.
pub(super) fn push(out: &mut String, parts: &[&str]) {
    for part in parts {
        out.push_str(part);
    }
}

/// Appends a separator to a list unless the list is empty, and returns the list.
pub(super) fn after_others<'a>(list: &'a mut String, between: &str) -> &'a mut String {
    if list.is_empty() {
        list.reserve(USUAL_LENGTH);
    } else {
        list.push_str(between);
    }
    list
}

/// Appends a string as a JSON string literal.
pub(super) fn push_json(out: &mut String, text: &str) {
    if is_plain(text.as_bytes()) {
        out.push('"');
        out.push_str(text);
        out.push('"');
    } else {
        out.push_str(&serde_json::to_string(text).unwrap_or_default());
    }
}

/// Returns true if no byte has to be escaped in JSON. Checks eight bytes at a time, because the
/// strings in a refusal have a total length of a few hundred bytes.
fn is_plain(text: &[u8]) -> bool {
    let (eights, rest) = text.as_chunks();
    let mut last = *b"........";
    for (place, byte) in last.iter_mut().zip(rest) {
        *place = *byte;
    }
    let found = eights.iter().chain([&last]).fold(0, |found, eight| {
        let eight = u64::from_le_bytes(*eight);
        found | below(eight, b' ') | equal(eight, b'"') | equal(eight, b'\\')
    });
    found & ONES << 7 == 0
}

const ONES: u64 = u64::from_le_bytes([1; 8]);

/// Returns a word in which at least one byte has its highest bit set if any of the eight bytes is
/// below `least`. `least` must be at most 128.
const fn below(eight: u64, least: u8) -> u64 {
    eight.wrapping_sub(u64::from_le_bytes([least; 8])) & !eight
}

/// Returns a word in which at least one byte has its highest bit set if any of the eight bytes
/// equals `byte`.
const fn equal(eight: u64, byte: u8) -> u64 {
    below(eight ^ u64::from_le_bytes([byte; 8]), 1)
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn digits_are_those_of_display() {
        let powers = (0..=19).map(|power| 10_u64.pow(power));
        let around = powers.flat_map(|power| [power - 1, power, power + 1]);
        let others = [7, 429, u64::MAX - 1, u64::MAX];
        for number in around.chain(0..=1_000).chain(others) {
            assert_eq!(Digits::of(number).as_str(), number.to_string());
        }
    }

    #[test]
    fn strings_are_those_of_serde() {
        let long = |at: usize, byte: &str| format!("{}{byte}{}", "-".repeat(at), "z".repeat(9));
        for byte in (0..=0x7f_u8).map(|byte| char::from(byte).to_string()) {
            for text in [byte.clone(), long(3, &byte), long(7, &byte), long(9, &byte)] {
                let mut out = String::new();
                push_json(&mut out, &text);
                assert_eq!(out, serde_json::to_string(&text).expect("a string"));
            }
        }
        for text in [
            "",
            "a.b",
            "ä € 😀",
            "a\"b",
            "\\",
            "line\n",
            "\u{0}\u{1f}\u{7f}",
        ] {
            let mut out = String::new();
            push_json(&mut out, text);
            assert_eq!(out, serde_json::to_string(text).expect("a string"));
        }
    }
}
