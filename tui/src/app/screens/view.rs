//! What a screen is. Most of it has a default, so that a screen that is a list says little.

use crate::app::command::{Binding, Command};
use crate::app::rows::{BucketId, Row};
use crate::app::screen::Screen;
use crate::app::state::State;
use crate::draw::pen::Pen;

/// A screen: its name, its keys, what they act on, and its drawing.
pub(crate) trait View: Sync {
    /// Its name in the code.
    fn screen(&self) -> Screen;

    /// Its name on its tab.
    fn title(&self) -> &'static str;

    /// The key that leads to it.
    fn tab(&self) -> &'static Binding;

    /// The keys that only it has.
    fn keys(&self) -> &'static [Binding] {
        &[]
    }

    /// Whether the keys for the next and the previous screen stop at it.
    fn takes_turns(&self) -> bool {
        true
    }

    /// Whether it moves between polls.
    fn moves(&self) -> bool {
        false
    }

    /// Draws its body.
    fn draw(&self, pen: &mut Pen<'_>, state: &State);

    /// What the status line tells of it.
    fn status(&self, _state: &State) -> String {
        String::new()
    }

    /// How many lines can be selected.
    fn lines(&self, _state: &State) -> usize {
        0
    }

    /// The selected line.
    fn at(&self, state: &State) -> usize {
        state.selected(self.screen())
    }

    /// Selects a line.
    fn select(&self, state: &mut State, at: usize) {
        state.selected.insert(self.screen(), at);
    }

    /// The row of the bucket that keys act on, if it still lives.
    fn row<'a>(&self, _state: &'a State) -> Option<&'a Row> {
        None
    }

    /// The bucket that keys act on.
    fn bucket(&self, state: &State) -> Option<BucketId> {
        self.row(state).map(|row| row.id.clone())
    }

    /// The rule that keys act on.
    fn rule(&self, state: &State) -> Option<String> {
        self.bucket(state).map(|id| id.rule)
    }

    /// Why one cannot go to it; `None` when one can.
    fn closed(&self, _state: &State) -> Option<String> {
        None
    }

    /// Goes to it.
    fn enter(&self, state: &mut State) {
        state.screen = self.screen();
    }

    /// Goes back from it.
    fn back(&self, state: &mut State) {
        state.screen = Screen::HOME;
    }

    /// Why one of its own commands does not apply now; `None` when it does.
    fn obstacle(&self, _state: &State, _command: Command) -> Option<String> {
        None
    }

    /// Runs one of its own commands.
    fn run(&self, _state: &mut State, _command: Command) {}

    /// A click into its body, at a place of the whole screen.
    fn clicked(&self, _state: &mut State, _x: u16, _y: u16) {}
}
