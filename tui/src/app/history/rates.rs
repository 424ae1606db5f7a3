//! Counts of requests, and their rates per second.

use loudou_api::{BucketView, RuleTotals};

/// Requests per second.
#[derive(Clone, Copy, Debug, Default, PartialEq)]
pub(crate) struct Rates {
    pub(crate) admitted: f64,
    pub(crate) refused: f64,
    /// Refused by a rule in shadow mode, and passed.
    pub(crate) shadow: f64,
}

impl Rates {
    /// The sum of both rates.
    pub(crate) fn plus(self, other: Self) -> Self {
        Self {
            admitted: self.admitted + other.admitted,
            refused: self.refused + other.refused,
            shadow: self.shadow + other.shadow,
        }
    }

    /// Counts over a time in seconds.
    pub(super) fn per(self, seconds: f64) -> Self {
        Self {
            admitted: self.admitted / seconds,
            refused: self.refused / seconds,
            shadow: self.shadow / seconds,
        }
    }

    /// The rates times a factor.
    pub(super) fn times(self, factor: f64) -> Self {
        Self {
            admitted: self.admitted * factor,
            refused: self.refused * factor,
            shadow: self.shadow * factor,
        }
    }
}

/// Counts of requests since the beginning of a bucket or a rule.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub(crate) struct Counts {
    pub(crate) admitted: u64,
    pub(crate) refused: u64,
    pub(crate) shadow: u64,
}

impl Counts {
    /// Of a bucket. All refusals count as those of the mode that its rule is in.
    pub(crate) const fn of_bucket(bucket: &BucketView) -> Self {
        let (refused, shadow) = if bucket.shadow {
            (0, bucket.refused)
        } else {
            (bucket.refused, 0)
        };
        Self {
            admitted: bucket.admitted,
            refused,
            shadow,
        }
    }

    /// Of a rule.
    pub(crate) const fn of_rule(totals: &RuleTotals) -> Self {
        Self {
            admitted: totals.passed(),
            refused: totals.refused,
            shadow: totals.shadow_refused,
        }
    }

    /// Whether these may be later counts than `before`.
    pub(super) const fn follow(&self, before: &Self) -> bool {
        self.admitted >= before.admitted
            && self.refused >= before.refused
            && self.shadow >= before.shadow
    }

    /// The counts since `before`.
    pub(super) const fn since(&self, before: &Self) -> Self {
        Self {
            admitted: self.admitted.saturating_sub(before.admitted),
            refused: self.refused.saturating_sub(before.refused),
            shadow: self.shadow.saturating_sub(before.shadow),
        }
    }

    /// The sum of both counts.
    pub(super) const fn plus(&self, other: &Self) -> Self {
        Self {
            admitted: self.admitted.saturating_add(other.admitted),
            refused: self.refused.saturating_add(other.refused),
            shadow: self.shadow.saturating_add(other.shadow),
        }
    }
}
