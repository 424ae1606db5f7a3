//! Draws a question over the screen. Questions are asked before an action that is hard to undo,
//! before an edit is sent, and after a conflict.

use ratatui::layout::{Constraint, Layout, Rect};
use ratatui::style::Style;
use ratatui::text::{Line, Span};

use crate::app::press::Spot;
use crate::app::sheet::{BETWEEN, Part, Sheet, Tone};
use crate::draw::pen::Pen;
use crate::draw::theme::Theme;
use crate::draw::widgets::{open, scroll_bar};
use crate::draw::words::text;
use loudou_words::num::cells;

/// Minimum width of a column of values. `NAME` is the maximum width of the column of names.
const COLUMN: u16 = 7;
const NAME: u16 = 20;

/// Draws the question, and returns the area that it covers.
pub(super) fn draw(pen: &mut Pen<'_>, sheet: &Sheet) -> Rect {
    let (mut pen, place) = open(pen, &sheet.title, sheet.width, sheet.height());
    let theme = pen.theme;
    let shown = cells(sheet.shown);
    let [body, _, answers] = Layout::vertical([
        Constraint::Length(shown),
        Constraint::Length(sheet.has_gap.into()),
        Constraint::Fill(1),
    ])
    .areas(pen.area);
    let lines = sheet.lines.iter().skip(sheet.top).take(sheet.shown);
    let lines = lines.map(|part| line(theme, pen.area.width, part));
    let lines: Vec<Line<'_>> = lines.collect();
    pen.part(body).lines(lines);
    scroll_bar(&mut pen, body, sheet.top, sheet.shown, sheet.lines.len());
    if sheet.answers.is_empty() {
        pen.line(answers, text(" sending", theme.warn));
    }
    for (row, place) in sheet.answers.iter().zip(answers.rows()) {
        let buttons = row.iter().map(|answer| {
            let key = Span::styled(answer.key, theme.key);
            let word = text(&format!(" {}", answer.word), theme.plain);
            (vec![key, word].into(), Some(Spot::Key(answer.press)))
        });
        pen.buttons(place, BETWEEN, buttons);
    }
    place
}

fn line(theme: &Theme, wide: u16, part: &Part) -> Line<'static> {
    match part {
        Part::Gap => Line::default(),
        Part::Text(tone, words) => {
            let style = match tone {
                Tone::Strong => theme.strong,
                Tone::Plain => theme.plain,
                Tone::Changed => theme.changed,
                Tone::Warn => theme.warn,
                Tone::Dim => theme.dim,
            };
            text(&format!(" {}", theme.said(words)), style).into()
        }
        Part::Heads(heads) => columns(theme, wide, heads, [theme.dim; 4]),
        Part::Row(row) => {
            let styles = [theme.plain, theme.dim, theme.warn, theme.changed];
            columns(theme, wide, &row.each_ref().map(String::as_str), styles)
        }
    }
}

/// Returns a line with a name and three values, each in its column.
fn columns(theme: &Theme, wide: u16, row: &[&str; 4], styles: [Style; 4]) -> Line<'static> {
    let name = wide.saturating_sub(COLUMN.saturating_mul(3)).min(NAME);
    let each = wide.saturating_sub(name) / 3;
    let widths = [name.saturating_sub(1), each, each, each];
    let mut line = Line::from(" ");
    for ((words, style), wide) in row.iter().zip(styles).zip(widths) {
        let words = text(words, style);
        let fitted = theme.fit_line(words.into(), wide.saturating_sub(1));
        let gap = usize::from(wide).saturating_sub(fitted.width());
        line.extend(fitted.spans);
        line.push_span(Span::raw(" ".repeat(gap)));
    }
    line
}
