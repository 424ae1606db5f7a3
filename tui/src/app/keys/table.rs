//! The key table itself: one line a key.

use crate::app::command::Command as C;
use crate::app::command::{ALWAYS, Binding, bind, c, ctrl, k};
use crate::app::press::Code::{
    BackTab, Down, End, Enter, Esc, Home, Left, PageDown, PageUp, Right, Tab, Up,
};
use crate::app::screen::{
    A_BUCKET, A_RULE, BROWSE, CONFIRM, FILTER, FORM, FORM_CONFIRM, FORM_CONFLICT, FORM_SENDING,
    HELP, KEY_FORM, PALETTE, Places, SORT, Screen,
};
use crate::change::Start;

const BUCKETS: Places = Screen::HOME.place();
/// All screens but the one that `Esc` leads to.
const AWAY: Places = BROWSE & !BUCKETS;
const LISTS: Places = BROWSE | SORT | HELP;
const ALL: Places = Places::MAX;

/// The first of the shared keys. If two lines have the same key, the first that works in a place wins.
#[rustfmt::skip]
pub(super) const OPEN_AND_EDIT: &[Binding] = &[
    bind((C::Open, &[k(Enter)], BUCKETS, 1, "open", "open the bucket: its funnel and numbers")),
    bind((C::Back, &[k(Esc)], AWAY, 1, "back", "back to all buckets")),
    bind((C::Edit, &[c('e'), c('4')], A_RULE, 2, "edit", "edit the limits of the rule")),
];

/// The remaining shared keys that act on something. The tabs of the screens follow them.
#[rustfmt::skip]
pub(super) const ACT: &[Binding] = &[
    bind((C::Freeze, &[c(' ')], BROWSE, 5, "freeze", "freeze the screen, and let it go on")),
    bind((C::Start(Start::Reset), &[c('x')], A_BUCKET, 6, "reset", "make the bucket as good as new")),
    bind((C::Start(Start::Ban), &[c('b')], A_BUCKET, 8, "ban", "ban the key, or let it free")),
    bind((C::Start(Start::Override), &[c('o')], A_BUCKET, 8, "override", "give the key other limits")),
    bind((C::Undo, &[c('u')], BROWSE, 7, "undo", "take the last own edit back")),
    bind((C::Again, &[c('a')], BROWSE, 0, "again", "apply again what a restart of Envoy took")),
    bind((C::Poll, &[c('r')], BROWSE, 10, "poll", "read everything now")),
    bind((C::Back, &[k(Esc)], BUCKETS, 11, "all", "drop the filter; never out")),
];

/// Keys for changing screens, in lists, and in dialogs over the screens.
#[rustfmt::skip]
pub(super) const REST: &[Binding] = &[
    bind((C::NextScreen, &[k(Tab)], BROWSE, 0, "next", "go to the next screen")),
    bind((C::PreviousScreen, &[k(BackTab)], BROWSE, 0, "previous", "go to the previous screen")),
    bind((C::Palette, &[c(':')], BROWSE, 14, "palette", "find a command by name")),
    bind((C::Help, &[c('?')], BROWSE, ALWAYS, "help", "the keys of this screen")),
    bind((C::Quit, &[c('q')], BROWSE, ALWAYS, "quit", "leave")),
    // In lists: rows, a bucket's limits, events, menus, help.
    bind((C::Down, &[k(Down), c('j')], LISTS, 0, "down", "one down (a limit, on a bucket)")),
    bind((C::Up, &[k(Up), c('k')], LISTS, 0, "up", "one up")),
    bind((C::PageDown, &[k(PageDown)], LISTS, 0, "page down", "a page down")),
    bind((C::PageUp, &[k(PageUp)], LISTS, 0, "page up", "a page up")),
    bind((C::HalfDown, &[ctrl('d')], LISTS, 0, "half down", "half a page down")),
    bind((C::HalfUp, &[ctrl('u')], LISTS, 0, "half up", "half a page up")),
    bind((C::Top, &[c('g'), k(Home)], LISTS, 0, "top", "to the first")),
    bind((C::Bottom, &[c('G'), k(End)], LISTS, 0, "bottom", "to the last")),
    // In what lies over the screens.
    bind((C::Yes, &[k(Enter)], FILTER, 1, "keep", "keep the filter")),
    bind((C::No, &[k(Esc)], FILTER, 2, "as before", "the filter as it was")),
    bind((C::Yes, &[k(Enter)], SORT, 1, "sort", "sort by the chosen column")),
    bind((C::No, &[k(Esc), c('s'), c('q')], SORT, 2, "close", "close the menu")),
    bind((C::No, &[k(Esc), c('?'), c('q')], HELP, 1, "close", "close help")),
    bind((C::Yes, &[k(Enter)], PALETTE, 1, "run", "run the command")),
    bind((C::Down, &[k(Down), ctrl('n')], PALETTE, 0, "down", "one down")),
    bind((C::Up, &[k(Up), ctrl('p')], PALETTE, 0, "up", "one up")),
    bind((C::No, &[k(Esc)], PALETTE, 2, "close", "close the palette")),
    bind((C::Yes, &[k(Enter), c('y')], CONFIRM, 1, "yes", "do it")),
    bind((C::No, &[k(Esc), c('n'), c('q')], CONFIRM, 2, "no", "leave it")),
    bind((C::Send, &[k(Enter), ctrl('s')], FORM, 1, "send", "show what changes, then send")),
    bind((C::NextField, &[k(Tab), k(Down)], FORM, 2, "next", "the next field")),
    bind((C::PreviousField, &[k(BackTab), k(Up)], FORM, 3, "previous", "the previous field")),
    bind((C::Choose, &[k(Right), k(Left)], FORM, 4, "choose", "another choice")),
    bind((C::No, &[k(Esc)], FORM, 5, "close", "close without sending")),
    bind((C::Yes, &[k(Enter), ctrl('s')], FORM_CONFIRM, 1, "sends", "send the edit")),
    bind((C::No, &[k(Esc)], FORM_CONFIRM, 2, "back", "back to the form")),
    bind((C::Send, &[k(Enter), ctrl('s')], KEY_FORM, 1, "go on", "show what changes, then send")),
    bind((C::NextField, &[k(Tab), k(Down)], KEY_FORM, 2, "next", "the next field")),
    bind((C::PreviousField, &[k(BackTab), k(Up)], KEY_FORM, 3, "previous", "the previous field")),
    bind((C::Choose, &[k(Right), k(Left)], KEY_FORM, 4, "choose", "another choice")),
    bind((C::No, &[k(Esc)], KEY_FORM, 5, "close", "close without sending")),
    bind((C::No, &[k(Esc)], FORM_SENDING, 1, "close", "close; the answer comes as a message")),
    bind((C::Yes, &[k(Enter)], FORM_CONFLICT, 1, "go on from theirs", "keep what you typed")),
    bind((C::No, &[k(Esc)], FORM_CONFLICT, 2, "back", "back to the form")),
    // Everywhere.
    bind((C::Suspend, &[ctrl('z')], ALL, 0, "suspend", "back to the shell for a while")),
    bind((C::Quit, &[ctrl('c')], ALL, 0, "quit", "leave, whatever is open")),
];
