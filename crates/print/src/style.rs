//! Style of printed text: colours, character set and width.

use std::borrow::Cow;

use crate::cells::fit;

/// Style of tables.
#[derive(Clone, Copy, Debug, Default)]
pub struct Style {
    /// True if escape sequences colour the text.
    pub color: bool,
    /// True if the text is limited to ASCII characters.
    pub ascii: bool,
    /// Maximum width, or `None` for no maximum.
    pub width: Option<usize>,
}

impl Style {
    /// Replaces arrows and ellipses in `text` by ASCII, if the style requires it.
    pub fn marks(self, text: &str) -> String {
        if self.ascii {
            text.replace('→', "->").replace('…', "...")
        } else {
            text.to_owned()
        }
    }

    /// Cuts `text` to at most `width` cells, with a mark where it was cut.
    pub fn fit(self, text: &str, width: usize) -> Cow<'_, str> {
        fit(text, width, if self.ascii { '~' } else { '…' })
    }
}
