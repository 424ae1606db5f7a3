//! Time types of the core. Times are whole nanoseconds, which callers pass in. The core never reads
//! a clock.

use alloc::format;
use core::fmt;

use serde::{Serialize, Serializer};

use crate::bounds::MAX_PERIOD;

/// A time on the monotonic clock of the process, or a duration, in nanoseconds.
///
/// The type implements no arithmetic operators, so that the name of each operation shows whether it
/// saturates.
///
/// ```
/// use loudou_limiter::Nanos;
///
/// let minute = Nanos::from_secs(60);
/// assert_eq!(minute.to_string(), "1m");
/// assert_eq!(minute.saturating_add(Nanos::MAX), Nanos::MAX);
/// assert_eq!(Nanos::ZERO.since(minute), Nanos::ZERO);
/// ```
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq, PartialOrd, Ord, Hash)]
pub struct Nanos(u64);

/// One instant, as shown by both clocks.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Clock {
    /// Time on the monotonic clock of the process.
    pub now: Nanos,
    /// Time on the wall clock, since the Unix epoch.
    pub wall: Nanos,
}

impl Clock {
    /// Creates an instant at which both clocks show `now`, as if the wall clock had started
    /// together with the monotonic clock.
    ///
    /// ```
    /// use loudou_limiter::{Clock, Nanos};
    ///
    /// let clock = Clock::at(Nanos::from_secs(5));
    /// assert_eq!(clock.wall, Nanos::from_secs(5));
    /// ```
    pub const fn at(now: Nanos) -> Self {
        Self { now, wall: now }
    }

    /// Moves both clocks by the same amount, so that the monotonic clock shows `now`.
    ///
    /// ```
    /// use loudou_limiter::{Clock, Nanos};
    ///
    /// // 00:10:00 UTC, an hour after the machine was started.
    /// let clock = Clock { now: Nanos::from_secs(3_600), wall: Nanos::from_secs(600) };
    /// let earlier = clock.moved_to(Nanos::from_secs(3_540));
    /// assert_eq!(earlier.wall, Nanos::from_secs(540));
    /// ```
    #[must_use]
    pub const fn moved_to(self, now: Nanos) -> Self {
        let wall = self.wall.saturating_add(now.since(self.now));
        let wall = wall.since(self.now.since(now));
        Self { now, wall }
    }
}

/// Units of durations, largest first. A duration is displayed in the first unit that divides it
/// evenly.
const UNITS: [(&str, u64); 7] = [
    ("d", 86_400_000_000_000),
    ("h", 3_600_000_000_000),
    ("m", 60_000_000_000),
    ("s", 1_000_000_000),
    ("ms", 1_000_000),
    ("us", 1_000),
    ("ns", 1),
];

/// Expected format of a duration, for error messages.
pub const DURATION_FORM: &str = "a whole number and a unit: 500ns, 20us, 250ms, 60s, 5m, 1h, 1d";

impl Nanos {
    /// A duration of zero, or the origin of a clock.
    pub const ZERO: Self = Self(0);
    /// The maximum time or duration, about 584 years.
    pub const MAX: Self = Self(u64::MAX);

    /// Creates a time or duration of `ns` nanoseconds.
    ///
    /// ```
    /// use loudou_limiter::Nanos;
    ///
    /// assert_eq!(Nanos::new(1_500_000_000).to_string(), "1500ms");
    /// ```
    pub const fn new(ns: u64) -> Self {
        Self(ns)
    }

    /// Creates a time or duration of `s` seconds, capped at [`Nanos::MAX`].
    ///
    /// ```
    /// use loudou_limiter::Nanos;
    ///
    /// assert_eq!(Nanos::from_secs(90).get(), 90_000_000_000);
    /// ```
    pub const fn from_secs(s: u64) -> Self {
        Self(s.saturating_mul(1_000_000_000))
    }

    /// Creates a time or duration of `ms` milliseconds, capped at [`Nanos::MAX`].
    ///
    /// ```
    /// use loudou_limiter::Nanos;
    ///
    /// assert_eq!(Nanos::from_millis(1_001).secs_ceil(), 2);
    /// ```
    pub const fn from_millis(ms: u64) -> Self {
        Self(ms.saturating_mul(1_000_000))
    }

    /// Returns the number of nanoseconds.
    pub const fn get(self) -> u64 {
        self.0
    }

    /// Returns true if the time or duration is zero.
    pub const fn is_zero(&self) -> bool {
        self.0 == 0
    }

    /// Returns `self + span`, capped at [`Nanos::MAX`].
    #[must_use]
    pub const fn saturating_add(self, span: Self) -> Self {
        Self(self.0.saturating_add(span.0))
    }

    /// Returns the duration from `earlier` to `self`, or zero if `earlier` is later.
    #[must_use]
    pub const fn since(self, earlier: Self) -> Self {
        Self(self.0.saturating_sub(earlier.0))
    }

    /// Returns the number of seconds, rounded up so that a `Retry-After` value is never too small.
    pub const fn secs_ceil(self) -> u64 {
        self.0.div_ceil(1_000_000_000)
    }

    /// Returns the number of milliseconds, rounded down.
    pub const fn as_millis(self) -> u64 {
        self.0 / 1_000_000
    }

    /// Returns the number of milliseconds, rounded up.
    pub const fn millis_ceil(self) -> u64 {
        self.0.div_ceil(1_000_000)
    }

    /// Parses a duration such as `60s` or `250ms`. Returns `None` if the string is malformed or the
    /// duration is too long.
    ///
    /// ```
    /// use loudou_limiter::Nanos;
    ///
    /// assert_eq!(Nanos::parse("5m"), Some(Nanos::from_secs(300)));
    /// assert_eq!(Nanos::parse("5"), None, "a unit belongs to it");
    /// ```
    pub fn parse(text: &str) -> Option<Self> {
        let digits = text.bytes().take_while(u8::is_ascii_digit).count();
        let (number, unit) = text.split_at_checked(digits)?;
        let scale = UNITS.iter().find(|(name, _)| *name == unit)?.1;
        number.parse::<u64>().ok()?.checked_mul(scale).map(Self)
    }
}

impl fmt::Display for Nanos {
    /// Writes the shortest exact form, such as `90s` instead of `1m30s`, so that it can be parsed
    /// again.
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        if self.0 == 0 {
            return f.write_str("0s");
        }
        let exact = UNITS
            .iter()
            .find(|(_, scale)| self.0.checked_rem(*scale) == Some(0));
        let (unit, scale) = exact.copied().unwrap_or(("ns", 1));
        write!(f, "{}{unit}", self.0.checked_div(scale).unwrap_or(self.0))
    }
}

impl Serialize for Nanos {
    fn serialize<S: Serializer>(&self, serializer: S) -> Result<S::Ok, S::Error> {
        serializer.collect_str(self)
    }
}

// A rate is an amount per period, stored as the exact ratio from the rule file.

/// A rate of `amount` per `period`. The amount and the period are positive. The rate is never
/// converted to a floating-point number or a rounded interval.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash)]
pub struct Rate {
    amount: u32,
    period: Nanos,
}

/// Expected format of a rate, for error messages.
pub const RATE_FORM: &str = "an amount per period: 30/60s, 10/s, 5/m, 1000/d, 1/250ms";

impl Rate {
    /// Creates a rate. Returns `None` if the amount or the period is zero.
    ///
    /// ```
    /// use loudou_limiter::{Nanos, Rate};
    ///
    /// let rate = Rate::new(30, Nanos::from_secs(60)).unwrap();
    /// assert_eq!(rate.to_string(), "30/m");
    /// assert_eq!(Rate::new(0, Nanos::from_secs(60)), None);
    /// ```
    pub const fn new(amount: u32, period: Nanos) -> Option<Self> {
        if amount == 0 || period.get() == 0 {
            return None;
        }
        Some(Self { amount, period })
    }

    /// Returns the amount per period, at least 1.
    pub const fn amount(self) -> u32 {
        self.amount
    }

    /// Returns the period, at least 1 ns.
    pub const fn period(self) -> Nanos {
        self.period
    }

    /// Divides the rate by `parts`. The result has the same amount and a period that is `parts`
    /// times as long. If that period exceeds [`MAX_PERIOD`], the rate is divided in lumps instead.
    #[must_use]
    pub(crate) fn divided(self, parts: u32) -> Self {
        let period = Nanos::new(self.period.get().saturating_mul(parts.max(1).into()));
        if period > MAX_PERIOD {
            return self.divided_in_lumps(parts);
        }
        Self { period, ..self }
    }

    /// Divides the rate by `parts`, for lumps at multiples of the original period. The amount is
    /// rounded down, but is at least 1, and the period is at most [`MAX_PERIOD`].
    #[must_use]
    pub(crate) fn divided_in_lumps(self, parts: u32) -> Self {
        let amount = self.amount.checked_div(parts).unwrap_or(self.amount);
        let periods = match amount {
            0 => parts.div_ceil(self.amount.max(1)),
            _ => 1,
        };
        let period = Nanos::new(self.period.get().saturating_mul(periods.into()));
        Self {
            amount: amount.max(1),
            period: period.min(MAX_PERIOD),
        }
    }

    /// Parses a rate such as `30/60s`, or `10/s` for a period of one unit.
    ///
    /// ```
    /// use loudou_limiter::{Nanos, Rate};
    ///
    /// assert_eq!(Rate::parse("10/s"), Rate::new(10, Nanos::from_secs(1)));
    /// // The ratio is not reduced: 30 units a minute may refill in larger lumps than 1 every 2 s.
    /// assert_ne!(Rate::parse("30/60s"), Rate::parse("1/2s"));
    /// ```
    pub fn parse(text: &str) -> Option<Self> {
        let (amount, period) = text.split_once('/')?;
        if !amount.bytes().all(|b| b.is_ascii_digit()) {
            return None;
        }
        let period = Nanos::parse(period).or_else(|| {
            let bare = !period.starts_with(|c: char| c.is_ascii_digit());
            if bare {
                Nanos::parse(&format!("1{period}"))
            } else {
                None
            }
        })?;
        Self::new(amount.parse().ok()?, period)
    }
}

impl fmt::Display for Rate {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        let period = format!("{}", self.period);
        let unit = period
            .strip_prefix('1')
            .filter(|u| u.starts_with(|c: char| !c.is_ascii_digit()));
        write!(f, "{}/{}", self.amount, unit.unwrap_or(&period))
    }
}

impl Serialize for Rate {
    fn serialize<S: Serializer>(&self, serializer: S) -> Result<S::Ok, S::Error> {
        serializer.collect_str(self)
    }
}

#[cfg(test)]
mod tests {
    use alloc::string::ToString;

    use super::*;

    #[test]
    fn reads_and_writes_every_unit() {
        for text in ["500ns", "20us", "250ms", "60s", "5m", "1h", "1d", "90s"] {
            let parsed = Nanos::parse(text).expect(text);
            assert_eq!(Nanos::parse(&parsed.to_string()), Some(parsed));
        }
        assert_eq!(Nanos::parse("60s"), Nanos::parse("1m"));
        assert_eq!(Nanos::from_secs(90).to_string(), "90s");
        assert_eq!(Nanos::ZERO.to_string(), "0s");
    }

    #[test]
    fn refuses_what_is_not_a_duration() {
        for text in [
            "",
            "s",
            "60",
            "60 s",
            "-1s",
            "1.5s",
            "60S",
            "1m30s",
            "999999999d",
            "１s",
        ] {
            assert_eq!(Nanos::parse(text), None, "{text}");
        }
    }

    #[test]
    fn seconds_round_up() {
        assert_eq!(Nanos::new(1).secs_ceil(), 1);
        assert_eq!(Nanos::from_secs(2).secs_ceil(), 2);
        assert_eq!(Nanos::MAX.secs_ceil(), 18_446_744_074);
    }
}

#[cfg(test)]
mod rate_tests {
    use alloc::string::ToString;

    use super::*;

    #[test]
    fn reads_and_writes() {
        for (text, written) in [
            ("30/60s", "30/m"),
            ("10/s", "10/s"),
            ("5/m", "5/m"),
            ("1/250ms", "1/250ms"),
        ] {
            let rate = Rate::parse(text).expect(text);
            assert_eq!(rate.to_string(), written);
            assert_eq!(Rate::parse(written), Some(rate));
        }
    }

    #[test]
    fn refuses_what_is_not_a_rate() {
        for text in [
            "",
            "30",
            "/s",
            "0/s",
            "1/0s",
            "-1/s",
            "+1/s",
            "1.5/s",
            "1/",
            "1/1",
            "5000000000/s",
        ] {
            assert_eq!(Rate::parse(text), None, "{text}");
        }
    }
}
