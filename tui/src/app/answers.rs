//! Answers to edits and resets: what worked, what somebody else was faster with, what is in doubt.

use loudou_api::{EditAnswer, ResetAnswer, RuleView};
use loudou_limiter::Nanos;

use super::effects::{Edit, Effect};
use super::form::{Form, Stage};
use super::key_undo::KeyUndo;
use super::msg::Failure;
use super::of_key::{KeyAnswer, KeyChange, What};
use super::rows::BucketName;
use super::state::{Mode, State};
use super::undo::{self, Action, EditUndo, Pending, Undo};

/// How often an edit is sent again when only the number of the generation had moved.
const MOST_RETRIES: u8 = 3;
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

/// An edit was answered.
pub(crate) fn edited(
    state: &mut State,
    edit: Edit,
    result: Result<Box<EditAnswer>, Failure>,
    effects: &mut Vec<Effect>,
) {
    match result {
        Ok(answer) => accepted(state, &edit, *answer),
        Err(failure) => match failure.problem.as_ref().and_then(|p| p.current.clone()) {
            Some(current) => overtaken(state, edit, current, effects),
            None => refused(state, &edit, &failure),
        },
    }
}

fn accepted(state: &mut State, edit: &Edit, answer: EditAnswer) {
    let generation = answer.after.generation;
    if edit.is_undo {
        drop_last(
            state,
            |undo| matches!(undo, Undo::Edit(undo) if undo.after.name == edit.rule),
        );
        state.toast(
            false,
            format!("undone: {} (generation {generation})", answer.change),
        );
    } else {
        if !answer.change.is_empty() {
            remember(state, Undo::Edit(Box::new(EditUndo::new(edit, &answer))));
        }
        let change = if answer.change.is_empty() {
            "nothing changed"
        } else {
            &answer.change
        };
        state.toast(
            false,
            format!("sent: {change} (generation {generation}); u undoes"),
        );
    }
    if form_of(state, &edit.rule).is_some_and(|form| form.stage == Stage::Sending) {
        state.mode = Mode::Browse;
    }
    state.changed = Some((edit.rule.clone(), state.now.saturating_add(STANDS_OUT)));
    state.link.hurry(state.now);
    replace_rule(state, answer.after);
}

/// Remembers how to take a change back, as far as there is room.
fn remember(state: &mut State, undo: Undo) {
    if state.undos.len() >= undo::MOST {
        state.undos.remove(0);
    }
    state.undos.push(undo);
}

/// Forgets the last of those changes: others may have come or gone since it was asked about.
fn drop_last(state: &mut State, is_it: impl Fn(&Undo) -> bool) {
    if let Some(at) = state.undos.iter().rposition(is_it) {
        state.undos.remove(at);
    }
}

/// A change for one key is undone: the own change before it, if any, is the last one again.
fn taken_back(state: &mut State, change: &KeyChange, answer: &KeyAnswer) {
    drop_last(
        state,
        |undo| matches!(undo, Undo::Key(undo) if undo.asked_for(change)),
    );
    let KeyAnswer::Ban(answer) = answer else {
        return;
    };
    let before = state.undos.iter_mut().rev().find_map(|undo| match undo {
        Undo::Key(undo) if undo.id == change.id => Some(undo),
        _ => None,
    });
    if let Some(before) = before {
        before.put_back(answer);
    }
}

/// A change for one key was answered.
pub(crate) fn of_key(
    state: &mut State,
    change: KeyChange,
    result: Result<KeyAnswer, Failure>,
    effects: &mut Vec<Effect>,
) {
    let failure = match result {
        Ok(answer) => return key_changed(state, &change, answer),
        Err(failure) => failure,
    };
    let current = failure.problem.as_ref().and_then(|p| p.current.clone());
    if let (Some(current), What::Override { seen, .. }) = (current, &change.what) {
        let own = |rule: &RuleView| rule.rule.get("overrides")?.get(&change.id.key).cloned();
        let is_as_seen = own(&current) == own(seen);
        replace_rule(state, current.clone());
        if is_as_seen && change.retries < MOST_RETRIES {
            effects.push(Effect::OfKey(Box::new(change.again(current))));
            return;
        }
    }
    let key = &change.id.key;
    let text = if failure.in_doubt {
        state.link.hurry(state.now);
        format!(
            "{key}: no answer, it may have been done all the same; {}",
            failure.text
        )
    } else {
        format!("{key}: not done: {}", failure.text)
    };
    state.toast(true, text);
}

fn key_changed(state: &mut State, change: &KeyChange, answer: KeyAnswer) {
    let key = &change.id.key;
    let told = match (&answer, &change.what) {
        (KeyAnswer::Override(answer), _) if answer.change.is_empty() => {
            format!("{key}: nothing changed")
        }
        (KeyAnswer::Override(answer), _) => answer.change.clone(),
        (_, What::Ban(None)) => format!("{key} is banned"),
        (_, What::Ban(Some(span))) => format!("{key} is banned for {span}"),
        (KeyAnswer::Ban(answer), _) if answer.before.is_none() => {
            format!("{key} was not banned")
        }
        _ => format!("{key} is free"),
    };
    if change.is_undo {
        taken_back(state, change, &answer);
        state.toast(false, format!("undone: {told}"));
    } else if let Some(undo) = KeyUndo::new(change, &answer, &told) {
        remember(state, Undo::Key(undo));
        state.toast(false, format!("{told}; u undoes"));
    } else {
        state.toast(false, told);
    }
    if let KeyAnswer::Override(answer) = answer {
        replace_rule(state, answer.after);
    }
    state.link.hurry(state.now);
}

/// The generation moved since the rule was read. If the rule itself did not, the edit is still what
/// was decided on; else the user decides anew.
fn overtaken(state: &mut State, edit: Edit, current: RuleView, effects: &mut Vec<Effect>) {
    replace_rule(state, current.clone());
    if current.rule == edit.seen.rule && edit.retries < MOST_RETRIES {
        let retries = edit.retries.saturating_add(1);
        effects.push(Effect::Edit(Box::new(Edit {
            seen: current,
            retries,
            ..edit
        })));
    } else if edit.is_undo {
        let by = match &current.edit {
            Some(edit) => edit.by.as_str(),
            None if current.instance != edit.seen.instance => "a restart of Envoy",
            None => "a new configuration",
        };
        let question = format!(
            "{} was changed since, by {by}. Undo all the same?",
            edit.rule
        );
        let detail = Form::new(edit.seen.clone())
            .versus(&current)
            .into_iter()
            .map(|[what, yours, theirs, _]| format!("{what}: yours {yours}, now {theirs}"))
            .collect();
        let again = Edit {
            seen: current,
            retries: 0,
            ..edit
        };
        state.mode = Mode::Confirm(Box::new(Pending {
            question,
            detail,
            action: Action::Edit(Box::new(again)),
        }));
    } else if let Some(form) = form_of(state, &edit.rule) {
        form.stage = Stage::Conflict(Box::new(current));
    } else {
        state.toast(
            true,
            format!("not sent: {} was changed meanwhile", edit.rule),
        );
    }
}

fn refused(state: &mut State, edit: &Edit, failure: &Failure) {
    if let Some(form) = form_of(state, &edit.rule) {
        form.stage = Stage::Editing;
        let problems = failure.problem.as_ref().map_or(&[][..], |p| &p.problems);
        for problem in problems {
            form.place(&problem.path, problem.message.clone());
        }
    }
    let what = if edit.is_undo { "undo" } else { "edit" };
    let text = if failure.in_doubt {
        state.link.hurry(state.now);
        format!(
            "{what}: no answer, it may have been made all the same; {}",
            failure.text
        )
    } else {
        format!("{what} not made: {}", failure.text)
    };
    state.toast(true, text);
}

/// A reset was answered.
pub(crate) fn reset(state: &mut State, id: &BucketName, result: Result<Box<ResetAnswer>, Failure>) {
    match result {
        Ok(answer) => {
            let key = &id.key;
            let text = if answer.existed {
                format!("reset: {key} is as good as new")
            } else {
                format!("reset: {key} had no bucket, which is as good")
            };
            state.toast(false, text);
            state.link.hurry(state.now);
        }
        Err(failure) => state.toast(true, format!("reset not made: {}", failure.text)),
    }
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
