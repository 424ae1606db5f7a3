//! The small form for one key: duration, reason, and the kind of an override.

use super::form::{field_line, problem_rows_of};
use crate::app::of_key::KeyForm;
use crate::draw::panel;
use crate::draw::pen::Pen;
use crate::draw::words::wrap;
use loudou_words::num::cells;

/// Draws the form.
pub(crate) fn draw(pen: &mut Pen<'_>, form: &KeyForm, url: Option<&str>) {
    let theme = pen.theme;
    let width = pen.width().saturating_sub(2).min(72);
    let inside = width.saturating_sub(2);
    let problems = |index: usize| {
        let problem = form.fields.get(index)?.problem.as_ref()?;
        Some(problem_rows_of(problem, inside))
    };
    let count: usize = (0..form.fields.len())
        .filter_map(problems)
        .map(|lines| lines.len())
        .sum();
    let command = command_lines(form.command(url).as_deref(), inside.saturating_sub(2));
    let lines = form.fields.len().saturating_add(count);
    let lines = cells(lines.saturating_add(command.len()));
    let mut pen = panel::open(pen, &form.title(), width, lines.saturating_add(5));
    pen.spans(
        1,
        0,
        &[("rule ", theme.dim), (&form.place.rule, theme.plain)],
    );
    let mut y = 2;
    for (index, field) in form.fields.iter().enumerate() {
        field_line(&mut pen, y, (index, field), index == form.focus);
        y = y.saturating_add(1);
        for line in problems(index).unwrap_or_default() {
            pen.text(4, y, &line, theme.bad);
            y = y.saturating_add(1);
        }
    }
    for line in command {
        pen.text(1, y, &line, theme.dim);
        y = y.saturating_add(1);
    }
}

/// A command line below an empty line; nothing without one.
fn command_lines(command: Option<&str>, wide: u16) -> Vec<String> {
    let lines = command.map(|command| [vec![String::new()], wrap(command, wide)].concat());
    lines.unwrap_or_default()
}
