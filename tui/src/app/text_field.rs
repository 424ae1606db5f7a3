//! A one-line text field with a cursor. All its text can be selected, so that typing replaces it.

use tui_input::{Input, InputRequest};

use super::press::{Code, Press};

/// Maximum number of characters in a field.
const MAX_LENGTH: usize = 512;

/// Text that is being edited.
#[derive(Clone, Debug, Default)]
pub(crate) struct TextField {
    input: Input,
    is_selected: bool,
}

impl PartialEq for TextField {
    fn eq(&self, other: &Self) -> bool {
        let of = |field: &Self| (field.input.cursor(), field.is_selected);
        self.text() == other.text() && of(self) == of(other)
    }
}

impl Eq for TextField {}

impl TextField {
    /// Creates a field with `text` and the cursor at its end.
    pub(crate) fn new(text: &str) -> Self {
        Self {
            input: Input::new(text.chars().take(MAX_LENGTH).collect()),
            is_selected: false,
        }
    }

    /// Returns the text.
    pub(crate) fn text(&self) -> &str {
        self.input.value()
    }

    /// Returns the text before and after the cursor.
    pub(crate) fn halves(&self) -> (&str, &str) {
        let mut places = self.text().char_indices();
        let at = places.nth(self.input.cursor()).map(|(at, _)| at);
        let split = at.and_then(|at| self.text().split_at_checked(at));
        split.unwrap_or_else(|| (self.text(), ""))
    }

    /// Returns true if typing replaces the whole text.
    pub(crate) const fn is_selected(&self) -> bool {
        self.is_selected
    }

    /// Selects everything.
    pub(crate) fn select_all(&mut self) {
        self.input.handle(InputRequest::GoToEnd);
        self.is_selected = !self.text().is_empty();
    }

    /// Handles a key press. Returns false if text fields do not use the key.
    pub(crate) fn press(&mut self, press: Press) -> bool {
        use InputRequest as R;
        let request = match (press.code, press.ctrl) {
            (Code::Char(c), false) => R::InsertChar(c),
            (Code::Char('u'), true) => R::DeleteLine,
            (Code::Char('w'), true) => R::DeletePrevWord,
            (Code::Char('a'), true) | (Code::Home, _) => R::GoToStart,
            (Code::Char('e'), true) | (Code::End, _) => R::GoToEnd,
            (Code::Left, _) => R::GoToPrevChar,
            (Code::Right, _) => R::GoToNextChar,
            (Code::Backspace, _) => R::DeletePrevChar,
            (Code::Delete, _) => R::DeleteNextChar,
            _ => return false,
        };
        let moves = matches!(
            request,
            R::GoToStart | R::GoToEnd | R::GoToPrevChar | R::GoToNextChar
        );
        let was_selected = std::mem::take(&mut self.is_selected);
        let deletes = matches!(
            request,
            R::DeletePrevChar | R::DeleteNextChar | R::DeletePrevWord
        );
        if was_selected && !moves {
            self.input.reset();
        }
        let is_full = self.text().chars().count() >= MAX_LENGTH;
        let inserts = matches!(request, R::InsertChar(_));
        if !(is_full && inserts || was_selected && deletes) {
            self.input.handle(request);
        }
        true
    }

    /// Inserts pasted text without line breaks and control characters.
    pub(crate) fn paste(&mut self, text: &str) {
        for c in text.chars().filter(|c| !c.is_control()).take(MAX_LENGTH) {
            self.press(Press::char(c));
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::app::press::keys;

    fn typed(text: &str, presses: &str) -> TextField {
        let mut field = TextField::new(text);
        for press in keys(presses) {
            assert!(field.press(press), "{press}");
        }
        field
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
            let mut field = TextField::new("15");
            field.select_all();
            for press in keys(press) {
                field.press(press);
            }
            assert_eq!(field.text(), result, "{press}");
        }
    }

    #[test]
    fn a_paste_has_no_line_breaks_and_an_end() {
        let mut field = TextField::new("");
        field.paste("30\r\n\u{1b}m");
        assert_eq!(field.text(), "30m");
        field.paste(&"漏".repeat(2 * MAX_LENGTH));
        assert_eq!(field.text().chars().count(), MAX_LENGTH);
    }
}
