//! Limits: named algorithms, and the all-or-nothing set that one bucket holds.

use alloc::string::String;
use alloc::vec::Vec;
use serde::Serialize;
use smallvec::SmallVec;

use crate::algorithm::Algorithm;
use crate::ask::Ask;
use crate::decision::{Decision, Verdict};
use crate::meter::Meter;
use crate::time::{Clock, Nanos};
use crate::used::USED_ONE;

mod answer;
mod divided;
mod facts;
mod line;
mod plainly;
mod promises;
mod surplus;

pub use answer::BucketDecision;
pub(crate) use answer::Decisions;
use facts::Facts;
pub(crate) use promises::is_queue;

/// The most limits in one rule.
pub const MAX_LIMITS: usize = 8;
/// The most state words in one bucket: a page of buckets stays small enough to be copied for each
/// request.
pub const MAX_BUCKET_WORDS: usize = 1024;

/// State words; those of most buckets fit in without an allocation.
pub type Words = SmallVec<[u64; 8]>;

/// One algorithm with its numbers and a name.
#[derive(Clone, Debug, PartialEq, Eq, Serialize)]
pub struct Limit {
    name: String,
    #[serde(flatten)]
    algorithm: Algorithm,
}

impl Limit {
    /// A limit called `name`.
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
        }
    }

    /// Its name; unique in its rule.
    pub fn name(&self) -> &str {
        &self.name
    }

    /// Its algorithm with the numbers.
    pub const fn algorithm(&self) -> &Algorithm {
        &self.algorithm
    }
}

/// The state of one bucket: when it was last touched, and the words of all its limits in order.
#[derive(Debug, PartialEq, Eq)]
pub struct Bucket {
    /// The latest instant at which it was touched. Decisions never see an earlier `now`.
    pub last: Nanos,
    /// The units given back by requests after which others took. It wraps around at
    /// [`GIVEN`].
    pub given: u64,
    /// The instant at which the last waiting request passes; no later request passes before it. The
    /// limits ensure that by themselves until their numbers change.
    pub line: Nanos,
    /// Zeros at the end may be missing. After the words of all limits come those that do not fit into the
    /// place of a limit whose capacity shrank: for each that can have such a surplus, their number and
    /// these.
    pub words: Words,
}

/// The largest number in [`Bucket::given`]: five bytes.
pub const GIVEN: u64 = (1 << 40) - 1;

impl Clone for Bucket {
    /// Copies the words in one piece; the list's own `clone` takes them one by one.
    fn clone(&self) -> Self {
        Self {
            words: Words::from_slice(&self.words),
            ..*self
        }
    }
}

impl Bucket {
    /// The words, in the order of the limits, without zeros at the end.
    pub fn words(&self) -> &[u64] {
        let zeros = self.words.iter().rev().take_while(|word| **word == 0);
        let used = self.words.len().saturating_sub(zeros.count());
        self.words.get(..used).unwrap_or(&[])
    }
}

/// An operation on each limit: on its index, its meter and its words.
type Each<'f> = dyn FnMut(usize, &dyn Meter, &mut [u64]) + 'f;

/// One to [`MAX_LIMITS`] limits that share a bucket: each request passes all of them or takes from
/// none.
#[derive(Clone, Debug, PartialEq, Eq, Serialize)]
#[serde(transparent)]
pub struct Limits {
    list: Vec<Limit>,
    #[serde(skip)]
    facts: Facts,
}

impl Limits {
    /// A set; `None` when it is empty, too large, has a name twice, or needs more than
    /// [`MAX_BUCKET_WORDS`] of state.
    ///
    /// ```
    /// use loudou_limiter::{Limit, Limits, Nanos, Rate, algorithm::{Align, FixedWindow, Funnel}};
    ///
    /// let burst = Funnel::new(2, Rate::parse("1/s").unwrap()).unwrap();
    /// let daily = FixedWindow::new(1000, Nanos::from_secs(86_400), Align::First).unwrap();
    /// let limits = Limits::new(vec![Limit::new("burst", burst), Limit::new("daily", daily)]).unwrap();
    ///
    /// // The burst does not take three, so nothing is taken of the day.
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
        let facts = Facts::of(&limits);
        let limits = Self {
            list: limits,
            facts,
        };
        (unique && fits && facts.words <= MAX_BUCKET_WORDS).then_some(limits)
    }

    /// The limits, in file order.
    pub fn iter(&self) -> core::slice::Iter<'_, Limit> {
        self.list.iter()
    }

    /// The most words that a bucket of these limits has.
    pub const fn words(&self) -> usize {
        self.facts.words
    }

    /// The most state that a bucket of these limits keeps, in bytes.
    pub const fn state_bytes(&self) -> usize {
        self.words().saturating_mul(size_of::<u64>())
    }

    /// Whether a request without a `max_wait` of its own may be held.
    pub fn may_hold(&self) -> bool {
        self.list.iter().any(|limit| limit.algorithm.may_hold())
    }

    /// Whether any limit needs [`Limits::release`] when a request that passed has ended.
    pub const fn holds_until_end(&self) -> bool {
        self.facts.holds_until_end
    }

    /// The time for which units that are taken until the end of requests stay taken if none of them ends,
    /// by an answer of these limits; `None` when there are none.
    pub fn held_for(&self, answer: &BucketDecision) -> Option<Nanos> {
        if !self.holds_until_end() {
            return None;
        }
        let limits = self.iter().zip(answer.decisions());
        let held = limits.filter(|(limit, _)| limit.algorithm.holds_until_end());
        let held = held.map(|(_, decision)| decision.reset_after).max();
        held.filter(|held| *held > Nanos::ZERO)
    }

    /// Whether any limit needs to know the wall clock.
    pub fn reads_wall(&self) -> bool {
        self.list.iter().any(|limit| limit.algorithm.reads_wall())
    }

    /// Whether forgetting a full bucket loses nothing.
    pub const fn forgets_losslessly(&self) -> bool {
        self.facts.forgets_losslessly
    }

    /// A bucket first touched at `now`, where the wall clock started together with the monotonic one.
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

    /// A bucket first touched at `clock`.
    ///
    /// ```
    /// use loudou_limiter::algorithm::{Grid, Refill, TokenBucket};
    /// use loudou_limiter::{Clock, Limit, Limits, Nanos, Rate};
    ///
    /// // It starts with nothing, and is full at the end of the minute on the wall clock.
    /// let tokens = TokenBucket::new(5, Rate::parse("5/m").unwrap(), Refill::Interval, 0).unwrap();
    /// let tokens = tokens.aligned(Grid::Clock).unwrap();
    /// let limits = Limits::new(vec![Limit::new("minute", tokens)]).unwrap();
    /// let clock = Clock { now: Nanos::ZERO, wall: Nanos::from_secs(50) };
    /// let bucket = limits.start_at(clock);
    /// assert_eq!(limits.peek(&bucket, 0, clock.now).reset_after(), Nanos::from_secs(10));
    /// ```
    pub fn start_at(&self, clock: Clock) -> Bucket {
        let mut bucket = Bucket {
            last: clock.now,
            given: 0,
            line: Nanos::ZERO,
            words: Words::new(),
        };
        self.each(&mut bucket, &mut |_, meter, words| {
            meter.start(words, clock);
        });
        bucket
    }

    /// Decides on `cost` at `now`; see [`Limits::answer`].
    pub fn decide(&self, bucket: &mut Bucket, cost: u64, now: Nanos) -> BucketDecision {
        self.answer(bucket, &Ask::new(cost, now))
    }

    /// Decides for all limits from the same state, and takes the cost from all of them or none. A refusal
    /// changes only [`Bucket::last`] and the refusals that an algorithm notes, a cost of 0 nothing.
    pub fn answer(&self, bucket: &mut Bucket, ask: &Ask) -> BucketDecision {
        let ask = ask.not_before(bucket.last);
        let mut answer = self.take(bucket, &ask);
        if ask.tells(&answer) {
            self.tell_more(&mut answer, &bucket.words, &ask);
        }
        answer
    }

    fn take(&self, bucket: &mut Bucket, ask: &Ask) -> BucketDecision {
        let now = ask.now;
        let mut after = bucket.clone();
        after.last = now;
        let settled = self.settle(&mut after, now).then(|| after.clone());
        let answer = self.decide_in_line(&mut after, ask);
        if answer.is_refused() {
            bucket.last = now;
            return self.keep_all(bucket, answer, ask);
        }
        if ask.cost > 0 {
            let wait = answer.wait();
            after.line = match wait {
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

    /// Gives back `cost` of a request that has ended, to the limits that take it only until then.
    /// `taken_at` is the [`BucketDecision::at`] of the decision that took it.
    pub fn release(&self, bucket: &mut Bucket, cost: u64, taken_at: Nanos, now: Nanos) {
        let now = now.max(bucket.last);
        bucket.last = now;
        self.each(bucket, &mut |_, meter, words| {
            meter.release(words, cost, taken_at, now);
        });
    }

    /// The same as [`Limits::decide`] without touching the bucket.
    pub fn peek(&self, bucket: &Bucket, cost: u64, now: Nanos) -> BucketDecision {
        self.decide(&mut bucket.clone(), cost, now)
    }

    /// The units taken from each limit at `now`, rounded up; above the capacity where requests wait.
    pub fn used(&self, bucket: &Bucket, now: Nanos) -> Vec<u64> {
        let now = now.max(bucket.last);
        let mut used = Vec::with_capacity(self.list.len());
        self.each(&mut bucket.clone(), &mut |_, meter, words| {
            let units = meter.used(words, now).div_ceil(USED_ONE);
            used.push(u64::try_from(units).unwrap_or(u64::MAX));
        });
        used
    }

    fn decide_each(&self, bucket: &mut Bucket, ask: &Ask) -> BucketDecision {
        let mut decisions = Decisions::new();
        self.each(bucket, &mut |_, meter, words| {
            decisions.push(meter.decide(words, ask));
        });
        BucketDecision::new(ask.now, decisions)
    }

    /// The answer to a refused request: the decisions of the limits after they have noted the refusal.
    /// Those that would have admitted took nothing.
    fn keep_all(&self, bucket: &mut Bucket, refused: BucketDecision, ask: &Ask) -> BucketDecision {
        // A request that only could not be held took nothing, and is no attempt above the limit.
        let is_noted = !ask.is_hurried() && self.note_refusal(bucket, ask);
        let by_all = |refused: &BucketDecision| refused.decisions().all(Decision::is_refused);
        if !is_noted && by_all(&refused) {
            return refused;
        }
        let mut settled = bucket.clone();
        self.settle(&mut settled, ask.now);
        let refused = if is_noted {
            self.decide_in_line(&mut settled.clone(), ask)
        } else {
            refused
        };
        if by_all(&refused) {
            return refused;
        }
        let look = Ask { cost: 0, ..*ask };
        let unchanged = self.decide_each(&mut settled, &look);
        let both = refused.decisions().zip(unchanged.decisions());
        let decisions = both.map(|(refused, kept)| {
            if refused.verdict == Verdict::Refuse {
                *refused
            } else {
                *kept
            }
        });
        let mut kept = BucketDecision::new(ask.now, decisions.collect());
        kept.reported = refused.reported;
        kept
    }

    fn note_refusal(&self, bucket: &mut Bucket, ask: &Ask) -> bool {
        let mut is_noted = false;
        self.each(bucket, &mut |_, meter, words| {
            is_noted |= meter.note_refusal(words, ask);
        });
        is_noted
    }

    /// Calls `f` with the index, the meter and the words of each limit. One copy of the loop for all
    /// operations on limits.
    pub(crate) fn each(&self, bucket: &mut Bucket, f: &mut Each<'_>) {
        let own = self.words();
        if bucket.words.len() > own {
            return self.each_of_long(bucket, false, f);
        }
        bucket.words.resize(own, 0);
        let mut rest = bucket.words.as_mut_slice();
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
