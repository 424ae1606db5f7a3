//! The key table: every key, what it does, where, and what footer, help and palette say of it.

use super::form::Stage;
use super::press::Press;
use super::state::{Mode, Screen, State};
use crate::change::Start;
use crate::live::is_lost;

mod table;

pub(crate) use table::KEYS;

/// What a key can ask for.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) enum Command {
    Quit,
    Suspend,
    Help,
    Palette,
    Back,
    ShowBuckets,
    ShowBucket,
    ShowRules,
    ShowEvents,
    NextScreen,
    PreviousScreen,
    Down,
    Up,
    PageDown,
    PageUp,
    HalfDown,
    HalfUp,
    Top,
    Bottom,
    Open,
    Filter,
    SortMenu,
    SortLeft,
    SortRight,
    Invert,
    Freeze,
    Poll,
    Edit,
    Undo,
    /// Begin a change for a key.
    Start(Start),
    Again,
    NextField,
    PreviousField,
    Choose,
    Send,
    Yes,
    No,
}

/// Where a key works: a set of places.
pub(crate) type Places = u16;
pub(crate) const BUCKETS: Places = 1;
pub(crate) const BUCKET: Places = 1 << 1;
pub(crate) const RULES: Places = 1 << 2;
pub(crate) const EVENTS: Places = 1 << 3;
/// All screens, when nothing lies over them.
pub(crate) const BROWSE: Places = BUCKETS | BUCKET | RULES | EVENTS;
pub(crate) const FILTER: Places = 1 << 4;
pub(crate) const SORT: Places = 1 << 5;
pub(crate) const HELP: Places = 1 << 6;
pub(crate) const PALETTE: Places = 1 << 7;
pub(crate) const CONFIRM: Places = 1 << 8;
pub(crate) const FORM: Places = 1 << 9;
pub(crate) const FORM_CONFIRM: Places = 1 << 10;
pub(crate) const FORM_SENDING: Places = 1 << 11;
pub(crate) const FORM_CONFLICT: Places = 1 << 12;
pub(crate) const KEY_FORM: Places = 1 << 13;
/// The rank of keys that the footer always shows, at its end.
pub(crate) const ALWAYS: u8 = u8::MAX;
const LISTS: Places = BROWSE | SORT | HELP;

/// One line of the table.
#[derive(Debug)]
pub(crate) struct Binding {
    pub(crate) command: Command,
    pub(crate) keys: &'static [Press],
    pub(crate) places: Places,
    /// In the footer.
    pub(crate) short: &'static str,
    /// In help and palette.
    pub(crate) help: &'static str,
    /// Its turn in the footer, lowest first; 0 for not there.
    pub(crate) rank: u8,
}

/// The place that a screen is.
pub(crate) const fn on(screen: &Screen) -> Places {
    match screen {
        Screen::Buckets => BUCKETS,
        Screen::Bucket => BUCKET,
        Screen::Rules => RULES,
        Screen::Events => EVENTS,
    }
}

/// The place that keys go to.
pub(crate) fn place(state: &State) -> Places {
    match &state.mode {
        Mode::Browse => on(&state.screen),
        Mode::Filter(..) => FILTER,
        Mode::Sort(_) => SORT,
        Mode::Help(_) => HELP,
        Mode::Palette(..) => PALETTE,
        Mode::Confirm(_) => CONFIRM,
        Mode::OfKey(_) => KEY_FORM,
        Mode::Edit(form) => match form.stage {
            Stage::Editing => FORM,
            Stage::Confirm => FORM_CONFIRM,
            Stage::Sending => FORM_SENDING,
            Stage::Conflict(_) => FORM_CONFLICT,
        },
    }
}

/// What `press` does in `place`.
pub(crate) fn find(place: Places, press: Press) -> Option<Command> {
    let mut works = KEYS.iter().filter(|b| b.places & place != 0);
    works.find(|b| b.keys.contains(&press)).map(|b| b.command)
}

/// The line of a key that works on another screen.
pub(crate) fn elsewhere(press: Press) -> Option<&'static Binding> {
    let mut works = KEYS.iter().filter(|b| b.places & BROWSE != 0);
    works.find(|b| b.keys.contains(&press))
}

/// The screens of `places`, in words.
pub(crate) fn screens(places: Places) -> String {
    let names = [
        (BUCKETS, "Buckets"),
        (BUCKET, "Bucket"),
        (RULES, "Rules"),
        (EVENTS, "Events"),
    ];
    let names = names.iter().filter(|(place, _)| places & place != 0);
    names.map(|(_, name)| *name).collect::<Vec<_>>().join(", ")
}

/// Why a command does not apply now; `None` when it does.
pub(crate) fn obstacle(state: &State, command: Command) -> Option<String> {
    let no_bucket = || {
        state
            .target()
            .is_none()
            .then(|| "no bucket is selected".to_owned())
    };
    let locked = state.locked().map(ToOwned::to_owned);
    match command {
        Command::Open | Command::ShowBucket => {
            let gone = state.open.is_none() && state.selected_row().is_none();
            gone.then(|| "no bucket is selected".to_owned())
        }
        Command::Start(start) => locked
            .or_else(no_bucket)
            .or_else(|| start.needs_name().then(|| lost_name(state)).flatten())
            .or_else(|| start.needs_rule().then(|| unread_rule(state)).flatten()),
        Command::Edit => locked.or_else(|| unread_rule(state)),
        Command::Undo => locked.or_else(|| {
            let none = state.undos.is_empty();
            none.then(|| "nothing to undo: no edit was made here".to_owned())
        }),
        Command::Again => locked.or_else(|| {
            let lost = state
                .ledger
                .lost()
                .is_some_and(|lost| lost.items().len() > 0);
            (!lost).then(|| "nothing to apply again: no restart has taken anything".to_owned())
        }),
        Command::Filter | Command::SortMenu | Command::Invert => state
            .data
            .is_none()
            .then(|| "nothing is read yet".to_owned()),
        Command::Back => {
            let at_home = state.screen == Screen::Buckets && state.table.filter_text.is_empty();
            at_home.then(|| "nothing to go back from; q leaves".to_owned())
        }
        _ => None,
    }
}

/// Why the rule that keys act on cannot be edited.
fn unread_rule(state: &State) -> Option<String> {
    match state.target_rule() {
        None => Some("no rule is selected".to_owned()),
        Some(rule) if state.rule_named(&rule).is_none() => {
            Some(format!("the rule {rule} is not read yet"))
        }
        Some(_) => None,
    }
}

/// Only a key whose name is known can be told to the server.
fn lost_name(state: &State) -> Option<String> {
    let lost = state.target().is_some_and(|id| is_lost(&id.key));
    lost.then(|| "the name of this key was lost; it comes back with its next bucket".to_owned())
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::app::press::Code;

    #[test]
    fn no_key_means_two_things_in_one_place() {
        for bit in 0..14 {
            let place = 1 << bit;
            let mut seen: Vec<Press> = Vec::new();
            for binding in KEYS.iter().filter(|b| b.places & place != 0) {
                for key in binding.keys {
                    assert!(!seen.contains(key), "{key} twice in place {bit}");
                    seen.push(*key);
                }
            }
        }
    }

    #[test]
    fn every_place_has_a_way_back() {
        for bit in 0..14 {
            assert!(
                find(1 << bit, Press::plain(Code::Esc)).is_some(),
                "place {bit}"
            );
        }
    }
}
