//! Style of printed text: colours, character set and maximum width.

use std::borrow::Cow;

use crate::cells::fit;

/// Output style.
#[derive(Clone, Copy, Debug, Default)]
pub struct Style {
    /// True if text is coloured with escape sequences.
    pub color: bool,
    /// True if only ASCII characters are printed.
    pub ascii: bool,
    /// Maximum width in cells. `None` for no maximum.
    pub width: Option<usize>,
}

impl Style {
    /// Replaces arrows and ellipses in `text` with ASCII characters if the style requires it.
    pub fn marks(self, text: &str) -> String {
        if self.ascii {
            text.replace('→', "->").replace('…', "...")
        } else {
            text.to_owned()
        }
    }

    /// Truncates `text` to at most `width` cells. A truncated text ends with `…`, or with `~` in
    /// ASCII.
    pub fn fit(self, text: &str, width: usize) -> Cow<'_, str> {
        fit(text, width, if self.ascii { '~' } else { '…' })
    }
}
