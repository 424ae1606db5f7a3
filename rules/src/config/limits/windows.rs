//! The fields of the algorithms with a window.

use loudou_limiter::Nanos;
use loudou_limiter::algorithm::sliding_log::MAX_ENTRIES;
use loudou_limiter::algorithm::sliding_window::{DEFAULT_SLOTS, MAX_SLOTS, MIN_SLOTS};
use loudou_limiter::algorithm::{Align, FixedWindow, SlidingCounter, SlidingLog, SlidingWindow};
use loudou_limiter::bounds::{MAX_AMOUNT, MAX_PERIOD};

use super::field::{Field, Form, Numbers, about};
use super::{CAPACITY, Entry};

const ALIGNS: [(&str, Align); 2] = [("first", Align::First), ("clock", Align::Clock)];

pub(super) const WINDOW: Field = Field {
    name: "window",
    form: Form::Duration(Nanos::new(1), MAX_PERIOD),
    default: None,
    doc: about("The time in which at most the capacity is admitted."),
};
pub(super) const SLOTS: Field = Field {
    name: "slots",
    form: Form::Integer(MIN_SLOTS, MAX_SLOTS),
    default: Some("10"),
    doc: about("The number of steps in which the window moves on."),
};

pub(super) const FIXED_WINDOW: Entry = Entry {
    name: "fixed_window",
    fields: &[
        CAPACITY,
        WINDOW,
        Field {
            name: "align",
            form: Form::Word(&Align::NAMES),
            default: Some("first"),
            doc: about(
                "A window begins with its first request (first), or at multiples of its length on the wall clock (clock).",
            ),
        },
    ],
    read: |numbers: &Numbers<'_, '_>, report| {
        let capacity = numbers.integer("capacity", report);
        let window = numbers.duration("window", report);
        let align = numbers.word("align", &ALIGNS, report);
        let align = numbers.or("align", align, Align::First);
        Some(FixedWindow::new(capacity?.into(), window?, align?).map(Into::into))
    },
};

pub(super) const SLIDING_WINDOW: Entry = Entry {
    name: "sliding_window",
    fields: &[
        CAPACITY,
        WINDOW,
        SLOTS,
        Field {
            name: "slot_capacity",
            form: Form::Integer(1, MAX_AMOUNT),
            default: Some("twice capacity/slots, rounded up"),
            doc: about("The most that is admitted in one slot, in cost units."),
        },
    ],
    read: |numbers: &Numbers<'_, '_>, report| {
        let capacity = numbers.integer("capacity", report);
        let window = numbers.duration("window", report);
        let slots = numbers.integer("slots", report);
        let slots = numbers.or("slots", slots, DEFAULT_SLOTS);
        let most = capacity.unwrap_or(MAX_AMOUNT);
        let slot_capacity = numbers.integer_up_to("slot_capacity", most, report);
        let slot_capacity = slot_capacity.map(|capacity| Some(capacity.into()));
        let slot_capacity = numbers.or("slot_capacity", slot_capacity, None);
        let (capacity, window, slots) = (capacity?.into(), window?, slots?);
        Some(SlidingWindow::new(capacity, window, slots, slot_capacity?).map(Into::into))
    },
};

pub(super) const SLIDING_LOG: Entry = Entry {
    name: "sliding_log",
    fields: &[
        Field {
            form: Form::Integer(1, MAX_ENTRIES),
            ..CAPACITY
        },
        WINDOW,
        Field {
            name: "count_refused",
            form: Form::Boolean,
            default: Some("false"),
            doc: about("Whether refused requests count as well, so that hammering keeps out."),
        },
    ],
    read: |numbers: &Numbers<'_, '_>, report| {
        let capacity = numbers.integer("capacity", report);
        let window = numbers.duration("window", report);
        let count_refused = numbers.boolean("count_refused", report);
        let count_refused = numbers.or("count_refused", count_refused, false);
        Some(SlidingLog::new(capacity?.into(), window?, count_refused?).map(Into::into))
    },
};

pub(super) const SLIDING_COUNTER: Entry = Entry {
    name: "sliding_counter",
    fields: &[CAPACITY, WINDOW],
    read: |numbers: &Numbers<'_, '_>, report| {
        let capacity = numbers.integer("capacity", report);
        let window = numbers.duration("window", report);
        Some(SlidingCounter::new(capacity?.into(), window?).map(Into::into))
    },
};
