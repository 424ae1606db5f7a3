//! The key table: every key with its command, the places where it works, and its texts in the
//! footer, the help and the palette.

use loudou_client::change::Start;
use loudou_client::live::is_lost;

use super::command::{ALWAYS, Binding, Command, Command as C, bind, c, ctrl, k};
use super::form::Stage;
use super::press::Code::{
    BackTab, Down, End, Enter, Esc, Home, Left, PageDown, PageUp, Right, Tab, Up,
};
use super::press::Press;
use super::screen::{
    A_BUCKET, A_RULE, BROWSE, CONFIRM, EVENT, EXPLAIN, EXPLAINED, FILTER, FORM, FORM_CONFIRM,
    FORM_CONFLICT, FORM_SENDING, HELP, KEY_FORM, PALETTE, Places, SORT, Screen,
};
use super::screens::SCREENS;
use super::state::{Mode, State};
use super::{explain, screens};

/// Returns all bindings in the order of the help and the palette: shared bindings, then the
/// bindings of each screen, then the rest.
pub(crate) fn all() -> impl Iterator<Item = &'static Binding> {
    let of_screens = SCREENS.iter().flat_map(|view| view.about().keys);
    let tabs = SCREENS.iter().map(|view| &view.about().tab);
    OPEN_AND_EDIT
        .iter()
        .chain(of_screens)
        .chain(ACT)
        .chain(tabs)
        .chain(REST)
}

/// Returns the place that receives key presses now: the current screen or the open dialog.
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

/// Returns the command that `press` runs in `place`.
pub(crate) fn find(place: Places, press: Press) -> Option<Command> {
    let mut works = all().filter(|b| b.places & place != 0);
    let found = works.find(|b| b.keys.contains(&press));
    found.map(|b| b.command)
}

/// Returns true if the help, the footer and the palette list a binding. The binding of the answer
/// "yes, at all" is listed only if the question offers this answer.
pub(crate) fn is_listed(state: &State, binding: &Binding) -> bool {
    match binding.command {
        Command::YesAll => state.targets.len() > 1 && of_one(state).is_none(),
        _ => true,
    }
}

/// Returns the binding of a key that works on some screen.
pub(crate) fn elsewhere(press: Press) -> Option<&'static Binding> {
    let mut works = all().filter(|b| b.places & BROWSE != 0);
    works.find(|b| b.keys.contains(&press))
}

/// Returns why the open question concerns only one Envoy, or `None` if the answer can be sent to
/// all.
fn of_one(state: &State) -> Option<&'static str> {
    match &state.mode {
        Mode::Confirm(pending) => pending.of_one(),
        _ => None,
    }
}

/// Returns why a command cannot run now, or `None` if it can.
pub(crate) fn obstacle(state: &State, command: Command) -> Option<String> {
    let no_bucket = || {
        screens::target(state)
            .is_none()
            .then(|| "no bucket is selected".to_owned())
    };
    let locked = state.locked().map(ToOwned::to_owned);
    // These commands are disabled while keys are hidden, because their questions or the copied text
    // contain keys.
    let names_keys = matches!(
        command,
        Command::Start(_)
            | Command::BanAll
            | Command::Edit
            | Command::Mode
            | Command::Drop
            | Command::Undo
            | Command::Again
            | Command::Explain
            | Command::Copy
            | Command::CopyRow
    );
    if state.hides_keys && names_keys {
        return Some("keys are hidden; H shows them".to_owned());
    }
    match command {
        // Ignores the bucket that was opened last, because the user is now looking at other rows.
        Command::Open if state.selected_row().is_none() => Some("no bucket is selected".to_owned()),
        Command::Open => screens::view(Screen::Bucket).closed(state),
        Command::Show(screen) => screens::view(screen).closed(state),
        Command::Start(start) => locked
            .or_else(no_bucket)
            .or_else(|| start.needs_name().then(|| lost_name(state)).flatten())
            .or_else(|| start.needs_rule().then(|| unread_rule(state)).flatten())
            .or_else(|| (start == Start::Override).then(|| prefix(state)).flatten()),
        Command::BanAll => locked.or_else(no_bucket).or_else(|| lost_name(state)),
        Command::NextTarget | Command::YesAll => {
            let is_alone = state.targets.len() < 2;
            let of_one = of_one(state).filter(|_| command == Command::YesAll);
            let alone = is_alone.then_some("one Envoy is watched; repeat --url to watch more");
            alone.or(of_one).map(ToOwned::to_owned)
        }
        Command::Edit | Command::Mode => locked.or_else(|| unread_rule(state)),
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
        // Changes may be missing at another Envoy, so the command can run even if none are missing
        // here.
        Command::Again if state.targets.len() > 1 => locked.filter(|_| state.settings.read_only),
        Command::Again => locked.or_else(|| {
            let lost = state.ledger.lost();
            let none = lost.is_none_or(|lost| lost.items().len() == 0);
            none.then(|| "nothing to reapply".to_owned())
        }),
        _ => screens::shown(state).obstacle(state, command),
    }
}

/// Returns why the current rule cannot be edited, if it cannot.
fn unread_rule(state: &State) -> Option<String> {
    match screens::target_rule(state) {
        // On the Buckets screen, the command opens the Rules screen, where the user selects a rule.
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

/// Returns why the edit of the current rule cannot be dropped, if the rule has no edit.
fn unedited_rule(state: &State) -> Option<String> {
    let rule = screens::target_rule(state)?;
    let is_edited = state.rule_named(&rule)?.edit.is_some();
    (!is_edited).then(|| "the rule is not edited".to_owned())
}

/// Returns the reason why the current key cannot be overridden, or `None` if it can. An override of
/// a key that ends in `*` would apply to all keys with that prefix, and a client may be able to
/// choose such a key.
fn prefix(state: &State) -> Option<String> {
    let id = screens::target(state)?;
    let start = id.key.strip_suffix('*')?;
    Some(format!(
        "an override of {} would be one of all keys that begin with {start:?}; b bans this key alone",
        id.key
    ))
}

/// Returns why the current rate-limit key cannot be changed, if its name is unknown.
fn lost_name(state: &State) -> Option<String> {
    let lost = screens::target(state).is_some_and(|id| is_lost(&id.key));
    lost.then(|| "the name of this key was lost; it returns with its next bucket".to_owned())
}

// The key table, with one line for each binding.

const BUCKETS: Places = Screen::HOME.place();
/// All screens except the home screen.
const AWAY: Places = BROWSE & !BUCKETS;
/// Screens with charts.
const CHARTS: Places = Screen::Bucket.place() | Screen::Rules.place();
/// Screens from which names can be copied.
const COPIED: Places = A_RULE | Screen::Keys.place() | Screen::Targets.place();
const LISTS: Places = BROWSE | SORT | HELP | EXPLAINED;
/// Questions whose text may be longer than the screen.
const QUESTIONS: Places = CONFIRM | FORM_CONFIRM | FORM_SENDING | FORM_CONFLICT;
const ALL: Places = Places::MAX;

/// The first shared bindings. If two bindings have the same key, the first binding that applies to
/// a place takes precedence.
#[rustfmt::skip]
const OPEN_AND_EDIT: &[Binding] = &[
    bind((C::Open, &[k(Enter)], BUCKETS, 1, "open", "open the bucket: its funnel and numbers")),
    bind((C::Back, &[k(Esc)], AWAY, 1, "back", "back to all buckets")),
    bind((C::Edit, &[c('e')], A_RULE, 4, "edit", "edit the limits of the rule")),
];

/// The remaining shared bindings. The bindings that open the screens follow them.
#[rustfmt::skip]
const ACT: &[Binding] = &[
    bind((C::Freeze, &[c(' ')], BROWSE, 9, "freeze", "freeze or resume the screen")),
    bind((C::Start(Start::Reset), &[c('R')], A_BUCKET, 10, "reset", "restore the initial state of the bucket")),
    bind((C::Start(Start::Ban), &[c('b')], A_BUCKET, 2, "ban", "ban or unban the key")),
    bind((C::BanAll, &[c('B')], A_BUCKET, 0, "ban-all", "ban or unban the key in all rules")),
    bind((C::Start(Start::Override), &[c('o')], A_BUCKET, 2, "override", "override the limits of the key")),
    bind((C::Mode, &[c('M')], A_RULE, 5, "mode", "enforce the rule, or run it in shadow mode")),
    bind((C::Drop, &[c('D')], A_RULE, 13, "drop", "unset: drop the edit of the rule")),
    bind((C::Explain, &[c('x')], BROWSE, 6, "explain", "explain how a request of this key, or any, would be decided")),
    bind((C::Undo, &[c('u')], BROWSE, 7, "undo", "undo your last change")),
    bind((C::Again, &[c('a')], BROWSE, 0, "again", "apply what it lost in a restart or others have")),
    bind((C::Poll, &[c('r')], BROWSE, 10, "refresh", "poll now")),
    bind((C::Longer, &[c('+'), c('=')], CHARTS, 9, "longer", "charts over a longer time: 1m, 5m, 15m, 1h")),
    bind((C::Shorter, &[c('-')], CHARTS, 9, "shorter", "charts over a shorter time")),
    bind((C::NextTarget, &[c('t')], BROWSE, 0, "target", "show the next of the Envoys that are watched")),
    bind((C::Hide, &[c('H')], BROWSE, 0, "hide", "hide the keys of users, for a screen that others see")),
    bind((C::Copy, &[c('y')], COPIED, 0, "copy", "copy the key, rule or address to the clipboard (OSC 52)")),
    bind((C::CopyRow, &[c('Y')], COPIED, 0, "copy-row", "copy the selected row as a line of text")),
    bind((C::Back, &[k(Esc)], BUCKETS, 11, "all", "clear the filter")),
];

/// Bindings that switch between screens, and bindings in lists and dialogs.
#[rustfmt::skip]
const REST: &[Binding] = &[
    bind((C::NextScreen, &[k(Tab)], BROWSE, 0, "next", "go to the next screen")),
    bind((C::PreviousScreen, &[k(BackTab)], BROWSE, 0, "previous", "go to the previous screen")),
    bind((C::Palette, &[c(':')], BROWSE, 14, "palette", "find a command, a rule or an Envoy by name")),
    bind((C::Help, &[c('?')], BROWSE, ALWAYS, "help", "show the keys of this screen")),
    bind((C::Quit, &[c('q')], BROWSE, ALWAYS, "quit", "quit loudou")),
    // Bindings in lists: rows, the limits of a bucket, events, menus, help.
    bind((C::Down, &[k(Down), c('j')], LISTS, 0, "down", "move down (on Bucket: the next limit)")),
    bind((C::Up, &[k(Up), c('k')], LISTS, 0, "up", "move up")),
    bind((C::PageDown, &[k(PageDown)], LISTS, 0, "page-down", "move a page down")),
    bind((C::PageUp, &[k(PageUp)], LISTS, 0, "page-up", "move a page up")),
    bind((C::HalfDown, &[ctrl('d')], LISTS, 0, "half-down", "move half a page down")),
    bind((C::HalfUp, &[ctrl('u')], LISTS, 0, "half-up", "move half a page up")),
    bind((C::Top, &[c('g'), k(Home)], LISTS, 0, "top", "move to the first")),
    bind((C::Bottom, &[c('G'), k(End)], LISTS, 0, "bottom", "move to the last")),
    // Bindings in dialogs.
    bind((C::Down, &[k(Down), c('j')], QUESTIONS, 0, "down", "read on")),
    bind((C::Up, &[k(Up), c('k')], QUESTIONS, 0, "up", "read back")),
    bind((C::PageDown, &[k(PageDown), ctrl('d')], QUESTIONS, 0, "page-down", "read the next page")),
    bind((C::PageUp, &[k(PageUp), ctrl('u')], QUESTIONS, 0, "page-up", "read the previous page")),
    bind((C::Top, &[c('g'), k(Home)], QUESTIONS, 0, "top", "read from the beginning")),
    bind((C::Bottom, &[c('G'), k(End)], QUESTIONS, 0, "bottom", "read the end")),
    bind((C::Yes, &[k(Enter)], FILTER, 1, "apply", "apply the filter")),
    bind((C::No, &[k(Esc)], FILTER, 2, "cancel", "restore the previous filter")),
    bind((C::Yes, &[k(Enter)], SORT, 1, "sort", "sort by the chosen column")),
    bind((C::No, &[k(Esc), c('s'), c('q')], SORT, 2, "close", "close the menu")),
    bind((C::No, &[k(Esc), c('?'), c('q')], HELP, 1, "close", "close help")),
    bind((C::Yes, &[k(Enter)], PALETTE, 1, "run", "run the command")),
    bind((C::Down, &[k(Down), ctrl('n')], PALETTE, 0, "down", "move down")),
    bind((C::Up, &[k(Up), ctrl('p')], PALETTE, 0, "up", "move up")),
    bind((C::Complete, &[k(Tab)], PALETTE, 3, "complete", "complete the name of the line")),
    bind((C::No, &[k(Esc)], PALETTE, 2, "close", "close the palette")),
    bind((C::Yes, &[k(Enter), c('y')], CONFIRM, 1, "yes", "confirm")),
    bind((C::YesAll, &[c('a')], CONFIRM | FORM_CONFIRM, 3, "all", "the same at all Envoys that are watched")),
    bind((C::No, &[k(Esc), c('n'), c('q')], CONFIRM, 2, "no", "cancel")),
    bind((C::Send, &[k(Enter), ctrl('s')], FORM, 1, "send", "review the changes, then send")),
    bind((C::NextField, &[k(Tab), k(Down)], FORM, 2, "next", "go to the next field")),
    bind((C::PreviousField, &[k(BackTab), k(Up)], FORM, 3, "previous", "go to the previous field")),
    bind((C::Choose, &[k(Right), k(Left)], FORM, 4, "choose", "choose another value")),
    bind((C::No, &[k(Esc)], FORM, 5, "close", "close without sending")),
    bind((C::Yes, &[k(Enter), ctrl('s')], FORM_CONFIRM, 1, "send", "send the edit")),
    bind((C::No, &[k(Esc)], FORM_CONFIRM, 2, "back", "back to the form")),
    bind((C::Send, &[k(Enter), ctrl('s')], KEY_FORM, 1, "continue", "review the changes, then send")),
    bind((C::NextField, &[k(Tab), k(Down)], KEY_FORM, 2, "next", "go to the next field")),
    bind((C::PreviousField, &[k(BackTab), k(Up)], KEY_FORM, 3, "previous", "go to the previous field")),
    bind((C::Choose, &[k(Right), k(Left)], KEY_FORM, 4, "choose", "choose another value")),
    bind((C::No, &[k(Esc)], KEY_FORM, 5, "close", "close without sending")),
    bind((C::Copy, &[ctrl('y')], CONFIRM | FORM_CONFIRM | KEY_FORM | EXPLAIN | EXPLAINED, 6, "copy", "copy the command line that does the same")),
    bind((C::Send, &[k(Enter), ctrl('s')], EXPLAIN, 1, "explain", "ask how the request would be decided; nothing is taken")),
    bind((C::NextField, &[k(Tab), k(Down)], EXPLAIN, 2, "next", "go to the next field")),
    bind((C::PreviousField, &[k(BackTab), k(Up)], EXPLAIN, 3, "previous", "go to the previous field")),
    bind((C::No, &[k(Esc)], EXPLAIN, 5, "close", "close")),
    bind((C::No, &[k(Esc), c('q'), k(Enter)], EXPLAINED, 1, "back", "back to the request")),
    bind((C::No, &[k(Esc), c('q'), k(Enter)], EVENT, 1, "close", "close")),
    bind((C::No, &[k(Esc)], FORM_SENDING, 1, "close", "close; a message will show the result")),
    bind((C::Yes, &[k(Enter)], FORM_CONFLICT, 1, "merge", "keep your changes, take the rest from theirs")),
    bind((C::No, &[k(Esc)], FORM_CONFLICT, 2, "back", "back to the form")),
    // Bindings that work everywhere.
    bind((C::Suspend, &[ctrl('z')], ALL, 0, "suspend", "suspend loudou and return to the shell")),
    bind((C::Quit, &[ctrl('c')], ALL, 0, "quit", "quit loudou from anywhere")),
];

#[cfg(test)]
mod tests {
    use super::*;

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
            let esc = Press::plain(Esc);
            assert!(find(1 << bit, esc).is_some(), "place {bit}");
        }
    }
}
