//! Messages that disappear after a few seconds, at the bottom right of the body.

use crate::app::state::State;
use crate::draw::pen::Pen;
use crate::draw::words::{width, wrap};

/// The most lines of one message.
const MOST_LINES: usize = 4;

/// Draws the messages, the newest at the bottom.
pub(crate) fn draw(pen: &mut Pen<'_>, state: &State) {
    let theme = pen.theme;
    let most = pen.width().saturating_sub(6).min(72);
    let mut bottom = pen.height();
    for toast in state.toasts.iter().rev() {
        let mut lines = wrap(&toast.text, most);
        lines.truncate(MOST_LINES);
        let style = if toast.is_bad { theme.bad } else { theme.good };
        let mark = if toast.is_bad {
            theme.pick('✖', 'x')
        } else {
            theme.pick('✔', '>')
        };
        let wide = lines
            .iter()
            .map(|line| width(line))
            .max()
            .unwrap_or(0)
            .saturating_add(4);
        let high = loudou_words::num::cells(lines.len());
        let Some(top) = bottom.checked_sub(high) else {
            return;
        };
        let x = pen.width().saturating_sub(wide);
        let mut part = pen.part(x, top, wide, high);
        part.clear();
        part.cell(1, 0, mark, style);
        for (line, y) in lines.iter().zip(0..) {
            part.text(3, y, line, style);
        }
        bottom = top;
    }
}
