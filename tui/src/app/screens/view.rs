//! The trait that all screens implement. Most methods have a default that suits a plain list.

use super::copied;
use crate::app::columns::Column;
use crate::app::command::{Binding, Command};
use crate::app::motion::moved;
use crate::app::rows::{BucketName, Row};
use crate::app::screen::Screen;
use crate::app::state::State;
use crate::draw::pen::Pen;

/// The constant properties of a screen.
pub(crate) struct About {
    /// The screen's identifier.
    pub(crate) screen: Screen,
    /// Title of the screen's tab.
    pub(crate) title: &'static str,
    /// The key that opens the screen.
    pub(crate) tab: Binding,
    /// The keys that work only on this screen.
    pub(crate) keys: &'static [Binding],
    /// True if the keys for the next and the previous screen can reach this screen.
    pub(crate) takes_turns: bool,
    /// True if the screen is animated between polls.
    pub(crate) moves: bool,
}

/// A screen: its keys, the bucket or rule that they act on, and its drawing code.
pub(crate) trait View: Sync {
    /// Returns the constant properties.
    fn about(&self) -> &'static About;

    /// Draws the body.
    fn draw(&self, pen: &mut Pen<'_>, state: &State);

    /// Returns the screen's text in the status line.
    fn status(&self, _state: &State) -> String {
        String::new()
    }

    /// Returns the number of selectable lines.
    fn lines(&self, _state: &State) -> usize {
        0
    }

    /// Returns the selected line.
    fn at(&self, state: &State) -> usize {
        state.selected(self.about().screen)
    }

    /// Returns the line that a movement command selects. `page` is the number of visible lines.
    fn moved(&self, state: &State, page: usize, motion: Command) -> usize {
        moved(self.at(state), self.lines(state), page, motion)
    }

    /// Selects a line.
    fn select(&self, state: &mut State, at: usize) {
        state.selected.insert(self.about().screen, at);
    }

    /// Returns the row of the bucket that key presses act on, if the row still exists.
    fn row<'a>(&self, _state: &'a State) -> Option<&'a Row> {
        None
    }

    /// Returns the bucket that key presses act on.
    fn bucket(&self, state: &State) -> Option<BucketName> {
        self.row(state).map(|row| row.id.clone())
    }

    /// Returns the rule that key presses act on.
    fn rule(&self, state: &State) -> Option<String> {
        self.bucket(state).map(|id| id.rule)
    }

    /// Returns the name to copy, such as a key or a rule.
    fn copied(&self, state: &State) -> Option<String> {
        self.bucket(state).map(|id| id.key)
    }

    /// Formats the selected row as a line of text for the clipboard.
    fn copied_row(&self, state: &State) -> Option<String> {
        self.row(state).map(|row| copied::bucket(row, state.age()))
    }

    /// Returns why the screen cannot be opened now, if it cannot.
    fn closed(&self, _state: &State) -> Option<String> {
        None
    }

    /// Opens the screen.
    fn enter(&self, state: &mut State) {
        state.screen = self.about().screen;
    }

    /// Leaves the screen.
    fn back(&self, state: &mut State) {
        state.screen = Screen::HOME;
    }

    /// Returns why a command of this screen cannot run now, if it cannot.
    fn obstacle(&self, _state: &State, _command: Command) -> Option<String> {
        None
    }

    /// Runs a command of this screen.
    fn run(&self, _state: &mut State, _command: Command) {}

    /// Applies a filter while the user is typing it.
    fn filter(&self, _state: &mut State, _text: &str) {}

    /// Returns the error in the filter that the user is typing.
    fn filter_error<'a>(&self, _state: &'a State) -> Option<&'a str> {
        None
    }

    /// Applies a typed filter, or returns its error.
    fn accept_filter(&self, _state: &mut State, _text: &str) -> Result<(), String> {
        Ok(())
    }

    /// Handles a click on a line.
    fn clicked(&self, state: &mut State, at: usize) {
        self.select(state, at);
    }

    /// Sorts by a column, or reverses the order if the screen is already sorted by it.
    fn sorted_by(&self, _state: &mut State, _column: Column) {}
}
