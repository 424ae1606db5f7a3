//! Movement in lists.

use super::command::Command;

/// Returns true if a command moves the selection in a list.
pub(crate) const fn is_motion(command: Command) -> bool {
    use Command::{Bottom, Down, HalfDown, HalfUp, PageDown, PageUp, Top, Up};
    matches!(
        command,
        Down | Up | PageDown | PageUp | HalfDown | HalfUp | Top | Bottom
    )
}

/// Returns the index to which a command moves in a list with `len` entries.
pub(crate) fn moved(at: usize, len: usize, page: usize, command: Command) -> usize {
    let last = len.saturating_sub(1);
    let half = (page / 2).max(1);
    let to = match command {
        Command::Down => at.saturating_add(1),
        Command::Up => at.saturating_sub(1),
        Command::PageDown => at.saturating_add(page),
        Command::PageUp => at.saturating_sub(page),
        Command::HalfDown => at.saturating_add(half),
        Command::HalfUp => at.saturating_sub(half),
        Command::Top => 0,
        Command::Bottom => last,
        _ => at,
    };
    to.min(last)
}
