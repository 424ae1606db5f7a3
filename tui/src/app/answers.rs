//! Handles Envoy's answers to changes. A change is accepted, conflicts with another change, is
//! refused, or is in doubt because no answer arrived.

use loudou_api::RuleView;
use loudou_limiter::Nanos;

use super::effects::{ChangeOutcome, Sending, Undoable};
use super::form::{Form, Stage};
use super::msg::Failure;
use super::previewed;
use super::question::Pending;
use super::state::{Mode, State};
use super::undoing;
use loudou_client::change::edit::Edit;
use loudou_client::change::key_override::Override;
use loudou_client::change::verb::{Answer, Question};
use loudou_client::change::{Change, put_back};
use loudou_rules::rule::tried;
use loudou_words::text::escape;

/// Time for which the rows of a changed rule stay highlighted.
const STANDS_OUT: Nanos = Nanos::from_secs(5);

/// Handles a rule that the app has read again. An open edit form for the rule adopts the new
/// values, except in fields that the user has changed.
pub(crate) fn rule_read(state: &mut State, rule: &str, result: Result<Box<RuleView>, Failure>) {
    match result {
        Ok(view) => {
            let now_ns = state.polled_ns();
            if let Some(form) = form_of(state, rule)
                && form.stage == Stage::Editing
            {
                let moved = form.base.rule != view.rule;
                form.rebase((*view).clone(), now_ns);
                if moved {
                    state.toast(false, "the rule has just changed; the form was updated");
                }
            }
            replace_rule(state, *view);
        }
        Err(failure) => state.toast(true, format!("rule {rule}: {}", failure.text)),
    }
}

/// Handles the answer to a change.
pub(crate) fn changed(state: &mut State, sending: Sending, result: Result<Answer, Failure>) {
    let failure = match result {
        Ok(answer) => return accepted(state, &sending, answer),
        Err(failure) => failure,
    };
    match failure.problem {
        None => undoing::in_doubt(state, &sending),
        Some(_) => undoing::not_made(state, &sending, &failure.text),
    }
    let current = failure.problem.as_ref().and_then(|p| p.current.clone());
    match current {
        Some(current) => conflicted(state, sending, current, &failure),
        None => refused(state, &sending.change, sending.is_undo, &failure),
    }
}

fn accepted(state: &mut State, sending: &Sending, answer: Answer) {
    let verb = sending.change.verb();
    let (rule, key) = (verb.rule(), verb.key());
    let text = verb.outcome(&answer).toast;
    let is_bad = answer.failures().next().is_some();
    let text = match (sending.is_undo, key) {
        (true, _) if is_bad => text,
        (true, _) => format!("undone: {text}"),
        (false, None) => format!("sent: {text}"),
        (false, Some(_)) => text,
    };
    if sending.is_undo {
        forget(state, &sending.change, &answer);
        state.toast(is_bad, text);
    } else {
        let undo = sending.change.undo(&answer);
        let text = match undo {
            Some(_) => format!("{text}; u undoes"),
            None => text,
        };
        let enforced = form_of(state, rule).and_then(|form| tried(&form.base.name));
        let text = match enforced.filter(|tried| *tried == rule) {
            Some(_) => format!("{text}; the trial still runs, D ends it"),
            None => text,
        };
        if let (Change::BanAll(all), Answer::BanAll(results)) = (&sending.change, &answer) {
            undoing::made_in_parts(state, sending, (all, results), undo);
        } else {
            undoing::made(state, sending, undo);
        }
        state.toast(is_bad, text);
    }
    if key.is_none() {
        if form_of(state, rule).is_some_and(|form| form.stage == Stage::Sending) {
            state.mode = Mode::Browse;
        }
        state.changed = Some((rule.to_owned(), state.now.saturating_add(STANDS_OUT)));
    }
    state.link.hurry(state.now);
    if let Answer::Edit(answer) = answer {
        replace_rule(state, answer.after);
    }
}

/// Closes the edit form of a broadcast that was not sent to the Envoy on the screen. No answer will
/// arrive to close the form.
pub(crate) fn not_sent_here(state: &mut State, sending: &Sending, outcome: &str) {
    let rule = sending.change.verb().rule();
    if form_of(state, rule).is_some_and(|form| form.stage == Stage::Sending) {
        state.mode = Mode::Browse;
    }
    undoing::not_made(state, sending, outcome);
    state.sent();
    state.toast(false, format!("here: {outcome}; 7 shows each"));
}

/// Removes an undone change, or the part of it that was undone, from the list of undoable changes.
/// The position of the change in the list may have moved since the user was asked to confirm the
/// undo. Also records that the previous ban of the same key, if any, is in effect again.
fn forget(state: &mut State, change: &Change, answer: &Answer) {
    let is_it = |made: &Undoable| made.undo().is_some_and(|undo| undo.sends(change));
    if let Some(at) = state.undos.iter().rposition(is_it) {
        let is_over = match state.undos.get_mut(at).map(|made| &mut made.tried) {
            Some(ChangeOutcome::Made(undo)) => undo.is_over(change, answer),
            _ => true,
        };
        if is_over {
            state.undos.remove(at);
        }
    }
    let undos = state
        .undos
        .iter_mut()
        .filter_map(|made| match &mut made.tried {
            ChangeOutcome::Made(undo) => Some(undo),
            _ => None,
        });
    put_back(undos, change, answer);
}

/// Handles a conflict: the rule has changed since the app read it, so the user must confirm the
/// change again.
fn conflicted(state: &mut State, sending: Sending, current: RuleView, failure: &Failure) {
    replace_rule(state, current.clone());
    let Sending {
        change,
        is_undo,
        undoes,
        ..
    } = sending;
    let edit = match change {
        Change::Edit(edit) => edit,
        Change::Override(change) if is_undo => {
            let key = escape(&change.key);
            let why = format!("{key}: the limits or the override changed since");
            let again = Change::Override(Override {
                seen: Box::new(current),
                ..change
            });
            return ask_again(state, &why, Vec::new(), (again, undoes));
        }
        change => {
            return refused(state, &change, is_undo, failure);
        }
    };
    if is_undo {
        let by = match &current.edit {
            Some(edit) => edit.by.as_str(),
            None if current.instance != edit.seen.instance => "a restart of Envoy",
            None if current.base == edit.seen.base => "the end of its edit",
            None => "a new configuration",
        };
        let why = format!("{} was changed since, by {by}", edit.rule);
        let form = Form::new((*edit.seen).clone(), state.polled_ns());
        let fields = form.versus(&current).into_iter();
        let mut detail: Vec<String> = fields
            .map(|[field, yours, theirs, _]| format!("{field}: yours {yours}, now {theirs}"))
            .collect();
        let again = Edit {
            seen: Box::new(current),
            ..edit
        };
        detail.extend(previewed::with_waits(state, &again));
        ask_again(state, &why, detail, (Change::Edit(again), undoes));
    } else if let Some(form) = form_of(state, &edit.rule) {
        (form.stage, form.top) = (Stage::Conflict(Box::new(current)), 0);
    } else {
        state.toast(
            true,
            format!("not sent: {} was changed meanwhile", edit.rule),
        );
    }
}

/// Asks whether to undo despite the conflict. If a dialog is open or another Envoy is shown, the
/// question is deferred until the user presses the undo key, so that it does not pop up while the
/// user is typing.
fn ask_again(
    state: &mut State,
    why: &str,
    detail: Vec<String>,
    (again, undoes): (Change, Option<u64>),
) {
    let question = Question {
        title: format!("{why}. Undo anyway?"),
        detail,
        ..Question::default()
    };
    let mut pending = Box::new(Pending::undo(question, again, undoes));
    if matches!(state.mode, Mode::Browse) && !state.is_hidden {
        pending.opened = Some(state.now);
        state.mode = Mode::Confirm(pending);
    } else {
        state.unasked = Some(pending);
        state.toast(true, format!("not undone: {why}; u asks again"));
    }
}

fn refused(state: &mut State, change: &Change, is_undo: bool, failure: &Failure) {
    let verb = change.verb();
    if let (None, Some(form)) = (verb.key(), form_of(state, verb.rule())) {
        form.stage = Stage::Editing;
        let problems = failure.problem.as_ref().map_or(&[][..], |p| &p.problems);
        for problem in problems {
            form.place(&problem.path, problem.message.clone());
        }
    }
    // If the change affects a single key, the message names the key. The message about an edit does
    // not name the rule, because the edit form names it.
    let (name, colon) = match verb.key() {
        Some(key) => (key, ":"),
        None if is_undo => ("undo", ""),
        None => ("edit", ""),
    };
    let text = if failure.in_doubt {
        state.link.hurry(state.now);
        format!(
            "{name}: no answer; it may have been applied anyway: {}",
            failure.text
        )
    } else {
        format!("{name}{colon} not applied: {}", failure.text)
    };
    state.toast(true, text);
}

fn form_of<'a>(state: &'a mut State, rule: &str) -> Option<&'a mut Form> {
    match &mut state.mode {
        Mode::Edit(form) if form.base.name == rule || form.target() == rule => Some(form),
        _ => None,
    }
}

fn replace_rule(state: &mut State, view: RuleView) {
    let rules = state.data.as_mut().map(|data| &mut data.rules.rules);
    let mut rules = rules.into_iter().flatten();
    if let Some(rule) = rules.find(|rule| rule.name == view.name) {
        *rule = view;
    }
}
