//! What a limit answers: the verdict with its numbers.

use crate::time::Nanos;
use crate::wide::times;

/// What happens to the request.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash)]
pub enum Verdict {
    /// It passes now.
    Admit,
    /// It passes after [`Decision::wait`].
    Hold,
    /// It does not pass.
    Refuse,
}

/// The five values of a decision (`CL.THROTTLE`'s limited, limit, remaining, retry-after and
/// reset-after) and the wait of one that holds, as of the instant it was taken.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Decision {
    /// Admitted, held or refused.
    pub verdict: Verdict,
    /// When held: the time until the request may pass. Zero otherwise.
    pub wait: Nanos,
    /// The most that the bucket holds, in cost units.
    pub capacity: u64,
    /// What is left after this decision, in cost units; rounded down.
    pub remaining: u64,
    /// When refused: the time until the same cost is admitted, if nothing else takes from the
    /// bucket. `None` when admitted, when that cost never fits, and when only the end of other
    /// requests could tell (`concurrency`).
    pub retry_after: Option<Nanos>,
    /// The time until the bucket is as good as new.
    pub reset_after: Nanos,
}

impl Decision {
    /// An admission.
    pub(crate) const fn admit(capacity: u64, remaining: u64, reset_after: Nanos) -> Self {
        Self {
            verdict: Verdict::Admit,
            wait: Nanos::ZERO,
            capacity,
            remaining,
            retry_after: None,
            reset_after,
        }
    }

    /// The same, let through after `wait`; at once when that is zero.
    #[must_use]
    pub(crate) const fn after(self, wait: Nanos) -> Self {
        let verdict = if wait.get() == 0 {
            Verdict::Admit
        } else {
            Verdict::Hold
        };
        Self {
            verdict,
            wait,
            ..self
        }
    }

    /// The same, refused.
    #[must_use]
    pub(crate) const fn refused(self, retry_after: Option<Nanos>) -> Self {
        Self {
            verdict: Verdict::Refuse,
            wait: Nanos::ZERO,
            retry_after,
            ..self
        }
    }

    /// Whether the request was refused.
    pub const fn is_refused(&self) -> bool {
        matches!(self.verdict, Verdict::Refuse)
    }

    /// Whether `self` has a smaller share of its capacity left than `other`.
    pub fn is_tighter_than(&self, other: &Self) -> bool {
        times(self.remaining, other.capacity) < times(other.remaining, self.capacity)
    }
}
