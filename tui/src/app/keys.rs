//! The key table: every key with its command, its places, and its texts in footer, help and palette.

use super::command::{Binding, Command};
use super::explain;
use super::form::Stage;
use super::press::Press;
use super::screen::{
    BROWSE, CONFIRM, EVENT, EXPLAIN, EXPLAINED, FILTER, FORM, FORM_CONFIRM, FORM_CONFLICT,
    FORM_SENDING, HELP, KEY_FORM, PALETTE, Places, SORT, Screen,
};
use super::screens::{self, SCREENS};
use super::state::{Mode, State};
use loudou_client::change::Start;
use loudou_client::live::is_lost;

mod table;

/// All keys, in the order of help and palette: shared keys, then those of each screen, then the rest.
pub(crate) fn all() -> impl Iterator<Item = &'static Binding> {
    let of_screens = SCREENS.iter().flat_map(|view| view.about().keys);
    let tabs = SCREENS.iter().map(|view| &view.about().tab);
    table::OPEN_AND_EDIT
        .iter()
        .chain(of_screens)
        .chain(table::ACT)
        .chain(tabs)
        .chain(table::REST)
}

/// The place that keys go to.
pub(crate) fn place(state: &State) -> Places {
    match &state.mode {
        Mode::Browse => state.screen.place(),
        Mode::Filter(..) => FILTER,
        Mode::Sort(_) => SORT,
        Mode::Help(_) => HELP,
        Mode::Palette(..) => PALETTE,
        Mode::Confirm(_) => CONFIRM,
        Mode::OfKey(_) => KEY_FORM,
        Mode::Event(_) => EVENT,
        Mode::Explain(explain) => match explain.stage {
            explain::Stage::Editing => EXPLAIN,
            explain::Stage::Asking | explain::Stage::Answered(..) => EXPLAINED,
        },
        Mode::Edit(form) => match form.stage {
            Stage::Editing => FORM,
            Stage::Confirm => FORM_CONFIRM,
            Stage::Sending => FORM_SENDING,
            Stage::Conflict(_) => FORM_CONFLICT,
        },
    }
}

/// The command of `press` in `place`.
pub(crate) fn find(place: Places, press: Press) -> Option<Command> {
    let mut works = all().filter(|b| b.places & place != 0);
    let found = works.find(|b| b.keys.contains(&press));
    found.map(|b| b.command)
}

/// Whether a line is listed: the answer for all only where it can be.
pub(crate) fn is_listed(state: &State, binding: &Binding) -> bool {
    match binding.command {
        Command::YesAll => state.targets.len() > 1 && of_one(state).is_none(),
        _ => true,
    }
}

/// The line of a key that works on another screen.
pub(crate) fn elsewhere(press: Press) -> Option<&'static Binding> {
    let mut works = all().filter(|b| b.places & BROWSE != 0);
    works.find(|b| b.keys.contains(&press))
}

/// Why the question on the screen is about one Envoy alone, if it is.
fn of_one(state: &State) -> Option<&'static str> {
    match &state.mode {
        Mode::Confirm(pending) => pending.of_one(),
        _ => None,
    }
}

/// The reason why a command does not apply now; `None` if it applies.
pub(crate) fn obstacle(state: &State, command: Command) -> Option<String> {
    let no_bucket = || {
        screens::target(state)
            .is_none()
            .then(|| "no bucket is selected".to_owned())
    };
    let locked = state.locked().map(ToOwned::to_owned);
    match command {
        // Not the bucket that was open last: the user looks at other rows.
        Command::Open if state.selected_row().is_none() => Some("no bucket is selected".to_owned()),
        Command::Open => screens::view(Screen::Bucket).closed(state),
        Command::Show(screen) => screens::view(screen).closed(state),
        Command::Start(start) => locked
            .or_else(no_bucket)
            .or_else(|| start.needs_name().then(|| lost_name(state)).flatten())
            .or_else(|| start.needs_rule().then(|| unread_rule(state)).flatten())
            .or_else(|| (start == Start::Override).then(|| prefix(state)).flatten()),
        Command::NextTarget | Command::YesAll => {
            let is_alone = state.targets.len() < 2;
            let of_one = of_one(state).filter(|_| command == Command::YesAll);
            let alone = is_alone.then_some("one Envoy is watched; repeat --url to watch more");
            alone.or(of_one).map(ToOwned::to_owned)
        }
        Command::Edit => locked.or_else(|| unread_rule(state)),
        Command::Drop => locked
            .or_else(|| unread_rule(state))
            .or_else(|| unedited_rule(state)),
        Command::Undo => locked.or_else(|| {
            let none = state.undos.is_empty();
            none.then(|| "nothing to undo".to_owned())
        }),
        Command::Explain => {
            let none = state.data.is_none();
            none.then(|| "no data yet".to_owned())
        }
        // Others may have something to offer, or lack it.
        Command::Again if state.targets.len() > 1 => locked.filter(|_| state.settings.read_only),
        Command::Again => locked.or_else(|| {
            let lost = state.ledger.lost();
            let none = lost.is_none_or(|lost| lost.items().len() == 0);
            none.then(|| "nothing to reapply".to_owned())
        }),
        _ => screens::shown(state).obstacle(state, command),
    }
}

/// The reason why the current rule cannot be edited, if any.
fn unread_rule(state: &State) -> Option<String> {
    match screens::target_rule(state) {
        // Then Rules opens, to select one.
        None if state.screen == Screen::Buckets => {
            let rules = state.data.as_ref().map_or(0, |data| data.rules.rules.len());
            (rules == 0).then(|| "no rule is loaded yet".to_owned())
        }
        None => Some("no rule is selected".to_owned()),
        Some(rule) if state.rule_named(&rule).is_none() => {
            Some(format!("rule {rule} is not loaded yet"))
        }
        Some(_) => None,
    }
}

/// The reason why the current rule has no edit to drop, if any.
fn unedited_rule(state: &State) -> Option<String> {
    let rule = screens::target_rule(state)?;
    let is_edited = state.rule_named(&rule)?.edit.is_some();
    (!is_edited).then(|| "the rule is not edited".to_owned())
}

/// The reason why the current key cannot get an override: that would be one for all keys that begin alike. Clients may
/// choose such a key.
fn prefix(state: &State) -> Option<String> {
    let id = screens::target(state)?;
    let start = id.key.strip_suffix('*')?;
    Some(format!(
        "an override of {} would be one of all keys that begin with {start:?}; b bans this key alone",
        id.key
    ))
}

/// The reason why the current rate-limit key cannot be changed, if its name is unknown.
fn lost_name(state: &State) -> Option<String> {
    let lost = screens::target(state).is_some_and(|id| is_lost(&id.key));
    lost.then(|| "the name of this key was lost; it returns with its next bucket".to_owned())
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::app::press::Code;

    #[test]
    fn no_key_means_two_things_in_one_place() {
        let mut before: Vec<(Press, &Binding)> = Vec::new();
        for binding in all() {
            for press in binding.keys {
                let same = |(other, at): &(Press, &Binding)| {
                    other == press && at.places & binding.places != 0
                };
                let clash = before.iter().find(|other| same(other));
                assert!(clash.is_none(), "{binding:?} and {clash:?}");
                before.push((*press, binding));
            }
        }
    }

    #[test]
    fn every_place_has_a_way_back() {
        for bit in 0..Places::BITS {
            let esc = Press::plain(Code::Esc);
            assert!(find(1 << bit, esc).is_some(), "place {bit}");
        }
    }
}
