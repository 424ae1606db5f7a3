//! "At most 0.1 % of users refused": a bound on what a suggested limit may refuse.

use std::fmt;

/// The whole that a share is of.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Subject {
    /// Keys that are refused at least once.
    Users,
    /// Refused requests.
    Requests,
}

/// A share of the keys or of the requests, in hundred-thousandths.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Share {
    hundred_thousandths: u32,
    /// Its whole.
    pub subject: Subject,
}

impl Share {
    /// Reads `0.1%users` or `1%requests`; at most three digits behind the point.
    pub fn parse(text: &str) -> Result<Self, String> {
        let wrong = || "invalid share; write it like 0.1%users or 1%requests".to_owned();
        let (number, subject) = text.split_once('%').ok_or_else(wrong)?;
        let subject = match subject.trim() {
            "users" => Subject::Users,
            "requests" => Subject::Requests,
            _ => return Err(wrong()),
        };
        let number = number.trim();
        let (whole, fraction) = number.split_once('.').unwrap_or((number, ""));
        let is_number = |text: &str| text.bytes().all(|b| b.is_ascii_digit());
        if whole.is_empty() || !is_number(whole) || !is_number(fraction) || fraction.len() > 3 {
            return Err(wrong());
        }
        let digits = format!("{whole}{fraction:0<3}");
        let parsed: u32 = digits.parse().map_err(|_error| wrong())?;
        if parsed > 100_000 {
            return Err("a share is at most 100%".to_owned());
        }
        Ok(Self {
            hundred_thousandths: parsed,
            subject,
        })
    }

    /// How many of these that is at most.
    pub fn of(self, count: u64) -> u64 {
        let of = u128::from(count) * u128::from(self.hundred_thousandths) / 100_000;
        u64::try_from(of).unwrap_or(u64::MAX)
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
        let subject = match self.subject {
            Subject::Users => "keys",
            Subject::Requests => "requests",
        };
        write!(f, "{whole}{point}{digits} % of the {subject}")
    }
}
