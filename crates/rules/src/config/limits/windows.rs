//! Reads the fields of the window algorithms.

#[cfg(feature = "words")]
use alloc::format;
#[cfg(feature = "words")]
use alloc::string::{String, ToString as _};

use loudou_limiter::Nanos;
use loudou_limiter::algorithm::sliding_log::MAX_ENTRIES;
use loudou_limiter::algorithm::sliding_window::{DEFAULT_SLOTS, MAX_SLOTS, MIN_SLOTS};
use loudou_limiter::algorithm::{
    Algorithm, Align, FixedWindow, Grid, SlidingCounter, SlidingLog, SlidingWindow,
};
use loudou_limiter::bounds::{BadNumbers, MAX_AMOUNT, MAX_PERIOD};
use loudou_limiter::calendar::{Calendar, MAX_ZONE, Period, WEEKDAYS, ZONE_FORM, Zone};

use super::numbers::{Numbers, duration};
#[cfg(feature = "words")]
use super::phrase::{Phrase, time};
use super::{CAPACITY, Entry};
#[cfg(feature = "words")]
use serde_json::Value;

use crate::config::grammar::{Doc, Field, Form, Object, Text, object};
use crate::config::reader::{Cursor, Report};
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
        Field {
            form: Form::Or(&[
                Field::value(WINDOW.form, ""),
                Field::value(Form::Word(&Period::NAMES), ""),
            ]),
            ..WINDOW
        }
        .meaning(
            "The length of the window, in which at most the capacity is admitted, or a period of the calendar.",
        ),
        Field::optional(
            "align",
            Form::Word(&Align::NAMES),
            "first",
            "A window starts with its first request (first), or at multiples of its length on the wall clock (clock). \
             Periods of the calendar are always on the wall clock.",
        ),
        Field::optional(
            "zone",
            Form::Text(Text::like(
                "^(UTC|[+-][0-9]{2}:[0-9]{2}|([A-Za-z]{3,}|<[A-Za-z0-9+-]{3,}>)[-+0-9][-+0-9A-Za-z<>:,./]*)$",
                MAX_ZONE,
            )),
            "UTC",
            "The time zone of a period: UTC, an offset such as +09:00, or a POSIX rule.",
        ),
        Field::optional(
            "starts",
            Form::Defined("starts"),
            "",
            "The first day of a week, month or year.",
        ),
    ],
    read: fixed_window,
};

pub(in crate::config) const STARTS: Object = object!([
    Field::optional(
        "weekday",
        Form::Word(&WEEKDAYS),
        "mon",
        "The first day of a week.",
    ),
    Field::optional(
        "month",
        Form::Integer(1, 12),
        "1",
        "The first month of a year.",
    ),
    Field::optional(
        "day",
        Form::Integer(1, 31),
        "1",
        "The first day of a month, or of a year in its first month. If the month is shorter, its last day.",
    ),
]);

fn fixed_window(
    numbers: &Numbers<'_, '_>,
    report: &mut Report,
) -> Option<Result<Algorithm, BadNumbers>> {
    let capacity = numbers.integer("capacity", report);
    let (window, form) = numbers.field("window", report)?;
    let [zone, starts] = ["zone", "starts"].map(|name| numbers.fields.get(name));
    let align = numbers.word("align", &ALIGNS, report);
    let Some(period) = window.value.as_str().and_then(Period::named) else {
        for field in [zone, starts].into_iter().flatten() {
            let message = "a window of a fixed length has neither a time zone nor a first day";
            report.error(&field, message, "with window: day, week, month, year");
        }
        let window = duration(&window, form, report);
        let align = numbers.or("align", align, Align::First);
        return Some(FixedWindow::new(capacity?.into(), window?, align?).map(Into::into));
    };
    let align = numbers.or("align", align, Align::Clock);
    if let (Some(Align::First), Some(field)) = (align, numbers.fields.get("align")) {
        let message = "a period of the calendar does not start with a request";
        report.error(&field, message, "clock");
        return None;
    }
    let zone = zone.map_or_else(|| Some(Zone::utc()), |zone| read_zone(&zone, report));
    let period = match starts {
        Some(starts) => read_starts(&starts, period, report),
        None => Some(period),
    };
    let (capacity, calendar) = (capacity?.into(), Calendar::new(period?, zone?));
    align?;
    Some(FixedWindow::of_calendar(capacity, calendar).map(Into::into))
}

fn read_zone(cursor: &Cursor<'_, '_>, report: &mut Report) -> Option<Zone> {
    let zone = Zone::parse(cursor.text(MAX_ZONE, report)?);
    if zone.is_none() {
        report.error(cursor, "unknown time zone", ZONE_FORM);
    }
    zone
}

fn read_starts(cursor: &Cursor<'_, '_>, period: Period, report: &mut Report) -> Option<Period> {
    let (own, message, allowed): (&[&str], _, _) = match period {
        Period::Day => (
            &[],
            "a day starts at midnight",
            "no `starts` with window: day",
        ),
        Period::Week { .. } => (
            &["weekday"],
            "a week starts on a weekday",
            "{ weekday: mon }",
        ),
        Period::Month { .. } => (&["day"], "a month starts on a day", "{ day: 1 }"),
        Period::Year { .. } => (
            &["month", "day"],
            "a year starts on a day of a month",
            "{ month: 1, day: 1 }",
        ),
    };
    let fields = cursor.object(STARTS.names, report)?;
    let numbers = Numbers {
        fields,
        table: STARTS.fields,
    };
    let of_others = STARTS
        .names
        .iter()
        .any(|name| numbers.has(name) && !own.contains(name));
    if of_others || own.is_empty() {
        report.error(cursor, message, allowed);
        return None;
    }
    let [month, day] = ["month", "day"].map(|name| {
        let number = numbers.integer(name, report);
        let number = number.and_then(|number| u8::try_from(number).ok());
        numbers.or(name, number, 1)
    });
    let at = numbers.fields.get("weekday");
    let weekday = at.map_or(Some(0), |at| at.which(&WEEKDAYS, report));
    let weekday = weekday.and_then(|place| u8::try_from(place).ok())?;
    let (month, day) = (month?, day?);
    Some(match period {
        Period::Day => Period::Day,
        Period::Week { .. } => Period::Week { weekday },
        Period::Month { .. } => Period::Month { day },
        Period::Year { .. } => Period::Year { month, day },
    })
}

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

/// Phrases that describe window limits.
#[cfg(feature = "words")]
impl Phrase {
    /// Returns a phrase saying that the limit follows the wall clock, or an empty string if it does
    /// not.
    pub(super) fn by_clock(&self) -> &'static str {
        if self.is("align", "clock") {
            ", by the wall clock in UTC"
        } else {
            ""
        }
    }

    pub(super) fn fixed_window(&self) -> Option<String> {
        let may = self.may(self.capacity);
        if let Some(period) = Period::named(&self.text("window")?) {
            return Some(format!(
                "{may} in each {}{}, {}",
                period.name(),
                self.first_day(period),
                zone(&self.text("zone")?)
            ));
        }
        let window = self.span("window")?;
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

    /// Returns a phrase such as `, from the 15th`.
    fn first_day(&self, period: Period) -> String {
        let starts = self.starts();
        let number = |name: &str| starts.get(name).and_then(Value::as_u64).unwrap_or(1);
        match period {
            Period::Day => String::new(),
            Period::Week { .. } => {
                let name = starts.get("weekday").and_then(Value::as_str);
                let mut names = WEEKDAYS.iter().zip(WEEKDAY_NAMES);
                let name = names.find(|(short, _)| name == Some(short));
                format!(", from {}", name.map_or("Monday", |(_, name)| name))
            }
            Period::Month { .. } => format!(", from the {}", ordinal(number("day"))),
            Period::Year { .. } => {
                let month = usize::try_from(number("month").saturating_sub(1)).ok();
                let month = month
                    .and_then(|month| MONTH_NAMES.get(month))
                    .unwrap_or(&"");
                format!(", from {month} {}", number("day"))
            }
        }
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

#[cfg(feature = "words")]
const WEEKDAY_NAMES: [&str; 7] = [
    "Monday",
    "Tuesday",
    "Wednesday",
    "Thursday",
    "Friday",
    "Saturday",
    "Sunday",
];
#[cfg(feature = "words")]
const MONTH_NAMES: [&str; 12] = [
    "January",
    "February",
    "March",
    "April",
    "May",
    "June",
    "July",
    "August",
    "September",
    "October",
    "November",
    "December",
];

/// Returns a number such as `1st` or `15th`.
#[cfg(feature = "words")]
fn ordinal(number: u64) -> String {
    let ending = match (number / 10 % 10, number % 10) {
        (1, _) => "th",
        (_, 1) => "st",
        (_, 2) => "nd",
        (_, 3) => "rd",
        _ => "th",
    };
    format!("{number}{ending}")
}

/// Describes a time zone with a phrase such as `in UTC+09:00`.
#[cfg(feature = "words")]
fn zone(zone: &str) -> String {
    match zone.as_bytes() {
        b"UTC" => String::from("in UTC"),
        [b'+' | b'-', ..] => format!("in UTC{zone}"),
        _ => format!("by the clocks of {zone}"),
    }
}
