//! Commands that all screens share, such as moving the selection, switching to another screen, and
//! opening dialogs.

use loudou_api::{EditView, RuleView};

use super::again;
use super::command::Command;
use super::demand::Demand;
use super::effects::Effect;
use super::explain;
use super::form::Form;
use super::history::Scale;
use super::ingest;
use super::keys;
use super::layout::table_height;
use super::modal;
use super::motion::is_motion;
use super::of_key::KeyForm;
use super::previewed;
use super::question::Pending;
use super::rows::BucketName;
use super::screen::Screen;
use super::screens;
use super::state::{Exit, Frozen, Mode, State};
use super::text_field::TextField;
use super::undoing;
use loudou_client::change::ban::{Ban, BanTo, USUAL};
use loudou_client::change::ban_all::BanAll;
use loudou_client::change::edit::Edit;
use loudou_client::change::form::KeyPlace;
use loudou_client::change::{Change, FirstStep, Start};
use loudou_client::command_line::to_paste;
use loudou_rules::rule::{TRIAL, tried};
use loudou_words::text::humanise;

/// Runs a command, or shows why it cannot run now.
pub(crate) fn run(state: &mut State, command: Command, effects: &mut Vec<Effect>) {
    match keys::obstacle(state, command) {
        Some(why) => state.hint(why),
        None => apply(state, command, effects),
    }
}

/// Runs a command, without checking if it can run now.
fn apply(state: &mut State, command: Command, effects: &mut Vec<Effect>) {
    match command {
        Command::Quit => state.exit = Some(Exit::Quit),
        Command::Suspend => effects.push(Effect::Suspend),
        Command::Help => state.mode = Mode::Help(0),
        Command::Palette => state.mode = Mode::Palette(TextField::default(), 0),
        Command::Back => screens::shown(state).back(state),
        Command::Open => screens::view(Screen::Bucket).enter(state),
        Command::Show(screen) => screens::view(screen).enter(state),
        Command::NextScreen => state.screen = screens::turn(state.screen, 1),
        Command::PreviousScreen => state.screen = screens::turn(state.screen, -1),
        Command::Freeze => freeze(state),
        Command::Hide => {
            state.hides_keys = !state.hides_keys;
            // Messages may contain keys, so they are removed when keys are hidden.
            state.toasts.clear();
            let words = if state.hides_keys {
                "keys are hidden"
            } else {
                "keys are shown"
            };
            state.toast(false, words);
        }
        Command::Poll => {
            state.link.hurry(state.now);
            state.toast(false, "refreshing");
        }
        Command::Longer => rescale(state, state.scale.longer(), "longest"),
        Command::Shorter => rescale(state, state.scale.shorter(), "shortest"),
        Command::NextTarget => {
            let next = state.number.saturating_add(1);
            state.wants = next.checked_rem(state.targets.len());
        }
        Command::Copy => {
            let text = screens::shown(state).copied(state);
            copy(state, text.as_deref().map(to_paste), effects);
        }
        Command::CopyRow => copy(state, screens::shown(state).copied_row(state), effects),
        Command::Edit => edit(state, effects),
        Command::Mode => change_mode(state, effects),
        Command::Drop => drop_edit(state),
        Command::Undo => undoing::ask(state),
        Command::Start(change) => start(state, change),
        Command::BanAll => ban_all(state),
        // With several Envoys, `Watched` runs the command, because it has the state of every Envoy.
        Command::Again if state.targets.len() > 1 => state.asks_again = true,
        Command::Again => {
            let lacking = again::lacking(state, std::iter::empty());
            again::ask(state, lacking);
        }
        Command::Explain => explain::open(state),
        motion if is_motion(motion) => go(state, motion),
        other => screens::shown(state).run(state, other),
    }
}

/// Copies `text` to the clipboard, or reports that there is nothing to copy.
pub(crate) fn copy(state: &mut State, text: Option<String>, effects: &mut Vec<Effect>) {
    match text {
        None => state.toast(true, "nothing to copy"),
        Some(text) => {
            state.toast(false, format!("copied: {text}"));
            effects.push(Effect::Copy(text));
        }
    }
}

/// Changes the time span of the charts.
fn rescale(state: &mut State, scale: Option<Scale>, end: &str) {
    if let Some(scale) = scale {
        state.scale = scale;
    } else {
        let span = humanise(state.scale.span_ns());
        state.toast(true, format!("{span} is the {end} time of charts"));
    }
}

fn freeze(state: &mut State) {
    if state.frozen.is_some() {
        ingest::thaw(state);
        // Polls are less frequent while the screen is frozen, so the kept snapshot may be outdated,
        // and the next poll starts at once.
        state.link.hurry(state.now);
    } else {
        state.frozen = Some(Frozen {
            since: state.now,
            waiting: None,
        });
    }
}

/// Opens the Rules screen so that the user can select a rule.
fn choose_rule(state: &mut State, key: &str) {
    screens::view(Screen::Rules).enter(state);
    state.hint(format!("select a rule, then press {key}"));
}

fn edit(state: &mut State, effects: &mut Vec<Effect>) {
    let Some(rule) = screens::target_rule(state) else {
        return choose_rule(state, "e");
    };
    let Some(view) = state.rule_named(&rule).cloned() else {
        return;
    };
    // Keeps the selection on this bucket while the form is open.
    if let Some(row) = state.selected_row() {
        let id = row.id.clone();
        state.table.pinned.get_or_insert(id);
    }
    let demand = screens::target_row(state).and_then(|row| {
        let demand = Demand::of(state, row)?;
        Some(format!("{} {}", row.id.key, demand.words()))
    });
    let mut form = Form::new(view, state.polled_ns());
    form.demand = demand;
    let running = [&*rule, TRIAL].concat();
    form.running = state.rule_named(&running).cloned().map(Box::new);
    form.tried = tried(&rule).and_then(|rule| Some(Box::new(state.rule_named(rule)?.clone())));
    state.mode = Mode::Edit(Box::new(form));
    effects.push(Effect::ReadRule(rule));
}

/// Asks whether to switch the current rule to the mode `enforce` or, if the rule is already
/// enforced, to `shadow`. Esc returns to the edit form, which also offers the mode `off`.
fn change_mode(state: &mut State, effects: &mut Vec<Effect>) {
    if screens::target_rule(state).is_none() {
        return choose_rule(state, "M");
    }
    edit(state, effects);
    if let Mode::Edit(mut form) = std::mem::take(&mut state.mode) {
        form.turn_mode();
        modal::ask_to_send(state, &mut form);
        state.mode = Mode::Edit(form);
    }
}

/// Asks whether to drop the edit of the current rule.
fn drop_edit(state: &mut State) {
    let Some(rule) = screens::target_rule(state) else {
        return choose_rule(state, "D");
    };
    let Some(view) = state.rule_named(&rule) else {
        return;
    };
    let edit = Edit::dropping(view.clone());
    let after = RuleView {
        rule: edit.without(),
        ..view.clone()
    };
    let mut detail: Vec<String> = view.edit.iter().map(edited_by).collect();
    let form = Form::new(view.clone(), state.polled_ns());
    let fields = form.versus(&after).into_iter();
    // Ending a trial does not change the rule's limits, so no differences are listed.
    let fields = fields.filter(|_| tried(&rule).is_none());
    detail.extend(fields.map(|[field, now, then, _]| format!("{field} {now} → {then}")));
    detail.extend(previewed::with_waits(state, &edit));
    let mut pending = Pending::change(Change::Edit(edit));
    pending.detail.extend(detail);
    state.mode = Mode::Confirm(Box::new(pending));
}

/// Describes who made an edit, and why.
fn edited_by(edit: &EditView) -> String {
    match edit.reason.as_str() {
        "" => format!("edited by {}", edit.by),
        reason => format!("edited by {}: {reason}", edit.by),
    }
}

/// Starts a change of the current rate-limit key by opening a form or a confirmation question.
fn start(state: &mut State, start: Start) {
    let Some(BucketName { rule, key }) = screens::target(state) else {
        return;
    };
    let place = KeyPlace {
        seen: state.rule_named(&rule).cloned().map(Box::new),
        bucket: screens::target_row(state).map(|row| Box::new(row.view.clone())),
        rule,
        key,
        now_ns: state.polled_ns(),
        scale: screens::target_row(state)
            .and_then(|row| Demand::of(state, row))
            .map(|demand| demand.factor),
    };
    state.mode = match start.begin(&place) {
        FirstStep::Confirm(change) => Mode::Confirm(Box::new(Pending::change(change))),
        FirstStep::Form(asked) => Mode::OfKey(Box::new(KeyForm::new(start, place, &asked))),
    };
}

/// Asks whether to ban the current rate-limit key in all rules, or to unban it if it is banned in
/// all of them.
fn ban_all(state: &mut State) {
    let Some(BucketName { rule, key }) = screens::target(state) else {
        return;
    };
    let ban = Ban {
        rule,
        key,
        to: BanTo::Banned(Some(USUAL)),
        replaces: false,
        if_match: None,
        reason: String::new(),
    };
    let all = BanAll::new(&ban, state.rules_read()).and_then(|all| {
        let is_banned = |ban: &Ban| {
            let id = BucketName::new(&ban.rule, &ban.key);
            let rows = state.data.iter().flat_map(|data| &data.rows);
            rows.filter(|row| row.id == id)
                .any(|row| row.view.imposed().is_some())
        };
        if !all.bans.iter().all(is_banned) {
            return Ok(all);
        }
        let unban = Ban {
            to: BanTo::Free(None),
            ..ban
        };
        BanAll::new(&unban, state.rules_read())
    });
    match all {
        Ok(all) => state.mode = Mode::Confirm(Box::new(Pending::change(Change::BanAll(all)))),
        Err(why) => state.hint(why),
    }
}

/// Moves the selection in the list of the current screen.
pub(crate) fn go(state: &mut State, command: Command) {
    let page = table_height(state.size).max(1);
    let view = screens::shown(state);
    let at = view.moved(state, page, command);
    view.select(state, at);
}
