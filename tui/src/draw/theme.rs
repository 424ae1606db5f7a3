//! Colours and glyphs by meaning, not by place.
//!
//! Colour is never the only sign: the selection is reversed, states have a glyph or a word, refused
//! drops have a separate shape. Without colour only bold, dim and reversed remain; in ASCII every glyph
//! has a plain substitute. A user's theme changes roles of a built-in one.

use std::borrow::Cow;

use ratatui::style::{Color, Modifier, Style};

use crate::meaning::Standing;
use crate::num::{cells, share};

pub(crate) mod color;
mod palette;

use color::Depth;

/// A built-in theme.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub(crate) enum Base {
    /// For a dark background.
    #[default]
    Dark,
    /// For a light background.
    Light,
}

impl Base {
    /// The built-in themes with their names.
    pub(crate) const ALL: [(&'static str, Self); 2] =
        [("dark", Self::Dark), ("light", Self::Light)];
}

/// A built-in theme, and the roles that the user changed.
#[derive(Clone, Debug, Default, PartialEq)]
pub(crate) struct Scheme {
    pub(crate) base: Base,
    pub(crate) styles: Vec<(Role, Style)>,
    pub(crate) water: Vec<(Fill, Vec<Color>)>,
}

/// How the screen is to look: colours of the terminal, glyphs, theme.
#[derive(Clone, Debug, Default, PartialEq)]
pub(crate) struct Look {
    pub(crate) depth: Depth,
    pub(crate) ascii: bool,
    pub(crate) scheme: Scheme,
}

/// The fill of a bucket, as far as colours show it.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) enum Fill {
    Calm,
    High,
    Full,
}

impl Fill {
    /// All with their names.
    pub(crate) const ALL: [(&'static str, Self); 3] = [
        ("calm", Self::Calm),
        ("high", Self::High),
        ("full", Self::Full),
    ];
}

/// The colours of water by fill, from the surface down.
#[derive(Clone, Debug, Default)]
struct Water {
    calm: Vec<Color>,
    high: Vec<Color>,
    full: Vec<Color>,
}

impl Water {
    const fn of(&self, fill: Fill) -> &Vec<Color> {
        match fill {
            Fill::Calm => &self.calm,
            Fill::High => &self.high,
            Fill::Full => &self.full,
        }
    }

    const fn of_mut(&mut self, fill: Fill) -> &mut Vec<Color> {
        match fill {
            Fill::Calm => &mut self.calm,
            Fill::High => &mut self.high,
            Fill::Full => &mut self.full,
        }
    }
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

/// A role that a user's theme can change.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) enum Role {
    Dim,
    Strong,
    Name,
    Head,
    Key,
    Good,
    Warn,
    Bad,
    Shadow,
    Selected,
    Row,
    RowText,
    Changed,
    Banner,
    Alarm,
    Field,
    Stale,
    Wall,
    Track,
}

impl Role {
    /// All with their names.
    pub(crate) const ALL: [(&'static str, Self); 19] = [
        ("dim", Self::Dim),
        ("strong", Self::Strong),
        ("name", Self::Name),
        ("head", Self::Head),
        ("key", Self::Key),
        ("good", Self::Good),
        ("warn", Self::Warn),
        ("bad", Self::Bad),
        ("shadow", Self::Shadow),
        ("selected", Self::Selected),
        ("row", Self::Row),
        ("row_text", Self::RowText),
        ("changed", Self::Changed),
        ("banner", Self::Banner),
        ("alarm", Self::Alarm),
        ("field", Self::Field),
        ("stale", Self::Stale),
        ("wall", Self::Wall),
        ("track", Self::Track),
    ];
}

impl Theme {
    /// The theme of a look.
    pub(crate) fn of(look: &Look) -> Self {
        let plain = Self::uncoloured(look.ascii);
        let mut theme = match (look.depth, look.scheme.base) {
            // A theme has nothing to say without colours.
            (Depth::Plain, _) => return plain,
            (Depth::Sixteen, Base::Dark) => palette::dark_16(&plain),
            (Depth::Sixteen, Base::Light) => palette::light_16(&plain),
            (_, Base::Dark) => palette::dark(&plain),
            (_, Base::Light) => palette::light(&plain),
        };
        for (role, style) in &look.scheme.styles {
            *theme.slot(*role) = look.depth.reduced(*style);
        }
        for (fill, colors) in &look.scheme.water {
            let colors = colors.iter().map(|color| look.depth.nearest(*color));
            *theme.water.of_mut(*fill) = colors.collect();
        }
        theme
    }

    const fn slot(&mut self, role: Role) -> &mut Style {
        match role {
            Role::Dim => &mut self.dim,
            Role::Strong => &mut self.strong,
            Role::Name => &mut self.name,
            Role::Head => &mut self.head,
            Role::Key => &mut self.key,
            Role::Good => &mut self.good,
            Role::Warn => &mut self.warn,
            Role::Bad => &mut self.bad,
            Role::Shadow => &mut self.shadow,
            Role::Selected => &mut self.selected,
            Role::Row => &mut self.row,
            Role::RowText => &mut self.row_text,
            Role::Changed => &mut self.changed,
            Role::Banner => &mut self.banner,
            Role::Alarm => &mut self.alarm,
            Role::Field => &mut self.field,
            Role::Stale => &mut self.stale,
            Role::Wall => &mut self.wall,
            Role::Track => &mut self.track,
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
            scheme: Scheme::default(),
        })
    }

    /// The colour of water at the fill `level` and the `depth` below the surface, both from 0 to 1.
    pub(crate) fn water(&self, level: f64, depth: f64) -> Style {
        let fill = if level >= 0.95 {
            Fill::Full
        } else if level >= 0.75 {
            Fill::High
        } else {
            Fill::Calm
        };
        let inks = self.water.of(fill);
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

    #[test]
    fn a_users_theme_changes_roles_of_a_built_in_one() {
        let red = Style::new().fg(Color::Rgb(255, 0, 0));
        let scheme = Scheme {
            base: Base::Light,
            styles: vec![(Role::Good, red)],
            water: vec![(Fill::Full, vec![Color::Rgb(0, 0, 0)])],
        };
        let theme = |depth| {
            Theme::of(&Look {
                depth,
                ascii: false,
                scheme: scheme.clone(),
            })
        };
        let light = Theme::of(&Look {
            depth: Depth::Rgb,
            scheme: Scheme {
                base: Base::Light,
                ..Scheme::default()
            },
            ..Look::default()
        });
        assert_eq!(theme(Depth::Rgb).good, red);
        assert_eq!(theme(Depth::Rgb).bad, light.bad);
        let full = theme(Depth::Rgb).water(1.0, 0.5);
        assert_eq!(full.fg, Some(Color::Rgb(0, 0, 0)));
        assert_eq!(theme(Depth::Sixteen).good.fg, Some(Color::Indexed(9)));
        assert_eq!(theme(Depth::Plain).good, Style::new());
    }

    /// Nothing of a theme for 16 colours needs more of them.
    #[test]
    fn sixteen_colours_are_enough() {
        for (_, base) in Base::ALL {
            let mut theme = Theme::of(&Look {
                depth: Depth::Sixteen,
                ascii: false,
                scheme: Scheme {
                    base,
                    ..Scheme::default()
                },
            });
            let water = Fill::ALL.map(|(_, fill)| theme.water.of(fill).clone());
            let styles = Role::ALL.map(|(_, role)| *theme.slot(role));
            let inks = styles.iter().flat_map(|style| [style.fg, style.bg]);
            for color in inks.flatten().chain(water.into_iter().flatten()) {
                assert!(matches!(color, Color::Indexed(0..16)), "{base:?}: {color}");
            }
        }
    }
}
