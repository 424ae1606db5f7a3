//! Draws the edit form of a rule and the form for a key while the user fills them in. The other
//! stages of the forms are drawn as questions.

use loudou_rules::config;
use ratatui::layout::Rect;
use ratatui::style::Style;
use ratatui::text::{Line, Span};

use crate::app::form::{Field, Form, Input, Kind};
use crate::app::of_key::KeyForm;
use crate::app::press::Spot;
use crate::app::state::State;
use crate::app::text_field::TextField;
use crate::draw::pen::Pen;
use crate::draw::theme::Theme;
use crate::draw::widgets::{all, first_line, open};
use crate::draw::words::{text, width, wrap};
use loudou_words::num::cells;

/// Column in which the values begin. `FIELD` is the minimum width of a text field.
const VALUE: u16 = 20;
pub(super) const FIELD: u16 = 14;

/// A line of a form, and the clickable places in it.
#[derive(Default)]
pub(super) struct FormRow {
    pub(super) line: Line<'static>,
    pub(super) spots: Vec<(u16, u16, Spot)>,
    pub(super) is_focused: bool,
}

impl<T: Into<Line<'static>>> From<T> for FormRow {
    fn from(line: T) -> Self {
        Self {
            line: line.into(),
            ..Self::default()
        }
    }
}

/// Draws as many rows of a form as fit. The focused row is always visible.
pub(super) fn draw_rows(pen: &mut Pen<'_>, rows: Vec<FormRow>) {
    let focus = rows.iter().position(|row| row.is_focused).unwrap_or(0);
    let first = first_line(rows.len(), pen.area.height, focus);
    for (row, place) in rows.into_iter().skip(first).zip(pen.area.rows()) {
        for (x, width, spot) in row.spots {
            let x = place.x.saturating_add(x);
            pen.spot(Rect { x, width, ..place }, spot);
        }
        pen.line(place, row.line);
    }
}

/// Returns a text field with its cursor, in at most `room` cells. If typing would replace the whole
/// text, the text is shown in reversed colours.
pub(super) fn typed(
    theme: &Theme,
    field: &TextField,
    style: Style,
    room: u16,
) -> Vec<Span<'static>> {
    let (before, after) = field.halves();
    if field.is_selected() {
        return vec![text(before, theme.selected), text(" ", style)];
    }
    // If the text is too long, its end is shown, because the cursor is usually there.
    let hidden = before
        .chars()
        .count()
        .saturating_sub(usize::from(room.saturating_sub(1)));
    let before: String = before.chars().skip(hidden).collect();
    let mut after = after.chars();
    let under = after.next().unwrap_or(' ');
    vec![
        text(&before, style),
        text(&under.to_string(), theme.selected),
        text(after.as_str(), style),
    ]
}

/// Returns the focus mark and the name of a field, padded up to the column in which the values
/// begin.
pub(super) fn label(theme: &Theme, name: &str, is_focused: bool, value: u16) -> Vec<Span<'static>> {
    let (mark, style) = if is_focused {
        (theme.pick("▸ ", "> "), theme.strong)
    } else {
        ("  ", theme.plain)
    };
    let room = value.saturating_sub(3);
    let name = theme.fit(name, room);
    let gap = " ".repeat(room.saturating_sub(width(&name)).saturating_add(1).into());
    vec![
        Span::styled(mark, theme.name),
        text(&name, style),
        Span::raw(gap),
    ]
}

/// Returns the padding that fills a text field after `spans`, in the field's colour.
pub(super) fn padding(theme: &Theme, spans: &[Span<'_>]) -> Span<'static> {
    let used: usize = spans.iter().map(Span::width).sum();
    let left = usize::from(FIELD).saturating_sub(used);
    Span::styled(" ".repeat(left), theme.field)
}

/// Returns the message of a problem, wrapped into rows. Only the first row has the mark.
pub(super) fn problem(theme: &Theme, problem: &str, wide: u16) -> impl Iterator<Item = FormRow> {
    let lines = wrap(problem, wide.saturating_sub(4)).into_iter().zip(0..);
    lines.map(move |(line, number)| {
        let mark = if number == 0 {
            theme.pick('✖', 'x')
        } else {
            ' '
        };
        text(&format!("  {mark} {line}"), theme.bad).into()
    })
}

/// Draws the edit form of a rule.
pub(super) fn draw(pen: &mut Pen<'_>, state: &State, form: &Form) {
    let wide = pen.area.width.saturating_sub(2).min(76);
    let rows = rows(pen.theme, state, form, wide);
    let title = format!(
        "edit {} (generation {})",
        form.base.name, form.base.generation
    );
    let (mut pen, _) = open(pen, &title, wide, cells(rows.len()).saturating_add(2));
    draw_rows(&mut pen, rows);
}

fn rows(theme: &Theme, state: &State, form: &Form, wide: u16) -> Vec<FormRow> {
    let (has_room, inside) = (state.size.1 >= 20, wide.saturating_sub(4));
    let mut rows: Vec<FormRow> = Vec::new();
    let mut shown = None;
    for (index, field) in form.fields.iter().enumerate() {
        if field.kind == Kind::Carry && has_room {
            rows.push(FormRow::default());
        }
        if let Kind::Limit(limit, _) | Kind::Sourced(limit, ..) = field.kind
            && shown != Some(limit)
        {
            shown = Some(limit);
            rows.extend(head(theme, form, limit));
        }
        rows.push(field_row(theme, index, field, index == form.focus, wide));
        let problems = field.problem.iter();
        rows.extend(problems.flat_map(|words| problem(theme, words, inside)));
    }
    let problems = form.problems.iter();
    rows.extend(problems.flat_map(|words| problem(theme, words, inside)));
    let unknown = (0..)
        .map_while(|index| form.limit(index))
        .filter(|limit| !limit.2);
    rows.extend(unknown.map(|(name, algorithm, _)| {
        let words = format!(" {name}: this version of loudou cannot edit {algorithm}");
        text(&words, theme.warn).into()
    }));
    if has_room {
        rows.push(FormRow::default());
        let about = form.fields.get(form.focus).and_then(about);
        let about = about.map(|words| wrap(words, inside)).unwrap_or_default();
        rows.extend(
            about
                .iter()
                .map(|line| text(&format!(" {line}"), theme.dim).into()),
        );
        let demand = form
            .demand
            .iter()
            .flat_map(|words| wrap(&theme.said(words), inside));
        rows.extend(demand.map(|line| text(&format!(" {line}"), theme.warn).into()));
        let changes = form.change_lines();
        if changes.is_empty() {
            rows.push(text(" no changes yet", theme.dim).into());
        }
        let changes = changes.iter().map(|line| format!(" {}", theme.said(line)));
        rows.extend(changes.map(|line| text(&line, theme.changed).into()));
    }
    rows
}

/// Returns the heading of a limit's fields.
fn head(theme: &Theme, form: &Form, limit: usize) -> Option<FormRow> {
    let (name, algorithm, _) = form.limit(limit)?;
    let algorithm = if name == algorithm { "" } else { algorithm };
    let spans = vec![
        text(&format!(" {name}"), theme.name),
        text(&format!(" {algorithm}"), theme.dim),
    ];
    Some(spans.into())
}

/// Returns the meaning of a field.
fn about(field: &Field) -> Option<&'static str> {
    match field.kind {
        Kind::Limit(_, field) => Some(field.doc.text()),
        Kind::Sourced(.., pointer) => Some(sourced(pointer)),
        _ => None,
    }
}

fn field_row(theme: &Theme, index: usize, field: &Field, is_focused: bool, wide: u16) -> FormRow {
    let mut row = FormRow {
        line: label(theme, field.name(), is_focused, VALUE).into(),
        spots: vec![(0, wide, Spot::Field(index))],
        is_focused,
    };
    let default = Some(field.shown(String::new())).filter(|_| field.value().is_empty());
    let mut value = match &field.input {
        Input::Text(line) if is_focused => {
            typed(theme, line, theme.field, wide.saturating_sub(VALUE + 2))
        }
        Input::Text(line) => match default.filter(|default| !default.is_empty()) {
            Some(default) => vec![text(&format!("({default})"), theme.dim)],
            None => vec![text(line.text(), theme.field)],
        },
        Input::Choice(options, at) => {
            let mut x = VALUE;
            let mut spans = Vec::new();
            for (number, option) in options.iter().enumerate() {
                let style = match (number == *at, is_focused) {
                    (true, true) => theme.selected,
                    (true, false) => theme.strong,
                    (false, _) => theme.dim,
                };
                let option = if number == *at {
                    format!("[{option}]")
                } else {
                    format!(" {option} ")
                };
                row.spots
                    .push((x, width(&option), Spot::Choice(index, number)));
                x = x.saturating_add(width(&option));
                spans.push(text(&option, style));
            }
            spans
        }
    };
    let padding = match field.input {
        Input::Text(_) => padding(theme, &value),
        Input::Choice(..) => Span::raw(" ".repeat(padding(theme, &value).width())),
    };
    value.push(padding);
    row.line.extend(value);
    if field.is_changed() {
        let was = format!("  was {}", field.shown(field.before.clone()));
        row.line.push_span(text(&was, theme.dim));
    } else if is_focused {
        row.line
            .push_span(text(&format!("  {}", hint(field)), theme.dim));
    }
    row
}

/// Describes a setting for a number that requests can carry: its default, its maximum, or the
/// period of a rate.
fn sourced(pointer: &str) -> &'static str {
    match pointer.rsplit('/').next() {
        Some("default") => "The number for a request that brings none, or a wrong one.",
        Some("max") => "The maximum number that a request may bring. Larger numbers count as this.",
        _ => "The period of the rate, whose amount comes with each request.",
    }
}

fn hint(field: &Field) -> String {
    let hint = match field.kind {
        Kind::Sourced(.., "/per") => "such as 1s, 5m, 1d",
        Kind::Limit(_, about) => match (about.default, about.form) {
            (_, config::Form::Word(_) | config::Form::Boolean) => "",
            (Some(default), _) if field.value().is_empty() => return format!("default: {default}"),
            (_, config::Form::Rate) => "such as 30/60s, 10/s",
            (_, config::Form::Duration(..)) => "such as 250ms, 60s, 5m",
            (_, config::Form::Or(_)) if about.name == "window" => "such as 60s, 1d, month",
            (_, config::Form::Object(_)) if about.name == "starts" => r#"such as {"day": 15}"#,
            _ => "",
        },
        Kind::Sourced(..) | Kind::Mode => "",
        Kind::Carry => "of live bucket levels",
        Kind::Asked(prompt) => prompt.hint(),
    };
    hint.to_owned()
}

/// Draws the form for one key: duration, reason, and the kind of an override.
pub(super) fn of_key(pen: &mut Pen<'_>, form: &KeyForm, url: Option<&str>) {
    let theme = pen.theme;
    let wide = pen.area.width.saturating_sub(2).min(72);
    let rule = vec![
        text(" rule ", theme.dim),
        text(&form.place.rule, theme.plain),
    ];
    let mut rows = vec![FormRow::from(rule), FormRow::default()];
    for (index, field) in form.fields.iter().enumerate() {
        rows.push(field_row(theme, index, field, index == form.focus, wide));
        let problems = field.problem.iter();
        rows.extend(problems.flat_map(|words| problem(theme, words, wide.saturating_sub(2))));
    }
    if let Some(command) = form.command(url) {
        let lines = wrap(&command, wide.saturating_sub(4));
        rows.push(FormRow::default());
        let lines = all(&lines, theme.dim).map(|mut line| {
            line.spans.insert(0, Span::raw(" "));
            line.into()
        });
        rows.extend(lines);
    }
    let (mut pen, _) = open(
        pen,
        &form.title(),
        wide,
        cells(rows.len()).saturating_add(3),
    );
    draw_rows(&mut pen, rows);
}
