//! The edit form while it is filled in. Its other stages are questions.

use loudou_rules::config;
use ratatui::style::Style;

use crate::app::form::{Field, Form, Input, Kind};
use crate::app::line::Line;
use crate::app::press::Spot;
use crate::app::state::State;
use crate::draw::panel;
use crate::draw::pen::Pen;
use crate::draw::words::wrap;
use loudou_words::num::cells;

/// The column of the values.
const VALUE: u16 = 20;

/// Draws a text field with its cursor: a label, then the text, reversed while typing would replace it.
/// Returns its end.
pub(crate) fn field(
    pen: &mut Pen<'_>,
    x: u16,
    y: u16,
    label: &str,
    line: &Line,
    style: Style,
) -> u16 {
    let theme = pen.theme;
    let x = if label.is_empty() {
        x
    } else {
        pen.text(x, y, label, theme.key).saturating_add(1)
    };
    let (before, after) = line.halves();
    if line.is_selected() {
        let x = pen.text(x, y, &before, theme.selected);
        return pen.text(x, y, " ", style);
    }
    // A long text shows its end: the cursor is usually there.
    let room = usize::from(pen.width().saturating_sub(x).saturating_sub(1));
    let hidden = before.chars().count().saturating_sub(room);
    let before: String = before.chars().skip(hidden).collect();
    let x = pen.text(x, y, &before, style);
    let mut after = after.chars();
    let under = after.next().unwrap_or(' ');
    let x = pen.text(x, y, &under.to_string(), theme.selected);
    pen.text(x, y, after.as_str(), style)
}

/// A line of the form.
enum FormRow<'a> {
    Field(usize, &'a Field),
    /// A limit and its algorithm.
    Head(String, String),
    /// A line of a problem, and whether it is the first: only that has a mark.
    Problem(String, bool),
    Text(String, Style),
}

/// Draws the form.
pub(crate) fn draw(pen: &mut Pen<'_>, state: &State, form: &Form) {
    let theme = pen.theme;
    let wide = pen.width().saturating_sub(2).min(76);
    let rows = rows(pen, state, form, wide.saturating_sub(4));
    let height = cells(rows.len()).saturating_add(2);
    let title = format!(
        "edit {} (generation {})",
        form.base.name, form.base.generation
    );
    let mut pen = panel::open(pen, &title, wide, height);
    let focus = rows
        .iter()
        .position(|row| matches!(row, FormRow::Field(i, _) if *i == form.focus));
    let first = panel::first_line(rows.len(), pen.height(), focus.unwrap_or(0));
    for (row, y) in rows.iter().skip(first).zip(0..pen.height()) {
        match row {
            FormRow::Field(index, field) => {
                field_line(&mut pen, y, (*index, field), *index == form.focus);
            }
            FormRow::Problem(text, first) => {
                let mark = if *first { theme.pick('✖', 'x') } else { ' ' };
                pen.cell(2, i32::from(y), mark, theme.bad);
                pen.text(4, y, text, theme.bad);
            }
            FormRow::Head(name, algorithm) => {
                pen.spans(
                    1,
                    y,
                    &[(name, theme.name), (" ", theme.dim), (algorithm, theme.dim)],
                );
            }
            FormRow::Text(text, style) => {
                pen.text(1, y, text, *style);
            }
        }
    }
}

fn rows<'a>(pen: &Pen<'_>, state: &State, form: &'a Form, wide: u16) -> Vec<FormRow<'a>> {
    let theme = pen.theme;
    let mut rows: Vec<FormRow<'_>> = Vec::new();
    let mut shown = None;
    for (index, field) in form.fields.iter().enumerate() {
        if field.kind == Kind::Carry && state.size.1 >= 20 {
            rows.push(FormRow::Text(String::new(), theme.plain));
        }
        if let Kind::Limit(limit, _) = field.kind
            && shown != Some(limit)
        {
            shown = Some(limit);
            rows.extend(head(form, limit));
        }
        rows.push(FormRow::Field(index, field));
        if let Some(problem) = &field.problem {
            rows.extend(problem_rows(problem, wide));
        }
    }
    for problem in &form.problems {
        rows.extend(problem_rows(problem, wide));
    }
    let unknown = (0..)
        .map_while(|index| form.limit(index))
        .filter(|limit| !limit.2);
    for (name, algorithm, _) in unknown {
        let text = format!("{name}: this version of loudou cannot edit {algorithm}");
        rows.push(FormRow::Text(text, theme.warn));
    }
    if state.size.1 >= 20 {
        rows.push(FormRow::Text(String::new(), theme.plain));
        let about = form.fields.get(form.focus).and_then(about);
        let lines = about.map(|text| wrap(text, wide)).unwrap_or_default();
        rows.extend(lines.into_iter().map(|line| FormRow::Text(line, theme.dim)));
        let arrow = theme.pick_text("→", "->");
        let changes = form.change_lines().into_iter();
        let changes: Vec<String> = changes.map(|line| line.replace('→', arrow)).collect();
        if changes.is_empty() {
            rows.push(FormRow::Text("no changes yet".to_owned(), theme.dim));
        }
        rows.extend(
            changes
                .into_iter()
                .map(|line| FormRow::Text(line, theme.changed)),
        );
    }
    rows
}

/// The heading of the fields of a limit.
fn head<'a>(form: &Form, limit: usize) -> Option<FormRow<'a>> {
    let (name, algorithm, _) = form.limit(limit)?;
    Some(FormRow::Head(
        name.to_owned(),
        if name == algorithm { "" } else { algorithm }.to_owned(),
    ))
}

/// The meaning of a field.
const fn about(field: &Field) -> Option<&'static str> {
    match field.kind {
        Kind::Limit(_, field) => Some(field.doc.text()),
        _ => None,
    }
}

/// A problem, wrapped to the room beside its mark.
pub(super) fn problem_rows_of(problem: &str, wide: u16) -> Vec<String> {
    wrap(problem, wide.saturating_sub(4))
}

fn problem_rows<'a>(problem: &str, wide: u16) -> impl Iterator<Item = FormRow<'a>> + use<'a> {
    let lines = problem_rows_of(problem, wide).into_iter();
    lines
        .zip(0..)
        .map(|(line, index)| FormRow::Problem(line, index == 0))
}

pub(super) fn field_line(
    pen: &mut Pen<'_>,
    y: u16,
    (index, field): (usize, &Field),
    focused: bool,
) {
    let theme = pen.theme;
    pen.spot(0, y, pen.width(), Spot::Field(index));
    let mark = if focused {
        theme.pick_text("▸", ">")
    } else {
        " "
    };
    let label = if focused { theme.strong } else { theme.plain };
    pen.text(0, y, mark, theme.name);
    pen.within(2, y, VALUE.saturating_sub(3), field.name(), label);
    if matches!(field.input, Input::Text(_)) {
        pen.text(VALUE, y, &" ".repeat(14), theme.field);
    }
    let default = Some(field.shown(String::new())).filter(|_| field.value().is_empty());
    let end = match &field.input {
        Input::Text(line) if focused => self::field(pen, VALUE, y, "", line, theme.field),
        Input::Text(line) => match default.filter(|default| !default.is_empty()) {
            Some(default) => pen.text(VALUE, y, &format!("({default})"), theme.dim),
            None => pen.text(VALUE, y, &line.text(), theme.field),
        },
        Input::Choice(options, at) => choice(pen, y, index, (options, *at), focused),
    };
    let end = end.max(VALUE.saturating_add(14));
    if field.is_changed() {
        pen.text(
            end.saturating_add(2),
            y,
            &format!("was {}", field.shown(field.before.clone())),
            theme.dim,
        );
    } else if focused {
        pen.text(end.saturating_add(2), y, &hint(field), theme.dim);
    }
}

fn choice(
    pen: &mut Pen<'_>,
    y: u16,
    field: usize,
    (options, at): (&[&str], usize),
    focused: bool,
) -> u16 {
    let theme = pen.theme;
    let mut x = VALUE;
    for (index, option) in options.iter().enumerate() {
        let style = match (index == at, focused) {
            (true, true) => theme.selected,
            (true, false) => theme.strong,
            (false, _) => theme.dim,
        };
        let (open, close) = if index == at { ("[", "]") } else { (" ", " ") };
        let from = x;
        x = pen.spans(x, y, &[(open, style), (option, style), (close, style)]);
        pen.spot(from, y, x.saturating_sub(from), Spot::Choice(field, index));
    }
    x
}

fn hint(field: &Field) -> String {
    let hint = match field.kind {
        Kind::Limit(_, about) => match (about.default, about.form) {
            (_, config::Form::Word(_) | config::Form::Boolean) => "",
            (Some(default), _) if field.value().is_empty() => return format!("default: {default}"),
            (_, config::Form::Rate) => "such as 30/60s, 10/s",
            (_, config::Form::Duration(..)) => "such as 250ms, 60s, 5m",
            _ => "",
        },
        Kind::Mode => "",
        Kind::Carry => "of live bucket levels",
        Kind::Asked(prompt) => prompt.hint(),
    };
    hint.to_owned()
}
