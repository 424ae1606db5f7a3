//! Draws the Explain overlay: its form, then the decision rule by rule.

use loudou_api::ExplainAnswer;
use ratatui::text::{Line, Span};

use super::form::{FormRow, draw_rows, label, padding, problem, typed};
use crate::app::explain::{Explain, Field, LEVEL, Stage, about, inside};
use crate::app::press::Spot;
use crate::app::state::State;
use crate::draw::pen::Pen;
use crate::draw::theme::Theme;
use crate::draw::widgets::{open, scroll_bar};
use crate::draw::words::text;
use loudou_print::bars::bar_text;
use loudou_words::meaning::explained::Tone;
use loudou_words::num::cells;

/// Column in which the values begin.
const VALUE: u16 = 14;

/// Draws the overlay.
pub(super) fn draw(pen: &mut Pen<'_>, state: &State, explain: &Explain) {
    match &explain.stage {
        Stage::Editing | Stage::Asking => form(pen, state, explain),
        Stage::Answered(answer, top) => answered(pen, state, explain, answer, *top),
    }
}

fn form(pen: &mut Pen<'_>, state: &State, explain: &Explain) {
    let theme = pen.theme;
    let wide = pen.area.width.saturating_sub(2).min(90);
    let mut rows = Vec::new();
    for (number, field) in explain.fields.iter().enumerate() {
        let is_focused = number == explain.focus;
        rows.push(FormRow {
            line: line(theme, field, is_focused, wide),
            spots: vec![(0, wide, Spot::Field(number))],
            is_focused,
        });
        let problems = field.problem.iter();
        rows.extend(problems.flat_map(|words| problem(theme, words, wide.saturating_sub(2))));
    }
    let (mut pen, _) = open(
        pen,
        "explain a request",
        wide,
        cells(rows.len()).saturating_add(4),
    );
    let about = match (&explain.stage, about(state, explain)) {
        (Stage::Asking, _) => "asking Envoy".to_owned(),
        (_, Some(about)) => about,
        (_, None) => "nothing is taken from any bucket".to_owned(),
    };
    pen.line(pen.row(0), text(&format!(" {about}"), theme.dim));
    let mut below = pen.area;
    below.y = below.y.saturating_add(2);
    draw_rows(&mut pen.part(below), rows);
}

fn line(theme: &Theme, one: &Field, is_focused: bool, wide: u16) -> Line<'static> {
    let mut line = Line::from(label(theme, one.name(), is_focused, VALUE));
    let words = one.line.text();
    let mut value = if is_focused {
        typed(
            theme,
            &one.line,
            theme.field,
            wide.saturating_sub(VALUE + 2),
        )
    } else {
        vec![text(words, theme.field)]
    };
    value.push(padding(theme, &value));
    line.extend(value);
    if words.is_empty() {
        line.push_span(text(&format!("  {}", one.hint()), theme.dim));
    }
    line
}

fn answered(
    pen: &mut Pen<'_>,
    state: &State,
    explain: &Explain,
    answer: &ExplainAnswer,
    top: usize,
) {
    let theme = pen.theme;
    let wide = inside(state.size);
    let about = about(state, explain);
    let lines = explain.lines(answer, about.as_deref(), wide);
    let (mut pen, _) = open(
        pen,
        "explained",
        wide.saturating_add(4),
        cells(lines.len()).saturating_add(2),
    );
    let shown = usize::from(pen.area.height);
    let first = top.min(lines.len().saturating_sub(shown));
    let drawn = lines.iter().skip(first).map(|line| {
        let style = match line.tone {
            Tone::Plain => theme.plain,
            Tone::Dim => theme.dim,
            Tone::Good => theme.good,
            Tone::Warn => theme.warn,
            Tone::Bad => theme.bad,
        };
        let mark = line.mark.map(|mark| match mark {
            '✓' => theme.pick("✓ ", "+ ").to_owned(),
            '✗' => theme.pick("✗ ", "x ").to_owned(),
            other => format!("{other} "),
        });
        let level = line
            .level
            .map(|(part, whole)| format!("{} ", bar_text(part, whole, LEVEL, theme.ascii)));
        Line::from(vec![
            Span::raw(" ".repeat(usize::from(line.indent).saturating_add(1))),
            text(&mark.unwrap_or_default(), style),
            text(&level.unwrap_or_default(), theme.plain),
            text(&line.text, style),
        ])
    });
    let drawn: Vec<Line<'_>> = drawn.collect();
    pen.lines(drawn);
    let area = pen.area;
    scroll_bar(&mut pen, area, first, shown, lines.len());
}
