//! Colours and glyphs, defined by meaning and not by the place where they are used.
//!
//! Colour is never the only way to tell things apart. The selection is reversed, states have a
//! glyph or a word, and drops that stand for refused requests have a different shape. Without
//! colour, only styles such as bold, dim and reversed remain. Every glyph has an ASCII substitute.

use std::borrow::Cow;
use std::ffi::OsStr;

use clap::ValueEnum;
use loudou_words::meaning::Standing;
use loudou_words::num::{cells, share};
use ratatui::style::{Color, Modifier, Style};
use ratatui::text::{Line, Span};

use super::words::width;

/// A theme for a dark or a light background.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq, ValueEnum)]
pub(crate) enum Base {
    #[default]
    Dark,
    Light,
}

impl Base {
    /// All themes with their names.
    pub(crate) const ALL: [(&'static str, Self); 2] =
        [("dark", Self::Dark), ("light", Self::Light)];
}

/// Appearance of the screen: the terminal's colours, the glyphs, and the theme.
#[derive(Clone, Debug, Default, PartialEq)]
pub(crate) struct Appearance {
    pub(crate) depth: Depth,
    pub(crate) ascii: bool,
    /// `None` to choose by the terminal's background.
    pub(crate) base: Option<Base>,
}

/// Colours of the water in the picture of a bucket, for calm, high and full levels. Each list
/// begins at the surface.
#[derive(Clone, Debug, Default)]
struct Water {
    calm: Vec<Color>,
    high: Vec<Color>,
    full: Vec<Color>,
}

/// Styles for each role, and whether only ASCII characters are allowed.
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
    /// Style for requests that rules in shadow mode would have refused.
    pub(crate) shadow: Style,
    pub(crate) selected: Style,
    /// Style of a selected line, which is applied on top of the line's colours.
    pub(crate) row: Style,
    pub(crate) changed: Style,
    pub(crate) banner: Style,
    /// Style of a banner that the user must not overlook.
    pub(crate) alarm: Style,
    pub(crate) field: Style,
    pub(crate) stale: Style,
    pub(crate) wall: Style,
    pub(crate) track: Style,
    water: Water,
}

impl Theme {
    /// Returns the theme for an appearance.
    pub(crate) fn of(look: &Appearance) -> Self {
        let plain = Self::uncoloured(look.ascii);
        match (look.depth, look.base.unwrap_or_default()) {
            // Without colours, both themes look the same.
            (Depth::Plain, _) => plain,
            (Depth::Sixteen, Base::Dark) => dark_16(&plain),
            (Depth::Sixteen, Base::Light) => light_16(&plain),
            (_, Base::Dark) => dark(&plain),
            (_, Base::Light) => light(&plain),
        }
    }

    /// Returns the theme without colours.
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

    /// Returns the dark theme in 256 colours or without colours.
    #[cfg(test)]
    pub(crate) fn new(color: bool, ascii: bool) -> Self {
        let depth = if color { Depth::Indexed } else { Depth::Plain };
        Self::of(&Appearance {
            depth,
            ascii,
            base: Some(Base::Dark),
        })
    }

    /// Returns true if the theme has colours.
    pub(crate) fn has_colours(&self) -> bool {
        self.bad.fg.is_some()
    }

    /// Returns the colour of the water, which depends on the fill `level` and on the `depth` below
    /// the surface, both from 0 to 1. The water is red only if a request would be refused.
    pub(crate) fn water(&self, level: f64, depth: f64) -> Style {
        let inks = if level >= 1.0 {
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

    /// Truncates `text` to `most` cells.
    pub(crate) fn fit<'a>(&self, text: &'a str, most: u16) -> Cow<'a, str> {
        loudou_print::cells::fit(text, usize::from(most), self.pick('…', '~'))
    }

    /// Returns the colour of a bar that shows a level. `tone` is the level from which the colour is
    /// chosen.
    pub(crate) fn bar(&self, tone: f64) -> Style {
        self.water(tone, 0.4)
    }

    /// Truncates a line to `most` cells.
    pub(crate) fn fit_line(&self, mut line: Line<'static>, most: u16) -> Line<'static> {
        if line.width() <= usize::from(most) {
            return line;
        }
        let mut left = most;
        let mut kept = Vec::with_capacity(line.spans.len());
        for span in line.spans.drain(..) {
            let wide = width(&span.content);
            if wide < left {
                left = left.saturating_sub(wide);
                kept.push(span);
                continue;
            }
            // The text is padded so that it is truncated even if it would fit, because more spans
            // follow.
            let longer = format!("{}  ", span.content);
            kept.push(Span::styled(
                self.fit(&longer, left).into_owned(),
                span.style,
            ));
            break;
        }
        line.spans = kept;
        line
    }

    /// Replaces `→`, `×` and `…` in a message with ASCII if the terminal cannot display other
    /// characters.
    pub(crate) fn said(&self, text: &str) -> String {
        text.replace('→', self.pick("→", "->"))
            .replace('×', self.pick("×", "x"))
            .replace('…', self.pick("…", "~"))
    }

    /// Returns a glyph or a text, or its substitute `ascii` if the terminal only shows ASCII.
    pub(crate) const fn pick<T: Copy>(&self, glyph: T, ascii: T) -> T {
        if self.ascii { ascii } else { glyph }
    }

    /// Returns the glyph and the colour of a state.
    pub(crate) const fn state(&self, standing: Standing) -> (char, Style) {
        match standing {
            Standing::Idle => (self.pick('○', '.'), self.dim),
            Standing::Fine => (self.pick('○', '.'), self.good),
            Standing::Busy => (self.pick('◐', '+'), self.good),
            Standing::Full => (self.pick('◕', '='), self.warn),
            Standing::Held => (self.pick('◷', 'o'), self.warn),
            Standing::WouldHaveRefused | Standing::WouldRefuse | Standing::BanOff => {
                (self.pick('◌', '%'), self.shadow)
            }
            Standing::Refused => (self.pick('✗', '-'), self.warn),
            Standing::Refusing => (self.pick('✖', 'x'), self.bad),
            Standing::Banned => (self.pick('⊘', '#'), self.bad),
        }
    }
}

// Detects how many colours a terminal has.

/// The colours that a terminal can show.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub(crate) enum Depth {
    /// No colours, only styles such as bold, dim and reversed.
    #[default]
    Plain,
    /// The 16 ANSI colours, which the user's terminal defines.
    Sixteen,
    /// The 16 ANSI colours and 240 fixed colours.
    Indexed,
}

/// Terminals that have 256 colours although their names in `TERM` do not contain this number. The
/// list is needed for connections that do not pass on `COLORTERM`.
const WELL_KNOWN: [&str; 5] = ["kitty", "alacritty", "foot", "wezterm", "ghostty"];

impl Depth {
    /// Returns the colours that `TERM` and `COLORTERM` indicate.
    pub(crate) fn of_terminal(term: Option<&OsStr>, color_term: Option<&OsStr>) -> Self {
        let [term, color_term] =
            [term, color_term].map(|name| name.and_then(OsStr::to_str).unwrap_or_default());
        // These terminals have only 16 colours, even if an outer terminal left a value in
        // `COLORTERM`.
        if term == "linux" || term.contains("16color") || term.starts_with("vt") {
            return Self::Sixteen;
        }
        let has_all = matches!(color_term, "truecolor" | "24bit") || term.contains("direct");
        let is_known = WELL_KNOWN.iter().any(|name| term.contains(name));
        if has_all || is_known || term.contains("256color") {
            Self::Indexed
        } else {
            Self::Sixteen
        }
    }
}

// Colours of the built-in themes, for terminals with 256 and with 16 colours.

const BOLD: Modifier = Modifier::BOLD;

fn ink(n: u8) -> Style {
    Style::new().fg(Color::Indexed(n))
}

fn paper(n: u8) -> Style {
    Style::new().bg(Color::Indexed(n))
}

/// Returns the colours of the water from the surface down.
fn shades(all: &[u8]) -> Vec<Color> {
    all.iter().copied().map(Color::Indexed).collect()
}

/// Returns the theme for a dark background.
fn dark(plain: &Theme) -> Theme {
    Theme {
        dim: ink(245),
        name: ink(81).add_modifier(BOLD),
        head: ink(250).add_modifier(BOLD | Modifier::UNDERLINED),
        key: ink(81).add_modifier(BOLD),
        good: ink(78),
        warn: ink(221),
        bad: ink(203),
        shadow: ink(141),
        row: paper(238).add_modifier(BOLD),
        changed: ink(221).add_modifier(BOLD),
        banner: ink(16).bg(Color::Indexed(221)),
        alarm: ink(231).bg(Color::Indexed(160)).add_modifier(BOLD),
        field: paper(237),
        stale: ink(240),
        wall: ink(250),
        track: ink(238),
        water: Water {
            calm: shades(&[117, 81, 75, 39, 33, 32, 26, 25]),
            high: shades(&[229, 222, 221, 220, 214, 178, 172, 136]),
            full: shades(&[224, 217, 210, 203, 197, 161, 125, 124]),
        },
        ..plain.clone()
    }
}

/// Returns the theme for a light background.
fn light(plain: &Theme) -> Theme {
    Theme {
        dim: ink(242),
        name: ink(25).add_modifier(BOLD),
        head: ink(238).add_modifier(BOLD | Modifier::UNDERLINED),
        key: ink(25).add_modifier(BOLD),
        good: ink(28),
        warn: ink(130),
        bad: ink(160),
        shadow: ink(91),
        row: paper(254).add_modifier(BOLD),
        changed: ink(130).add_modifier(BOLD),
        banner: ink(16).bg(Color::Indexed(221)),
        alarm: ink(231).bg(Color::Indexed(160)).add_modifier(BOLD),
        field: paper(253),
        stale: ink(247),
        wall: ink(240),
        track: ink(251),
        water: Water {
            calm: shades(&[75, 69, 33, 32, 27, 26, 25, 24]),
            high: shades(&[214, 208, 172, 166, 136, 130, 94]),
            full: shades(&[210, 203, 197, 161, 160, 125, 124]),
        },
        ..plain.clone()
    }
}

/// Returns the theme for a dark background and 16 colours. The selected line is reversed, because
/// each grey of the 16 colours, as a background, would make some text unreadable.
fn dark_16(plain: &Theme) -> Theme {
    Theme {
        dim: ink(7),
        name: ink(14).add_modifier(BOLD),
        key: ink(14).add_modifier(BOLD),
        good: ink(10),
        warn: ink(11),
        bad: ink(9),
        shadow: ink(13),
        changed: ink(11).add_modifier(BOLD),
        banner: ink(0).bg(Color::Indexed(3)),
        alarm: ink(15).bg(Color::Indexed(1)).add_modifier(BOLD),
        stale: ink(8),
        wall: ink(7),
        track: ink(8),
        water: Water {
            calm: shades(&[14, 6, 12, 4]),
            high: shades(&[11, 3]),
            full: shades(&[9, 1]),
        },
        ..plain.clone()
    }
}

/// Returns the theme for a light background and 16 colours.
fn light_16(plain: &Theme) -> Theme {
    Theme {
        dim: ink(8),
        name: ink(4).add_modifier(BOLD),
        key: ink(4).add_modifier(BOLD),
        good: ink(2),
        // Yellow is not readable on white.
        warn: ink(1),
        bad: ink(1).add_modifier(BOLD),
        shadow: ink(5),
        changed: ink(4).add_modifier(BOLD),
        banner: ink(0).bg(Color::Indexed(3)),
        alarm: ink(15).bg(Color::Indexed(1)).add_modifier(BOLD),
        stale: ink(8),
        wall: ink(8),
        track: ink(7),
        water: Water {
            calm: shades(&[6, 4]),
            high: shades(&[3]),
            full: shades(&[1]),
        },
        ..plain.clone()
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    /// A theme for 16 colours uses only these 16 colours.
    #[test]
    fn sixteen_colours_are_enough() {
        for (_, base) in Base::ALL {
            let theme = Theme::of(&Appearance {
                depth: Depth::Sixteen,
                ascii: false,
                base: Some(base),
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

#[cfg(test)]
mod color_tests {
    use super::*;

    #[test]
    fn terminals_promise_colours() {
        for (term, color_term, depth) in [
            ("xterm-256color", "", Depth::Indexed),
            ("xterm-256color", "truecolor", Depth::Indexed),
            ("tmux-256color", "24bit", Depth::Indexed),
            ("xterm-direct", "", Depth::Indexed),
            ("xterm-kitty", "", Depth::Indexed),
            ("xterm", "", Depth::Sixteen),
            ("xterm-16color", "truecolor", Depth::Sixteen),
            ("linux", "truecolor", Depth::Sixteen),
            ("screen", "16", Depth::Sixteen),
            ("", "", Depth::Sixteen),
        ] {
            let found = Depth::of_terminal(Some(OsStr::new(term)), Some(OsStr::new(color_term)));
            assert_eq!(found, depth, "{term} {color_term}");
        }
        assert_eq!(Depth::of_terminal(None, None), Depth::Sixteen);
    }
}
