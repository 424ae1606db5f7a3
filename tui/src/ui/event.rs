//! An event as a whole, over the list.

use loudou_api::Event;

use crate::app::event_lines::whole;
use crate::app::state::State;
use crate::draw::panel;
use crate::draw::pen::Pen;
use crate::draw::words::wrap;
use loudou_words::num::cells;

/// The column of the values.
const VALUE: u16 = 13;

/// Draws the event.
pub(crate) fn draw(pen: &mut Pen<'_>, state: &State, event: &Event) {
    let theme = pen.theme;
    let width = pen.width().saturating_sub(2).min(90);
    let inside = width.saturating_sub(VALUE).saturating_sub(3);
    let now_ns = state.server_ns().saturating_add(state.age().get());
    let mut lines = Vec::new();
    for (name, value) in whole(event, now_ns) {
        for (number, line) in wrap(&value, inside).into_iter().enumerate() {
            lines.push((if number == 0 { name } else { "" }, line));
        }
    }
    let mut pen = panel::open(pen, "event", width, cells(lines.len()).saturating_add(2));
    for ((name, line), y) in lines.iter().zip(0..pen.height()) {
        pen.text(1, y, name, theme.dim);
        pen.text(VALUE, y, line, theme.plain);
    }
}
