//! Explaining a request on the screen: opening the form, its keys, and the answer.

use loudou_api::ExplainAnswer;

use super::command::Command;
use super::effects::Effect;
use super::explain::{Explain, Stage, inside};
use super::layout::body_height;
use super::motion::moved;
use super::msg::Failure;
use super::press::Press;
use super::screens;
use super::state::{Mode, State};
use crate::draw::words::ago;

/// Opens the form: for the bucket or the rule that keys act on, else with the last request.
pub(crate) fn open(state: &mut State) {
    let bucket = screens::target(state);
    let rule = screens::target_rule(state);
    let view = rule.and_then(|name| state.rule_named(&name));
    let key = bucket.as_ref().map(|id| id.key.as_str());
    let guessed = view.and_then(|view| Explain::guess(&view.rule, key));
    let request = guessed.unwrap_or_else(|| state.explained.clone().unwrap_or_default());
    let about = screens::target_row(state).map(|row| row.id.clone());
    let rules = state
        .data
        .as_ref()
        .map_or(&[][..], |data| &data.rules.rules);
    let explain = Explain::new(&request, rules, about);
    state.mode = Mode::Explain(Box::new(explain));
}

/// The bucket that the overlay is about, and when it was last refused, as far as that is known now.
pub(crate) fn about(state: &State, explain: &Explain) -> Option<String> {
    let id = explain.about.as_ref()?;
    let rows = state.data.iter().flat_map(|data| &data.rows);
    let row = rows.into_iter().find(|row| row.id == *id);
    let refused = match row.and_then(|row| row.view.refused_at_ns) {
        Some(at_ns) => {
            let now_ns = state.server_ns().saturating_add(state.age().get());
            format!("last refused {}", ago(now_ns.saturating_sub(at_ns)))
        }
        None => "no refusal known".to_owned(),
    };
    Some(format!("{} of {}: {refused}", id.key, id.rule))
}

/// Handles a key in the overlay.
pub(crate) fn pressed(
    state: &mut State,
    mut explain: Box<Explain>,
    (press, command): (Press, Option<Command>),
    effects: &mut Vec<Effect>,
) {
    match (&explain.stage, command) {
        (Stage::Editing | Stage::Asking, Some(Command::No)) => return,
        (Stage::Editing, Some(Command::NextField)) => explain.step(1),
        (Stage::Editing, Some(Command::PreviousField)) => explain.step(-1),
        (Stage::Editing, Some(Command::Send)) => ask(state, &mut explain, effects),
        (Stage::Editing, _) => explain.press(press),
        (Stage::Answered(..), Some(Command::No)) => explain.stage = Stage::Editing,
        (Stage::Answered(answer, top), Some(motion)) => {
            let page = usize::from(body_height(state.size)).saturating_sub(2);
            let about = about(state, &explain);
            let lines = explain.lines(answer, about.as_deref(), inside(state.size));
            let lines = lines.len();
            let most = lines.saturating_sub(page).saturating_add(1);
            let top = moved(*top, most, page, motion);
            explain.stage = Stage::Answered(answer.clone(), top);
        }
        _ => {}
    }
    state.mode = Mode::Explain(explain);
}

fn ask(state: &mut State, explain: &mut Explain, effects: &mut Vec<Effect>) {
    if let Some(request) = explain.request() {
        effects.push(Effect::Explain(Box::new(request.json())));
        state.explained = Some(request);
        explain.stage = Stage::Asking;
        return;
    }
    let mut fields = explain.fields.iter();
    let bad = fields.position(|field| field.problem.is_some());
    explain.focus = bad.unwrap_or(explain.focus);
    state.toast(true, "not sent: correct the marked fields");
}

/// Handles the answer.
pub(crate) fn answered(state: &mut State, result: Result<Box<ExplainAnswer>, Failure>) {
    let Mode::Explain(explain) = &mut state.mode else {
        return;
    };
    if !matches!(explain.stage, Stage::Asking) {
        return;
    }
    match result {
        Ok(answer) => explain.stage = Stage::Answered(answer, 0),
        Err(failure) => {
            explain.stage = Stage::Editing;
            let problems = failure.problem.iter().flat_map(|problem| &problem.problems);
            for problem in problems.cloned().collect::<Vec<_>>() {
                explain.place(&problem);
            }
            state.toast(true, format!("not explained: {}", failure.text));
        }
    }
}
