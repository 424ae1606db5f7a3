//! The trait of all screens. Most methods have a default that suits a plain list.

use super::copied;
use crate::app::columns::Column;
use crate::app::command::{Binding, Command};
use crate::app::motion::moved;
use crate::app::rows::{BucketName, Row};
use crate::app::screen::Screen;
use crate::app::state::State;
use crate::draw::pen::Pen;

/// The properties of a screen that never change.
pub(crate) struct About {
    /// Its identifier.
    pub(crate) screen: Screen,
    /// Its name on its tab.
    pub(crate) title: &'static str,
    /// The key that opens it.
    pub(crate) tab: Binding,
    /// The keys that work only here.
    pub(crate) keys: &'static [Binding],
    /// Whether the keys for the next and the previous screen include it.
    pub(crate) takes_turns: bool,
    /// Whether it is animated between polls.
    pub(crate) moves: bool,
}

/// A screen: its keys, their target, and its drawing.
pub(crate) trait View: Sync {
    /// Its name and its keys.
    fn about(&self) -> &'static About;

    /// Draws its body.
    fn draw(&self, pen: &mut Pen<'_>, state: &State);

    /// Its text in the status line.
    fn status(&self, _state: &State) -> String {
        String::new()
    }

    /// The number of selectable lines.
    fn lines(&self, _state: &State) -> usize {
        0
    }

    /// The selected line.
    fn at(&self, state: &State) -> usize {
        state.selected(self.about().screen)
    }

    /// The line after a motion, on a screen with this many lines.
    fn moved(&self, state: &State, page: usize, motion: Command) -> usize {
        moved(self.at(state), self.lines(state), page, motion)
    }

    /// Selects a line.
    fn select(&self, state: &mut State, at: usize) {
        state.selected.insert(self.about().screen, at);
    }

    /// The row of the bucket that keys act on, if it still exists.
    fn row<'a>(&self, _state: &'a State) -> Option<&'a Row> {
        None
    }

    /// The bucket that keys act on.
    fn bucket(&self, state: &State) -> Option<BucketName> {
        self.row(state).map(|row| row.id.clone())
    }

    /// The rule that keys act on.
    fn rule(&self, state: &State) -> Option<String> {
        self.bucket(state).map(|id| id.rule)
    }

    /// The name that is copied: a key, a rule.
    fn copied(&self, state: &State) -> Option<String> {
        self.bucket(state).map(|id| id.key)
    }

    /// The selected row as a line of text.
    fn copied_row(&self, state: &State) -> Option<String> {
        self.row(state).map(|row| copied::bucket(row, state.age()))
    }

    /// The reason why it cannot be opened now, if any.
    fn closed(&self, _state: &State) -> Option<String> {
        None
    }

    /// Opens it.
    fn enter(&self, state: &mut State) {
        state.screen = self.about().screen;
    }

    /// Goes back from it.
    fn back(&self, state: &mut State) {
        state.screen = Screen::HOME;
    }

    /// The reason why one of its commands does not apply now, if any.
    fn obstacle(&self, _state: &State, _command: Command) -> Option<String> {
        None
    }

    /// Runs one of its commands.
    fn run(&self, _state: &mut State, _command: Command) {}

    /// Filters by a text that is being typed.
    fn filter(&self, _state: &mut State, _text: &str) {}

    /// The problem of a filter that is being typed.
    fn filter_error<'a>(&self, _state: &'a State) -> Option<&'a str> {
        None
    }

    /// Takes a filter that was typed; the error of one that is invalid.
    fn accept_filter(&self, _state: &mut State, _text: &str) -> Result<(), String> {
        Ok(())
    }

    /// Takes a click on a line.
    fn clicked(&self, state: &mut State, at: usize) {
        self.select(state, at);
    }

    /// Sorts by a column, in the other order if it is sorted by it.
    fn sorted_by(&self, _state: &mut State, _column: Column) {}
}
