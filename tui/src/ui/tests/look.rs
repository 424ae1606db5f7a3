//! Themes of the screen.

use ratatui::Terminal;
use ratatui::backend::TestBackend;

use super::{USUAL, draw, styles};
use crate::app::fixture::{state, type_keys};
use crate::app::state::State;
use crate::draw::pen::Spots;
use crate::draw::theme::Depth;
use crate::draw::theme::{Appearance, Base, Theme};
use crate::ui::view;

/// Returns the clickable places of a frame.
pub(crate) fn spots(state: &State, theme: &Theme, size: (u16, u16)) -> Spots {
    let mut terminal = Terminal::new(TestBackend::new(size.0, size.1)).expect("a buffer");
    let mut spots = Spots::default();
    terminal
        .draw(|frame| view(state, theme, frame, &mut spots))
        .expect("a buffer takes everything");
    spots
}

/// Themes and depths of colour, cell by cell.
#[test]
fn themes() {
    for (name, depth, base) in [
        ("light", Depth::Indexed, Base::Light),
        ("light_16", Depth::Sixteen, Base::Light),
        ("dark_16", Depth::Sixteen, Base::Dark),
    ] {
        let theme = Theme::of(&Appearance {
            depth,
            ascii: false,
            base: Some(base),
        });
        let mut state = state(USUAL, 20);
        type_keys(&mut state, "j");
        let terminal = draw(&state, &theme, USUAL);
        insta::assert_snapshot!(format!("theme_{name}_80x24"), styles(&terminal));
    }
}
