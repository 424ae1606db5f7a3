//! Writes HTML in such a way that untrusted text is never interpreted as markup.

use loudou_words::text::escape;

/// An HTML fragment. The names of elements and attributes are constants of this program. Everything
/// else is escaped.
#[derive(Debug, Default)]
pub(crate) struct Html(String);

/// Name and value of an attribute.
pub(crate) type Attribute<'a> = (&'static str, &'a str);

impl Html {
    /// Adds constant markup.
    pub(crate) fn raw(&mut self, markup: &'static str) {
        self.0.push_str(markup);
    }

    /// Adds untrusted text. As on a terminal, characters that reorder or hide other text are shown
    /// as escape sequences.
    pub(crate) fn text(&mut self, text: &str) {
        for c in escape(text).chars() {
            match c {
                '&' => self.0.push_str("&amp;"),
                '<' => self.0.push_str("&lt;"),
                '>' => self.0.push_str("&gt;"),
                '"' => self.0.push_str("&quot;"),
                '\'' => self.0.push_str("&#39;"),
                c => self.0.push(c),
            }
        }
    }

    fn open(&mut self, name: &'static str, attributes: &[Attribute<'_>]) {
        self.raw("<");
        self.raw(name);
        for (attribute, value) in attributes {
            self.raw(" ");
            self.raw(attribute);
            self.raw("=\"");
            self.text(value);
            self.raw("\"");
        }
        self.raw(">");
    }

    fn close(&mut self, name: &'static str) {
        self.raw("</");
        self.raw(name);
        self.raw(">\n");
    }

    /// Adds an element whose contents `inside` adds.
    pub(crate) fn within(
        &mut self,
        name: &'static str,
        attributes: &[Attribute<'_>],
        inside: impl FnOnce(&mut Self),
    ) {
        self.open(name, attributes);
        inside(self);
        self.close(name);
    }

    /// Adds an element that contains only text, which may be empty.
    pub(crate) fn element(&mut self, name: &'static str, attributes: &[Attribute<'_>], text: &str) {
        self.within(name, attributes, |html| html.text(text));
    }

    /// Returns the finished HTML.
    pub(crate) fn finish(self) -> String {
        self.0
    }
}

/// Formats a number with narrow spaces as thousands separators.
pub(crate) fn grouped(number: u64) -> String {
    group(&number.to_string())
}

/// Adds thousands separators if the string is a whole number, with or without a sign. Returns other
/// strings unchanged.
pub(crate) fn group(text: &str) -> String {
    let digits = text.trim_start_matches(['+', '-']);
    let is_number = !digits.is_empty() && digits.bytes().all(|byte| byte.is_ascii_digit());
    if !is_number || text.len() > digits.len() + 1 {
        return text.to_owned();
    }
    let sign = text.len() - digits.len();
    let mut out: String = text.chars().take(sign).collect();
    for (place, digit) in digits.chars().enumerate() {
        if place > 0 && (digits.len() - place).is_multiple_of(3) {
            out.push('\u{202f}');
        }
        out.push(digit);
    }
    out
}

/// Formats `part` of `whole` as a CSS percentage: `12.34%`.
pub(crate) fn percent(part: u64, whole: u64) -> String {
    let hundredths = u128::from(part) * 10_000 / u128::from(whole.max(1));
    let hundredths = hundredths.min(10_000);
    format!("{}.{:02}%", hundredths / 100, hundredths % 100)
}

#[cfg(test)]
mod tests {
    use super::*;
    use loudou_words::text::is_unsafe;
    use proptest::prelude::*;

    fn text(text: &str) -> String {
        let mut html = Html::default();
        html.text(text);
        html.finish()
    }

    #[test]
    fn markup_in_a_text_is_text() {
        assert_eq!(
            text("<script>alert('1')</script>&\"\u{202e}\0"),
            "&lt;script&gt;alert(&#39;1&#39;)&lt;/script&gt;&amp;&quot;\\u{202e}\\u{0}"
        );
    }

    #[test]
    fn numbers() {
        assert_eq!(grouped(999), "999");
        assert_eq!(grouped(1_234_567), "1\u{202f}234\u{202f}567");
        assert_eq!(group("+1234"), "+1\u{202f}234");
        assert_eq!(group("12.5 %"), "12.5 %");
        assert_eq!(group("+-1234"), "+-1234");
        assert_eq!(group("-"), "-");
        assert_eq!(percent(1, 3), "33.33%");
        assert_eq!(percent(7, 0), "100.00%");
    }

    proptest! {
        #[test]
        fn no_text_is_markup(any in any::<String>()) {
            let html = text(&any);
            prop_assert!(!html.contains(['<', '>', '"', '\'']));
            prop_assert!(!html.chars().any(is_unsafe));
            let entities = ["&amp;", "&lt;", "&gt;", "&quot;", "&#39;"];
            let rest = entities.iter().fold(html, |rest, entity| rest.replace(entity, ""));
            prop_assert!(!rest.contains('&'));
        }
    }
}
