//! A limit's decision: the verdict with its numbers.

use crate::time::Nanos;
use crate::wide::times;

/// The outcome of a request.
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
///
/// ```
/// use loudou_limiter::{Limit, Limits, Nanos, Rate, Verdict, algorithm::Funnel};
///
/// let funnel = Funnel::new(5, Rate::parse("1/s").unwrap()).unwrap();
/// let limits = Limits::new(vec![Limit::new("burst", funnel)]).unwrap();
/// let mut bucket = limits.start(Nanos::ZERO);
/// limits.decide(&mut bucket, 4, Nanos::ZERO);
///
/// let answer = limits.decide(&mut bucket, 3, Nanos::ZERO);
/// let decision = answer.reported().unwrap();
/// assert_eq!(decision.verdict, Verdict::Refuse);
/// assert_eq!((decision.capacity, decision.remaining), (5, 1));
/// assert_eq!(decision.retry_after, Some(Nanos::from_secs(2)));
/// assert_eq!(decision.reset_after, Nanos::from_secs(4));
/// ```
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Decision {
    /// Admitted, held or refused.
    pub verdict: Verdict,
    /// When held: the time until the request may pass. Zero otherwise.
    pub wait: Nanos,
    /// The most that the bucket holds, in cost units.
    pub capacity: u64,
    /// The units left after this decision; rounded down.
    pub remaining: u64,
    /// When refused: the time until the same cost is admitted, if nothing else takes from the
    /// bucket. `None` when admitted, when that cost never fits, and when it depends on the end of
    /// other requests (`concurrency`).
    pub retry_after: Option<Nanos>,
    /// The time until the bucket is full again.
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
