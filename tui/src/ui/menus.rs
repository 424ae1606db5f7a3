//! Draws lists over the screen: the command palette, the sort menu, the keys of a screen, and the
//! fields of an event.

use loudou_api::Event;
use loudou_words::num::cells;
use ratatui::layout::{Constraint, Layout, Rect};
use ratatui::text::{Line, Span};

use super::form::typed;
use crate::app::columns::Column;
use crate::app::command::Binding;
use crate::app::event_lines::{as_shown, whole};
use crate::app::keys;
use crate::app::palette::{Found, search};
use crate::app::press::Spot;
use crate::app::screens;
use crate::app::state::State;
use crate::app::text_field::TextField;
use crate::draw::pen::Pen;
use crate::draw::widgets::{first_line, open};
use crate::draw::words::{text, wrap};

/// Draws as many lines of a menu as fit, each with a second text at the right edge. The selected
/// line is always visible.
fn menu(pen: &mut Pen<'_>, lines: Vec<[Line<'static>; 2]>, at: usize) {
    let theme = pen.theme;
    let first = first_line(lines.len(), pen.area.height, at);
    for ((number, [left, right]), row) in lines
        .into_iter()
        .enumerate()
        .skip(first)
        .zip(pen.area.rows())
    {
        let wide = cells(right.width()).saturating_add(1);
        let [name, end] =
            Layout::horizontal([Constraint::Fill(1), Constraint::Length(wide)]).areas(row);
        pen.line(name, left);
        pen.line(end, right);
        pen.spot(row, Spot::Line(number));
        if number == at {
            pen.style(row, theme.row);
        }
    }
}

/// Draws the palette with the typed text, the matching commands with their keys, and other matches.
/// Returns the area of the palette.
pub(super) fn palette(pen: &mut Pen<'_>, state: &State, field: &TextField, at: usize) -> Rect {
    let theme = pen.theme;
    let found = search(state, field.text());
    let (wide, most) = (
        pen.area.width.saturating_sub(2).min(64),
        pen.area.height.min(22),
    );
    let (mut pen, place) = open(pen, "commands", wide, most);
    let [head, list] =
        Layout::vertical([Constraint::Length(1), Constraint::Fill(1)]).areas(pen.area);
    let mut line = Line::from(Span::styled(" : ", theme.key));
    line.extend(typed(theme, field, theme.plain, wide.saturating_sub(6)));
    pen.line(head, line);
    let under = state.screen.place();
    let lines = found.iter().map(|found| {
        let (applies, key) = match found {
            Found::Command(binding) => (
                binding.places & under != 0 && keys::obstacle(state, binding.command).is_none(),
                binding.shown(),
            ),
            Found::Act(binding, _) => (true, binding.shown()),
            _ => (true, String::new()),
        };
        let (style, key_style) = if applies {
            (theme.plain, theme.key)
        } else {
            (theme.dim, theme.dim)
        };
        [
            text(&format!("  {}", found.text()), style).into(),
            text(&key, key_style).into(),
        ]
    });
    menu(&mut pen.part(list), lines.collect(), at);
    place
}

/// Draws the menu of sortable columns.
pub(super) fn sort(pen: &mut Pen<'_>, state: &State, at: usize) {
    let theme = pen.theme;
    let lines = Column::SORTABLE.iter().map(|column| {
        let is_now = *column == state.table.sort.column;
        let mark = if is_now {
            theme.pick(" ✔ ", " > ")
        } else {
            "   "
        };
        let order = if column.is_descending_first() {
            "largest"
        } else {
            "smallest"
        };
        [
            vec![
                Span::styled(mark, theme.good),
                text(column.name(), theme.plain),
            ]
            .into(),
            text(order, theme.dim).into(),
        ]
    });
    let lines: Vec<_> = lines.collect();
    let (mut pen, _) = open(pen, "sort by", 26, cells(lines.len()).saturating_add(2));
    menu(&mut pen, lines, at);
}

/// Draws the list of keys of the current screen.
pub(super) fn help(pen: &mut Pen<'_>, state: &State, top: usize) {
    const KEY: usize = 12;
    let theme = pen.theme;
    let place = state.screen.place();
    let here = keys::all().filter(|b| b.places & place != 0 && keys::is_listed(state, b));
    let line = |binding: &Binding| {
        let obstacle = keys::obstacle(state, binding.command);
        let names: Vec<String> = binding.keys.iter().map(ToString::to_string).collect();
        let (key, style) = match obstacle {
            None => (theme.key, theme.plain),
            Some(_) => (theme.dim, theme.dim),
        };
        let why = obstacle.map(|why| format!(" ({why})"));
        Line::from(vec![
            text(&format!(" {:<KEY$}", names.join(" ")), key),
            text(binding.help, style),
            text(&why.unwrap_or_default(), theme.dim),
        ])
    };
    let lines: Vec<Line<'_>> = here.map(line).collect();
    let title = format!("keys on {}", screens::shown(state).about().title);
    let longest = lines.iter().map(Line::width).max().unwrap_or(0);
    let wide = cells(longest)
        .saturating_add(3)
        .max(40)
        .min(pen.area.width.saturating_sub(2));
    let (mut pen, _) = open(pen, &title, wide, cells(lines.len()).saturating_add(2));
    let last = lines.len().saturating_sub(usize::from(pen.area.height));
    pen.lines(lines.into_iter().skip(top.min(last)));
}

/// Draws all fields of an event.
pub(super) fn event(pen: &mut Pen<'_>, state: &State, event: &Event) {
    const VALUE: usize = 12;
    let theme = pen.theme;
    let wide = pen.area.width.saturating_sub(2).min(90);
    let inside = wide.saturating_sub(cells(VALUE)).saturating_sub(4);
    let now_ns = state.server_ns().saturating_add(state.age().get());
    let mut lines = Vec::new();
    for (name, value) in whole(&as_shown(state, event), now_ns) {
        for (number, line) in wrap(&value, inside).iter().enumerate() {
            let name = if number == 0 { name } else { "" };
            lines.push(Line::from(vec![
                text(&format!(" {name:<VALUE$}"), theme.dim),
                text(line, theme.plain),
            ]));
        }
    }
    let (mut pen, _) = open(pen, "event", wide, cells(lines.len()).saturating_add(2));
    pen.lines(lines);
}
