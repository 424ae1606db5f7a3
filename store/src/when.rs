//! When a rule applies at all: only while an upstream fails.

use loudou_limiter::hash::tag;
use loudou_limiter::{Decimal, Nanos};
use serde::Serialize;

/// A rule that applies only while too large a share of an upstream's responses are errors. One switch
/// for each upstream, and with two thresholds, so that it does not flutter at one.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Serialize)]
pub struct When {
    /// It goes on when the share of errors is over this.
    #[serde(rename = "upstream_error_rate_over")]
    pub over: Decimal,
    /// It goes off when the share is under this; at most `over`.
    pub until_under: Decimal,
    /// The time over which responses are counted.
    pub within: Nanos,
    /// The fewest responses in this time that it goes on for.
    pub least: u32,
}

impl When {
    /// A number that tells what is counted for this from what is counted for another. Rules that say
    /// the same see the same.
    pub fn tag(&self) -> u32 {
        let numbers = [
            self.over.thousandths().into(),
            self.until_under.thousandths().into(),
            self.least.into(),
            self.within.get(),
        ];
        tag(numbers.map(u64::to_le_bytes).as_flattened())
    }
}
