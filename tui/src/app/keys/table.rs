//! The key table itself: one line a key.

use super::Command as C;
use super::{
    ALWAYS, BROWSE, BUCKET, BUCKETS, Binding, CONFIRM, EVENTS, FILTER, FORM, FORM_CONFIRM,
    FORM_CONFLICT, FORM_SENDING, HELP, KEY_FORM, LISTS, PALETTE, Places, RULES, SORT,
};
use crate::app::press::Code::{
    BackTab, Down, End, Enter, Esc, Home, Left, PageDown, PageUp, Right, Tab, Up,
};
use crate::app::press::{Code, Press};
use crate::change::Start;

const DETAIL: Places = BUCKETS | BUCKET | RULES;
const ALL: Places = Places::MAX;

const fn k(code: Code) -> Press {
    Press::plain(code)
}

const fn c(c: char) -> Press {
    Press::char(c)
}

const fn ctrl(c: char) -> Press {
    Press::ctrl(c)
}

type Row = (C, &'static [Press], Places, u8, &'static str, &'static str);

const fn bind(row: Row) -> Binding {
    let (command, keys, places, rank, short, help) = row;
    Binding {
        command,
        keys,
        places,
        short,
        help,
        rank,
    }
}

/// The table. Where two lines have the same key, the first that works in a place wins.
#[rustfmt::skip]
pub(crate) const KEYS: &[Binding] = &[
    // On the screens.
    bind((C::Open, &[k(Enter)], BUCKETS, 1, "open", "open the bucket: its funnel and numbers")),
    bind((C::Back, &[k(Esc)], BUCKET | RULES | EVENTS, 1, "back", "back to all buckets")),
    bind((C::Edit, &[c('e'), c('4')], DETAIL, 2, "edit", "edit the limits of the rule")),
    bind((C::Filter, &[c('/')], BUCKETS, 3, "filter", "show only some: text, !text, refused > 5")),
    bind((C::SortMenu, &[c('s')], BUCKETS, 4, "sort", "choose the column to sort by")),
    bind((C::SortLeft, &[c('<')], BUCKETS, 0, "sort left", "sort by the column to the left")),
    bind((C::SortRight, &[c('>')], BUCKETS, 0, "sort right", "sort by the column to the right")),
    bind((C::Invert, &[c('i')], BUCKETS, 9, "invert", "turn the order round")),
    bind((C::Freeze, &[c(' ')], BROWSE, 5, "freeze", "freeze the screen, and let it go on")),
    bind((C::Start(Start::Reset), &[c('x')], BUCKETS | BUCKET, 6, "reset", "make the bucket as good as new")),
    bind((C::Start(Start::Ban), &[c('b')], BUCKETS | BUCKET, 8, "ban", "ban the key, or let it free")),
    bind((C::Start(Start::Override), &[c('o')], BUCKETS | BUCKET, 8, "override", "give the key other limits")),
    bind((C::Undo, &[c('u')], BROWSE, 7, "undo", "take the last own edit back")),
    bind((C::Again, &[c('a')], BROWSE, 0, "again", "apply again what a restart of Envoy took")),
    bind((C::Poll, &[c('r')], BROWSE, 10, "poll", "read everything now")),
    bind((C::Back, &[k(Esc)], BUCKETS, 11, "all", "drop the filter; never out")),
    bind((C::ShowBuckets, &[c('1')], BROWSE, 0, "buckets", "go to all buckets")),
    bind((C::ShowBucket, &[c('2')], BROWSE, 0, "bucket", "go to the selected bucket")),
    bind((C::ShowRules, &[c('3')], BROWSE, 12, "rules", "go to the rules")),
    bind((C::ShowEvents, &[c('5')], BROWSE, 13, "events", "go to edits and warnings")),
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
