//! The keys that the user chose instead of those in the key table.

use std::collections::BTreeMap;

use super::command::{Binding, Command};
use super::press::Press;
use super::screen::{BROWSE, COLUMNS, EXPLAINED, HELP, SORT};

/// The chosen keys, by the words of their commands.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub(crate) struct Keymap(BTreeMap<&'static str, Vec<Press>>);

impl Keymap {
    /// The keys of a command.
    pub(crate) fn of<'a>(&'a self, binding: &'a Binding) -> &'a [Press] {
        let chosen = word(binding).and_then(|word| self.0.get(word));
        chosen.map_or(binding.keys, Vec::as_slice)
    }

    /// Its first key, as the screen shows it; empty if it has none.
    pub(crate) fn shown(&self, binding: &Binding) -> String {
        let first = self.of(binding).first();
        first.map(ToString::to_string).unwrap_or_default()
    }

    /// The first key of the command with this word, for texts. `usual` is that of the key table. Without a key it is
    /// in the palette.
    pub(crate) fn said(&self, word: &str, usual: &str) -> String {
        match self.0.get(word).map(Vec::as_slice) {
            None => usual.to_owned(),
            Some([first, ..]) => first.to_string(),
            Some([]) if word == "palette" => word.to_owned(),
            Some([]) => format!("{} {word}", self.said("palette", ":")),
        }
    }

    /// Chooses the keys of a command.
    pub(crate) fn choose(&mut self, word: &'static str, keys: Vec<Press>) {
        self.0.insert(word, keys);
    }
}

/// The word of a command whose keys can be chosen: those of screens and lists. Those of dialogs stay, and so do Enter
/// and Esc on screens.
pub(crate) fn word(binding: &Binding) -> Option<&'static str> {
    let lists = BROWSE | SORT | HELP | COLUMNS | EXPLAINED;
    let is_free = binding.places & BROWSE != 0
        && binding.places & !lists == 0
        && !matches!(
            binding.command,
            Command::Back | Command::Open | Command::Drill
        );
    is_free.then_some(binding.short)
}
