//! "At most 0.1 % of users refused": a bound on what a suggested limit may refuse.

use std::fmt;

/// What a share is of.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Subject {
    /// Keys that are refused at least once.
    Users,
}

/// A share of the keys, in hundred-thousandths.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Share {
    hundred_thousandths: u32,
}

impl Share {
    /// At most one of a thousand.
    pub const DEFAULT: Self = Self {
        hundred_thousandths: 100,
    };

    /// Reads `0.1%users`; at most three digits behind the point.
    pub fn parse(text: &str) -> Result<Self, String> {
        let wrong = || "invalid share; write it like 0.1%users".to_owned();
        let number = text.trim().strip_suffix("users").ok_or_else(wrong)?;
        let number = number.trim().strip_suffix('%').ok_or_else(wrong)?.trim();
        let (whole, fraction) = number.split_once('.').unwrap_or((number, ""));
        let is_number = |text: &str| text.bytes().all(|b| b.is_ascii_digit());
        if whole.is_empty() || !is_number(whole) || !is_number(fraction) || fraction.len() > 3 {
            return Err(wrong());
        }
        let digits = format!("{whole}{fraction:0<3}");
        let parsed: u32 = digits.parse().map_err(|_error| wrong())?;
        if parsed > 100_000 {
            return Err("a share is at most 100%users".to_owned());
        }
        Ok(Self {
            hundred_thousandths: parsed,
        })
    }

    /// How many of these that is at most.
    pub fn of(self, count: usize) -> usize {
        let of =
            u128::try_from(count).unwrap_or(0) * u128::from(self.hundred_thousandths) / 100_000;
        usize::try_from(of).unwrap_or(usize::MAX)
    }
}

impl fmt::Display for Share {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        let (whole, rest) = (
            self.hundred_thousandths / 1_000,
            self.hundred_thousandths % 1_000,
        );
        let digits = format!("{rest:03}");
        let digits = digits.trim_end_matches('0');
        let point = if digits.is_empty() { "" } else { "." };
        write!(f, "{whole}{point}{digits}%")
    }
}
