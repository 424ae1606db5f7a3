//! The part of a level that is carried over when the numbers of a live bucket change.

use serde::Serialize;

use crate::wide::mul_div_ceil;

/// The level of a live bucket when its numbers change.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq, Serialize)]
#[serde(rename_all = "snake_case")]
pub enum Carry {
    /// The same absolute level: 5 used stays 5 used.
    Keep,
    /// The same fraction: half full stays half full. Use beyond the capacity stays as far as the new
    /// capacity does not cover it.
    #[default]
    Proportional,
    /// Full, as a new bucket.
    Reset,
}

impl Carry {
    /// The names in requests.
    pub const NAMES: [&'static str; 3] = ["keep", "proportional", "reset"];

    /// The carry of that name.
    ///
    /// ```
    /// use loudou_limiter::Carry;
    ///
    /// assert_eq!(Carry::parse("keep"), Some(Carry::Keep));
    /// assert_eq!(Carry::parse("forget"), None);
    /// ```
    pub fn parse(name: &str) -> Option<Self> {
        match name {
            "keep" => Some(Self::Keep),
            "proportional" => Some(Self::Proportional),
            "reset" => Some(Self::Reset),
            _ => None,
        }
    }

    /// The name in requests.
    pub const fn name(self) -> &'static str {
        match self {
            Self::Keep => "keep",
            Self::Proportional => "proportional",
            Self::Reset => "reset",
        }
    }

    /// The new value of `used` of `old` when that becomes `new`, rounded up.
    pub(crate) fn apply(self, used: u128, old: u128, new: u128) -> u128 {
        match self {
            Self::Keep => used,
            Self::Proportional if used > old => used.max(new),
            Self::Proportional => mul_div_ceil(used, new, old.max(1)),
            Self::Reset => 0,
        }
    }
}
