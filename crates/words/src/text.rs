//! Escapes untrusted text for a terminal, and formats counts, sizes and dates.
//!
//! Keys, reasons and messages are chosen by clients. Untrusted text must not be able to move the cursor, change
//! colours, or hide or reorder adjacent text. It is therefore escaped with [`escape`] before it is printed.

use std::borrow::Cow;

use jiff::Timestamp;
use percent_encoding::{AsciiSet, CONTROLS, utf8_percent_encode};

pub use loudou_rules::humanise::humanise;

/// Escapes all characters that a terminal might interpret: control characters, and Unicode characters that are
/// invisible or change the text direction.
pub fn escape(text: &str) -> Cow<'_, str> {
    if !text.chars().any(is_unsafe) {
        return Cow::Borrowed(text);
    }
    let mut out = String::with_capacity(text.len().saturating_mul(2));
    for c in text.chars() {
        if is_unsafe(c) {
            out.extend(c.escape_default());
        } else {
            out.push(c);
        }
    }
    Cow::Owned(out)
}

/// Converts text to the filter's key notation, in which all bytes other than printable ASCII characters are written as
/// `%XX`. Text that is already in this form, such as a key from a list, is left unchanged.
pub fn as_key(text: &str) -> Cow<'_, str> {
    const UNPRINTABLE: &AsciiSet = &CONTROLS.add(b' ');
    utf8_percent_encode(text, UNPRINTABLE).into()
}

/// Formats a number with its noun: `1 key`, `2 keys`.
pub fn counted(n: u64, noun: &str) -> String {
    let plural = if n == 1 { "" } else { "s" };
    format!("{n} {noun}{plural}")
}

/// Returns a suffix for an error message that suggests the similar name `near`, or an empty string if there is none.
pub fn meant(near: Option<impl AsRef<str>>) -> String {
    near.map_or_else(String::new, |near| {
        format!("; did you mean `{}`?", escape(near.as_ref()))
    })
}

/// Truncates `text` to at most `most` characters. Truncated text ends with `…`.
pub fn shortened(text: &str, most: usize) -> Cow<'_, str> {
    match text.char_indices().nth(most) {
        None => Cow::Borrowed(text),
        Some((end, _)) => Cow::Owned(format!("{}…", text.get(..end).unwrap_or_default())),
    }
}

/// Returns true if a terminal might interpret `c`, or if `c` might be invisible.
pub fn is_unsafe(c: char) -> bool {
    c.is_control()
        || matches!(
            c,
            '\u{ad}'
                | '\u{61c}'
                | '\u{180e}'
                | '\u{200b}'..='\u{200f}'
                | '\u{2028}'..='\u{202e}'
                | '\u{2060}'..='\u{206f}'
                | '\u{fe00}'..='\u{fe0f}'
                | '\u{feff}'
                | '\u{fff9}'..='\u{fffb}'
                | '\u{e0000}'..='\u{e0fff}'
        )
}

/// Escapes unsafe characters in JSON text as `\uXXXX`. JSON serializers escape only control characters below 32. Other
/// unsafe characters can occur only inside JSON strings, so they can be escaped in place.
pub fn json_safe(text: String) -> String {
    if text.chars().all(|c| c == '\n' || !is_unsafe(c)) {
        return text;
    }
    text.chars().flat_map(json_char).collect()
}

fn json_char(c: char) -> Vec<char> {
    if c == '\n' || !is_unsafe(c) {
        return vec![c];
    }
    let mut buffer = [0; 2];
    let units = c.encode_utf16(&mut buffer).iter();
    units
        .flat_map(|unit| format!("\\u{unit:04x}").chars().collect::<Vec<_>>())
        .collect()
}

/// Formats a size with a binary unit, rounded down to tenths: `6.9 MiB`.
pub fn bytes(bytes: u64) -> String {
    let tenths = |unit: u64| {
        let tenths = bytes.saturating_mul(10).checked_div(unit).unwrap_or(0);
        format!("{}.{}", tenths / 10, tenths % 10)
    };
    match bytes {
        0..1_048_576 => format!("{} KiB", tenths(1 << 10)),
        1_048_576..1_073_741_824 => format!("{} MiB", tenths(1 << 20)),
        _ => format!("{} GiB", tenths(1 << 30)),
    }
}

/// Formats a time in milliseconds since the Unix epoch, in UTC: `2026-11-21 14:03:07Z`. Times after the year 9999 are
/// shown as the end of that year.
pub fn date(unix_ms: u64) -> String {
    let ms = i64::try_from(unix_ms).unwrap_or(i64::MAX);
    let time = Timestamp::from_millisecond(ms).unwrap_or(Timestamp::MAX);
    time.strftime("%Y-%m-%d %H:%M:%SZ").to_string()
}

#[cfg(test)]
mod tests {
    use super::*;
    use proptest::prelude::*;

    #[test]
    fn nothing_a_terminal_acts_on_is_left() {
        assert_eq!(escape("\u{1b}[2Jx"), "\\u{1b}[2Jx");
        assert_eq!(escape("a\u{9b}31mb\r\n\tc"), "a\\u{9b}31mb\\r\\n\\tc");
        assert_eq!(escape("x\u{202e}y\u{200b}"), "x\\u{202e}y\\u{200b}");
        assert!(matches!(escape("漏斗 plain ü"), Cow::Borrowed(_)));
    }

    #[test]
    fn keys_are_ascii() {
        assert_eq!(as_key("José 1\t"), "Jos%C3%A9%201%09");
        for written in ["Jos%C3%A9%201", "a:b~c/d?e", "team-*"] {
            assert!(matches!(as_key(written), Cow::Borrowed(_)), "{written}");
        }
    }

    #[test]
    fn spans_in_words() {
        for (ns, printed) in [
            (0, "0s"),
            (999, "999ns"),
            (1_001, "2us"),
            (1_000_000, "1ms"),
            (850_000_000, "850ms"),
            (999_500_000, "1s"),
            (1_000_000_001, "1.1s"),
            (1_200_000_000, "1.2s"),
            (9_900_000_001, "10s"),
            (59_999_999_999, "1m"),
            (60_000_000_000, "1m"),
            (90_000_000_000, "1m30s"),
            (3_599_000_000_000, "1h"),
            (7_500_000_000_000, "2h5m"),
            (86_400_000_000_000, "1d"),
            (90_000_000_000_000, "1d1h"),
            (u64::MAX, "213504d"),
        ] {
            assert_eq!(humanise(ns), printed, "{ns}");
        }
    }

    proptest! {
        #[test]
        fn escaped_text_is_safe(text in any::<String>()) {
            prop_assert!(!escape(&text).chars().any(is_unsafe));
        }

        #[test]
        fn every_span_has_a_form(ns in any::<u64>()) {
            let printed = humanise(ns);
            prop_assert!(!printed.is_empty() && printed.len() <= 9, "{printed}");
        }
    }

    #[test]
    fn sizes() {
        assert_eq!(bytes(110 * 64), "6.8 KiB");
        assert_eq!(bytes(110 * 65_536), "6.8 MiB");
        assert_eq!(bytes(110 * 16_777_216), "1.7 GiB");
    }

    #[test]
    fn dates() {
        for (unix_s, text) in [
            (0, "1970-01-01 00:00:00Z"),
            (951_782_399, "2000-02-28 23:59:59Z"),
            (951_782_400, "2000-02-29 00:00:00Z"),
            (1_709_251_199, "2024-02-29 23:59:59Z"),
            (1_709_251_200, "2024-03-01 00:00:00Z"),
            (1_795_269_787, "2026-11-21 14:03:07Z"),
            (4_107_542_400, "2100-03-01 00:00:00Z"),
        ] {
            assert_eq!(date(unix_s * 1_000), text);
        }
        assert!(!date(u64::MAX).is_empty());
    }
}
