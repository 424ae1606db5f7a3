//! Reads the fields of the algorithms with a time window.

#[cfg(feature = "words")]
use alloc::format;
#[cfg(feature = "words")]
use alloc::string::{String, ToString as _};

use loudou_limiter::Nanos;
use loudou_limiter::algorithm::sliding_log::MAX_ENTRIES;
use loudou_limiter::algorithm::sliding_window::{DEFAULT_SLOTS, MAX_SLOTS, MIN_SLOTS};
use loudou_limiter::algorithm::{
    Align, FixedWindow, Grid, SlidingCounter, SlidingLog, SlidingWindow,
};
use loudou_limiter::bounds::{MAX_AMOUNT, MAX_PERIOD};

use super::numbers::Numbers;
#[cfg(feature = "words")]
use super::phrase::{Phrase, time};
use super::{CAPACITY, Entry};
use crate::config::grammar::{Doc, Field, Form};
use crate::config::reader::Report;
#[cfg(feature = "words")]
use crate::humanise::humanise;

const ALIGNS: [(&str, Align); 2] = [("first", Align::First), ("clock", Align::Clock)];
const GRIDS: [(&str, Grid); 2] = [("process", Grid::Process), ("clock", Grid::Clock)];

pub(super) const WINDOW: Field = Field::required(
    "window",
    Form::Duration(&[Nanos::new(1), MAX_PERIOD]),
    "The length of the window, in which at most the capacity is admitted.",
);
pub(super) const SLOTS: Field = Field::optional(
    "slots",
    Form::Integer(MIN_SLOTS, MAX_SLOTS),
    "10",
    "The number of slots in which the window advances.",
);

pub(super) const ALIGN: Field = Field::optional(
    "align",
    Form::Word(&Grid::NAMES),
    "process",
    "Periods start at multiples of their length on Envoy's monotonic clock (process), or on the wall clock (clock).",
);

pub(super) fn align(numbers: &Numbers<'_, '_>, report: &mut Report) -> Option<Grid> {
    let align = numbers.word("align", &GRIDS, report);
    numbers.or("align", align, Grid::Process)
}

pub(super) const FIXED_WINDOW: Entry = Entry {
    name: "fixed_window",
    #[cfg(feature = "words")]
    phrase: Phrase::fixed_window,
    doc: Doc::new(
        "Counts requests per window, which starts with the first request or on the \
         clock.",
    ),
    fields: &[
        CAPACITY,
        WINDOW,
        Field::optional(
            "align",
            Form::Word(&Align::NAMES),
            "first",
            "A window starts with its first request (first), or at multiples of its length on the wall clock (clock).",
        ),
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
    #[cfg(feature = "words")]
    phrase: Phrase::sliding_window,
    doc: Doc::new(
        "Counts requests over a window that advances slot by slot; the count in the \
         current slot is limited as well.",
    ),
    fields: &[
        CAPACITY,
        WINDOW,
        SLOTS,
        Field::optional(
            "slot_capacity",
            Form::Integer(1, MAX_AMOUNT),
            "twice capacity/slots, rounded up",
            "The maximum cost that is admitted in one slot.",
        ),
        ALIGN,
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
        let align = align(numbers, report);
        let (capacity, window, slots) = (capacity?.into(), window?, slots?);
        let (slot_capacity, align) = (slot_capacity?, align?);
        let limit = SlidingWindow::new(capacity, window, slots, slot_capacity);
        Some(limit.map(|limit| limit.aligned(align).into()))
    },
};

pub(super) const SLIDING_LOG: Entry = Entry {
    name: "sliding_log",
    #[cfg(feature = "words")]
    phrase: Phrase::sliding_log,
    doc: Doc::new("Stores the time of each request: exact over any window."),
    fields: &[
        Field {
            form: Form::Integer(1, MAX_ENTRIES),
            ..CAPACITY
        },
        WINDOW,
        Field::optional(
            "count_refused",
            Form::Boolean,
            "false",
            "If true, refused requests count as well, so that clients that retry constantly stay refused.",
        ),
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
    #[cfg(feature = "words")]
    phrase: Phrase::sliding_counter,
    doc: Doc::new(
        "Two counters, the earlier one weighted by its overlap with the window: cheap \
         and nearly right.",
    ),
    fields: &[CAPACITY, WINDOW, ALIGN],
    read: |numbers: &Numbers<'_, '_>, report| {
        let capacity = numbers.integer("capacity", report);
        let window = numbers.duration("window", report);
        let align = align(numbers, report);
        let (capacity, window, align) = (capacity?.into(), window?, align?);
        let limit = SlidingCounter::new(capacity, window);
        Some(limit.map(|limit| limit.aligned(align).into()))
    },
};

/// Describes these limits as the end of a sentence.
#[cfg(feature = "words")]
impl Phrase {
    /// Names the clock of refills, slots and sliding windows, unless it is the process clock.
    pub(super) fn by_clock(&self) -> &'static str {
        if self.is("align", "clock") {
            ", by the wall clock in UTC"
        } else {
            ""
        }
    }

    pub(super) fn fixed_window(&self) -> Option<String> {
        let (may, window) = (self.may(self.capacity), self.span("window")?);
        if !self.is("align", "clock") {
            return Some(format!(
                "{may} in each window of {window}, which starts with its first request"
            ));
        }
        Some(match window.to_string().as_str() {
            "1d" => format!("{may} in each day, from midnight UTC"),
            "1h" | "1m" | "1s" => format!("{may} in each {} of the clock", time(window)),
            other => format!("{may} in each {other} of the clock, counted from 1970 in UTC"),
        })
    }

    pub(super) fn sliding_window(&self) -> Option<String> {
        let (window, slots) = (self.span("window")?.get(), self.number("slots")?);
        let slot = window.checked_div(slots)?;
        let each = if slot.checked_mul(slots) == Some(window) {
            Nanos::new(slot).to_string()
        } else {
            format!("about {}", humanise(slot))
        };
        let whole = self.number("capacity")?;
        let in_slot = self.number("slot_capacity")?;
        let mut phrase = format!(
            "{} in any {slots} slots of {each} in a row",
            self.may(whole)
        );
        if in_slot < whole {
            let more = format!(", at most {in_slot} of them in one slot");
            phrase.push_str(&more);
        }
        phrase.push_str(self.by_clock());
        Some(phrase)
    }

    pub(super) fn sliding_log(&self) -> Option<String> {
        let (may, window) = (self.may(self.capacity), self.span("window")?);
        let refused = if self.is("count_refused", "true") {
            "; refused requests count as well"
        } else {
            ""
        };
        Some(format!("{may} in any {window}{refused}"))
    }

    pub(super) fn sliding_counter(&self) -> Option<String> {
        let (may, window) = (self.may(self.capacity), self.span("window")?);
        let may = may.replacen("may do ", "may do about ", 1);
        let may = may.replacen("may take ", "may take about ", 1);
        let worst = self.capacity.saturating_mul(2);
        Some(format!(
            "{may} in any {window} (estimated from two counters; at worst {worst}){}",
            self.by_clock()
        ))
    }
}
