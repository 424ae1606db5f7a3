//! Limits: named algorithms, and the all-or-nothing set that one bucket holds.

use alloc::string::String;
use alloc::vec::Vec;
use core::array;

use serde::Serialize;
use smallvec::SmallVec;

use crate::algorithm::Algorithm;
use crate::ask::Ask;
use crate::decision::{Decision, Verdict};
use crate::meter::Meter;
use crate::time::Nanos;
use crate::used::USED_ONE;

mod line;
mod surplus;

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
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Bucket {
    /// The latest instant at which it was touched. Decisions never see an earlier `now`.
    pub last: Nanos,
    /// What was given back by requests after which others took, in cost units. It wraps around at
    /// [`GIVEN`].
    pub given: u64,
    /// The instant at which the last of those who wait passes; nobody who comes later passes before it.
    /// The limits see to that by themselves until their numbers change.
    pub line: Nanos,
    /// Zeros at the end may be missing. Behind the words of all limits is what is too long for the place
    /// of a limit whose capacity shrank: for each that can have such a surplus, how many words, and these.
    pub words: Words,
}

/// The largest number in [`Bucket::given`]: five bytes.
pub const GIVEN: u64 = (1 << 40) - 1;

impl Bucket {
    /// The words, in the order of the limits, without zeros at the end.
    pub fn words(&self) -> &[u64] {
        let zeros = self.words.iter().rev().take_while(|word| **word == 0);
        let used = self.words.len().saturating_sub(zeros.count());
        self.words.get(..used).unwrap_or(&[])
    }
}

/// What a bucket answered: the verdict, and the decision of every limit.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct BucketDecision {
    at: Nanos,
    decisions: [Option<Decision>; MAX_LIMITS],
    reported: usize,
}

impl BucketDecision {
    /// The decisions, in the order of the limits. When the verdict is a refusal, limits that would
    /// have admitted show their numbers as they stay: nothing was taken.
    pub fn decisions(&self) -> impl Iterator<Item = &Decision> {
        self.decisions.iter().flatten()
    }

    /// The instant it was taken at, on the bucket's clock.
    pub const fn at(&self) -> Nanos {
        self.at
    }

    /// The index of the limit to report: the refusing one with the longest wait, else the one with
    /// the smallest share left.
    pub const fn reported_index(&self) -> usize {
        self.reported
    }

    /// The reported limit's decision; `None` only for an empty set.
    pub fn reported(&self) -> Option<&Decision> {
        self.decisions().nth(self.reported)
    }

    /// Whether any limit refused.
    pub fn is_refused(&self) -> bool {
        self.decisions().any(Decision::is_refused)
    }

    /// What happens to the request: refused if any limit refuses, else held if any holds.
    pub fn verdict(&self) -> Verdict {
        if self.is_refused() {
            Verdict::Refuse
        } else if self.wait() > Nanos::ZERO {
            Verdict::Hold
        } else {
            Verdict::Admit
        }
    }

    /// How long the request is held: the longest wait of the limits; zero when it is refused.
    pub fn wait(&self) -> Nanos {
        if self.is_refused() {
            return Nanos::ZERO;
        }
        let waits = self.decisions().map(|decision| decision.wait);
        waits.max().unwrap_or(Nanos::ZERO)
    }

    /// The time until every limit is as good as new.
    pub fn reset_after(&self) -> Nanos {
        self.decisions()
            .map(|d| d.reset_after)
            .max()
            .unwrap_or(Nanos::ZERO)
    }
}

/// What is done to each limit: to its index, its meter and its words.
type Each<'f> = dyn FnMut(usize, &dyn Meter, &mut [u64]) + 'f;

/// One to [`MAX_LIMITS`] limits that share a bucket: each request passes all of them or takes from
/// none.
#[derive(Clone, Debug, PartialEq, Eq, Serialize)]
#[serde(transparent)]
pub struct Limits(Vec<Limit>);

impl Limits {
    /// A set; `None` when it is empty, too large, has a name twice, or needs more than
    /// [`MAX_BUCKET_WORDS`] of state.
    pub fn new(limits: Vec<Limit>) -> Option<Self> {
        let unique = limits.iter().enumerate().all(|(i, limit)| {
            limits
                .iter()
                .take(i)
                .all(|earlier| earlier.name != limit.name)
        });
        let fits = !limits.is_empty() && limits.len() <= MAX_LIMITS;
        let limits = Self(limits);
        (unique && fits && limits.words() <= MAX_BUCKET_WORDS).then_some(limits)
    }

    /// The limits, in file order.
    pub fn iter(&self) -> core::slice::Iter<'_, Limit> {
        self.0.iter()
    }

    /// The most words that a bucket of these limits has.
    pub fn words(&self) -> usize {
        let words = self.0.iter().map(|limit| limit.algorithm.meter().words());
        words.fold(0, usize::saturating_add)
    }

    /// The most state that a bucket of these limits keeps, in bytes.
    pub fn state_bytes(&self) -> usize {
        self.words().saturating_mul(size_of::<u64>())
    }

    /// Whether a request without a `max_wait` of its own may be held.
    pub fn may_hold(&self) -> bool {
        self.0.iter().any(|limit| limit.algorithm.may_hold())
    }

    /// Whether any limit wants [`Limits::release`] when a request that passed has ended.
    pub fn holds_until_end(&self) -> bool {
        self.0.iter().any(|limit| limit.algorithm.holds_until_end())
    }

    /// How long what is taken until the end of requests stays taken if none of them ends, by an answer of
    /// these limits; `None` when nothing is.
    pub fn held_for(&self, answer: &BucketDecision) -> Option<Nanos> {
        let limits = self.0.iter().zip(answer.decisions());
        let held = limits.filter(|(limit, _)| limit.algorithm.holds_until_end());
        let held = held.map(|(_, decision)| decision.reset_after).max();
        held.filter(|held| *held > Nanos::ZERO)
    }

    /// Whether any limit needs to know the wall clock.
    pub fn reads_wall(&self) -> bool {
        self.0.iter().any(|limit| limit.algorithm.reads_wall())
    }

    /// Whether forgetting a bucket that is as good as new loses nothing.
    pub fn forgets_losslessly(&self) -> bool {
        self.0
            .iter()
            .all(|limit| limit.algorithm.meter().forgets_losslessly())
    }

    /// A bucket first touched at `now`.
    pub fn start(&self, now: Nanos) -> Bucket {
        let mut bucket = Bucket {
            last: now,
            given: 0,
            line: Nanos::ZERO,
            words: Words::new(),
        };
        self.each(&mut bucket, &mut |_, meter, words| meter.start(words, now));
        bucket
    }

    /// Decides on `cost` at `now`; see [`Limits::answer`].
    pub fn decide(&self, bucket: &mut Bucket, cost: u64, now: Nanos) -> BucketDecision {
        self.answer(bucket, &Ask::new(cost, now))
    }

    /// Decides for all limits from the same state, and takes the cost from all of them or none. A
    /// refusal changes only [`Bucket::last`] and what an algorithm notes of refusals, a cost of 0
    /// nothing.
    pub fn answer(&self, bucket: &mut Bucket, ask: &Ask) -> BucketDecision {
        let ask = ask.not_before(bucket.last);
        let now = ask.now;
        let mut after = bucket.clone();
        after.last = now;
        let answer = self.decide_in_line(&mut after, &ask);
        if answer.is_refused() {
            bucket.last = now;
            return self.keep_all(bucket, &answer, &ask);
        }
        if ask.cost > 0 {
            let wait = answer.wait();
            after.line = match wait {
                Nanos::ZERO => wait,
                _ => now.saturating_add(wait),
            };
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

    /// What is taken of each limit at `now`, in cost units, rounded up; above the capacity where requests
    /// wait.
    pub fn used(&self, bucket: &Bucket, now: Nanos) -> Vec<u64> {
        let now = now.max(bucket.last);
        let mut used = Vec::with_capacity(self.0.len());
        self.each(&mut bucket.clone(), &mut |_, meter, words| {
            let units = meter.used(words, now).div_ceil(USED_ONE);
            used.push(u64::try_from(units).unwrap_or(u64::MAX));
        });
        used
    }

    fn decide_each(&self, bucket: &mut Bucket, ask: &Ask) -> BucketDecision {
        let mut decisions = [None; MAX_LIMITS];
        let mut slots = decisions.iter_mut();
        self.each(bucket, &mut |_, meter, words| {
            if let Some(slot) = slots.next() {
                *slot = Some(meter.decide(words, ask));
            }
        });
        let reported = reported(&decisions);
        BucketDecision {
            at: ask.now,
            decisions,
            reported,
        }
    }

    /// The answer to a refused request: what the limits say after they have noted the refusal. Those
    /// that would have admitted took nothing.
    fn keep_all(&self, bucket: &mut Bucket, refused: &BucketDecision, ask: &Ask) -> BucketDecision {
        let refused = if self.note_refusal(bucket, ask) {
            self.decide_in_line(&mut bucket.clone(), ask)
        } else {
            *refused
        };
        let look = Ask { cost: 0, ..*ask };
        let unchanged = self.decide_each(&mut bucket.clone(), &look);
        let decisions = array::from_fn(|i| {
            let (refused, kept) = (refused.decisions.get(i)?, unchanged.decisions.get(i)?);
            if refused.is_some_and(|d| d.verdict == Verdict::Refuse) {
                *refused
            } else {
                *kept
            }
        });
        BucketDecision {
            at: ask.now,
            decisions,
            reported: refused.reported,
        }
    }

    fn note_refusal(&self, bucket: &mut Bucket, ask: &Ask) -> bool {
        let mut is_noted = false;
        self.each(bucket, &mut |_, meter, words| {
            is_noted |= meter.note_refusal(words, ask);
        });
        is_noted
    }

    /// Calls `f` with the index, the meter and the words of each limit. One copy of the loop for all that
    /// is done to limits.
    pub(crate) fn each(&self, bucket: &mut Bucket, f: &mut Each<'_>) {
        let own = self.words();
        if bucket.words.len() > own {
            return self.each_of_long(bucket, false, f);
        }
        bucket.words.resize(own, 0);
        let mut rest = bucket.words.as_mut_slice();
        for (index, limit) in self.0.iter().enumerate() {
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

fn reported(decisions: &[Option<Decision>; MAX_LIMITS]) -> usize {
    let mut best: Option<(usize, &Decision)> = None;
    for (index, decision) in decisions.iter().flatten().enumerate() {
        if best.is_none_or(|(_, other)| is_reported_before(decision, other)) {
            best = Some((index, decision));
        }
    }
    best.map_or(0, |(index, _)| index)
}

fn is_reported_before(a: &Decision, b: &Decision) -> bool {
    match (a.is_refused(), b.is_refused()) {
        // "Never" (no retry_after) is the longest wait.
        (true, true) => {
            let wait = |d: &Decision| d.retry_after.unwrap_or(Nanos::MAX);
            wait(a) > wait(b)
        }
        (false, false) => a.is_tighter_than(b),
        (refused, _) => refused,
    }
}
