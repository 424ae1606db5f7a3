//! Colours and glyphs by meaning, not by place.
//!
//! Colour is never the only sign: the selection is reversed, states have a glyph or a word, refused
//! drops have a separate shape. Without colour only bold, dim and reversed remain; in ASCII every glyph
//! has a plain substitute.

use std::borrow::Cow;

use clap::ValueEnum;
use ratatui::style::{Color, Modifier, Style};

use loudou_words::meaning::Standing;
use loudou_words::num::{cells, share};

pub(crate) mod color;
mod palette;

use color::Depth;

/// A theme, for a dark or a light background.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq, ValueEnum)]
pub(crate) enum Base {
    #[default]
    Dark,
    Light,
}

impl Base {
    /// The themes with their names.
    pub(crate) const ALL: [(&'static str, Self); 2] =
        [("dark", Self::Dark), ("light", Self::Light)];
}

/// How the screen is to look: colours of the terminal, glyphs, theme.
#[derive(Clone, Debug, Default, PartialEq)]
pub(crate) struct Look {
    pub(crate) depth: Depth,
    pub(crate) ascii: bool,
    pub(crate) base: Base,
}

/// The colours of water by fill, from the surface down.
#[derive(Clone, Debug, Default)]
struct Water {
    calm: Vec<Color>,
    high: Vec<Color>,
    full: Vec<Color>,
}

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
    water: Water,
}

impl Theme {
    /// The theme of a look.
    pub(crate) fn of(look: &Look) -> Self {
        let plain = Self::uncoloured(look.ascii);
        match (look.depth, look.base) {
            // A theme has nothing to say without colours.
            (Depth::Plain, _) => plain,
            (Depth::Sixteen, Base::Dark) => palette::dark_16(&plain),
            (Depth::Sixteen, Base::Light) => palette::light_16(&plain),
            (_, Base::Dark) => palette::dark(&plain),
            (_, Base::Light) => palette::light(&plain),
        }
    }

    /// The theme without colours.
    fn uncoloured(ascii: bool) -> Self {
        let plain = Style::new();
        let bold = plain.add_modifier(Modifier::BOLD);
        let dim = plain.add_modifier(Modifier::DIM);
        let reversed = plain.add_modifier(Modifier::REVERSED);
        Self {
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
            water: Water::default(),
        }
    }

    /// The dark theme in 256 colours or in none.
    #[cfg(test)]
    pub(crate) fn new(color: bool, ascii: bool) -> Self {
        let depth = if color { Depth::Indexed } else { Depth::Plain };
        Self::of(&Look {
            depth,
            ascii,
            base: Base::Dark,
        })
    }

    /// The colour of water at the fill `level` and the `depth` below the surface, both from 0 to 1.
    pub(crate) fn water(&self, level: f64, depth: f64) -> Style {
        let inks = if level >= 0.95 {
            &self.water.full
        } else if level >= 0.75 {
            &self.water.high
        } else {
            &self.water.calm
        };
        let deepest = cells(inks.len().saturating_sub(1));
        let at = usize::from(share(depth, deepest));
        match inks.get(at).or_else(|| inks.last()) {
            Some(ink) => Style::new().fg(*ink),
            None => self.plain,
        }
    }

    /// `text` cut to `most` cells.
    pub(crate) fn fit<'a>(&self, text: &'a str, most: u16) -> Cow<'a, str> {
        crate::cells::fit(text, usize::from(most), self.pick('…', '~'))
    }

    /// A text that the program composed, with arrows and ellipses in ASCII where the terminal has no others.
    pub(crate) fn said(&self, text: &str) -> String {
        text.replace('→', self.pick_text("→", "->"))
            .replace('…', self.pick_text("…", "~"))
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
    pub(crate) const fn state(&self, standing: Standing) -> (char, Style) {
        match standing {
            Standing::Idle => (self.pick('○', '.'), self.dim),
            Standing::Fine => (self.pick('○', '.'), self.good),
            Standing::Busy => (self.pick('◐', '+'), self.good),
            Standing::Held => (self.pick('◷', 'o'), self.warn),
            Standing::WouldHaveRefused | Standing::WouldRefuse | Standing::BanOff => {
                (self.pick('◌', '%'), self.shadow)
            }
            Standing::Refused => (self.pick('◐', '+'), self.warn),
            Standing::Refusing => (self.pick('✖', 'x'), self.bad),
            Standing::Banned => (self.pick('⊘', '#'), self.bad),
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    /// Nothing of a theme for 16 colours needs more of them.
    #[test]
    fn sixteen_colours_are_enough() {
        for (_, base) in Base::ALL {
            let theme = Theme::of(&Look {
                depth: Depth::Sixteen,
                ascii: false,
                base,
            });
            let colors = format!("{theme:?}");
            let indexed = colors.split("Indexed(").skip(1);
            let indexed: Vec<u8> = indexed
                .filter_map(|rest| rest.split(')').next()?.parse().ok())
                .collect();
            assert!(indexed.len() > 15, "{colors}");
            assert!(indexed.iter().all(|n| *n < 16), "{base:?}: {colors}");
            assert!(!colors.contains("Rgb("), "{colors}");
        }
    }
}
