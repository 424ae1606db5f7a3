//! Commands on the screens themselves: moving, sorting, going places, and opening what lies over them.

use super::again;
use super::columns::{Column, Sort};
use super::effects::Effect;
use super::form::Form;
use super::ingest;
use super::keys::{self, Command};
use super::layout::{self, Hit, table_height};
use super::line::Line;
use super::of_key::KeyForm;
use super::press::{Mouse, MouseAction};
use super::question::Pending;
use super::rows::BucketId;
use super::state::{Exit, Frozen, Mode, Screen, State};
use crate::change::ban_undo::Seen;
use crate::change::form::KeyPlace;
use crate::change::{Begun, Start};

/// How many rows a turn of the wheel is.
const WHEEL: usize = 3;

/// Runs a command of the screens, or says why it does not apply.
pub(crate) fn run(state: &mut State, command: Command, effects: &mut Vec<Effect>) {
    match keys::obstacle(state, command) {
        Some(why) => state.toast(true, why),
        None => apply(state, command, effects),
    }
}

fn apply(state: &mut State, command: Command, effects: &mut Vec<Effect>) {
    match command {
        Command::Quit => state.exit = Some(Exit::Quit),
        Command::Suspend => effects.push(Effect::Suspend),
        Command::Help => state.mode = Mode::Help(0),
        Command::Palette => state.mode = Mode::Palette(Line::default(), 0),
        Command::Back => back(state),
        Command::ShowBuckets => state.screen = Screen::Buckets,
        Command::ShowRules => state.screen = Screen::Rules,
        Command::ShowEvents => state.screen = Screen::Events,
        Command::ShowBucket | Command::Open => open(state),
        Command::NextScreen => turn(state, 1),
        Command::PreviousScreen => turn(state, -1),
        Command::Filter => {
            let text = state.table.filter_text.clone();
            state.mode = Mode::Filter(Line::new(&text), text);
        }
        Command::SortMenu => {
            let at = |column: &Column| *column == state.table.sort.column;
            state.mode = Mode::Sort(Column::SORTABLE.iter().position(at).unwrap_or(0));
        }
        Command::SortLeft => sort(state, state.table.sort.step(-1)),
        Command::SortRight => sort(state, state.table.sort.step(1)),
        Command::Invert => {
            let Sort { column, descending } = state.table.sort;
            let inverted = Sort {
                column,
                descending: !descending,
            };
            sort(state, inverted);
        }
        Command::Freeze => freeze(state),
        Command::Poll => {
            state.link.hurry(state.now);
            state.toast(false, "reading");
        }
        Command::Edit => edit(state, effects),
        Command::Undo => ask_undo(state),
        Command::Start(what) => start(state, what),
        Command::Again => again::ask(state),
        _ => go(state, command),
    }
}

/// Sorts by another column or the other way.
pub(crate) fn sort(state: &mut State, sort: Sort) {
    state.table.sort = sort;
    ingest::arrange(state);
}

fn back(state: &mut State) {
    if state.screen == Screen::Buckets {
        state.table.filter_text.clear();
        state.table.filter = super::filter::Filter::default();
        state.table.filter_error = None;
        ingest::arrange(state);
    }
    state.screen = Screen::Buckets;
}

/// Opens the selected bucket, or goes back to the one that was open.
fn open(state: &mut State) {
    if let Some(row) = state.selected_row() {
        let id = row.id.clone();
        if state.open.as_ref() != Some(&id) && state.screen == Screen::Buckets {
            state.limit = None;
            state.open = Some(id.clone());
        }
        state.open.get_or_insert_with(|| id.clone());
        state.table.pinned.get_or_insert(id);
    }
    state.screen = Screen::Bucket;
}

fn turn(state: &mut State, step: isize) {
    let screens = [Screen::Buckets, Screen::Rules, Screen::Events];
    let at = screens
        .iter()
        .position(|screen| *screen == state.screen)
        .unwrap_or(0);
    let next = match at.checked_add_signed(step) {
        Some(next) if next < screens.len() => next,
        Some(_) => 0,
        None => screens.len().saturating_sub(1),
    };
    if let Some(screen) = screens.get(next) {
        state.screen = screen.clone();
    }
}

fn freeze(state: &mut State) {
    if state.frozen.is_some() {
        ingest::thaw(state);
    } else {
        state.frozen = Some(Frozen {
            since: state.now,
            waiting: None,
        });
    }
}

fn edit(state: &mut State, effects: &mut Vec<Effect>) {
    let Some(rule) = state.target_rule() else {
        return;
    };
    let Some(view) = state.rule_named(&rule).cloned() else {
        return;
    };
    // The row that is edited from must not change under the hands.
    if let Some(row) = state.selected_row() {
        let id = row.id.clone();
        state.table.pinned.get_or_insert(id);
    }
    state.mode = Mode::Edit(Box::new(Form::new(view)));
    effects.push(Effect::ReadRule(rule));
}

/// Asks whether to take the last own change back. Those that are over drop off.
fn ask_undo(state: &mut State) {
    while let Some(undo) = state.undos.last() {
        let seen = match (undo.of(), undo.made_at_ns()) {
            ((rule, Some(key)), Some(after_ns)) => {
                state.seen_after(&BucketId::new(rule, key), after_ns)
            }
            _ => Seen::Unknown,
        };
        if let Some((question, change)) = undo.ask(state.polled_ns(), seen) {
            state.mode = Mode::Confirm(Box::new(Pending::undo(question, change)));
            return;
        }
        let text = format!("nothing is left to undo of: {}", undo.change());
        state.toast(false, text);
        state.undos.pop();
    }
}

/// Begins a change for the key that keys act on: with a form, or with its question.
fn start(state: &mut State, start: Start) {
    let Some(BucketId { rule, key }) = state.target() else {
        return;
    };
    let place = KeyPlace {
        seen: state.rule_named(&rule).cloned().map(Box::new),
        bucket: state.target_row().map(|row| Box::new(row.view.clone())),
        rule,
        key,
    };
    state.mode = match start.begin(&place) {
        Begun::Ask(change) => Mode::Confirm(Box::new(Pending::change(change))),
        Begun::Form(asked) => Mode::OfKey(Box::new(KeyForm::new(start, place, &asked))),
    };
}

/// Moves in the list of the screen.
fn go(state: &mut State, command: Command) {
    let page = table_height(state.size).max(1);
    match state.screen {
        Screen::Buckets => {
            let at = moved(state.table.at, state.table.visible.len(), page, command);
            select(state, at);
        }
        Screen::Bucket => {
            let reported = state
                .open_row()
                .map(|row| (row.view.reported, row.view.limits.len()));
            let (reported, limits) = reported.unwrap_or((0, 0));
            state.limit = Some(moved(
                state.limit.unwrap_or(reported),
                limits,
                page,
                command,
            ));
        }
        Screen::Rules => {
            let rules = state.data.as_ref().map_or(0, |data| data.rules.rules.len());
            state.rule = moved(state.rule, rules, page, command);
        }
        Screen::Events => {
            let events = state.data.as_ref().map_or(0, |data| data.events.len());
            state.event = moved(state.event, events, page, command);
        }
    }
}

/// Selects the visible row `at`, and from then on its bucket wherever it goes.
fn select(state: &mut State, at: usize) {
    state.table.at = at;
    if let Some(row) = state.selected_row() {
        state.table.pinned = Some(row.id.clone());
    }
    ingest::scroll(state);
}

/// Where a motion leads in a list of `len`.
pub(crate) fn moved(at: usize, len: usize, page: usize, command: Command) -> usize {
    let last = len.saturating_sub(1);
    let half = (page / 2).max(1);
    let to = match command {
        Command::Down => at.saturating_add(1),
        Command::Up => at.saturating_sub(1),
        Command::PageDown => at.saturating_add(page),
        Command::PageUp => at.saturating_sub(page),
        Command::HalfDown => at.saturating_add(half),
        Command::HalfUp => at.saturating_sub(half),
        Command::Top => 0,
        Command::Bottom => last,
        _ => at,
    };
    to.min(last)
}

/// The mouse: the wheel moves, a click selects, a click on the selection opens it, a click on a header
/// sorts.
pub(crate) fn moused(state: &mut State, mouse: Mouse) {
    if !matches!(state.mode, Mode::Browse) {
        return;
    }
    let wheel = match mouse.action {
        MouseAction::WheelUp => Some(Command::Up),
        MouseAction::WheelDown => Some(Command::Down),
        MouseAction::Click => None,
    };
    if let Some(command) = wheel {
        for _ in 0..WHEEL {
            go(state, command);
        }
        return;
    }
    if state.screen != Screen::Buckets {
        return;
    }
    match layout::hit(state, mouse.x, mouse.y) {
        Some(Hit::Row(at)) if at == state.table.at && state.table.pinned.is_some() => open(state),
        Some(Hit::Row(at)) => select(state, at),
        Some(Hit::Header(placed)) if placed.column != Column::History => {
            let Sort { column, descending } = state.table.sort;
            let again = column == placed.column;
            let by = Sort::by(placed.column);
            let descending = if again { !descending } else { by.descending };
            sort(state, Sort { descending, ..by });
        }
        _ => {}
    }
}
