//! Escapes text for the terminal, measures its width in cells, truncates it and wraps it.

use std::borrow::Cow;

use unicode_width::{UnicodeWidthChar as _, UnicodeWidthStr as _};

use loudou_words::num::cells;
use loudou_words::text::escape;

/// Escapes characters that a terminal interprets, and characters of zero width, so that the
/// computed width of the text equals its width in the terminal.
pub fn safe(text: &str) -> Cow<'_, str> {
    let escaped = escape(text);
    if escaped.chars().all(|c| c.width().unwrap_or(0) > 0) {
        return escaped;
    }
    let mut out = String::with_capacity(escaped.len());
    for c in escaped.chars() {
        if c.width().unwrap_or(0) > 0 {
            out.push(c);
        } else {
            out.extend(c.escape_unicode());
        }
    }
    Cow::Owned(out)
}

/// Returns the width of `text` in cells.
pub fn width(text: &str) -> u16 {
    cells(text.width())
}

/// Truncates `text` to at most `most` cells. A truncated text ends with `more`.
pub fn fit(text: &str, most: usize, more: char) -> Cow<'_, str> {
    if text.width() <= most {
        return Cow::Borrowed(text);
    }
    let room = most.saturating_sub(1);
    let mut used = 0_usize;
    let mut out = String::new();
    for c in text.chars() {
        used = used.saturating_add(c.width().unwrap_or(0));
        if used > room {
            break;
        }
        out.push(c);
    }
    if most > 0 {
        out.push(more);
    }
    Cow::Owned(out)
}

/// Wraps `text` into lines of at most `most` cells, at spaces if possible.
pub fn wrap(text: &str, most: u16) -> Vec<String> {
    let most = usize::from(most.max(1));
    let mut lines = Vec::new();
    for paragraph in text.lines() {
        let paragraph = safe(paragraph);
        let mut line = String::new();
        for word in paragraph.split(' ') {
            let room = most.saturating_sub(line.width());
            if !line.is_empty() && word.width() >= room {
                lines.push(std::mem::take(&mut line));
            }
            if !line.is_empty() {
                line.push(' ');
            }
            for c in word.chars() {
                if line.width().saturating_add(c.width().unwrap_or(0)) > most {
                    lines.push(std::mem::take(&mut line));
                }
                line.push(c);
            }
        }
        lines.push(line);
    }
    lines
}

#[cfg(test)]
mod tests {
    use super::*;
    use proptest::prelude::*;

    #[test]
    fn text_is_cut_by_cells_not_characters() {
        assert_eq!(fit("漏斗漏斗", 5, '…'), "漏斗…");
        assert_eq!(fit("漏斗", 4, '…'), "漏斗");
        assert_eq!(fit("ab", 0, '…'), "");
        assert_eq!(wrap("one two three", 7), ["one two", "three"]);
        assert_eq!(wrap("abcdefgh", 3), ["abc", "def", "gh"]);
    }

    proptest! {
        #[test]
        fn fitted_text_fits(text in any::<String>(), most in 0_u16..40) {
            let safe = safe(&text);
            prop_assert!(width(&fit(&safe, usize::from(most), '…')) <= most);
            prop_assert!(wrap(&text, most).iter().all(|line| width(line) <= most.max(2)));
        }
    }
}
