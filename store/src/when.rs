//! The condition of a rule: only while an upstream fails.

use loudou_limiter::hash::tag;
use loudou_limiter::{Decimal, Nanos};
use serde::Serialize;

/// A rule that applies only while too large a share of an upstream's responses are errors. One switch
/// for each upstream, and with two thresholds, so that it does not flutter at one.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Serialize)]
pub struct When {
    /// The rule starts to apply when the share of errors is above this.
    #[serde(rename = "upstream_error_rate_over")]
    pub over: Decimal,
    /// The rule stops applying when the share is below this; at most `over`.
    pub until_under: Decimal,
    /// The period in which responses are counted.
    pub within: Nanos,
    /// The minimum number of responses in this period for the rule to start to apply.
    pub least: u32,
}

impl When {
    /// A number that distinguishes the counts of this condition from those of others. Rules with equal
    /// conditions share their counts.
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
