//! The part of a level that is carried over when the numbers of a live bucket change.

use serde::Serialize;

use crate::wide::{mul_div_ceil, mul_div_near};

/// The level of a live bucket when its numbers change.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq, Serialize)]
#[serde(rename_all = "snake_case")]
pub enum Carry {
    /// The same absolute level: 5 used stays 5 used. The default, because an edit then neither refuses a key that
    /// used little nor hands out anything twice, whatever edits came before.
    #[default]
    Keep,
    /// The same fraction: half full stays half full. Use beyond the capacity stays beyond the new one, in units.
    Proportional,
    /// As earlier versions did it in proportion, for changes that they recorded: each count is rounded up at each
    /// edit, and use beyond the capacity stays as far as the new capacity does not cover it.
    #[serde(rename = "proportional")]
    Stepped,
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
            Self::Proportional | Self::Stepped => "proportional",
            Self::Reset => "reset",
        }
    }

    /// The new value of `used` of `old` when that becomes `new`, in parts so small that rounding to the nearest one
    /// does not matter.
    pub(crate) fn apply(self, used: u128, old: u128, new: u128) -> u128 {
        match self {
            Self::Keep => used,
            Self::Proportional => {
                let within = mul_div_near(used.min(old), new, old.max(1));
                within.saturating_add(used.saturating_sub(old))
            }
            Self::Stepped if used > old => used.max(new),
            Self::Stepped => mul_div_ceil(used, new, old.max(1)),
            Self::Reset => 0,
        }
    }
}
