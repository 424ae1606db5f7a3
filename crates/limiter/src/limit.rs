//! Limits, which are named algorithms, and sets of limits that share a bucket. A request takes its
//! cost from all limits in a set or from none.

use alloc::boxed::Box;
use alloc::string::String;
use alloc::vec::Vec;

use numbers::{Numbers, Sources};
pub use plan::Plan;
pub(crate) use promises::is_queue;
use serde::Serialize;
use smallvec::SmallVec;

use crate::algorithm::Algorithm;
use crate::decision::BucketRequest;
use crate::decision::{Decision, Verdict};
use crate::meter::Meter;
use crate::meter::USED_ONE;
use crate::time::{Clock, Nanos};

pub(crate) mod notes;
pub mod numbers;
mod plan;
mod promises;
mod surplus;

/// Maximum number of limits in one rule.
pub const MAX_LIMITS: usize = 8;
/// Maximum number of state words in one bucket. Each request copies a page of buckets, so pages
/// must stay small.
pub const MAX_BUCKET_WORDS: usize = 1024;

/// State words of a bucket. The words of most buckets fit inline, without an allocation.
pub type Words = SmallVec<[u64; 8]>;

/// An algorithm, its parameters and a name.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Limit {
    name: String,
    algorithm: Algorithm,
    /// Sources of the parameters carried by each request. See [`numbers`].
    sources: Option<Box<Sources>>,
}

impl Limit {
    /// Creates a limit.
    ///
    /// ```
    /// use loudou_limiter::{Limit, Rate, algorithm::Funnel};
    ///
    /// let funnel = Funnel::new(15, Rate::parse("30/m").unwrap()).unwrap();
    /// let limit = Limit::new("burst", funnel);
    /// assert_eq!(limit.name(), "burst");
    /// assert_eq!(limit.algorithm().capacity(), 15);
    /// ```
    pub fn new(name: impl Into<String>, algorithm: impl Into<Algorithm>) -> Self {
        Self {
            name: name.into(),
            algorithm: algorithm.into(),
            sources: None,
        }
    }

    /// Returns the limit's name, which is unique in its rule.
    pub fn name(&self) -> &str {
        &self.name
    }

    /// Returns the limit's algorithm, which contains its parameters.
    pub const fn algorithm(&self) -> &Algorithm {
        &self.algorithm
    }
}

/// State of a bucket.
#[derive(Debug, PartialEq, Eq)]
pub struct Bucket {
    /// Time when the bucket was last touched. A decision requested for an earlier time is made as
    /// of this time.
    pub last: Nanos,
    /// Total number of units that were given back after other requests had taken units. The total
    /// wraps around after [`GIVEN`].
    pub given: u64,
    /// Time at which the last waiting request passes. After an edit, this time is an upper bound.
    pub queue_end: Nanos,
    /// State words of all limits, in order. Trailing zeros may be omitted. After an edit has
    /// reduced a capacity, the limit's state may need more words than usual. These surplus words
    /// follow the regular words of all limits. For each limit that can have surplus words, their
    /// number is stored first, and then the words themselves.
    pub words: Words,
}

/// Maximum value of [`Bucket::given`], which is stored in five bytes.
pub const GIVEN: u64 = (1 << 40) - 1;

impl Clone for Bucket {
    /// Copies all words at once, because `SmallVec::clone` copies them one by one.
    fn clone(&self) -> Self {
        Self {
            words: Words::from_slice(&self.words),
            ..*self
        }
    }
}

impl Bucket {
    /// Returns the words of the bucket, without trailing zeros.
    pub fn words(&self) -> &[u64] {
        let zeros = self.words.iter().rev().take_while(|word| **word == 0);
        let used = self.words.len().saturating_sub(zeros.count());
        self.words.get(..used).unwrap_or(&[])
    }
}

/// A function that receives a limit's index, meter and words.
type Each<'f> = dyn FnMut(usize, &dyn Meter, &mut [u64]) + 'f;

/// One to [`MAX_LIMITS`] limits that share a bucket. Each request takes its cost from all of them
/// or from none.
#[derive(Clone, Debug, PartialEq, Eq, Serialize)]
#[serde(transparent)]
pub struct Limits {
    list: Vec<Limit>,
    /// Parameters that the request carried. See [`numbers`].
    #[serde(skip)]
    numbers: Numbers,
    #[serde(skip)]
    facts: Facts,
}

impl Limits {
    /// Creates a set of limits. Returns `None` if the set is empty, has more than [`MAX_LIMITS`]
    /// limits, contains a duplicate name, or needs more than [`MAX_BUCKET_WORDS`] state words.
    ///
    /// ```
    /// use loudou_limiter::{Limit, Limits, Nanos, Rate, algorithm::{Align, FixedWindow, Funnel}};
    ///
    /// let burst = Funnel::new(2, Rate::parse("1/s").unwrap()).unwrap();
    /// let daily = FixedWindow::new(1000, Nanos::from_secs(86_400), Align::First).unwrap();
    /// let limits = Limits::new(vec![Limit::new("burst", burst), Limit::new("daily", daily)]).unwrap();
    ///
    /// // `burst` has no room for three units, so nothing is taken from `daily` either.
    /// let mut bucket = limits.start(Nanos::ZERO);
    /// let answer = limits.decide(&mut bucket, 3, Nanos::ZERO);
    /// assert!(answer.is_refused());
    /// assert_eq!(answer.reported_index(), 0);
    /// assert_eq!(limits.used(&bucket, Nanos::ZERO), [0, 0]);
    /// ```
    pub fn new(limits: Vec<Limit>) -> Option<Self> {
        let unique = limits.iter().enumerate().all(|(i, limit)| {
            limits
                .iter()
                .take(i)
                .all(|earlier| earlier.name != limit.name)
        });
        let fits = !limits.is_empty() && limits.len() <= MAX_LIMITS;
        let numbers = limits.iter().filter(|limit| limit.sources.is_some());
        let numbers = alloc::vec![0; numbers.count()];
        let limits = Self::of(limits, numbers);
        (unique && fits && limits.facts.words <= MAX_BUCKET_WORDS).then_some(limits)
    }

    /// Returns the limits, in the order of the rule file.
    pub fn iter(&self) -> core::slice::Iter<'_, Limit> {
        self.list.iter()
    }

    /// Returns the number of state words of the limits, including the request parameters stored
    /// before them. Surplus words, notes and promises are not included. A bucket has at most
    /// [`MAX_BUCKET_WORDS`] in total.
    pub const fn words(&self) -> usize {
        self.facts.words
    }

    /// Returns the size of the limits' state words, in bytes. Surplus words, notes and promises are
    /// not included.
    pub const fn state_bytes(&self) -> usize {
        self.words().saturating_mul(size_of::<u64>())
    }

    /// Returns true if a request that sets no `max_wait` may be held.
    pub fn may_hold(&self) -> bool {
        self.list.iter().any(|limit| limit.algorithm.may_hold())
    }

    /// Returns true if any limit needs [`Limits::release`] when an admitted request ends.
    pub const fn holds_until_end(&self) -> bool {
        self.facts.holds_until_end
    }

    /// Returns how long the requests in flight keep their units if none of them ends, based on a
    /// decision by these limits. Returns `None` if no limit counts requests in flight, or if no
    /// request is in flight.
    pub fn held_for(&self, answer: &BucketDecision) -> Option<Nanos> {
        if !self.holds_until_end() {
            return None;
        }
        let limits = self.iter().zip(answer.decisions());
        let held = limits.filter(|(limit, _)| limit.algorithm.holds_until_end());
        let held = held.map(|(_, decision)| decision.reset_after).max();
        held.filter(|held| *held > Nanos::ZERO)
    }

    /// Returns true if any limit reads the wall clock.
    pub fn reads_wall(&self) -> bool {
        self.list.iter().any(|limit| limit.algorithm.reads_wall())
    }

    /// Returns true if evicting a full bucket loses no state.
    pub const fn forgets_losslessly(&self) -> bool {
        self.facts.forgets_losslessly
    }

    /// Returns a bucket that is first touched at `now`. The wall clock time is also `now`, as if
    /// the wall clock had started together with the monotonic clock.
    ///
    /// ```
    /// use loudou_limiter::{Limit, Limits, Nanos, Rate, algorithm::Funnel};
    ///
    /// let funnel = Funnel::new(1, Rate::parse("1/s").unwrap()).unwrap();
    /// let limits = Limits::new(vec![Limit::new("pace", funnel)]).unwrap();
    /// let bucket = limits.start(Nanos::from_secs(7));
    /// assert_eq!(bucket.last, Nanos::from_secs(7));
    /// ```
    pub fn start(&self, now: Nanos) -> Bucket {
        self.start_at(Clock::at(now))
    }

    /// Returns a bucket that is first touched at `clock`.
    pub fn start_at(&self, clock: Clock) -> Bucket {
        let mut bucket = Bucket {
            last: clock.now,
            given: 0,
            queue_end: Nanos::ZERO,
            words: Words::new(),
        };
        bucket.words.extend_from_slice(&self.numbers);
        self.each(&mut bucket, &mut |_, meter, words| {
            meter.start(words, clock);
        });
        bucket
    }

    /// Decides whether to admit a request with the given `cost` at `now`. See [`Limits::answer`].
    pub fn decide(&self, bucket: &mut Bucket, cost: u64, now: Nanos) -> BucketDecision {
        self.answer(bucket, &BucketRequest::new(cost, now))
    }

    /// Evaluates all limits against the same state, and takes the cost from all of them or from
    /// none. A refusal changes only [`Bucket::last`] and the state of algorithms that count
    /// refusals. A request with a cost of 0 takes nothing.
    pub fn answer(&self, bucket: &mut Bucket, request: &BucketRequest) -> BucketDecision {
        let request = request.not_before(bucket.last);
        let mut answer = self.take(bucket, &request);
        if request.is_more_after_needed(&answer) {
            self.set_more_after(&mut answer, &bucket.words, &request);
        }
        answer
    }

    fn take(&self, bucket: &mut Bucket, request: &BucketRequest) -> BucketDecision {
        let now = request.now;
        let mut after = bucket.clone();
        after.last = now;
        let settled = self.drop_expired(&mut after, now).then(|| after.clone());
        let answer = self.decide_each(&mut after, request);
        if answer.is_refused() {
            bucket.last = now;
            return self.count_refusal(bucket, answer, request);
        }
        if request.cost > 0 {
            let wait = answer.wait();
            after.queue_end = match wait {
                Nanos::ZERO => wait,
                _ => now.saturating_add(wait),
            };
            self.promise(
                settled.as_ref().unwrap_or(bucket),
                &mut after,
                wait > Nanos::ZERO,
            );
            *bucket = after;
        }
        answer
    }

    /// Gives back the `cost` of a request that has ended, to limits such as `concurrency` that take
    /// a cost only for the duration of a request. `taken_at` is the [`BucketDecision::at`] of the
    /// decision that took the cost.
    pub fn release(&self, bucket: &mut Bucket, cost: u64, taken_at: Nanos, now: Nanos) {
        let now = now.max(bucket.last);
        bucket.last = now;
        self.each(bucket, &mut |_, meter, words| {
            meter.release(words, cost, taken_at, now);
        });
        self.release_noted(bucket, cost, taken_at, now);
    }

    /// Like [`Limits::decide`], but does not change the bucket.
    pub fn peek(&self, bucket: &Bucket, cost: u64, now: Nanos) -> BucketDecision {
        self.decide(&mut bucket.clone(), cost, now)
    }

    /// Returns the number of used units of each limit at `now`, rounded up. While requests are
    /// waiting, this number exceeds the capacity.
    pub fn used(&self, bucket: &Bucket, now: Nanos) -> Vec<u64> {
        let now = now.max(bucket.last);
        let mut used = Vec::with_capacity(self.list.len());
        self.each(&mut bucket.clone(), &mut |_, meter, words| {
            let units = meter.used(words, now).div_ceil(USED_ONE);
            used.push(u64::try_from(units).unwrap_or(u64::MAX));
        });
        used
    }

    fn decide_each(&self, bucket: &mut Bucket, request: &BucketRequest) -> BucketDecision {
        let mut decisions = Decisions::new();
        self.each(bucket, &mut |_, meter, words| {
            decisions.push(meter.decide(words, request));
        });
        BucketDecision::new(request.now, decisions)
    }

    /// Returns the decision for a refused request, after the limits have counted the refusal. For
    /// limits that would have admitted the request, the decision reports that nothing was taken.
    fn count_refusal(
        &self,
        bucket: &mut Bucket,
        refused: BucketDecision,
        request: &BucketRequest,
    ) -> BucketDecision {
        // If a request's wait is bounded, the request may have been refused only because it could
        // not be held, so the refusal is not counted.
        let is_noted = !request.is_wait_bounded() && self.note_refusal(bucket, request);
        let by_all = |refused: &BucketDecision| refused.decisions().all(Decision::is_refused);
        if !is_noted && by_all(&refused) {
            return refused;
        }
        let mut settled = bucket.clone();
        self.drop_expired(&mut settled, request.now);
        let refused = if is_noted {
            self.decide_each(&mut settled.clone(), request)
        } else {
            refused
        };
        if by_all(&refused) {
            return refused;
        }
        let look = BucketRequest {
            cost: 0,
            ..*request
        };
        let unchanged = self.decide_each(&mut settled, &look);
        let both = refused.decisions().zip(unchanged.decisions());
        let decisions = both.map(|(refused, kept)| {
            if refused.verdict == Verdict::Refuse {
                *refused
            } else {
                *kept
            }
        });
        let mut kept = BucketDecision::new(request.now, decisions.collect());
        kept.reported = refused.reported;
        kept
    }

    fn note_refusal(&self, bucket: &mut Bucket, request: &BucketRequest) -> bool {
        let mut is_noted = false;
        self.each(bucket, &mut |_, meter, words| {
            is_noted |= meter.note_refusal(words, request);
        });
        is_noted
    }

    /// Calls `f` with each limit's index, meter and words. All operations on limits share this
    /// loop, which keeps the compiled module small.
    pub(crate) fn each(&self, bucket: &mut Bucket, f: &mut Each<'_>) {
        let own = self.words();
        if bucket.words.len() > own {
            return self.each_of_long(bucket, false, f);
        }
        bucket.words.resize(own, 0);
        let mut rest = self.own_words(&mut bucket.words);
        for (index, limit) in self.list.iter().enumerate() {
            let meter = limit.algorithm.meter();
            let Some((words, tail)) = rest.split_at_mut_checked(meter.words()) else {
                return;
            };
            f(index, meter, words);
            rest = tail;
        }
    }
}

impl<'a> IntoIterator for &'a Limits {
    type Item = &'a Limit;
    type IntoIter = core::slice::Iter<'a, Limit>;

    fn into_iter(self) -> Self::IntoIter {
        self.iter()
    }
}

impl Limits {
    /// Fast path of [`Limits::answer`] for common buckets and requests. No request may be waiting
    /// in the bucket, and `words` must be long enough for the words of all limits. The request must
    /// have a cost above 0 and must not be earlier than [`Bucket::last`].
    ///
    /// Returns `None` if a limit would hold the request or count its refusal, or if some limits
    /// would admit the request and others would refuse it. If it returns `None`, the contents of
    /// `words` are unspecified.
    ///
    /// ```
    /// use loudou_limiter::{BucketRequest, Limit, Limits, Nanos, Rate, algorithm::Funnel};
    ///
    /// let funnel = Funnel::new(2, Rate::parse("1/s").unwrap()).unwrap();
    /// let limits = Limits::new(vec![Limit::new("burst", funnel)]).unwrap();
    /// let mut bucket = limits.start(Nanos::ZERO);
    /// let (mut words, request) = (bucket.words.clone(), BucketRequest::new(2, Nanos::ZERO));
    ///
    /// for _ in 0..2 {
    ///     let fast = limits.answer_fast(&mut words, &request).unwrap();
    ///     assert_eq!(fast, limits.answer(&mut bucket, &request));
    ///     assert_eq!(words, bucket.words);
    /// }
    /// ```
    pub fn answer_fast(
        &self,
        words: &mut [u64],
        request: &BucketRequest,
    ) -> Option<BucketDecision> {
        let mut decisions = Decisions::new();
        let mut rest = self.own_words(words);
        for limit in &self.list {
            let meter = limit.algorithm.meter();
            let (own, tail) = rest.split_at_mut_checked(meter.words())?;
            let decision = meter.decide(own, request);
            let is_plain = match decision.verdict {
                Verdict::Admit => true,
                Verdict::Hold => false,
                Verdict::Refuse => request.is_wait_bounded() || !meter.note_refusal(own, request),
            };
            let differs = |first: &Decision| first.verdict != decision.verdict;
            if !is_plain || decisions.first().is_some_and(differs) {
                return None;
            }
            decisions.push(decision);
            rest = tail;
        }
        let mut answer = BucketDecision::new(request.now, decisions);
        if request.is_more_after_needed(&answer) {
            self.set_more_after(&mut answer, words, request);
        }
        Some(answer)
    }

    /// Sets the time until the reported limit can admit one more unit than it can now.
    #[inline(never)]
    fn set_more_after(&self, answer: &mut BucketDecision, words: &[u64], request: &BucketRequest) {
        let Some(decision) = answer.reported() else {
            return;
        };
        // If the limits hold requests, `retry_after` cannot be used, because it is only the time
        // until the request would be held.
        if let Some(after) = decision.retry_after
            && decision.remaining.saturating_add(1) == request.cost
            && !self.may_hold()
        {
            answer.more_after = after;
            return;
        }
        let more = BucketRequest {
            cost: decision.remaining.saturating_add(1),
            max_wait: Some(Nanos::ZERO),
            ..*request
        };
        let mut bucket = Bucket {
            last: request.now,
            given: 0,
            queue_end: Nanos::ZERO,
            words: Words::from_slice(words),
        };
        let reported = answer.reported;
        self.each(&mut bucket, &mut |index, meter, words| {
            if index == reported {
                let after = meter.decide(words, &more).retry_after;
                answer.more_after = after.unwrap_or(Nanos::MAX);
            }
        });
    }
}

/// Properties of a set of limits, computed once.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
struct Facts {
    /// Result of [`Limits::words`](Limits::words).
    words: usize,
    /// Number of limits that are queues. See [`is_queue`].
    queues: usize,
    /// Result of [`Limits::holds_until_end`](Limits::holds_until_end).
    holds_until_end: bool,
    /// Result of [`Limits::forgets_losslessly`](Limits::forgets_losslessly).
    forgets_losslessly: bool,
}

impl Facts {
    fn of(limits: &[Limit], numbers: usize) -> Self {
        let meters = || limits.iter().map(|limit| limit.algorithm.meter());
        Self {
            words: meters()
                .map(Meter::words)
                .fold(numbers, usize::saturating_add),
            queues: meters().filter(|meter| is_queue(*meter)).count(),
            holds_until_end: meters().any(Meter::gives_back),
            forgets_losslessly: meters().all(Meter::forgets_losslessly),
        }
    }
}

impl Limits {
    /// Returns the limits for a single Envoy out of `envoys` Envoys that decide independently.
    /// Capacities and rates are divided by `envoys`. Capacities are rounded down, but are at least
    /// 1. Returns `None` if there is a limit that cannot be shared by a fleet.
    ///
    /// Buckets remain valid if the number of Envoys changes. The state of a level is the time at
    /// which it reaches zero, and dividing a limit does not change that time.
    ///
    /// ```
    /// use loudou_limiter::{Limit, Limits, Nanos, Rate, algorithm::Funnel};
    ///
    /// let funnel = Funnel::new(20, Rate::parse("100/s").unwrap()).unwrap();
    /// let limits = Limits::new(vec![Limit::new("burst", funnel)]).unwrap();
    /// let local = limits.divided(4).unwrap();
    /// let burst = local.iter().next().unwrap().algorithm();
    /// assert_eq!((burst.capacity(), burst.rate()), (5, Rate::parse("100/4s")));
    /// ```
    pub fn divided(&self, envoys: u32) -> Option<Self> {
        let divided = self.list.iter().map(|limit| {
            Some(Limit {
                name: limit.name.clone(),
                algorithm: limit.algorithm.divided(envoys.max(1))?,
                sources: None,
            })
        });
        let divided = Self::new(divided.collect::<Option<Vec<_>>>()?)?;
        Some(divided.storing(&self.numbers))
    }
}

/// Decisions of the limits, in order. Most rules have one limit and decisions are copied often, so
/// only one decision is stored inline.
pub(crate) type Decisions = SmallVec<[Decision; 1]>;

/// A bucket's decision: the verdict, and each limit's decision.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct BucketDecision {
    at: Nanos,
    decisions: Decisions,
    reported: usize,
    /// True if any limit refused. The flag is stored because each request reads it about ten times.
    is_refused: bool,
    wait: Nanos,
    /// [`Nanos::MAX`] if unknown. An `Option` would make this struct larger, and it is copied
    /// often.
    more_after: Nanos,
}

impl BucketDecision {
    /// Creates a bucket's decision from its limits' decisions.
    pub(crate) fn new(at: Nanos, decisions: Decisions) -> Self {
        let mut answer = Self {
            at,
            decisions,
            reported: 0,
            is_refused: false,
            wait: Nanos::ZERO,
            more_after: Nanos::MAX,
        };
        answer.sum_up();
        answer
    }

    /// Computes the verdict, the wait and the reported limit from the decisions.
    fn sum_up(&mut self) {
        let (mut is_refused, mut wait) = (false, Nanos::ZERO);
        for decision in &self.decisions {
            is_refused |= decision.is_refused();
            wait = wait.max(decision.wait);
        }
        self.is_refused = is_refused;
        self.wait = if is_refused { Nanos::ZERO } else { wait };
        self.reported = match self.decisions.len() {
            0 | 1 => 0,
            _ => reported(&self.decisions),
        };
    }

    /// Returns this decision, but refused by every limit and without a retry time.
    #[must_use]
    pub fn refused(mut self) -> Self {
        for decision in &mut self.decisions {
            *decision = decision.refused(None);
        }
        self.sum_up();
        self
    }

    /// Returns the decisions of the limits, in order. If the request is refused, limits that would
    /// have admitted it report their state before the request, because nothing was taken.
    pub fn decisions(&self) -> impl Iterator<Item = &Decision> {
        self.decisions.iter()
    }

    /// Returns the time of the decision, on the bucket's clock.
    pub const fn at(&self) -> Nanos {
        self.at
    }

    /// Returns the index of the limit to report. If any limits refused, returns the refusing limit
    /// with the longest retry time. Otherwise, returns the limit with the smallest fraction of its
    /// capacity remaining.
    pub const fn reported_index(&self) -> usize {
        self.reported
    }

    /// Returns the reported limit's decision; `None` only for an empty set of limits.
    pub fn reported(&self) -> Option<&Decision> {
        self.decisions.get(self.reported)
    }

    /// Returns true if any limit refused the request.
    pub const fn is_refused(&self) -> bool {
        self.is_refused
    }

    /// Returns the outcome of the request. The request is refused if any limit refuses it, and
    /// otherwise held if any limit holds it.
    pub const fn verdict(&self) -> Verdict {
        if self.is_refused {
            Verdict::Refuse
        } else if self.wait.is_zero() {
            Verdict::Admit
        } else {
            Verdict::Hold
        }
    }

    /// Returns how long the request is held, which is the longest wait imposed by any limit. Zero
    /// if the request is refused.
    pub const fn wait(&self) -> Nanos {
        self.wait
    }

    /// Returns the time until more units become available in the reported limit, provided that no
    /// request takes any in the meantime. Returns `None` if the limit is full, if the time depends
    /// on when other requests end (`concurrency`), or if the request did not ask for this time.
    pub fn more_after(&self) -> Option<Nanos> {
        Some(self.more_after).filter(|after| *after < Nanos::MAX)
    }

    /// Returns the time until every limit is full again.
    pub fn reset_after(&self) -> Nanos {
        self.decisions()
            .map(|d| d.reset_after)
            .max()
            .unwrap_or(Nanos::ZERO)
    }
}

/// Returns the index of the limit to report.
fn reported(decisions: &[Decision]) -> usize {
    let mut best: Option<(usize, &Decision)> = None;
    for (index, decision) in decisions.iter().enumerate() {
        if best.is_none_or(|(_, other)| is_reported_before(decision, other)) {
            best = Some((index, decision));
        }
    }
    best.map_or(0, |(index, _)| index)
}

fn is_reported_before(a: &Decision, b: &Decision) -> bool {
    match (a.is_refused(), b.is_refused()) {
        // A limit without `retry_after` never admits the request, so it counts as having the
        // longest wait.
        (true, true) => {
            let wait = |d: &Decision| d.retry_after.unwrap_or(Nanos::MAX);
            wait(a) > wait(b)
        }
        (false, false) => a.is_tighter_than(b),
        (refused, _) => refused,
    }
}
