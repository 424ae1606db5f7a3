//! Answers to changes: what was made, what others were faster with, what is in doubt.

use loudou_api::RuleView;
use loudou_limiter::Nanos;

use super::effects::Sending;
use super::form::{Form, Stage};
use super::msg::Failure;
use super::question::Pending;
use super::state::{Mode, State};
use crate::change::edit::Edit;
use crate::change::verb::{Answer, Question};
use crate::change::{Change, Undo};

/// The most changes that can be taken back.
const MOST_UNDOS: usize = 50;
/// How long the rows of a changed rule stand out.
const STANDS_OUT: Nanos = Nanos::from_secs(5);

/// A rule was read afresh: an open form goes on from it.
pub(crate) fn rule_read(state: &mut State, rule: &str, result: Result<Box<RuleView>, Failure>) {
    match result {
        Ok(view) => {
            if let Some(form) = form_of(state, rule)
                && form.stage == Stage::Editing
            {
                let moved = form.base.rule != view.rule;
                form.rebase((*view).clone());
                if moved {
                    state.toast(false, "the rule has just changed; the form follows");
                }
            }
            replace_rule(state, *view);
        }
        Err(failure) => state.toast(true, format!("rule {rule}: {}", failure.text)),
    }
}

/// A change was answered.
pub(crate) fn changed(state: &mut State, sending: Sending, result: Result<Answer, Failure>) {
    let failure = match result {
        Ok(answer) => return accepted(state, &sending, answer),
        Err(failure) => failure,
    };
    let current = failure.problem.as_ref().and_then(|p| p.current.clone());
    match current {
        Some(current) => overtaken(state, sending, current, &failure),
        None => refused(state, &sending, &failure),
    }
}

fn accepted(state: &mut State, sending: &Sending, answer: Answer) {
    let verb = sending.change.verb();
    let (rule, key) = (verb.rule(), verb.key());
    let text = verb.outcome(&answer).toast;
    let text = match (sending.is_undo, key) {
        (true, _) => format!("undone: {text}"),
        (false, None) => format!("sent: {text}"),
        (false, Some(_)) => text,
    };
    if sending.is_undo {
        taken_back(state, &sending.change, &answer);
        state.toast(false, text);
    } else if let Some(undo) = sending.change.undo(&answer) {
        remember(state, undo);
        state.toast(false, format!("{text}; u undoes"));
    } else {
        state.toast(false, text);
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

/// Remembers how to take a change back, as far as there is room.
fn remember(state: &mut State, undo: Undo) {
    if state.undos.len() >= MOST_UNDOS {
        state.undos.remove(0);
    }
    state.undos.push(undo);
}

/// An own change was undone: forgets how, wherever it is by now among those that came or went since it
/// was asked about. The change before it for the same key, if any, is in force again.
fn taken_back(state: &mut State, change: &Change, answer: &Answer) {
    if let Some(at) = state.undos.iter().rposition(|undo| undo.sends(change)) {
        state.undos.remove(at);
    }
    let of = (change.verb().rule(), change.verb().key());
    let mut undos = state.undos.iter_mut().rev();
    if let (Some(before), (_, Some(_))) = (undos.find(|undo| undo.of() == of), of) {
        before.put_back(answer);
    }
}

/// The rule is not as it was seen any more: the user decides anew.
fn overtaken(state: &mut State, sending: Sending, current: RuleView, failure: &Failure) {
    replace_rule(state, current.clone());
    let Sending { change, is_undo } = sending;
    let Change::Edit(edit) = change else {
        return refused(state, &Sending { change, is_undo }, failure);
    };
    if is_undo {
        let by = match &current.edit {
            Some(edit) => edit.by.as_str(),
            None if current.instance != edit.seen.instance => "a restart of Envoy",
            None => "a new configuration",
        };
        let title = format!(
            "{} was changed since, by {by}. Undo all the same?",
            edit.rule
        );
        let detail = Form::new((*edit.seen).clone())
            .versus(&current)
            .into_iter()
            .map(|[what, yours, theirs, _]| format!("{what}: yours {yours}, now {theirs}"))
            .collect();
        let question = Question {
            title,
            detail,
            ..Question::default()
        };
        let again = Change::Edit(Edit {
            seen: Box::new(current),
            ..edit
        });
        state.mode = Mode::Confirm(Box::new(Pending::undo(question, again)));
    } else if let Some(form) = form_of(state, &edit.rule) {
        form.stage = Stage::Conflict(Box::new(current));
    } else {
        state.toast(
            true,
            format!("not sent: {} was changed meanwhile", edit.rule),
        );
    }
}

fn refused(state: &mut State, sending: &Sending, failure: &Failure) {
    let verb = sending.change.verb();
    if let (None, Some(form)) = (verb.key(), form_of(state, verb.rule())) {
        form.stage = Stage::Editing;
        let problems = failure.problem.as_ref().map_or(&[][..], |p| &p.problems);
        for problem in problems {
            form.place(&problem.path, problem.message.clone());
        }
    }
    // A key is named, a rule stands in the form.
    let (what, sign, made) = match verb.key() {
        Some(key) => (key, ":", "done"),
        None if sending.is_undo => ("undo", "", "made"),
        None => ("edit", "", "made"),
    };
    let text = if failure.in_doubt {
        state.link.hurry(state.now);
        format!(
            "{what}: no answer, it may have been {made} all the same; {}",
            failure.text
        )
    } else {
        format!("{what}{sign} not {made}: {}", failure.text)
    };
    state.toast(true, text);
}

fn form_of<'a>(state: &'a mut State, rule: &str) -> Option<&'a mut Form> {
    match &mut state.mode {
        Mode::Edit(form) if form.base.name == rule => Some(form),
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
