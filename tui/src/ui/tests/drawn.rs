//! Draws frames of a state into a buffer.

use ratatui::Terminal;
use ratatui::backend::TestBackend;

use crate::app::state::State;
use crate::draw::pen::Spots;
use crate::ui::{Theme, view};

pub(crate) fn draw(state: &State, theme: &Theme, size: (u16, u16)) -> Terminal<TestBackend> {
    draw_with_spots(state, theme, size).0
}

/// Returns a frame, and its clickable places.
pub(crate) fn draw_with_spots(
    state: &State,
    theme: &Theme,
    size: (u16, u16),
) -> (Terminal<TestBackend>, Spots) {
    let mut terminal = Terminal::new(TestBackend::new(size.0, size.1)).expect("a buffer");
    let mut spots = Spots::default();
    terminal
        .draw(|frame| view(state, theme, frame, &mut spots))
        .expect("a buffer takes everything");
    (terminal, spots)
}

/// Returns the screen as text.
pub(crate) fn text(state: &State, size: (u16, u16)) -> String {
    let terminal = draw(state, &Theme::new(false, false), size);
    terminal.backend().to_string()
}
