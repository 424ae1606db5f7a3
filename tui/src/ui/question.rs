//! The question before an action that is hard to undo.

use crate::app::question::Pending;
use crate::draw::panel;
use crate::draw::pen::Pen;
use crate::draw::words::wrap;
use crate::num::cells;

/// Draws the question.
pub(crate) fn draw(pen: &mut Pen<'_>, pending: &Pending) {
    let theme = pen.theme;
    let width = pen.width().saturating_sub(4).min(64);
    let inside = width.saturating_sub(4);
    let question = wrap(&pending.question, inside);
    let arrow = theme.pick_text("→", "->");
    let detail: Vec<String> = pending
        .detail
        .iter()
        .flat_map(|line| wrap(&line.replace('→', arrow), inside))
        .collect();
    let mut command = command_lines(pending.command.as_deref(), inside);
    let above = cells(question.len().saturating_add(detail.len()));
    // The question and its keys come first.
    if above.saturating_add(cells(command.len())).saturating_add(4) > pen.height() {
        command.clear();
    }
    let lines = question.len().saturating_add(detail.len());
    let lines = cells(lines.saturating_add(command.len()));
    let mut pen = panel::open(pen, "", width, lines.saturating_add(5));
    let mut y = 0;
    for line in &question {
        y = y.max(pen_line(&mut pen, y, line, theme.strong));
    }
    for line in &detail {
        y = y.max(pen_line(&mut pen, y, line, theme.plain));
    }
    for line in &command {
        y = y.max(pen_line(&mut pen, y, line, theme.dim));
    }
    let y = y.saturating_add(1).min(pen.height().saturating_sub(1));
    let keys = [
        (" Enter ", theme.key),
        ("yes   ", theme.plain),
        ("Esc ", theme.key),
    ];
    let x = pen.spans(0, y, &keys);
    pen.text(x, y, "no", theme.plain);
}

/// A command line below an empty line, cut to the width; nothing without one.
pub(super) fn command_lines(command: Option<&str>, wide: u16) -> Vec<String> {
    let lines = command.map(|command| wrap(command, wide));
    let lines = lines.into_iter().flatten();
    let mut lines: Vec<String> = lines.collect();
    if !lines.is_empty() {
        lines.insert(0, String::new());
    }
    lines
}

fn pen_line(pen: &mut Pen<'_>, y: u16, line: &str, style: ratatui::style::Style) -> u16 {
    pen.text(1, y, line, style);
    y.saturating_add(1)
}
