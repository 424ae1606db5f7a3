//! A request to a bucket ([`BucketRequest`]), and a single limit's [`Decision`].

use crate::bounds::MAX_WAIT;
use crate::limit::BucketDecision;
use crate::time::{Clock, Nanos};
use crate::wide::times;

/// Outcome of a request.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash)]
pub enum Verdict {
    /// The request passes now.
    Admit,
    /// The request passes after [`Decision::wait`].
    Hold,
    /// The request is refused.
    Refuse,
}

/// A single limit's decision on a request. The decision contains the five values that redis-cell's
/// `CL.THROTTLE` returns, and the time for which a held request waits. Times are relative to the
/// time of the decision.
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
    /// Outcome of the request.
    pub verdict: Verdict,
    /// Time until a held request may pass. Zero for other verdicts.
    pub wait: Nanos,
    /// Maximum number of cost units that the limit admits at once.
    pub capacity: u64,
    /// Remaining units after this decision, rounded down.
    pub remaining: u64,
    /// For a refusal, the time until the same cost would be admitted, or held if the limit holds
    /// requests, provided that no other request takes units from the bucket in the meantime. `None`
    /// for other verdicts, for a cost that never fits, and if the time depends on when other
    /// requests end (`concurrency`).
    pub retry_after: Option<Nanos>,
    /// Time until the bucket is full again.
    pub reset_after: Nanos,
}

impl Decision {
    /// Creates a decision that admits the request.
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

    /// Returns this decision, but with the request held for `wait`, or admitted if `wait` is zero.
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

    /// Returns this decision, but with the request refused.
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

    /// Returns true if a smaller fraction of the capacity remains in `self` than in `other`.
    pub fn is_tighter_than(&self, other: &Self) -> bool {
        times(self.remaining, other.capacity) < times(other.remaining, self.capacity)
    }
}

/// A request to take a cost from a bucket at a given instant.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct BucketRequest {
    /// Number of cost units that the request takes. A request with a cost of 0 only reads the
    /// bucket.
    pub cost: u64,
    /// Time on the monotonic clock of the process.
    pub now: Nanos,
    /// Wall clock time, since the Unix epoch, at which the monotonic clock showed `now`. Only limits with periods
    /// aligned to the wall clock use this time.
    pub wall: Nanos,
    /// Maximum wait of this request, which overrides the limits' maximum waits. At most
    /// [`MAX_WAIT`].
    pub max_wait: Option<Nanos>,
    /// An additional bound on the wait, such as the time until the client's deadline. The tighter
    /// of the two bounds applies.
    pub patience: Nanos,
    /// Selects the decisions for which
    /// [`BucketDecision::more_after`](crate::BucketDecision::more_after) is computed.
    pub needs_more_after: NeedsMoreAfter,
    /// True if the request is already waiting and is being replanned. Such a request already has a
    /// place in a queue, so no wait is too long for it.
    pub is_queued: bool,
}

/// Which decisions need the time until more units become available.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub enum NeedsMoreAfter {
    /// No decisions.
    #[default]
    Never,
    /// Only refusals.
    IfRefused,
    /// All decisions.
    Always,
}

impl BucketRequest {
    /// Creates a request of `cost` at `now`. The wall clock time is also `now`, as if the wall
    /// clock had started together with the monotonic clock.
    ///
    /// ```
    /// use loudou_limiter::{BucketRequest, Limit, Limits, Nanos, Rate, algorithm::Funnel};
    ///
    /// let funnel = Funnel::new(5, Rate::parse("1/s").unwrap()).unwrap();
    /// let limits = Limits::new(vec![Limit::new("burst", funnel)]).unwrap();
    /// let mut bucket = limits.start(Nanos::ZERO);
    /// let answer = limits.answer(&mut bucket, &BucketRequest::new(3, Nanos::ZERO));
    /// assert_eq!(answer.reported().unwrap().remaining, 2);
    /// ```
    pub const fn new(cost: u64, now: Nanos) -> Self {
        Self {
            cost,
            now,
            wall: now,
            max_wait: None,
            patience: Nanos::MAX,
            needs_more_after: NeedsMoreAfter::Never,
            is_queued: false,
        }
    }

    /// Returns the time of the request on both clocks.
    pub const fn clock(&self) -> Clock {
        Clock {
            now: self.now,
            wall: self.wall,
        }
    }

    /// Returns this request with the wall clock time `wall`.
    ///
    /// ```
    /// use loudou_limiter::{BucketRequest, Limit, Limits, Nanos, algorithm::{Align, FixedWindow}};
    ///
    /// let window = FixedWindow::new(5, Nanos::from_secs(60), Align::Clock).unwrap();
    /// let limits = Limits::new(vec![Limit::new("minute", window)]).unwrap();
    /// let mut bucket = limits.start(Nanos::ZERO);
    /// // Ten seconds before the minute is over.
    /// let request = BucketRequest::new(1, Nanos::ZERO).at_wall(Nanos::from_secs(170));
    /// let answer = limits.answer(&mut bucket, &request);
    /// assert_eq!(answer.reset_after(), Nanos::from_secs(10));
    /// ```
    #[must_use]
    pub const fn at_wall(self, wall: Nanos) -> Self {
        Self { wall, ..self }
    }

    /// Returns this request with the maximum wait `max_wait`.
    ///
    /// ```
    /// use loudou_limiter::{BucketRequest, Limit, Limits, Nanos, Rate, Verdict, algorithm::Funnel};
    ///
    /// let funnel = Funnel::new(1, Rate::parse("1/s").unwrap()).unwrap();
    /// let limits = Limits::new(vec![Limit::new("pace", funnel)]).unwrap();
    /// let mut bucket = limits.start(Nanos::ZERO);
    /// let request = BucketRequest::new(1, Nanos::ZERO).waiting(Some(Nanos::from_secs(1)));
    /// assert_eq!(limits.answer(&mut bucket, &request).verdict(), Verdict::Admit);
    /// assert_eq!(limits.answer(&mut bucket, &request).verdict(), Verdict::Hold);
    /// assert_eq!(limits.answer(&mut bucket, &request).verdict(), Verdict::Refuse);
    /// ```
    #[must_use]
    pub const fn waiting(self, max_wait: Option<Nanos>) -> Self {
        Self { max_wait, ..self }
    }

    /// Returns this request, with `needs_more_after` selecting the decisions for which the time until more units become
    /// available is computed.
    ///
    /// ```
    /// use loudou_limiter::{BucketRequest, Limit, Limits, Nanos, Rate, NeedsMoreAfter, algorithm::Funnel};
    ///
    /// let funnel = Funnel::new(5, Rate::parse("1/s").unwrap()).unwrap();
    /// let limits = Limits::new(vec![Limit::new("burst", funnel)]).unwrap();
    /// let mut bucket = limits.start(Nanos::ZERO);
    /// // Three are used: all of them are back in three seconds, the first of them in one.
    /// let request = BucketRequest::new(3, Nanos::ZERO).needing_more_after(NeedsMoreAfter::Always);
    /// let answer = limits.answer(&mut bucket, &request);
    /// assert_eq!(answer.reset_after(), Nanos::from_secs(3));
    /// assert_eq!(answer.more_after(), Some(Nanos::from_secs(1)));
    /// ```
    #[must_use]
    pub const fn needing_more_after(self, needs_more_after: NeedsMoreAfter) -> Self {
        Self {
            needs_more_after,
            ..self
        }
    }

    /// Returns true if [`Self::patience`] bounds the request's wait, because of its deadline or
    /// because no request may be held now.
    pub fn is_wait_bounded(&self) -> bool {
        self.patience < Nanos::MAX
    }

    /// Returns this request with its wait bounded by `patience`, even if the limits allow a longer
    /// wait.
    ///
    /// ```
    /// use loudou_limiter::{BucketRequest, Limit, Limits, Nanos, Rate, Verdict, algorithm::LeakyQueue};
    ///
    /// let queue = LeakyQueue::new(9, Rate::parse("1/s").unwrap()).unwrap();
    /// let limits = Limits::new(vec![Limit::new("queue", queue)]).unwrap();
    /// let mut bucket = limits.start(Nanos::ZERO);
    /// let request = BucketRequest::new(1, Nanos::ZERO).within(Nanos::from_millis(500));
    /// assert_eq!(limits.answer(&mut bucket, &request).verdict(), Verdict::Admit);
    /// assert_eq!(limits.answer(&mut bucket, &request).verdict(), Verdict::Refuse);
    /// ```
    #[must_use]
    pub const fn within(self, patience: Nanos) -> Self {
        Self { patience, ..self }
    }

    /// Returns this request, marked as already waiting.
    #[must_use]
    pub(crate) const fn queued(self) -> Self {
        Self {
            is_queued: true,
            ..self
        }
    }

    /// Returns this request, moved forward on both clocks to `earliest` if it is earlier than that.
    #[must_use]
    pub fn not_before(self, earliest: Nanos) -> Self {
        let behind = earliest.since(self.now);
        Self {
            now: self.now.max(earliest),
            wall: self.wall.saturating_add(behind),
            ..self
        }
    }

    /// Returns true if the time until more units become available must be computed for this
    /// decision.
    #[inline]
    pub(crate) const fn is_more_after_needed(&self, answer: &BucketDecision) -> bool {
        match self.needs_more_after {
            NeedsMoreAfter::Never => false,
            NeedsMoreAfter::IfRefused => answer.is_refused(),
            NeedsMoreAfter::Always => true,
        }
    }

    /// Returns the maximum wait of this request under a limit whose own maximum wait is `limit`.
    pub(crate) fn longest_wait(&self, limit: Nanos) -> Nanos {
        if self.is_queued {
            return Nanos::MAX;
        }
        let longest = self.max_wait.unwrap_or(limit);
        longest.min(MAX_WAIT).min(self.patience)
    }
}
