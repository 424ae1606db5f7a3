//! A rate: an amount per period, kept as the exact ratio it was written as.

use alloc::format;
use core::fmt;

use serde::{Serialize, Serializer};

use crate::bounds::MAX_PERIOD;
use crate::time::Nanos;

/// `amount` per `period`, both positive. Never reduced to a float or to a rounded interval.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash)]
pub struct Rate {
    amount: u32,
    period: Nanos,
}

/// The form of a rate, for error messages.
pub const RATE_FORM: &str = "an amount per period: 30/60s, 10/s, 5/m, 1000/d, 1/250ms";

impl Rate {
    /// A rate, unless the amount or the period is zero.
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

    /// The amount per period; at least 1.
    pub const fn amount(self) -> u32 {
        self.amount
    }

    /// The period; at least 1 ns.
    pub const fn period(self) -> Nanos {
        self.period
    }

    /// One of `parts` equal parts: the same amount in a longer period. Where that is longer than
    /// [`MAX_PERIOD`], in lumps.
    #[must_use]
    pub(crate) fn divided(self, parts: u32) -> Self {
        let period = Nanos::new(self.period.get().saturating_mul(parts.max(1).into()));
        if period > MAX_PERIOD {
            return self.divided_in_lumps(parts);
        }
        Self { period, ..self }
    }

    /// One of `parts` parts that come at multiples of the period, rounded down; the amount is at least 1.
    /// Never slower than 1 per [`MAX_PERIOD`].
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

    /// Reads `30/60s`, or `10/s` for a period of one unit.
    ///
    /// ```
    /// use loudou_limiter::{Nanos, Rate};
    ///
    /// assert_eq!(Rate::parse("10/s"), Rate::new(10, Nanos::from_secs(1)));
    /// // It is not reduced: thirty a minute come back more coarsely than one every two seconds.
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
