//! A question over the screen: before an action that is hard to undo, before an edit is sent, and after a conflict.

use ratatui::layout::Rect;

use crate::app::press::Spot;
use crate::app::sheet::{BETWEEN, Part, Sheet, Tone};
use crate::draw::bars;
use crate::draw::panel;
use crate::draw::pen::Pen;

/// The least cells of a column of values, and the most of their names.
const COLUMN: u16 = 7;
const NAME: u16 = 20;

/// Draws the question, and returns its place.
pub(crate) fn draw(pen: &mut Pen<'_>, sheet: &Sheet) -> Rect {
    let mut pen = panel::open(pen, &sheet.title, sheet.width, sheet.height());
    let lines = sheet.lines.iter().skip(sheet.top).take(sheet.shown);
    for (part, y) in lines.zip(0..) {
        line(&mut pen, y, part);
    }
    let shown = loudou_words::num::cells(sheet.shown);
    if sheet.lines.len() > sheet.shown {
        let edge = pen.width().saturating_sub(1);
        let place = (sheet.top, sheet.shown, sheet.lines.len());
        bars::scroll(&mut pen.part(edge, 0, 1, shown), place);
    }
    answers(&mut pen, shown.saturating_add(sheet.has_gap.into()), sheet);
    panel::place(&pen)
}

fn line(pen: &mut Pen<'_>, y: u16, part: &Part) {
    let theme = pen.theme;
    match part {
        Part::Gap => {}
        Part::Text(tone, text) => {
            let style = match tone {
                Tone::Strong => theme.strong,
                Tone::Plain => theme.plain,
                Tone::Changed => theme.changed,
                Tone::Warn => theme.warn,
                Tone::Dim => theme.dim,
            };
            pen.text(1, y, &theme.said(text), style);
        }
        Part::Heads(heads) => columns(pen, y, heads, [theme.dim; 4]),
        Part::Row(row) => {
            let styles = [theme.plain, theme.dim, theme.warn, theme.changed];
            columns(pen, y, &row.each_ref().map(String::as_str), styles);
        }
    }
}

/// Draws a name and three values, each in its column.
fn columns(pen: &mut Pen<'_>, y: u16, row: &[&str; 4], styles: [ratatui::style::Style; 4]) {
    let name = pen.width().saturating_sub(COLUMN.saturating_mul(3));
    let name = name.min(NAME);
    let wide = pen.width().saturating_sub(name) / 3;
    let mut x = 1;
    let widths = [name.saturating_sub(1), wide, wide, wide];
    for ((text, style), wide) in row.iter().zip(styles).zip(widths) {
        pen.within(x, y, wide.saturating_sub(1), text, style);
        x = x.saturating_add(wide);
    }
}

/// Draws the answers, which can also be clicked.
fn answers(pen: &mut Pen<'_>, y: u16, sheet: &Sheet) {
    let theme = pen.theme;
    if sheet.answers.is_empty() {
        pen.text(1, y, "sending", theme.warn);
    }
    for (row, y) in sheet.answers.iter().zip(y..) {
        let mut x = 1;
        for answer in row {
            let spans = [
                (answer.key, theme.key),
                (" ", theme.plain),
                (&answer.word, theme.plain),
            ];
            let end = pen.spans(x, y, &spans);
            pen.spot(x, y, end.saturating_sub(x), Spot::Key(answer.press));
            x = end.saturating_add(BETWEEN);
        }
    }
}
