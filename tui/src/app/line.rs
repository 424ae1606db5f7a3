//! A one-line text field: text, cursor, and the "all selected" state of a fresh field, in which typing
//! replaces the text.

use super::press::{Code, Press};

/// The most characters of a field.
const LONGEST: usize = 512;

/// Text being edited.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub(crate) struct Line {
    chars: Vec<char>,
    cursor: usize,
    selected: bool,
}

impl Line {
    /// A field with `text` and the cursor at its end.
    pub(crate) fn new(text: &str) -> Self {
        let chars: Vec<char> = text.chars().take(LONGEST).collect();
        Self {
            cursor: chars.len(),
            chars,
            selected: false,
        }
    }

    /// The text.
    pub(crate) fn text(&self) -> String {
        self.chars.iter().collect()
    }

    /// The characters before and after the cursor.
    pub(crate) fn halves(&self) -> (String, String) {
        let (before, after) = self
            .chars
            .split_at_checked(self.cursor)
            .unwrap_or((&self.chars, &[]));
        (before.iter().collect(), after.iter().collect())
    }

    /// Whether the next character replaces everything.
    pub(crate) const fn is_selected(&self) -> bool {
        self.selected
    }

    /// Selects everything.
    pub(crate) fn select_all(&mut self) {
        self.selected = !self.chars.is_empty();
        self.cursor = self.chars.len();
    }

    /// Applies a key; false if a text field does not use it.
    pub(crate) fn press(&mut self, press: Press) -> bool {
        match (press.code, press.ctrl) {
            (Code::Char(c), false) => self.insert(c),
            (Code::Char('u'), true) => self.clear(),
            (Code::Char('w'), true) => self.remove_word(),
            (Code::Char('a'), true) | (Code::Home, _) => self.move_to(0),
            (Code::Char('e'), true) | (Code::End, _) => self.move_to(self.chars.len()),
            (Code::Left, _) => self.move_to(self.cursor.saturating_sub(1)),
            (Code::Right, _) => self.move_to(self.cursor.saturating_add(1)),
            (Code::Backspace, _) => self.backspace(),
            (Code::Delete, _) => self.delete(),
            _ => return false,
        }
        true
    }

    /// Inserts pasted text; line breaks and control characters are dropped.
    pub(crate) fn paste(&mut self, text: &str) {
        for c in text.chars().filter(|c| !c.is_control()).take(LONGEST) {
            self.insert(c);
        }
    }

    fn insert(&mut self, c: char) {
        if self.selected {
            self.clear();
        }
        if self.chars.len() < LONGEST && self.cursor <= self.chars.len() {
            self.chars.insert(self.cursor, c);
            self.cursor = self.cursor.saturating_add(1);
        }
    }

    fn move_to(&mut self, cursor: usize) {
        self.selected = false;
        self.cursor = cursor.min(self.chars.len());
    }

    fn clear(&mut self) {
        self.chars.clear();
        self.move_to(0);
    }

    fn backspace(&mut self) {
        if self.selected {
            self.clear();
        } else if let Some(before) = self.cursor.checked_sub(1) {
            self.cursor = before;
            self.delete();
        }
    }

    fn delete(&mut self) {
        if self.selected {
            self.clear();
        } else if self.cursor < self.chars.len() {
            self.chars.remove(self.cursor);
        }
    }

    fn remove_word(&mut self) {
        if self.selected {
            self.clear();
        }
        let head = self.chars.get(..self.cursor).unwrap_or_default();
        let end = head.iter().rposition(|c| *c != ' ');
        let start = end
            .and_then(|end| head.get(..end)?.iter().rposition(|c| *c == ' '))
            .map_or(0, |space| space.saturating_add(1));
        self.chars.drain(start..self.cursor.max(start));
        self.move_to(start);
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::app::press::keys;

    fn typed(text: &str, presses: &str) -> Line {
        let mut line = Line::new(text);
        for press in keys(presses) {
            assert!(line.press(press), "{press}");
        }
        line
    }

    #[test]
    fn edits_like_a_shell() {
        for (text, presses, result) in [
            ("ab", "c", "abc"),
            ("ab", "<left>x", "axb"),
            ("ab", "<home>x<end>y", "xaby"),
            ("ab", "<bs><bs><bs>", ""),
            ("ab", "<home><del>", "b"),
            ("one two ", "<C-w>", "one "),
            ("one", "<C-w>", ""),
            ("one", "<C-u>", ""),
            ("漏斗", "<left>x", "漏x斗"),
        ] {
            assert_eq!(typed(text, presses).text(), result, "{text} {presses}");
        }
    }

    #[test]
    fn a_selected_text_is_replaced() {
        for (press, result) in [
            ("2", "2"),
            ("<left>2", "125"),
            ("<bs>", ""),
            ("<end>0", "150"),
        ] {
            let mut line = Line::new("15");
            line.select_all();
            for press in keys(press) {
                line.press(press);
            }
            assert_eq!(line.text(), result, "{press}");
        }
    }

    #[test]
    fn a_paste_has_no_line_breaks() {
        let mut line = Line::new("");
        line.paste("30\r\n\u{1b}m");
        assert_eq!(line.text(), "30m");
    }
}
