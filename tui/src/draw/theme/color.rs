//! How many colours a terminal has, and colours by name, by number and as `#rrggbb`.

use std::ffi::OsStr;
use std::fmt;

use ratatui::style::{Color, Modifier, Style};

/// The colours that a terminal can show.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub(crate) enum Depth {
    /// None: bold, dim and reversed only.
    #[default]
    Plain,
    /// The 16 colours of ANSI, which the user's terminal defines.
    Sixteen,
    /// Those and 240 fixed ones.
    Indexed,
    /// All.
    Rgb,
}

/// Terminals with 256 colours whose names do not say so, for connections that do not pass `COLORTERM` on.
const WELL_KNOWN: [&str; 5] = ["kitty", "alacritty", "foot", "wezterm", "ghostty"];

impl Depth {
    /// The colours that `TERM` and `COLORTERM` promise.
    pub(crate) fn of_terminal(term: Option<&OsStr>, color_term: Option<&OsStr>) -> Self {
        let [term, color_term] =
            [term, color_term].map(|name| name.and_then(OsStr::to_str).unwrap_or_default());
        // These cannot do more, whatever an outer terminal left in `COLORTERM`.
        if term == "linux" || term.contains("16color") || term.starts_with("vt") {
            return Self::Sixteen;
        }
        if matches!(color_term, "truecolor" | "24bit") || term.contains("direct") {
            return Self::Rgb;
        }
        let is_known = WELL_KNOWN.iter().any(|name| term.contains(name));
        if is_known || term.contains("256color") {
            Self::Indexed
        } else {
            Self::Sixteen
        }
    }

    /// The nearest style that a terminal of this depth can show.
    pub(super) fn reduced(self, style: Style) -> Style {
        Style {
            fg: style.fg.map(|color| self.nearest(color)),
            bg: style.bg.map(|color| self.nearest(color)),
            ..style
        }
    }

    /// The nearest colour that a terminal of this depth can show.
    pub(super) fn nearest(self, color: Color) -> Color {
        let (found, all) = match (self, color) {
            (Self::Indexed, Color::Rgb(r, g, b)) => ((r, g, b), 16..=255),
            (Self::Sixteen, Color::Rgb(r, g, b)) => ((r, g, b), 0..=15),
            (Self::Sixteen, Color::Indexed(n @ 16..)) => (rgb(n), 0..=15),
            (Self::Plain, _) => return Color::Reset,
            _ => return color,
        };
        let nearest = all.min_by_key(|n| distance(rgb(*n), found));
        nearest.map_or(Color::Reset, Color::Indexed)
    }
}

/// The usual values of the 16 colours of ANSI; terminals have others.
const ANSI: [(u8, u8, u8); 16] = [
    (0, 0, 0),
    (205, 0, 0),
    (0, 205, 0),
    (205, 205, 0),
    (0, 0, 238),
    (205, 0, 205),
    (0, 205, 205),
    (229, 229, 229),
    (127, 127, 127),
    (255, 0, 0),
    (0, 255, 0),
    (255, 255, 0),
    (92, 92, 255),
    (255, 0, 255),
    (0, 255, 255),
    (255, 255, 255),
];

/// Red, green and blue of one of the 256 colours: the 16 of ANSI, a cube of 6 by 6 by 6, and 24 greys.
fn rgb(n: u8) -> (u8, u8, u8) {
    if let Some(color) = ANSI.get(usize::from(n)) {
        return *color;
    }
    if let Some(grey) = n.checked_sub(232) {
        let level = grey.saturating_mul(10).saturating_add(8);
        return (level, level, level);
    }
    let n = n.saturating_sub(16);
    let level = |step: u8| match step {
        0 => 0,
        step => step.saturating_mul(40).saturating_add(55),
    };
    (level(n / 36), level(n / 6 % 6), level(n % 6))
}

fn distance(a: (u8, u8, u8), b: (u8, u8, u8)) -> u32 {
    let square = |a: u8, b: u8| u32::from(a.abs_diff(b)).saturating_pow(2);
    square(a.0, b.0)
        .saturating_add(square(a.1, b.1))
        .saturating_add(square(a.2, b.2))
}

/// The names of the colours.
const NAMES: [(&str, Color); 17] = [
    ("default", Color::Reset),
    ("black", Color::Indexed(0)),
    ("red", Color::Indexed(1)),
    ("green", Color::Indexed(2)),
    ("yellow", Color::Indexed(3)),
    ("blue", Color::Indexed(4)),
    ("magenta", Color::Indexed(5)),
    ("cyan", Color::Indexed(6)),
    ("white", Color::Indexed(7)),
    ("bright-black", Color::Indexed(8)),
    ("bright-red", Color::Indexed(9)),
    ("bright-green", Color::Indexed(10)),
    ("bright-yellow", Color::Indexed(11)),
    ("bright-blue", Color::Indexed(12)),
    ("bright-magenta", Color::Indexed(13)),
    ("bright-cyan", Color::Indexed(14)),
    ("bright-white", Color::Indexed(15)),
];

/// The words for styles without colour.
const WORDS: [(&str, Modifier); 4] = [
    ("bold", Modifier::BOLD),
    ("dim", Modifier::DIM),
    ("underlined", Modifier::UNDERLINED),
    ("reversed", Modifier::REVERSED),
];

/// A word that is neither a colour nor a style.
#[derive(Clone, Debug, PartialEq, Eq)]
pub(crate) struct UnknownWord(pub(crate) String);

impl UnknownWord {
    /// The allowed words.
    pub(crate) const ALLOWED: &'static str = "default, black, red, green, yellow, blue, magenta, cyan, white, each but \
         the first also with bright- before it, a number from 0 to 255, or #rrggbb";

    /// The words of [`Self::ALLOWED`] and of styles, for suggestions.
    pub(crate) fn names() -> Vec<&'static str> {
        let colors = NAMES.iter().map(|(name, _)| *name);
        colors.chain(WORDS.iter().map(|(name, _)| *name)).collect()
    }
}

impl fmt::Display for UnknownWord {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        write!(f, "`{}` is no colour", self.0)
    }
}

/// Reads a colour.
pub(crate) fn color(text: &str) -> Result<Color, UnknownWord> {
    let named = NAMES.iter().find(|(name, _)| *name == text);
    let numbered = || text.parse().ok().map(Color::Indexed);
    let found = named.map(|(_, color)| *color).or_else(numbered);
    found
        .or_else(|| hex(text))
        .ok_or_else(|| UnknownWord(text.to_owned()))
}

fn hex(text: &str) -> Option<Color> {
    let digits = text.strip_prefix('#').filter(|digits| digits.len() == 6)?;
    // A sign would be read, too.
    let digits = digits
        .bytes()
        .all(|b| b.is_ascii_hexdigit())
        .then_some(digits)?;
    let part = |at: usize| u8::from_str_radix(digits.get(at..at.saturating_add(2))?, 16).ok();
    Some(Color::Rgb(part(0)?, part(2)?, part(4)?))
}

/// Reads a style: `bold 203`, `black on bright-yellow`, `underlined`.
pub(crate) fn style(text: &str) -> Result<Style, UnknownWord> {
    let mut style = Style::new();
    let mut words = text.split_whitespace();
    while let Some(word) = words.next() {
        if let Some((_, modifier)) = WORDS.iter().find(|(name, _)| *name == word) {
            style = style.add_modifier(*modifier);
        } else if word == "on" {
            style = style.bg(color(words.next().unwrap_or_default())?);
        } else {
            style = style.fg(color(word)?);
        }
    }
    Ok(style)
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn terminals_promise_colours() {
        for (term, color_term, depth) in [
            ("xterm-256color", "", Depth::Indexed),
            ("xterm-256color", "truecolor", Depth::Rgb),
            ("tmux-256color", "24bit", Depth::Rgb),
            ("xterm-direct", "", Depth::Rgb),
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

    #[test]
    fn colours_are_reduced_to_the_nearest() {
        let red = Color::Rgb(250, 10, 10);
        assert_eq!(Depth::Rgb.nearest(red), red);
        assert_eq!(Depth::Indexed.nearest(red), Color::Indexed(196));
        assert_eq!(Depth::Sixteen.nearest(red), Color::Indexed(9));
        assert_eq!(
            Depth::Sixteen.nearest(Color::Indexed(238)),
            Color::Indexed(8)
        );
        assert_eq!(Depth::Sixteen.nearest(Color::Indexed(4)), Color::Indexed(4));
        assert_eq!(Depth::Sixteen.nearest(Color::Reset), Color::Reset);
        assert_eq!(Depth::Plain.nearest(red), Color::Reset);
    }

    #[test]
    fn styles_are_words() {
        assert_eq!(
            style("bold #ff8800 on bright-black"),
            Ok(Style::new()
                .fg(Color::Rgb(255, 136, 0))
                .bg(Color::Indexed(8))
                .add_modifier(Modifier::BOLD))
        );
        assert_eq!(style("203"), Ok(Style::new().fg(Color::Indexed(203))));
        for (text, wrong) in [
            ("rde", "rde"),
            ("#12345", "#12345"),
            ("#+1+1+1", "#+1+1+1"),
            ("256", "256"),
            ("red on", ""),
        ] {
            assert_eq!(style(text), Err(UnknownWord(wrong.to_owned())), "{text}");
        }
    }
}
