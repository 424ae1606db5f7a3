//! Handles the mouse. A click acts on the element that was drawn under it. The wheel scrolls lists,
//! menus, help and forms.

use super::browse;
use super::command::Command;
use super::effects::Effect;
use super::explain;
use super::form::{Field, Input, Stage};
use super::keys;
use super::modal;
use super::press::{Code, Mouse, MouseAction, Press, Spot};
use super::screen::EXPLAINED;
use super::screens;
use super::state::{Mode, State};

/// Number of rows that a step of the wheel scrolls.
const WHEEL: usize = 3;

/// Handles a mouse action. Returns the key press that the action stands for, if any.
pub(crate) fn moused(state: &mut State, mouse: Mouse, effects: &mut Vec<Effect>) -> Option<Press> {
    match (mouse.action, mouse.spot) {
        (MouseAction::WheelUp, _) => wheel(state, Command::Up, effects),
        (MouseAction::WheelDown, _) => wheel(state, Command::Down, effects),
        (MouseAction::Click, Some(Spot::Key(press))) => return Some(press),
        (MouseAction::Click, Some(spot)) => clicked(state, spot, effects),
        (MouseAction::Click, None) => {}
    }
    None
}

/// Handles a click on an element that does not stand for a key. The element may no longer exist.
fn clicked(state: &mut State, spot: Spot, effects: &mut Vec<Effect>) {
    match (&mut state.mode, spot) {
        (Mode::Browse, Spot::Tab(screen)) => browse::run(state, Command::Show(screen), effects),
        (Mode::Browse, Spot::Line(at)) => {
            let view = screens::shown(state);
            if at < view.lines(state) {
                view.clicked(state, at);
            }
        }
        (Mode::Browse, Spot::Head(column)) => screens::shown(state).sorted_by(state, column),
        (Mode::Sort(selected) | Mode::Palette(_, selected), Spot::Line(at)) => {
            *selected = at;
            run(state, Command::Yes, effects);
        }
        (Mode::Edit(form), Spot::Field(at) | Spot::Choice(at, _))
            if form.stage == Stage::Editing =>
        {
            if form.focus != at {
                form.focus_on(at);
            }
            choose(&mut form.fields, spot);
            form.check();
        }
        (Mode::Explain(explain), Spot::Field(at))
            if matches!(explain.stage, explain::Stage::Editing) =>
        {
            explain.focus = at.min(explain.fields.len().saturating_sub(1));
        }
        (Mode::OfKey(form), Spot::Field(at) | Spot::Choice(at, _)) => {
            form.focus = at.min(form.fields.len().saturating_sub(1));
            choose(&mut form.fields, spot);
            form.check();
        }
        _ => {}
    }
}

/// Selects the option that was clicked.
fn choose(fields: &mut [Field], spot: Spot) {
    if let Spot::Choice(field, choice) = spot
        && let Some(field) = fields.get_mut(field)
        && let Input::Choice(options, at) = &mut field.input
        && choice < options.len()
    {
        *at = choice;
    }
}

fn wheel(state: &mut State, motion: Command, effects: &mut Vec<Effect>) {
    let field = match motion {
        Command::Up => Command::PreviousField,
        _ => Command::NextField,
    };
    match &state.mode {
        Mode::Browse => (0..WHEEL).for_each(|_| browse::go(state, motion)),
        Mode::Help(_) => (0..WHEEL).for_each(|_| run(state, motion, effects)),
        Mode::Edit(form) if form.stage == Stage::Editing => run(state, field, effects),
        Mode::OfKey(_) => run(state, field, effects),
        Mode::Explain(_) if keys::place(state) == EXPLAINED => run(state, motion, effects),
        Mode::Sort(_) | Mode::Palette(..) | Mode::Confirm(_) | Mode::Edit(_) => {
            run(state, motion, effects);
        }
        Mode::Filter(..) | Mode::Explain(_) | Mode::Event(_) => {}
    }
}

/// Runs a command of the open dialog.
fn run(state: &mut State, command: Command, effects: &mut Vec<Effect>) {
    // The key is a placeholder: the dialog runs the command and ignores the key.
    modal::pressed(state, Press::plain(Code::Enter), Some(command), effects);
}
