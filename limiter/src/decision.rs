//! What a limit answers: the verdict with its numbers.

use crate::time::Nanos;

/// What happens to the request.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash)]
pub enum Verdict {
    /// It passes now.
    Admit,
    /// It does not pass.
    Refuse,
}

/// The five values of a decision (`CL.THROTTLE`'s limited, limit, remaining, retry-after and
/// reset-after), as of the instant it was taken.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Decision {
    /// Admitted or refused.
    pub verdict: Verdict,
    /// The most that the bucket holds, in cost units.
    pub capacity: u64,
    /// What is left after this decision, in cost units; rounded down.
    pub remaining: u64,
    /// When refused: the time until the same cost is admitted, if nothing else takes from the
    /// bucket. `None` when admitted, and when that cost never fits.
    pub retry_after: Option<Nanos>,
    /// The time until the bucket is as good as new.
    pub reset_after: Nanos,
}

impl Decision {
    /// Whether the request was refused.
    pub const fn is_refused(&self) -> bool {
        matches!(self.verdict, Verdict::Refuse)
    }

    /// Whether `self` has a smaller share of its capacity left than `other`.
    pub(crate) fn is_tighter_than(&self, other: &Self) -> bool {
        let (mine, theirs) = (u128::from(self.remaining), u128::from(other.remaining));
        mine.saturating_mul(u128::from(other.capacity))
            < theirs.saturating_mul(u128::from(self.capacity))
    }
}
