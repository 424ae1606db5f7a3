//! Texts of answers, put together without the standard library's formatting, which costs more than all the rest
//! of a refusal.

/// The most digits of a number.
const MOST: usize = 20;

/// A number in decimal digits.
pub(super) struct Digits {
    bytes: [u8; MOST],
    /// Where they begin.
    from: usize,
}

impl Digits {
    pub(super) fn of(number: u64) -> Self {
        let mut digits = Self {
            bytes: [b'0'; MOST],
            from: MOST,
        };
        let mut rest = number;
        for (place, byte) in digits.bytes.iter_mut().enumerate().rev() {
            *byte = b'0'.saturating_add(u8::try_from(rest % 10).unwrap_or(0));
            digits.from = place;
            rest /= 10;
            if rest == 0 {
                break;
            }
        }
        digits
    }

    pub(super) fn as_str(&self) -> &str {
        let digits = self.bytes.get(self.from..);
        digits.map_or("", |digits| str::from_utf8(digits).unwrap_or(""))
    }
}

/// Room for most texts, so that they do not move while they grow.
const USUAL: usize = 96;

/// These texts as one, and room for more.
pub(super) fn text(parts: &[&str]) -> String {
    let mut out = String::with_capacity(USUAL);
    push(&mut out, parts);
    out
}

/// Adds texts.
pub(super) fn push(out: &mut String, parts: &[&str]) {
    for part in parts {
        out.push_str(part);
    }
}

/// Adds what comes between two entries of a list, unless there is none yet; returns the list.
pub(super) fn after_others<'a>(list: &'a mut String, between: &str) -> &'a mut String {
    if list.is_empty() {
        list.reserve(USUAL);
    } else {
        list.push_str(between);
    }
    list
}

/// Adds a text as a JSON string.
pub(super) fn push_json(out: &mut String, text: &str) {
    let is_plain = |byte: u8| byte >= b' ' && byte != b'"' && byte != b'\\';
    if text.bytes().all(is_plain) {
        out.push('"');
        out.push_str(text);
        out.push('"');
    } else {
        out.push_str(&serde_json::to_string(text).unwrap_or_default());
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn digits_are_those_of_display() {
        let powers = (0..=19).map(|power| 10_u64.pow(power));
        let around = powers.flat_map(|power| [power - 1, power, power + 1]);
        for number in around.chain([7, 429, u64::MAX - 1, u64::MAX]) {
            assert_eq!(Digits::of(number).as_str(), number.to_string());
        }
    }

    #[test]
    fn strings_are_those_of_serde() {
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
