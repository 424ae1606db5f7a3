//! A request as a bucket sees it ([`Ask`]), and the decision of a limit: the verdict with its numbers.

use crate::bounds::MAX_WAIT;
use crate::limit::BucketDecision;
use crate::time::{Clock, Nanos};
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
    /// Maximum amount that the bucket holds, in cost units.
    pub capacity: u64,
    /// Units that remain after this decision, rounded down.
    pub remaining: u64,
    /// When refused: the time until the same cost is admitted, or held if waiting is allowed, if
    /// nothing else takes from the bucket. `None` when admitted, when that cost never fits, and when it depends on the end of
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

    /// Returns the decision with an admission after `wait`, or at once if that is zero.
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

    /// Returns the decision with a refusal.
    #[must_use]
    pub(crate) const fn refused(self, retry_after: Option<Nanos>) -> Self {
        Self {
            verdict: Verdict::Refuse,
            wait: Nanos::ZERO,
            retry_after,
            ..self
        }
    }

    /// Returns true if the request was refused.
    pub const fn is_refused(&self) -> bool {
        matches!(self.verdict, Verdict::Refuse)
    }

    /// Returns true if `self` has a smaller share of its capacity left than `other`.
    pub fn is_tighter_than(&self, other: &Self) -> bool {
        times(self.remaining, other.capacity) < times(other.remaining, self.capacity)
    }
}

/// A cost at an instant.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Ask {
    /// The cost that it takes, in cost units; 0 looks without taking.
    pub cost: u64,
    /// The instant on the process's monotonic clock.
    pub now: Nanos,
    /// This instant on the wall clock, since the Unix epoch; only read where periods are aligned to
    /// it.
    pub wall: Nanos,
    /// A bound on the wait of this request, in place of the bound of the limits; at most [`MAX_WAIT`].
    pub max_wait: Option<Nanos>,
    /// A second bound on its wait; the shorter bound counts.
    pub patience: Nanos,
    /// Which answers contain the time when more will be available: [`BucketDecision::more_after`](crate::BucketDecision::more_after).
    pub tells_more: TellsMore,
    /// True if the request waits already, and is only replanned: its place in a queue is its own, and no
    /// wait is too long.
    pub has_place: bool,
}

/// The answers that contain the time when more will be available.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub enum TellsMore {
    /// None.
    #[default]
    Never,
    /// Refusals.
    IfRefused,
    /// All.
    Always,
}

impl Ask {
    /// `cost` at `now`, with a wall clock that started together with the monotonic one.
    ///
    /// ```
    /// use loudou_limiter::{Ask, Limit, Limits, Nanos, Rate, algorithm::Funnel};
    ///
    /// let funnel = Funnel::new(5, Rate::parse("1/s").unwrap()).unwrap();
    /// let limits = Limits::new(vec![Limit::new("burst", funnel)]).unwrap();
    /// let mut bucket = limits.start(Nanos::ZERO);
    /// let answer = limits.answer(&mut bucket, &Ask::new(3, Nanos::ZERO));
    /// assert_eq!(answer.reported().unwrap().remaining, 2);
    /// ```
    pub const fn new(cost: u64, now: Nanos) -> Self {
        Self {
            cost,
            now,
            wall: now,
            max_wait: None,
            patience: Nanos::MAX,
            tells_more: TellsMore::Never,
            has_place: false,
        }
    }

    /// Its instant on both clocks.
    pub const fn clock(&self) -> Clock {
        Clock {
            now: self.now,
            wall: self.wall,
        }
    }

    /// The same when the wall clock shows `wall`.
    ///
    /// ```
    /// use loudou_limiter::{Ask, Limit, Limits, Nanos, algorithm::{Align, FixedWindow}};
    ///
    /// let window = FixedWindow::new(5, Nanos::from_secs(60), Align::Clock).unwrap();
    /// let limits = Limits::new(vec![Limit::new("minute", window)]).unwrap();
    /// let mut bucket = limits.start(Nanos::ZERO);
    /// // Ten seconds before the minute is over.
    /// let ask = Ask::new(1, Nanos::ZERO).at_wall(Nanos::from_secs(170));
    /// let answer = limits.answer(&mut bucket, &ask);
    /// assert_eq!(answer.reset_after(), Nanos::from_secs(10));
    /// ```
    #[must_use]
    pub const fn at_wall(self, wall: Nanos) -> Self {
        Self { wall, ..self }
    }

    /// The same with its own bound on waiting.
    ///
    /// ```
    /// use loudou_limiter::{Ask, Limit, Limits, Nanos, Rate, Verdict, algorithm::Funnel};
    ///
    /// let funnel = Funnel::new(1, Rate::parse("1/s").unwrap()).unwrap();
    /// let limits = Limits::new(vec![Limit::new("pace", funnel)]).unwrap();
    /// let mut bucket = limits.start(Nanos::ZERO);
    /// let ask = Ask::new(1, Nanos::ZERO).waiting(Some(Nanos::from_secs(1)));
    /// assert_eq!(limits.answer(&mut bucket, &ask).verdict(), Verdict::Admit);
    /// assert_eq!(limits.answer(&mut bucket, &ask).verdict(), Verdict::Hold);
    /// assert_eq!(limits.answer(&mut bucket, &ask).verdict(), Verdict::Refuse);
    /// ```
    #[must_use]
    pub const fn waiting(self, max_wait: Option<Nanos>) -> Self {
        Self { max_wait, ..self }
    }

    /// Returns limits whose answers report when more is available again.
    ///
    /// ```
    /// use loudou_limiter::{Ask, Limit, Limits, Nanos, Rate, TellsMore, algorithm::Funnel};
    ///
    /// let funnel = Funnel::new(5, Rate::parse("1/s").unwrap()).unwrap();
    /// let limits = Limits::new(vec![Limit::new("burst", funnel)]).unwrap();
    /// let mut bucket = limits.start(Nanos::ZERO);
    /// // Three are used: all of them are back in three seconds, the first of them in one.
    /// let answer = limits.answer(&mut bucket, &Ask::new(3, Nanos::ZERO).telling_more(TellsMore::Always));
    /// assert_eq!(answer.reset_after(), Nanos::from_secs(3));
    /// assert_eq!(answer.more_after(), Some(Nanos::from_secs(1)));
    /// ```
    #[must_use]
    pub const fn telling_more(self, tells_more: TellsMore) -> Self {
        Self { tells_more, ..self }
    }

    /// Returns true if it waits less than the limits allow: for its own deadline, or because nobody may wait.
    pub fn is_hurried(&self) -> bool {
        self.patience < Nanos::MAX
    }

    /// The same that waits at most for `patience`, whatever the limits allow.
    ///
    /// ```
    /// use loudou_limiter::{Ask, Limit, Limits, Nanos, Rate, Verdict, algorithm::LeakyQueue};
    ///
    /// let queue = LeakyQueue::new(9, Rate::parse("1/s").unwrap()).unwrap();
    /// let limits = Limits::new(vec![Limit::new("queue", queue)]).unwrap();
    /// let mut bucket = limits.start(Nanos::ZERO);
    /// let ask = Ask::new(1, Nanos::ZERO).within(Nanos::from_millis(500));
    /// assert_eq!(limits.answer(&mut bucket, &ask).verdict(), Verdict::Admit);
    /// assert_eq!(limits.answer(&mut bucket, &ask).verdict(), Verdict::Refuse);
    /// ```
    #[must_use]
    pub const fn within(self, patience: Nanos) -> Self {
        Self { patience, ..self }
    }

    /// The same for a request that waits already.
    #[must_use]
    pub(crate) const fn in_place(self) -> Self {
        Self {
            has_place: true,
            ..self
        }
    }

    /// The same at `earliest`, on both clocks, if it is earlier than that.
    #[must_use]
    pub fn not_before(self, earliest: Nanos) -> Self {
        let behind = earliest.since(self.now);
        Self {
            now: self.now.max(earliest),
            wall: self.wall.saturating_add(behind),
            ..self
        }
    }

    /// Returns true if this answer tells when more is there again.
    #[inline]
    pub(crate) const fn tells(&self, answer: &BucketDecision) -> bool {
        match self.tells_more {
            TellsMore::Never => false,
            TellsMore::IfRefused => answer.is_refused(),
            TellsMore::Always => true,
        }
    }

    /// Maximum wait it accepts from a limit whose own bound is `limit`.
    pub(crate) fn longest_wait(&self, limit: Nanos) -> Nanos {
        if self.has_place {
            return Nanos::MAX;
        }
        let longest = self.max_wait.unwrap_or(limit);
        longest.min(MAX_WAIT).min(self.patience)
    }
}
