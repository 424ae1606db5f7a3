//! Calendar windows: the day, week, month or year, in a given time zone, that contains an instant.
//!
//! A window begins when the clocks of its zone first reach midnight at the start of its first day.
//! If the clocks are put forward past midnight, the window begins at the change. If the clocks show
//! midnight twice, the window begins at the first occurrence. There are therefore no gaps between
//! windows, and every instant belongs to exactly one window, even if clocks that were put back show
//! the previous day again.
//!
//! Dates are in the proleptic Gregorian calendar, and are stored as whole days since 1970.
//! Computing a window takes bounded time: it examines a few dates and, for each date, four years of
//! clock changes.

use alloc::format;
use alloc::string::String;

use serde::ser::SerializeStruct as _;
use serde::{Serialize, Serializer};

use crate::time::Nanos;

mod zone;

pub use zone::{MAX_ZONE, ZONE_FORM, Zone};

/// Number of seconds in a day without a clock change.
const DAY: i64 = 86_400;
/// Names of the days of the week, as written in rule files.
pub const WEEKDAYS: [&str; 7] = ["mon", "tue", "wed", "thu", "fri", "sat", "sun"];

/// Length of the windows as a calendar unit, and the day on which the unit begins.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Period {
    /// A day.
    Day,
    /// A week.
    Week {
        /// First day of the week: 0 for Monday to 6 for Sunday.
        weekday: u8,
    },
    /// A month.
    Month {
        /// Day on which the window begins. In a shorter month, the window begins on the last day of
        /// the month.
        day: u8,
    },
    /// A year.
    Year {
        /// Month in which the window begins (1-based).
        month: u8,
        /// Day on which the window begins. If the month is shorter, the window begins on the last
        /// day of the month.
        day: u8,
    },
}

impl Period {
    /// Names of the variants, as written in rule files.
    pub const NAMES: [&'static str; 4] = ["day", "week", "month", "year"];

    /// Returns the period's name, as written in rule files.
    pub const fn name(self) -> &'static str {
        match self {
            Self::Day => "day",
            Self::Week { .. } => "week",
            Self::Month { .. } => "month",
            Self::Year { .. } => "year",
        }
    }

    /// Returns the period with this name, beginning on the first day of its calendar unit.
    pub fn named(name: &str) -> Option<Self> {
        match name {
            "day" => Some(Self::Day),
            "week" => Some(Self::Week { weekday: 0 }),
            "month" => Some(Self::Month { day: 1 }),
            "year" => Some(Self::Year { month: 1, day: 1 }),
            _ => None,
        }
    }

    /// Returns the length of the longest period in a zone whose clocks do not change.
    pub const fn longest(self) -> Nanos {
        Nanos::from_secs(match self {
            Self::Day => 86_400,
            Self::Week { .. } => 7 * 86_400,
            Self::Month { .. } => 31 * 86_400,
            Self::Year { .. } => 366 * 86_400,
        })
    }

    /// Returns the index of the period that contains `day`.
    fn index(self, day: i64) -> i64 {
        let index = match self {
            Self::Day => day,
            Self::Week { .. } => day.saturating_sub(self.first_day(0)).div_euclid(7),
            Self::Month { .. } => {
                let (year, month) = month_of(day);
                year.saturating_mul(12).saturating_add(month)
            }
            Self::Year { .. } => year_of(day),
        };
        // Before the period of this month or year begins, `day` belongs to the previous period.
        if self.first_day(index) > day {
            index.saturating_sub(1)
        } else {
            index
        }
    }

    /// Returns the first day of the period with this index.
    fn first_day(self, index: i64) -> i64 {
        match self {
            Self::Day => index,
            // 1970-01-01 was a Thursday, so day -3 was a Monday.
            Self::Week { weekday } => index
                .saturating_mul(7)
                .saturating_add(i64::from(weekday))
                .saturating_sub(3),
            Self::Month { day } => day_of(index.div_euclid(12), index.rem_euclid(12), day),
            Self::Year { month, day } => day_of(index, i64::from(month).saturating_sub(1), day),
        }
    }
}

impl Serialize for Period {
    /// Writes the value of the rule-file field `starts`. The value for a day has no fields.
    fn serialize<S: Serializer>(&self, serializer: S) -> Result<S::Ok, S::Error> {
        let mut fields = serializer.serialize_struct("Period", 2)?;
        match self {
            Self::Day => {}
            Self::Week { weekday } => {
                let name = WEEKDAYS.get(usize::from(*weekday)).unwrap_or(&"mon");
                fields.serialize_field("weekday", name)?;
            }
            Self::Month { day } => fields.serialize_field("day", day)?,
            Self::Year { month, day } => {
                fields.serialize_field("month", month)?;
                fields.serialize_field("day", day)?;
            }
        }
        fields.end()
    }
}

/// One window, in seconds since the Unix epoch.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Span {
    /// First second of the window.
    pub start: i64,
    /// First second after the window.
    pub end: i64,
}

impl Span {
    /// Returns the length of the window.
    pub fn length(self) -> Nanos {
        seconds(self.end.saturating_sub(self.start))
    }

    /// Returns the end of the window as a time since the Unix epoch.
    pub fn end(self) -> Nanos {
        seconds(self.end)
    }
}

fn seconds(seconds: i64) -> Nanos {
    Nanos::from_secs(u64::try_from(seconds).unwrap_or(0))
}

/// The windows of one calendar period in one time zone.
///
/// ```
/// use loudou_limiter::Nanos;
/// use loudou_limiter::calendar::{Calendar, Period, Zone};
///
/// let berlin = Zone::parse("CET-1CEST,M3.5.0,M10.5.0/3").unwrap();
/// let days = Calendar::new(Period::Day, berlin);
/// // Noon of 2024-03-31, when Berlin's clocks were put forward.
/// let day = days.span(Nanos::from_secs(1_711_879_200));
/// assert_eq!(day.length(), Nanos::from_secs(23 * 3_600));
/// ```
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Calendar {
    period: Period,
    zone: Zone,
}

impl Calendar {
    /// Creates a calendar with windows of `period` in `zone`.
    pub const fn new(period: Period, zone: Zone) -> Self {
        Self { period, zone }
    }

    /// Returns the period.
    pub const fn period(&self) -> Period {
        self.period
    }

    /// Returns the time zone.
    pub const fn zone(&self) -> &Zone {
        &self.zone
    }

    /// Returns an upper bound on the window length.
    pub fn longest(&self) -> Nanos {
        let (least, most) = self.zone.offsets();
        let change = seconds(most.saturating_sub(least));
        self.period.longest().saturating_add(change)
    }

    /// Returns the window that contains the wall clock time `wall`.
    pub fn span(&self, wall: Nanos) -> Span {
        let now = i64::try_from(wall.get() / 1_000_000_000).unwrap_or(i64::MAX);
        let (_, most) = self.zone.offsets();
        // Starts with the latest day that any clock in the zone can have shown by now.
        let mut index = self.period.index(now.saturating_add(most).div_euclid(DAY));
        let mut start = self.begin(index);
        let mut end = None;
        // A zone's UTC offsets differ by at most 50 hours, so that day began at most three days
        // ago.
        for _ in 0..4 {
            if start <= now {
                break;
            }
            index = index.saturating_sub(1);
            end = Some(start);
            start = self.begin(index);
        }
        Span {
            start,
            end: end.unwrap_or_else(|| self.begin(index.saturating_add(1))),
        }
    }

    /// Returns the first second of the period with this index.
    fn begin(&self, index: i64) -> i64 {
        let midnight = self.period.first_day(index).saturating_mul(DAY);
        self.zone.first_at(midnight)
    }

    /// Returns the local date and time of an instant, such as `2024-02-29 00:00`.
    pub fn local(&self, instant: i64) -> String {
        let local = instant.saturating_add(self.zone.offset(instant));
        let (day, second) = (local.div_euclid(DAY), local.rem_euclid(DAY));
        let (year, month) = month_of(day);
        let of_month = day.saturating_sub(day_of(year, month, 1));
        format!(
            "{year:04}-{:02}-{:02} {:02}:{:02}",
            month.saturating_add(1),
            of_month.saturating_add(1),
            second / 3_600,
            second / 60 % 60
        )
    }
}

/// Returns the number of days from 1970-01-01 to January 1 of a year.
fn year_start(year: i64) -> i64 {
    let before = year.saturating_sub(1);
    before
        .saturating_mul(365)
        .saturating_add(before.div_euclid(4))
        .saturating_sub(before.div_euclid(100))
        .saturating_add(before.div_euclid(400))
        // Number of days from 0001-01-01 to 1970-01-01.
        .saturating_sub(719_162)
}

fn is_leap(year: i64) -> bool {
    year.rem_euclid(4) == 0 && (year.rem_euclid(100) != 0 || year.rem_euclid(400) == 0)
}

/// Returns the number of days in a month. Months are counted from 0.
fn days_in(year: i64, month: i64) -> i64 {
    match month {
        1 if is_leap(year) => 29,
        1 => 28,
        3 | 5 | 8 | 10 => 30,
        _ => 31,
    }
}

/// Returns the year that contains a day.
fn year_of(day: i64) -> i64 {
    // 400 years have 146 097 days. The estimate is off by at most one year.
    let estimate = day
        .saturating_mul(400)
        .div_euclid(146_097)
        .saturating_add(1_970);
    if year_start(estimate) > day {
        estimate.saturating_sub(1)
    } else if year_start(estimate.saturating_add(1)) <= day {
        estimate.saturating_add(1)
    } else {
        estimate
    }
}

/// Returns the year and the month that contain a day. Months are counted from 0.
fn month_of(day: i64) -> (i64, i64) {
    let year = year_of(day);
    let later = (1..12).rev().find(|month| day_of(year, *month, 1) <= day);
    (year, later.unwrap_or(0))
}

/// Returns a day of a month, or the month's last day if the month is too short to contain that day.
/// Months are counted from 0.
fn day_of(year: i64, month: i64, day: u8) -> i64 {
    let before = (0..month).fold(year_start(year), |days, month| {
        days.saturating_add(days_in(year, month))
    });
    let of_month = i64::from(day).min(days_in(year, month));
    before.saturating_add(of_month).saturating_sub(1)
}

#[cfg(test)]
mod tests;
