//! The commands and their key bindings.

use super::press::{Code, Press};
use super::screen::{BROWSE, Places, Screen};
use loudou_client::change::Start;

/// A command that can be bound to a key.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) enum Command {
    Quit,
    Suspend,
    Help,
    Palette,
    Back,
    /// Go to a screen.
    Show(Screen),
    NextScreen,
    PreviousScreen,
    Down,
    Up,
    PageDown,
    PageUp,
    HalfDown,
    HalfUp,
    Top,
    Bottom,
    Open,
    Filter,
    SortMenu,
    SortLeft,
    SortRight,
    Invert,
    Freeze,
    Poll,
    /// Change the mode of a rule.
    Mode,
    /// Hide or show keys.
    Hide,
    /// Show the next watched Envoy.
    NextTarget,
    /// Mark or unmark the selected line.
    Mark,
    /// Show charts over a longer time.
    Longer,
    /// Show charts over a shorter time.
    Shorter,
    /// Open the details of the selected line.
    Drill,
    /// Copy the selected name, or the command line of a question, to the clipboard.
    Copy,
    /// Copy the selected row to the clipboard, as a line of text.
    CopyRow,
    Edit,
    /// Drop the edit of the rule.
    Drop,
    Undo,
    /// Open the Explain overlay, which shows how Envoy would decide on a request.
    Explain,
    /// Start a change of a rate-limit key.
    Start(Start),
    /// Ask whether to ban a key in all rules.
    BanAll,
    Again,
    NextField,
    PreviousField,
    Choose,
    /// Complete the typed text.
    Complete,
    Send,
    Yes,
    /// Confirm the question for all watched Envoys.
    YesAll,
    No,
}

/// Rank of bindings that the footer always shows, at its end.
pub(crate) const ALWAYS: u8 = u8::MAX;

/// An entry of the key table.
#[derive(Debug)]
pub(crate) struct Binding {
    pub(crate) command: Command,
    pub(crate) keys: &'static [Press],
    pub(crate) places: Places,
    /// Label in the footer.
    pub(crate) short: &'static str,
    /// Description in the help and the palette.
    pub(crate) help: &'static str,
    /// Rank in the footer, lowest first. The footer does not show bindings with rank 0.
    pub(crate) rank: u8,
}

impl Binding {
    /// Returns the display name of the first key. Empty if the command has no key.
    pub(crate) fn shown(&self) -> String {
        self.keys
            .first()
            .map(ToString::to_string)
            .unwrap_or_default()
    }
}

/// Command, keys, places, rank, footer label and help text.
pub(crate) type Spec = (
    Command,
    &'static [Press],
    Places,
    u8,
    &'static str,
    &'static str,
);

/// Creates an entry of the key table.
pub(crate) const fn bind(spec: Spec) -> Binding {
    let (command, keys, places, rank, short, help) = spec;
    Binding {
        command,
        keys,
        places,
        short,
        help,
        rank,
    }
}

/// Creates the entry for the key that opens a screen.
pub(crate) const fn tab(
    screen: Screen,
    keys: &'static [Press],
    rank: u8,
    short: &'static str,
    help: &'static str,
) -> Binding {
    bind((Command::Show(screen), keys, BROWSE, rank, short, help))
}

/// Returns the press of a key that is not a character, such as Enter.
pub(crate) const fn k(code: Code) -> Press {
    Press::plain(code)
}

/// Returns the press of a character key.
pub(crate) const fn c(c: char) -> Press {
    Press::char(c)
}

/// Returns the press of a character key with Control held.
pub(crate) const fn ctrl(c: char) -> Press {
    Press::ctrl(c)
}
