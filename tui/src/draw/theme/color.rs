//! How many colours a terminal has.

use std::ffi::OsStr;

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
        let has_all = matches!(color_term, "truecolor" | "24bit") || term.contains("direct");
        let is_known = WELL_KNOWN.iter().any(|name| term.contains(name));
        if has_all || is_known || term.contains("256color") {
            Self::Indexed
        } else {
            Self::Sixteen
        }
    }
}

#[cfg(test)]
mod tests {
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
