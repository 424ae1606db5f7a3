//! The key table: one line per binding.

use crate::app::command::Command as C;
use crate::app::command::{ALWAYS, Binding, bind, c, ctrl, k};
use crate::app::press::Code::{
    BackTab, Down, End, Enter, Esc, Home, Left, PageDown, PageUp, Right, Tab, Up,
};
use crate::app::screen::{
    A_BUCKET, A_RULE, BROWSE, CONFIRM, EVENT, EXPLAIN, EXPLAINED, FILTER, FORM, FORM_CONFIRM,
    FORM_CONFLICT, FORM_SENDING, HELP, KEY_FORM, PALETTE, Places, SORT, Screen,
};
use loudou_client::change::Start;

const BUCKETS: Places = Screen::HOME.place();
/// All screens except the home screen.
const AWAY: Places = BROWSE & !BUCKETS;
/// Screens with charts.
const CHARTS: Places = Screen::Bucket.place() | Screen::Rules.place();
/// Screens with something to copy.
const COPIED: Places = A_RULE | Screen::Keys.place() | Screen::Targets.place();
const LISTS: Places = BROWSE | SORT | HELP | EXPLAINED;
/// Questions whose text may be longer than the screen.
const QUESTIONS: Places = CONFIRM | FORM_CONFIRM | FORM_SENDING | FORM_CONFLICT;
const ALL: Places = Places::MAX;

/// The first of the shared keys. If two lines have the same key, the first one that works in a place wins.
#[rustfmt::skip]
pub(super) const OPEN_AND_EDIT: &[Binding] = &[
    bind((C::Open, &[k(Enter)], BUCKETS, 1, "open", "open the bucket: its funnel and numbers")),
    bind((C::Back, &[k(Esc)], AWAY, 1, "back", "back to all buckets")),
    bind((C::Edit, &[c('e')], A_RULE, 2, "edit", "edit the limits of the rule")),
];

/// The remaining shared commands. The tabs of the screens follow them.
#[rustfmt::skip]
pub(super) const ACT: &[Binding] = &[
    bind((C::Freeze, &[c(' ')], BROWSE, 5, "freeze", "freeze or resume the screen")),
    bind((C::Start(Start::Reset), &[c('R')], A_BUCKET, 9, "reset", "restore the initial state of the bucket")),
    bind((C::Start(Start::Ban), &[c('b')], A_BUCKET, 8, "ban", "ban or unban the key")),
    bind((C::Start(Start::Override), &[c('o')], A_BUCKET, 8, "override", "override the limits of the key")),
    bind((C::Drop, &[c('D')], A_RULE, 13, "drop", "unset: drop the edit of the rule")),
    bind((C::Explain, &[c('x')], BROWSE, 6, "explain", "explain how a request of this key, or any, would be decided")),
    bind((C::Undo, &[c('u')], BROWSE, 7, "undo", "undo your last change")),
    bind((C::Again, &[c('a')], BROWSE, 0, "again", "apply what it lost in a restart or others have")),
    bind((C::Poll, &[c('r')], BROWSE, 10, "refresh", "poll now")),
    bind((C::Longer, &[c('+'), c('=')], CHARTS, 9, "longer", "charts over a longer time: 1m, 5m, 15m, 1h")),
    bind((C::Shorter, &[c('-')], CHARTS, 9, "shorter", "charts over a shorter time")),
    bind((C::NextTarget, &[c('t')], BROWSE, 0, "target", "show the next of the Envoys that are watched")),
    bind((C::Copy, &[c('y')], COPIED, 0, "copy", "copy the key, rule or address to the clipboard (OSC 52)")),
    bind((C::CopyRow, &[c('Y')], COPIED, 0, "copy-row", "copy the selected row as a line of text")),
    bind((C::Back, &[k(Esc)], BUCKETS, 11, "all", "clear the filter")),
];

/// Keys for changing screens, in lists, and in dialogs over the screens.
#[rustfmt::skip]
pub(super) const REST: &[Binding] = &[
    bind((C::NextScreen, &[k(Tab)], BROWSE, 0, "next", "go to the next screen")),
    bind((C::PreviousScreen, &[k(BackTab)], BROWSE, 0, "previous", "go to the previous screen")),
    bind((C::Palette, &[c(':')], BROWSE, 14, "palette", "find a command, a rule or an Envoy by name")),
    bind((C::Help, &[c('?')], BROWSE, ALWAYS, "help", "show the keys of this screen")),
    bind((C::Quit, &[c('q')], BROWSE, ALWAYS, "quit", "quit loudou")),
    // In lists: rows, a bucket's limits, events, menus, help.
    bind((C::Down, &[k(Down), c('j')], LISTS, 0, "down", "move down (on Bucket: the next limit)")),
    bind((C::Up, &[k(Up), c('k')], LISTS, 0, "up", "move up")),
    bind((C::PageDown, &[k(PageDown)], LISTS, 0, "page-down", "move a page down")),
    bind((C::PageUp, &[k(PageUp)], LISTS, 0, "page-up", "move a page up")),
    bind((C::HalfDown, &[ctrl('d')], LISTS, 0, "half-down", "move half a page down")),
    bind((C::HalfUp, &[ctrl('u')], LISTS, 0, "half-up", "move half a page up")),
    bind((C::Top, &[c('g'), k(Home)], LISTS, 0, "top", "move to the first")),
    bind((C::Bottom, &[c('G'), k(End)], LISTS, 0, "bottom", "move to the last")),
    // In dialogs over the screens.
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
    // Everywhere.
    bind((C::Suspend, &[ctrl('z')], ALL, 0, "suspend", "suspend loudou and return to the shell")),
    bind((C::Quit, &[ctrl('c')], ALL, 0, "quit", "quit loudou from anywhere")),
];
