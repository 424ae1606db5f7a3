//! Time zones as written in rule files: `UTC`, an offset, or a POSIX rule.
//!
//! A POSIX rule describes a zone completely, so the filter needs no time zone database, and a
//! system update cannot change the length of a window.

use alloc::boxed::Box;
use core::fmt;

use serde::{Serialize, Serializer};

use super::{DAY, day_of, days_in, is_leap, year_of, year_start};

/// Maximum length of a zone string, in bytes.
pub const MAX_ZONE: usize = 80;
/// Expected format of a zone, for error messages.
pub const ZONE_FORM: &str =
    "UTC, an offset such as +09:00, or a POSIX rule such as CET-1CEST,M3.5.0,M10.5.0/3";

/// A time zone.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Zone {
    /// The zone string, as it was written.
    text: Box<str>,
    /// Seconds by which standard time is ahead of UTC.
    standard: i64,
    summer: Option<Summer>,
}

/// Daylight saving time.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
struct Summer {
    /// Seconds by which daylight saving time is ahead of UTC.
    offset: i64,
    begins: Change,
    ends: Change,
}

/// A yearly clock change.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
struct Change {
    day: ChangeDay,
    /// Seconds after midnight, as shown by the clocks before the change.
    second: i64,
}

/// Day of a clock change.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
enum ChangeDay {
    /// `Jn`: a 1-based day of the year, not counting February 29.
    WithoutLeapDay(i64),
    /// `n`: a 0-based day of the year, counting February 29.
    WithLeapDay(i64),
    /// `Mm.w.d`: a weekday in a certain week of a month.
    Weekday {
        /// Month of the year (0-based).
        month: i64,
        /// Occurrence of the weekday in the month (0-based). The fifth occurrence means the last
        /// one in the month.
        week: i64,
        /// Day of the week: 0 for Sunday to 6 for Saturday.
        weekday: i64,
    },
}

impl Change {
    /// Returns the time of the change in `year`, in seconds since the Unix epoch. `offset` is the
    /// number of seconds by which the clocks are ahead of UTC before the change.
    fn at(self, year: i64, offset: i64) -> i64 {
        let day = match self.day {
            ChangeDay::WithoutLeapDay(day) => {
                let leap_day = i64::from(is_leap(year) && day >= 60);
                let days = day.saturating_sub(1).saturating_add(leap_day);
                year_start(year).saturating_add(days)
            }
            ChangeDay::WithLeapDay(day) => year_start(year).saturating_add(day),
            ChangeDay::Weekday {
                month,
                week,
                weekday,
            } => {
                let first = day_of(year, month, 1);
                // 1970-01-01 was a Thursday.
                let ahead = weekday
                    .saturating_sub(first.saturating_add(4))
                    .rem_euclid(7);
                let of_month = week.saturating_mul(7).saturating_add(ahead);
                let fits = of_month < days_in(year, month);
                let of_month = of_month.saturating_sub(if fits { 0 } else { 7 });
                first.saturating_add(of_month)
            }
        };
        let local = day.saturating_mul(DAY).saturating_add(self.second);
        local.saturating_sub(offset)
    }
}

impl Zone {
    /// Parses a zone in the format [`ZONE_FORM`]. Returns `None` for invalid strings, and also for
    /// names such as `Europe/Berlin`, which would need a time zone database.
    ///
    /// ```
    /// use loudou_limiter::calendar::Zone;
    ///
    /// assert!(Zone::parse("<-03>3<-02>,M3.5.0/-2,M10.5.0/-1").is_some());
    /// assert_eq!(Zone::parse("Europe/Berlin"), None);
    /// ```
    pub fn parse(text: &str) -> Option<Self> {
        if text.len() > MAX_ZONE {
            return None;
        }
        let (standard, summer) = match text.as_bytes() {
            b"UTC" => (0, None),
            [b'+' | b'-', ..] => (iso_offset(text)?, None),
            rule => posix(rule)?,
        };
        let text = text.into();
        Some(Self {
            text,
            standard,
            summer,
        })
    }

    /// Returns UTC, the default zone.
    pub fn utc() -> Self {
        Self {
            text: "UTC".into(),
            standard: 0,
            summer: None,
        }
    }

    /// Returns the minimum and maximum number of seconds by which the zone's clocks are ahead of
    /// UTC.
    pub(super) fn offsets(&self) -> (i64, i64) {
        let other = self.summer.map_or(self.standard, |summer| summer.offset);
        (self.standard.min(other), self.standard.max(other))
    }

    /// Returns the number of seconds by which the zone's clocks are ahead of UTC at `instant`.
    pub fn offset(&self, instant: i64) -> i64 {
        let Some(summer) = self.summer else {
            return self.standard;
        };
        // If daylight saving time ends at the instant at which it begins again, it lasts all year.
        // Of two changes at the same instant, `max` therefore selects the start of daylight saving
        // time, because `true` is greater than `false`.
        let past = self.changes(instant).filter(|(at, _)| *at <= instant);
        match past.max() {
            Some((_, true)) => summer.offset,
            _ => self.standard,
        }
    }

    /// Returns the clock changes in the years around `instant`. The flag is true if daylight saving
    /// time begins. A change defined for one year can fall up to a week outside that year.
    fn changes(&self, instant: i64) -> impl Iterator<Item = (i64, bool)> {
        let year = year_of(instant.saturating_add(self.standard).div_euclid(DAY));
        let years = year.saturating_sub(2)..=year.saturating_add(1);
        let summer = self.summer.into_iter();
        summer.flat_map(move |summer| {
            let standard = self.standard;
            years.clone().flat_map(move |year| {
                [
                    (summer.begins.at(year, standard), true),
                    (summer.ends.at(year, summer.offset), false),
                ]
            })
        })
    }

    /// Returns the first instant at which the zone's clocks show `local` or a later time. `local`
    /// and the instant are in seconds since 1970.
    pub(super) fn first_at(&self, local: i64) -> i64 {
        let (least, most) = self.offsets();
        let (earliest, latest) = (local.saturating_sub(most), local.saturating_sub(least));
        if self.offset(earliest) == most {
            return earliest;
        }
        // Until the clocks are put forward, they show a time before `local`.
        let forward = self
            .changes(earliest)
            .map(|(at, _)| at)
            .filter(|at| (earliest..latest).contains(at) && self.offset(*at) == most);
        forward.min().unwrap_or(latest)
    }
}

impl fmt::Display for Zone {
    /// Writes the string from which the zone was parsed.
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str(&self.text)
    }
}

impl Serialize for Zone {
    fn serialize<S: Serializer>(&self, serializer: S) -> Result<S::Ok, S::Error> {
        serializer.collect_str(self)
    }
}

/// Parses an offset such as `+09:00`. Positive offsets are east of Greenwich.
fn iso_offset(text: &str) -> Option<i64> {
    let (hours, minutes) = text.get(1..)?.split_once(':')?;
    let two = |digits: &str, most: i64| {
        let fits = digits.len() == 2 && digits.bytes().all(|b| b.is_ascii_digit());
        let number = digits.parse().ok().filter(|number| *number <= most);
        number.filter(|_| fits)
    };
    let (hours, minutes) = (two(hours, 23)?, two(minutes, 59)?);
    let seconds = time((hours, minutes, 0));
    Some(if text.starts_with('-') {
        seconds.saturating_neg()
    } else {
        seconds
    })
}

fn time((hours, minutes, seconds): (i64, i64, i64)) -> i64 {
    hours
        .saturating_mul(3_600)
        .saturating_add(minutes.saturating_mul(60))
        .saturating_add(seconds)
}

/// Parses a POSIX rule such as `CET-1CEST,M3.5.0,M10.5.0/3`. Returns the offset of standard time,
/// and daylight saving time if the rule contains it.
fn posix(text: &[u8]) -> Option<(i64, Option<Summer>)> {
    let mut rest = Rest(text);
    rest.name()?;
    let standard = rest.time(24)?.saturating_neg();
    if rest.0.is_empty() {
        return Some((standard, None));
    }
    rest.name()?;
    let offset = match rest.0 {
        // By default, daylight saving time is an hour ahead of standard time.
        [b',', ..] => standard.saturating_add(3_600),
        _ => rest.time(24)?.saturating_neg(),
    };
    let (begins, ends) = (rest.change()?, rest.change()?);
    let summer = Summer {
        offset,
        begins,
        ends,
    };
    rest.0.is_empty().then_some((standard, Some(summer)))
}

/// The unparsed remainder of a POSIX rule.
struct Rest<'a>(&'a [u8]);

impl Rest<'_> {
    fn accept(&mut self, byte: u8) -> bool {
        let rest = self.0.strip_prefix(&[byte]);
        self.0 = rest.unwrap_or(self.0);
        rest.is_some()
    }

    /// Skips bytes for which `fits` returns true, and returns the number of bytes skipped.
    fn skip(&mut self, fits: impl Fn(u8) -> bool) -> usize {
        let count = self.0.iter().take_while(|byte| fits(**byte)).count();
        self.0 = self.0.get(count..).unwrap_or(&[]);
        count
    }

    /// Skips a time zone abbreviation such as `CET` or `<+03>`.
    fn name(&mut self) -> Option<()> {
        let (count, closed) = if self.accept(b'<') {
            let count = self.skip(|b| b.is_ascii_alphanumeric() || b == b'+' || b == b'-');
            (count, self.accept(b'>'))
        } else {
            (self.skip(|b| b.is_ascii_alphabetic()), true)
        };
        (count >= 3 && closed).then_some(())
    }

    /// Parses a number of up to three digits between `least` and `most`.
    fn number(&mut self, least: i64, most: i64) -> Option<i64> {
        let (before, count) = (self.0, self.skip(|b| b.is_ascii_digit()));
        if !(1..=3).contains(&count) {
            return None;
        }
        let digits = str::from_utf8(before.get(..count)?).ok()?;
        let number = digits.parse().ok()?;
        (least..=most).contains(&number).then_some(number)
    }

    /// Parses `[+-]hh[:mm[:ss]]` as seconds.
    fn time(&mut self, most_hours: i64) -> Option<i64> {
        let is_negative = self.accept(b'-');
        if !is_negative {
            self.accept(b'+');
        }
        let hours = self.number(0, most_hours)?;
        let mut parts = [0; 2];
        for part in &mut parts {
            if !self.accept(b':') {
                break;
            }
            *part = self.number(0, 59)?;
        }
        let [minutes, seconds] = parts;
        let seconds = time((hours, minutes, seconds));
        Some(if is_negative {
            seconds.saturating_neg()
        } else {
            seconds
        })
    }

    /// Parses `,date[/time]`.
    fn change(&mut self) -> Option<Change> {
        if !self.accept(b',') {
            return None;
        }
        let day = if self.accept(b'J') {
            ChangeDay::WithoutLeapDay(self.number(1, 365)?)
        } else if self.accept(b'M') {
            let month = self.number(1, 12)?.saturating_sub(1);
            let week = self.after_dot(1, 5)?.saturating_sub(1);
            let weekday = self.after_dot(0, 6)?;
            ChangeDay::Weekday {
                month,
                week,
                weekday,
            }
        } else {
            ChangeDay::WithLeapDay(self.number(0, 365)?)
        };
        let second = if self.accept(b'/') {
            self.time(167)?
        } else {
            2 * 3_600
        };
        Some(Change { day, second })
    }

    fn after_dot(&mut self, least: i64, most: i64) -> Option<i64> {
        if !self.accept(b'.') {
            return None;
        }
        self.number(least, most)
    }
}
