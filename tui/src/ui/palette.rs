//! Menus: the command palette, the sort menu.

use ratatui::layout::Rect;

use crate::app::columns::Column;
use crate::app::keys;
use crate::app::line::Line;
use crate::app::palette::{Found, search};
use crate::app::press::Spot;
use crate::app::state::State;
use crate::draw::panel;
use crate::draw::pen::Pen;
use loudou_words::num::cells;

/// Said where nothing matches.
const NONE: &str = "nothing matches: names of commands, rules and Envoys";

/// Draws the palette: the typed text, the matching commands with their keys, and what matches by name.
/// Returns its place.
pub(crate) fn draw(pen: &mut Pen<'_>, state: &State, line: &Line, at: usize) -> Rect {
    let theme = pen.theme;
    let found = search(state, &line.text());
    let width = pen.width().saturating_sub(2).min(64);
    let most = pen.height();
    let mut pen = panel::open(pen, "commands", width, most.min(22));
    super::form::field(&mut pen, 1, 0, ":", line, theme.plain);
    let height = pen.height().saturating_sub(1);
    let first = panel::first_line(found.len(), height, at);
    let (under, width) = (state.screen.place(), pen.width());
    if found.is_empty() {
        pen.within(2, 1, width.saturating_sub(2), NONE, theme.dim);
    }
    for (index, found) in found
        .iter()
        .enumerate()
        .skip(first)
        .take(usize::from(height))
    {
        let y = cells(index.saturating_sub(first)).saturating_add(1);
        let (applies, key) = match found {
            Found::Command(binding) => (
                binding.places & under != 0 && keys::obstacle(state, binding.command).is_none(),
                binding.shown(),
            ),
            Found::Buckets(_) | Found::Watch(..) => (true, String::new()),
        };
        let style = if applies { theme.plain } else { theme.dim };
        pen.within(2, y, width.saturating_sub(12), &found.text(), style);
        let key_style = if applies { theme.key } else { theme.dim };
        pen.right(width.saturating_sub(9), y, 8, &key, key_style);
        pen.spot(0, y, width, Spot::Line(index));
        if index == at {
            pen.select_line(y);
        }
    }
    panel::place(&pen)
}

/// Draws the menu of sortable columns.
pub(crate) fn sort_menu(pen: &mut Pen<'_>, state: &State, at: usize) {
    let theme = pen.theme;
    let height = cells(Column::SORTABLE.len()).saturating_add(2);
    let mut pen = panel::open(pen, "sort by", 26, height);
    let first = panel::first_line(Column::SORTABLE.len(), pen.height(), at);
    for (index, column) in Column::SORTABLE.iter().enumerate().skip(first) {
        let y = cells(index.saturating_sub(first));
        let now = *column == state.table.sort.column;
        let mark = if now {
            theme.pick_text("✔ ", "> ")
        } else {
            "  "
        };
        let order = if column.is_descending_first() {
            "largest"
        } else {
            "smallest"
        };
        pen.spans(1, y, &[(mark, theme.good), (column.name(), theme.plain)]);
        pen.right(15, y, 8, order, theme.dim);
        pen.spot(0, y, pen.width(), Spot::Line(index));
        if index == at {
            pen.select_line(y);
        }
    }
}
