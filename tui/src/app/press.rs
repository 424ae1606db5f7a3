//! Keys, mouse actions and their names, independent of any terminal library.

use std::fmt;

use super::columns::Column;
use super::screen::Screen;

/// A key without its modifiers.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) enum Code {
    /// A character as typed: `G` is a capital letter without a modifier.
    Char(char),
    Enter,
    Esc,
    Tab,
    BackTab,
    Backspace,
    Delete,
    Up,
    Down,
    Left,
    Right,
    Home,
    End,
    PageUp,
    PageDown,
}

/// A key press.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) struct Press {
    /// The key.
    pub(crate) code: Code,
    /// True if Control was held.
    pub(crate) ctrl: bool,
}

impl Press {
    /// Returns a key press without Control.
    pub(crate) const fn plain(code: Code) -> Self {
        Self { code, ctrl: false }
    }

    /// Returns the press of a character key with Control held.
    pub(crate) const fn ctrl(c: char) -> Self {
        Self {
            code: Code::Char(c),
            ctrl: true,
        }
    }

    /// Returns the press of a character key without Control.
    pub(crate) const fn char(c: char) -> Self {
        Self::plain(Code::Char(c))
    }
}

impl fmt::Display for Press {
    /// Writes the display name of the key press: `C-d`, `Enter`, `/`.
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        if self.ctrl {
            f.write_str("C-")?;
        }
        match self.code {
            Code::Char(' ') => f.write_str("space"),
            Code::Char(c) => write!(f, "{c}"),
            Code::Enter => f.write_str("Enter"),
            Code::Esc => f.write_str("Esc"),
            Code::Tab => f.write_str("Tab"),
            Code::BackTab => f.write_str("S-Tab"),
            Code::Backspace => f.write_str("Backspace"),
            Code::Delete => f.write_str("Del"),
            Code::Up => f.write_str("Up"),
            Code::Down => f.write_str("Down"),
            Code::Left => f.write_str("Left"),
            Code::Right => f.write_str("Right"),
            Code::Home => f.write_str("Home"),
            Code::End => f.write_str("End"),
            Code::PageUp => f.write_str("PgUp"),
            Code::PageDown => f.write_str("PgDn"),
        }
    }
}

/// A mouse action.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) enum MouseAction {
    Click,
    WheelUp,
    WheelDown,
}

/// A mouse action and its target.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) struct Mouse {
    pub(crate) action: MouseAction,
    pub(crate) x: u16,
    pub(crate) y: u16,
    /// Clickable element that the last frame drew under the mouse, if any.
    pub(crate) spot: Option<Spot>,
}

/// A clickable element on the screen.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) enum Spot {
    /// The displayed name of a key. Clicking it acts like pressing the key.
    Key(Press),
    /// The tab of a screen.
    Tab(Screen),
    /// A line of a list or a menu.
    Line(usize),
    /// The heading of a column.
    Head(Column),
    /// A field of a form.
    Field(usize),
    /// An option of a field.
    Choice(usize, usize),
}

/// Parses `"jj/foo<ret>e250<C-s>"`. Characters stand for themselves, and other keys are named in
/// angle brackets.
#[cfg(test)]
pub(crate) fn keys(text: &str) -> Vec<Press> {
    let mut presses = Vec::new();
    let mut rest = text;
    while let Some(c) = rest.chars().next() {
        let named = rest.strip_prefix('<').and_then(|rest| rest.split_once('>'));
        let named = named.and_then(|(name, tail)| Some((by_name(name)?, tail)));
        let plain = (Press::char(c), rest.strip_prefix(c).unwrap_or(""));
        let (press, tail) = named.unwrap_or(plain);
        presses.push(press);
        rest = tail;
    }
    presses
}

#[cfg(test)]
fn by_name(name: &str) -> Option<Press> {
    if let Some(c) = name.strip_prefix("C-") {
        return c.chars().next().map(Press::ctrl);
    }
    let code = match name {
        "ret" => Code::Enter,
        "esc" => Code::Esc,
        "tab" => Code::Tab,
        "s-tab" => Code::BackTab,
        "bs" => Code::Backspace,
        "del" => Code::Delete,
        "up" => Code::Up,
        "down" => Code::Down,
        "left" => Code::Left,
        "right" => Code::Right,
        "home" => Code::Home,
        "end" => Code::End,
        "pgup" => Code::PageUp,
        "pgdn" => Code::PageDown,
        "space" => Code::Char(' '),
        "lt" => Code::Char('<'),
        _ => return None,
    };
    Some(Press::plain(code))
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn key_strings_name_keys() {
        assert_eq!(
            keys("j<ret><C-d><x"),
            [
                Press::char('j'),
                Press::plain(Code::Enter),
                Press::ctrl('d'),
                Press::char('<'),
                Press::char('x'),
            ]
        );
    }
}
