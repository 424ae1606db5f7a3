//! The command palette's search: letters in order; matches that are closer together and earlier rank higher.

use super::command::Binding;
use super::keys;
use super::screen::BROWSE;
use super::state::State;
use crate::num::count;

/// The most letters that a match in a description may skip.
const MOST_SKIPPED: u64 = 24;

/// The commands that match, best first; all of them for no text.
pub(crate) fn search(state: &State, text: &str) -> Vec<&'static Binding> {
    let wanted = text.trim().to_lowercase();
    let commands = keys::all().filter(|b| b.places & BROWSE != 0 && keys::is_listed(state, b));
    let mut found: Vec<(u64, &Binding)> = commands
        .filter_map(|binding| {
            let name = score(&wanted, binding.short);
            let help = score(&wanted, binding.help).map(|score| score.saturating_add(100));
            // Letters scattered over a sentence do not match.
            let help = help.filter(|score| *score < 100 + MOST_SKIPPED);
            let best = [name, help].into_iter().flatten().min();
            best.map(|score| (score, binding))
        })
        .collect();
    // The sort is stable: equal scores stay in the order of the table.
    found.sort_by_key(|(score, _)| *score);
    found.into_iter().map(|(_, binding)| binding).collect()
}

/// The score of `text`, lowest is best: the characters skipped before and between the letters.
fn score(wanted: &str, text: &str) -> Option<u64> {
    let mut skipped = 0_u64;
    let mut rest = text.char_indices();
    for letter in wanted.chars() {
        loop {
            let (_, c) = rest.next()?;
            if c.eq_ignore_ascii_case(&letter) {
                break;
            }
            skipped = skipped.saturating_add(1);
        }
    }
    Some(skipped.saturating_add(count(text.len()) / 8))
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::app::command::Command;

    #[test]
    fn finds_by_letters_in_order() {
        let state = State::default();
        let first = |text| search(&state, text).first().map(|binding| binding.command);
        assert_eq!(first("undo"), Some(Command::Undo));
        assert_eq!(first("drop"), Some(Command::Drop));
        assert_eq!(first("unset"), Some(Command::Drop));
        assert_eq!(first("frz"), Some(Command::Freeze));
        assert_eq!(
            first("initial"),
            Some(Command::Start(crate::change::Start::Reset))
        );
        assert_eq!(first("zzzz"), None);
        assert!(search(&state, "").len() > 20);
    }
}
