//! Colours and glyphs by meaning, not by place.
//!
//! Colour is never the only sign: the selection is reversed, states have a glyph or a word, refused
//! drops have a separate shape. Without colour only bold, dim and reversed remain; in ASCII every glyph
//! has a plain substitute.

use std::borrow::Cow;

use loudou_api::{BucketState, BucketView};
use ratatui::style::{Color, Modifier, Style};

use crate::num::{cells, share};

/// The roles of colours, and the allowed glyphs.
#[derive(Clone, Debug)]
pub(crate) struct Theme {
    pub(crate) ascii: bool,
    pub(crate) plain: Style,
    pub(crate) dim: Style,
    pub(crate) strong: Style,
    pub(crate) name: Style,
    pub(crate) head: Style,
    pub(crate) key: Style,
    pub(crate) good: Style,
    pub(crate) warn: Style,
    pub(crate) bad: Style,
    /// Refusals of rules in shadow mode, which passed.
    pub(crate) shadow: Style,
    pub(crate) selected: Style,
    /// A selected line, on top of its colours.
    pub(crate) row: Style,
    /// Uncoloured text on a selected line.
    pub(crate) row_text: Style,
    pub(crate) changed: Style,
    pub(crate) banner: Style,
    /// A banner that nobody must miss.
    pub(crate) alarm: Style,
    pub(crate) field: Style,
    pub(crate) stale: Style,
    pub(crate) wall: Style,
    pub(crate) track: Style,
    calm: &'static [u8],
    high: &'static [u8],
    full: &'static [u8],
}

/// The colours of water, from the surface down.
const CALM: &[u8] = &[117, 81, 75, 39, 33, 32, 26, 25];
const HIGH: &[u8] = &[229, 222, 221, 220, 214, 178, 172, 136];
const FULL: &[u8] = &[224, 217, 210, 203, 197, 161, 125, 124];

impl Theme {
    /// The theme for a terminal with or without colour, and with or without non-ASCII characters.
    pub(crate) fn new(color: bool, ascii: bool) -> Self {
        let plain = Style::new();
        let bold = plain.add_modifier(Modifier::BOLD);
        let dim = plain.add_modifier(Modifier::DIM);
        let reversed = plain.add_modifier(Modifier::REVERSED);
        let none = Self {
            ascii,
            plain,
            dim,
            strong: bold,
            name: bold,
            head: bold.add_modifier(Modifier::UNDERLINED),
            key: bold,
            good: plain,
            warn: bold,
            bad: bold,
            shadow: plain,
            selected: reversed,
            row: reversed,
            row_text: plain,
            changed: bold,
            banner: reversed.add_modifier(Modifier::BOLD),
            alarm: reversed.add_modifier(Modifier::BOLD),
            field: plain.add_modifier(Modifier::UNDERLINED),
            stale: dim,
            wall: plain,
            track: dim,
            calm: &[],
            high: &[],
            full: &[],
        };
        if color { none.coloured() } else { none }
    }

    /// The same with colours.
    fn coloured(self) -> Self {
        let ink = |n| Style::new().fg(Color::Indexed(n));
        Self {
            dim: ink(245),
            name: ink(81).add_modifier(Modifier::BOLD),
            head: ink(250).add_modifier(Modifier::BOLD | Modifier::UNDERLINED),
            key: ink(81).add_modifier(Modifier::BOLD),
            good: ink(78),
            warn: ink(221),
            bad: ink(203),
            shadow: ink(141),
            row: Style::new()
                .bg(Color::Indexed(238))
                .add_modifier(Modifier::BOLD),
            row_text: ink(255),
            changed: ink(221).add_modifier(Modifier::BOLD),
            banner: Style::new().fg(Color::Indexed(16)).bg(Color::Indexed(221)),
            alarm: Style::new()
                .fg(Color::Indexed(231))
                .bg(Color::Indexed(160))
                .add_modifier(Modifier::BOLD),
            field: Style::new().bg(Color::Indexed(237)),
            stale: ink(240),
            wall: ink(250),
            track: Style::new().fg(Color::Indexed(238)),
            calm: CALM,
            high: HIGH,
            full: FULL,
            ..self
        }
    }

    /// The colour of water at the fill `level` and the `depth` below the surface, both from 0 to 1.
    pub(crate) fn water(&self, level: f64, depth: f64) -> Style {
        let inks = if level >= 0.95 {
            self.full
        } else if level >= 0.75 {
            self.high
        } else {
            self.calm
        };
        let deepest = cells(inks.len().saturating_sub(1));
        let at = usize::from(share(depth, deepest));
        match inks.get(at).or_else(|| inks.last()) {
            Some(ink) => Style::new().fg(Color::Indexed(*ink)),
            None => self.plain,
        }
    }

    /// `text` cut to `most` cells.
    pub(crate) fn fit<'a>(&self, text: &'a str, most: u16) -> Cow<'a, str> {
        crate::cells::fit(text, usize::from(most), self.pick('…', '~'))
    }

    /// One of two glyphs.
    pub(crate) const fn pick(&self, glyph: char, ascii: char) -> char {
        if self.ascii { ascii } else { glyph }
    }

    /// One of two texts.
    pub(crate) const fn pick_text(&self, text: &'static str, ascii: &'static str) -> &'static str {
        if self.ascii { ascii } else { text }
    }

    /// The glyph and the colour of a state.
    pub(crate) fn state(&self, bucket: &BucketView) -> (char, Style) {
        match bucket.state {
            BucketState::Refusing if bucket.shadow => (self.pick('◌', '%'), self.shadow),
            BucketState::Idle => (self.pick('○', '.'), self.dim),
            BucketState::Busy => (self.pick('◐', '+'), self.good),
            BucketState::Held => (self.pick('◷', 'o'), self.warn),
            BucketState::Refusing => (self.pick('✖', 'x'), self.bad),
            BucketState::Banned => (self.pick('⊘', '#'), self.bad),
        }
    }
}
