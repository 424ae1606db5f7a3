//! Key handling while a dialog is open: filter line, sort menu, help, palette, question, form.

use super::asking;
use super::browse;
use super::columns::{Column, Sort};
use super::command::Command;
use super::effects::{Effect, Sending};
use super::explain;
use super::filter::Filter;
use super::form::{Form, Stage};
use super::ingest;
use super::keys;
use super::layout::body_height;
use super::motion::{is_motion, moved};
use super::of_key::KeyForm;
use super::palette::{self, Found};
use super::press::Press;
use super::previewed;
use super::question::{Action, Pending};
use super::rows::BucketName;
use super::screen::Screen;
use super::screens;
use super::state::{Mode, SENDING, State};
use super::text_field::TextField;
use super::undoing;
use loudou_client::change::Change;

/// Handles a key press in a dialog. `command` is the command that the key runs, if any. The mode is
/// moved out of the state, and moved back unless the key closes the dialog.
pub(crate) fn pressed(
    state: &mut State,
    press: Press,
    command: Option<Command>,
    effects: &mut Vec<Effect>,
) {
    if command == Some(Command::Copy) {
        let url = state.settings.named_url();
        let line = match &mut state.mode {
            Mode::Confirm(pending) => pending.command(url),
            Mode::OfKey(form) => form.command(url),
            Mode::Edit(form) => form.command(url),
            Mode::Explain(explain) => explain.command(url),
            _ => None,
        };
        return browse::copy(state, line, effects);
    }
    if let Some(motion) = command.filter(|command| is_motion(*command))
        && asking::scroll(state, motion)
    {
        return;
    }
    match std::mem::take(&mut state.mode) {
        Mode::Event(event) if command.is_none() => state.mode = Mode::Event(event),
        Mode::Browse | Mode::Event(_) => {}
        Mode::Filter(line, before) => filter(state, line, before, press, command),
        Mode::Sort(at) => sort_menu(state, at, command),
        Mode::Help(top) => help(state, top, command),
        Mode::Palette(line, at) => palette(state, line, at, press, command, effects),
        Mode::Confirm(pending) => confirm(state, pending, command, effects),
        Mode::Edit(form) => form_key(state, form, press, command, effects),
        Mode::OfKey(form) => of_key(state, form, press, command),
        Mode::Explain(explain) => explain::pressed(state, explain, (press, command), effects),
    }
}

/// Handles pasted text. The text is inserted into a field and never runs commands.
pub(crate) fn pasted(state: &mut State, text: &str) {
    match &mut state.mode {
        Mode::Edit(form) if form.stage == Stage::Editing => form.paste(text),
        Mode::OfKey(form) => form.paste(text),
        Mode::Explain(explain) => explain.paste(text),
        Mode::Palette(line, at) => {
            line.paste(text);
            *at = 0;
        }
        Mode::Filter(line, _) => {
            line.paste(text);
            let text = line.text().to_owned();
            screens::shown(state).filter(state, &text);
        }
        _ => state.toast(true, "cannot paste: no text field is open"),
    }
}

fn filter(
    state: &mut State,
    mut line: TextField,
    before: String,
    press: Press,
    command: Option<Command>,
) {
    match command {
        Some(Command::Yes) => {
            if let Err(error) = screens::shown(state).accept_filter(state, line.text().trim()) {
                state.toast(true, error);
                state.mode = Mode::Filter(line, before);
            }
        }
        // Cancelling restores the previous filter.
        Some(_) => screens::shown(state).filter(state, &before),
        None => {
            line.press(press);
            screens::shown(state).filter(state, line.text());
            state.mode = Mode::Filter(line, before);
        }
    }
}

fn sort_menu(state: &mut State, at: usize, command: Option<Command>) {
    let columns = Column::SORTABLE;
    match command {
        Some(Command::Yes) => {
            if let Some(column) = columns.get(at) {
                ingest::sort(state, Sort::by(*column));
            }
        }
        Some(Command::No) => {}
        Some(motion) => state.mode = Mode::Sort(moved(at, columns.len(), 5, motion)),
        None => state.mode = Mode::Sort(at),
    }
}

fn help(state: &mut State, top: usize, command: Option<Command>) {
    let page = usize::from(body_height(state.size)).saturating_sub(2);
    let most = keys::all().count().saturating_sub(page).saturating_add(1);
    match command {
        Some(Command::No) => {}
        Some(motion) => state.mode = Mode::Help(moved(top, most, page, motion)),
        None => state.mode = Mode::Help(top),
    }
}

fn palette(
    state: &mut State,
    mut line: TextField,
    mut at: usize,
    press: Press,
    command: Option<Command>,
    effects: &mut Vec<Effect>,
) {
    let found = palette::search(state, line.text());
    match command {
        Some(Command::Yes) => {
            if let Some(found) = found.get(at) {
                palette_run(state, found, effects);
            }
        }
        Some(Command::Complete) => {
            let chosen = found.get(at).map(|found| (found.name(), found.text()));
            if let Some((name, text)) = chosen {
                line = TextField::default();
                line.paste(&name);
                // The name may match other entries too, so the completed entry is selected again.
                let mut found = palette::search(state, line.text()).into_iter();
                at = found.position(|found| found.text() == text).unwrap_or(0);
            }
            state.mode = Mode::Palette(line, at);
        }
        Some(Command::No) => {}
        Some(motion) => {
            let at = moved(at, found.len(), 1, motion);
            state.mode = Mode::Palette(line, at);
        }
        None => {
            line.press(press);
            state.mode = Mode::Palette(line, 0);
        }
    }
}

fn palette_run(state: &mut State, found: &Found, effects: &mut Vec<Effect>) {
    let binding = match found {
        Found::Command(binding) => binding,
        Found::Buckets(rule) => return ingest::buckets_of(state, rule),
        Found::Watch(number, _) => {
            state.wants = Some(*number);
            return;
        }
        Found::Filter(text) => {
            state.screen = Screen::HOME;
            let rules = state
                .data
                .as_ref()
                .map_or(&[][..], |data| &data.rules.rules);
            return match Filter::of_rules(text, rules) {
                Ok(_) => ingest::filter_by(state, text),
                Err(error) => state.toast(true, error),
            };
        }
        Found::CommandLine(_, line) => {
            let line = Some((*line).to_owned());
            return browse::copy(state, line, effects);
        }
        Found::Act(binding, id) => {
            open(state, id);
            if binding.command != Command::Open {
                browse::run(state, binding.command, effects);
            }
            return;
        }
    };
    if binding.places & keys::place(state) == 0 {
        let names = screens::names(binding.places);
        state.toast(true, format!("{} works only on: {names}", binding.short));
    } else {
        browse::run(state, binding.command, effects);
    }
}

/// Opens a bucket that was found by name.
fn open(state: &mut State, id: &BucketName) {
    (state.limit, state.open) = (None, Some(id.clone()));
    state.table.pinned = Some(id.clone());
    ingest::arrange(state);
    state.screen = Screen::Bucket;
}

fn confirm(
    state: &mut State,
    pending: Box<Pending>,
    command: Option<Command>,
    effects: &mut Vec<Effect>,
) {
    match command {
        Some(Command::Yes | Command::YesAll) if pending.is_unseen(state.now) => {
            state.mode = Mode::Confirm(pending);
        }
        Some(Command::YesAll) if state.targets.len() < 2 || pending.of_one().is_some() => {
            state.mode = Mode::Confirm(pending);
            if let Some(why) = keys::obstacle(state, Command::YesAll) {
                state.hint(why);
            }
        }
        Some(Command::YesAll) => {
            if let Action::Change(sending) = pending.action {
                state.toast(false, SENDING);
                undoing::sent(state, &sending);
                effects.push(Effect::ChangeAll(sending));
            }
        }
        Some(Command::Yes) => match pending.action {
            Action::Change(sending) => {
                state.toast(false, SENDING);
                undoing::sent(state, &sending);
                effects.push(Effect::Change(sending));
            }
            Action::Again(items) => {
                state.offers = false;
                state.toast(false, SENDING);
                effects.push(Effect::Again(items));
            }
        },
        Some(_) if matches!(pending.action, Action::Again(_)) => {
            state.offers = false;
            state.toast(false, "not applied; press a to be asked again");
        }
        Some(_) => {}
        None => state.mode = Mode::Confirm(pending),
    }
}

/// Handles a key press in the form that changes a single rate-limit key.
fn of_key(state: &mut State, mut form: Box<KeyForm>, press: Press, command: Option<Command>) {
    match command {
        Some(Command::No) => return,
        Some(Command::NextField) => form.step(1),
        Some(Command::PreviousField) => form.step(-1),
        Some(Command::Send) => {
            if form.check()
                && let Some(question) = form.question()
            {
                state.mode = Mode::Confirm(Box::new(question));
                return;
            }
            state.toast(true, "not sent: correct the marked fields");
        }
        _ => form.press(press),
    }
    state.mode = Mode::OfKey(form);
}

fn form_key(
    state: &mut State,
    mut form: Box<Form>,
    press: Press,
    command: Option<Command>,
    effects: &mut Vec<Effect>,
) {
    match (form.stage.clone(), command) {
        (Stage::Editing | Stage::Sending, Some(Command::No)) => return,
        (Stage::Editing, Some(Command::NextField)) => form.step(1),
        (Stage::Editing, Some(Command::PreviousField)) => form.step(-1),
        (Stage::Editing, Some(Command::Send)) => ask_to_send(state, &mut form),
        (Stage::Editing, _) => {
            form.press(press);
        }
        (Stage::Confirm, Some(Command::YesAll)) if state.targets.len() > 1 => {
            form.stage = Stage::Sending;
            effects.push(Effect::ChangeAll(sending(state, &form)));
        }
        (Stage::Confirm, Some(Command::Yes)) => {
            form.stage = Stage::Sending;
            effects.push(Effect::Change(sending(state, &form)));
        }
        (Stage::Confirm | Stage::Conflict(_), Some(Command::No)) => form.stage = Stage::Editing,
        (Stage::Conflict(theirs), Some(Command::Yes)) => {
            form.stage = Stage::Editing;
            form.rebase(*theirs, state.polled_ns());
        }
        _ => {}
    }
    state.mode = Mode::Edit(form);
}

/// Returns the form's edit, ready to send, and records it as sent.
fn sending(state: &mut State, form: &Form) -> Box<Sending> {
    let mut edit = form.edit();
    edit.keep_end(&form.base, state.polled_ns());
    let sending = Box::new(Sending::new(Change::Edit(edit)));
    undoing::sent(state, &sending);
    sending
}

/// Asks whether to send the edit or, if it has problems, shows them.
pub(crate) fn ask_to_send(state: &mut State, form: &mut Form) {
    form.check();
    let wrong = form.problem_count();
    if wrong > 0 {
        let bad = form.fields.iter().position(|field| field.problem.is_some());
        form.focus_on(bad.unwrap_or(form.focus));
        let noun = if wrong == 1 { "problem" } else { "problems" };
        state.toast(true, format!("not sent: {wrong} {noun}"));
    } else if form.does_something() {
        form.effect = previewed::lines(state, &form.edit());
        (form.stage, form.top) = (Stage::Confirm, 0);
    } else {
        state.toast(true, "no changes yet");
    }
}
