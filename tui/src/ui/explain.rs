//! The overlay that explains a request: its form, then the decision rule by rule.

use loudou_api::ExplainAnswer;

use super::form::{field, problem_rows_of};
use crate::app::explain::about;
use crate::app::explain::{Explain, Field, LEVEL, Stage, inside};
use crate::app::press::Spot;
use crate::app::state::State;
use crate::draw::bars;
use crate::draw::panel;
use crate::draw::pen::Pen;
use loudou_words::meaning::explained::Tone;
use loudou_words::num::cells;

/// The column of the values.
const VALUE: u16 = 14;

/// Draws it.
pub(crate) fn draw(pen: &mut Pen<'_>, state: &State, explain: &Explain) {
    match &explain.stage {
        Stage::Editing | Stage::Asking => form(pen, state, explain),
        Stage::Answered(answer, top) => answered(pen, state, explain, (answer, *top)),
    }
}

/// A line of the form.
enum FormRow<'a> {
    Field(usize, &'a Field),
    Problem(String, bool),
}

fn form(pen: &mut Pen<'_>, state: &State, explain: &Explain) {
    let theme = pen.theme;
    let width = pen.width().saturating_sub(2).min(90);
    let mut rows = Vec::new();
    for (number, field) in explain.fields.iter().enumerate() {
        rows.push(FormRow::Field(number, field));
        let problem = field.problem.iter();
        let lines = problem.flat_map(|text| problem_rows_of(text, width.saturating_sub(2)));
        rows.extend(
            lines
                .enumerate()
                .map(|(number, line)| FormRow::Problem(line, number == 0)),
        );
    }
    let height = cells(rows.len()).saturating_add(4);
    let mut pen = panel::open(pen, "explain a request", width, height);
    let about = match (&explain.stage, about(state, explain)) {
        (Stage::Asking, _) => "asking Envoy".to_owned(),
        (_, Some(about)) => about,
        (_, None) => "nothing is taken from any bucket".to_owned(),
    };
    pen.text(1, 0, &about, theme.dim);
    let focus = rows
        .iter()
        .position(|row| matches!(row, FormRow::Field(number, _) if *number == explain.focus));
    let room = pen.height().saturating_sub(2);
    let first = panel::first_line(rows.len(), room, focus.unwrap_or(0));
    for (row, y) in rows.iter().skip(first).zip(2..pen.height()) {
        match row {
            FormRow::Field(number, field) => {
                line(&mut pen, y, field, *number == explain.focus);
                pen.spot(0, y, pen.width(), Spot::Field(*number));
            }
            FormRow::Problem(text, is_first) => {
                let mark = if *is_first {
                    theme.pick('✖', 'x')
                } else {
                    ' '
                };
                pen.cell(2, i32::from(y), mark, theme.bad);
                pen.text(4, y, text, theme.bad);
            }
        }
    }
}

fn line(pen: &mut Pen<'_>, y: u16, one: &Field, is_focused: bool) {
    let theme = pen.theme;
    let (mark, label) = if is_focused {
        (theme.pick_text("▸", ">"), theme.strong)
    } else {
        (" ", theme.plain)
    };
    pen.text(0, y, mark, theme.name);
    pen.within(2, y, VALUE.saturating_sub(3), one.name(), label);
    pen.text(VALUE, y, &" ".repeat(14), theme.field);
    let text = one.line.text();
    let end = if is_focused {
        field(pen, VALUE, y, "", &one.line, theme.field)
    } else {
        pen.text(VALUE, y, &text, theme.field)
    };
    if text.is_empty() {
        let x = end.max(VALUE.saturating_add(14)).saturating_add(2);
        pen.text(x, y, one.hint(), theme.dim);
    }
}

fn answered(
    pen: &mut Pen<'_>,
    state: &State,
    explain: &Explain,
    (answer, top): (&ExplainAnswer, usize),
) {
    let theme = pen.theme;
    let wide = inside(state.size);
    let about = about(state, explain);
    let lines = explain.lines(answer, about.as_deref(), wide);
    let height = cells(lines.len()).saturating_add(2);
    let mut pen = panel::open(pen, "explained", wide.saturating_add(4), height);
    let shown = usize::from(pen.height());
    let first = top.min(lines.len().saturating_sub(shown));
    for (line, y) in lines.iter().skip(first).zip(0..pen.height()) {
        let style = match line.tone {
            Tone::Plain => theme.plain,
            Tone::Dim => theme.dim,
            Tone::Good => theme.good,
            Tone::Warn => theme.warn,
            Tone::Bad => theme.bad,
        };
        let mut x = line.indent.saturating_add(1);
        if let Some(mark) = line.mark {
            let mark = if mark == '✓' {
                theme.pick(mark, '+')
            } else {
                mark
            };
            let mark = if mark == '✗' {
                theme.pick(mark, 'x')
            } else {
                mark
            };
            pen.cell(i32::from(x), i32::from(y), mark, style);
            x = x.saturating_add(2);
        }
        if let Some((part, whole)) = line.level {
            let text = bars::text(part, whole, LEVEL, theme.ascii);
            x = pen.text(x, y, &text, theme.plain).saturating_add(1);
        }
        pen.text(x, y, &line.text, style);
    }
    if lines.len() > shown {
        let edge = pen.width().saturating_sub(1);
        let height = pen.height();
        bars::scroll(
            &mut pen.part(edge, 0, 1, height),
            (first, shown, lines.len()),
        );
    }
}
