//! The colours of the built-in themes, for terminals with 256 colours and for those with 16.

use ratatui::style::{Color, Modifier, Style};

use super::{Theme, Water};

const BOLD: Modifier = Modifier::BOLD;

fn ink(n: u8) -> Style {
    Style::new().fg(Color::Indexed(n))
}

fn paper(n: u8) -> Style {
    Style::new().bg(Color::Indexed(n))
}

/// Colours from the surface of the water down.
fn shades(all: &[u8]) -> Vec<Color> {
    all.iter().copied().map(Color::Indexed).collect()
}

/// For a dark background.
pub(super) fn dark(plain: &Theme) -> Theme {
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
        row_text: ink(255),
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

/// For a light background.
pub(super) fn light(plain: &Theme) -> Theme {
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
        row_text: ink(16),
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

/// For a dark background and 16 colours. The selected line is reversed: every grey of 16 hides some text.
pub(super) fn dark_16(plain: &Theme) -> Theme {
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

/// For a light background and 16 colours.
pub(super) fn light_16(plain: &Theme) -> Theme {
    Theme {
        dim: ink(8),
        name: ink(4).add_modifier(BOLD),
        key: ink(4).add_modifier(BOLD),
        good: ink(2),
        // Yellow cannot be read on white.
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
