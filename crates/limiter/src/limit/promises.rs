//! Promises: a count of the requests that are still waiting in a bucket. When the count reaches
//! zero, the places of requests that have left the queue can be reused.
//!
//! A waiting request took its cost when it arrived, and was promised the time at which it passes.
//! Later requests were promised later times. A request that leaves the middle of a queue cannot
//! give back its place, because the requests behind it keep their times. Once all waiting requests
//! have passed or left, all promises are resolved, and the queue contains only empty places. The
//! queue is then restored to the state in which it was left by the last request that passed.
//!
//! A promise is identified by its *mark*: the time at which all units taken so far, including the
//! units of this request, have drained. Each promise has a later mark than the previous promise,
//! unless a cost was given back in between. Unresolved promises are counted in two groups, one for
//! marks up to a certain time and one for later marks. A group expires when its last mark has
//! passed. By then, none of its units count, whether its requests have passed or were lost because
//! their worker died. A lost promise therefore delays the restoration of the queue, but never
//! prevents it.
//!
//! The promise count is stored after the words of the limits, and only while a request may be
//! waiting:
//!
//! ```text
//! early u32, late u32 | start ns | middle ns | queue_end ns | tail ns of each queue… | root
//! ```
//!
//! Early promises have marks after `start` and up to `middle`. Late promises have marks after `middle`. Promises with
//! marks up to `start` are no longer counted. `queue_end` is the value of [`Bucket::queue_end`] from before the first
//! counted promise. A *tail* is the time at which the level of a queue reaches zero. The count stores the tails that
//! were left by the last request that has passed, or by the last request before the count began. A build that does not
//! support the count drops it, and empty places are then not reused.
//!
//! An edit converts the times in the count like the levels, and puts all promises into one group. The *root* is a value
//! that the caller sets to identify the promises of the count after an edit. Before an edit, the root is zero and not
//! stored.

use super::notes::Notes;
use super::{Bucket, Limits, MAX_BUCKET_WORDS, Words};
use crate::leak;
use crate::meter::Meter;
use crate::taken::Taken;
use crate::time::{Clock, Nanos};

/// Number of words before the tails.
const HEAD: usize = 4;
/// Number of words after the tails.
const ROOT: usize = 1;

/// A bucket's unresolved promises.
#[derive(Debug)]
struct Promises {
    early: u32,
    late: u32,
    start: Nanos,
    middle: Nanos,
    queue_end: Nanos,
    tails: Words,
    root: u64,
}

impl Promises {
    /// Reads a promise count. Trailing zeros may be missing.
    fn read(words: &[u64], queues: usize) -> Self {
        let word = |at: usize| words.get(at).copied().unwrap_or(0);
        let half = |count: u64| u32::try_from(count & u64::from(u32::MAX)).unwrap_or(0);
        Self {
            early: half(word(0) >> 32),
            late: half(word(0)),
            start: Nanos::new(word(1)),
            middle: Nanos::new(word(2)),
            queue_end: Nanos::new(word(3)),
            tails: (0..queues)
                .map(|at| word(HEAD.saturating_add(at)))
                .collect(),
            root: word(HEAD.saturating_add(queues)),
        }
    }

    fn write(&self, words: &mut Words) {
        words.push(u64::from(self.early) << 32 | u64::from(self.late));
        words.extend([self.start, self.middle, self.queue_end].map(Nanos::get));
        words.extend_from_slice(&self.tails);
        if self.root > 0 {
            words.push(self.root);
        }
    }

    const fn group(&mut self, mark: Nanos) -> &mut u32 {
        if mark.get() <= self.middle.get() {
            &mut self.early
        } else {
            &mut self.late
        }
    }

    const fn is_over(&self) -> bool {
        self.early == 0 && self.late == 0
    }

    /// Stores the tails that a request left behind when it arrived, because the request has now
    /// passed. If a stored tail is later, it is kept.
    fn keep(&mut self, tails: &[u64]) {
        for (kept, tail) in self.tails.iter_mut().zip(tails) {
            *kept = (*kept).max(*tail);
        }
    }
}

/// Returns true if the limit's waiting requests form a queue whose end can move back.
pub(crate) fn is_queue(meter: &dyn Meter) -> bool {
    meter.as_level().is_some() && meter.may_hold()
}

impl Limits {
    const fn queues(&self) -> usize {
        self.facts.queues
    }

    /// Returns the maximum number of words in a promise count.
    pub const fn promise_words(&self) -> usize {
        match self.queues() {
            0 => 0,
            queues => queues.saturating_add(HEAD).saturating_add(ROOT),
        }
    }

    /// Returns the index in `words` at which the promise count begins. The index may be beyond the
    /// end of `words`.
    fn own_end(&self, words: &[u64]) -> usize {
        let end = self.surplus_end(words);
        let behind = words.get(end..).unwrap_or(&[]);
        end.saturating_add(Notes::length(behind))
    }

    /// Returns the index in `words` at which the words of the limits end, including surplus words.
    /// The index may be beyond the end of `words`.
    pub(super) fn surplus_end(&self, words: &[u64]) -> usize {
        let mut end = self.words();
        for limit in &self.list {
            if limit.algorithm.meter().max_surplus() > 0 {
                let surplus = words
                    .get(end)
                    .map_or(0, |count| usize::try_from(*count).unwrap_or(0));
                end = end.saturating_add(surplus).saturating_add(1);
            }
        }
        end
    }

    fn promises(&self, bucket: &Bucket) -> Option<Promises> {
        if bucket.words.len() <= self.words() {
            return None;
        }
        let words = bucket.words.get(self.own_end(&bucket.words)..)?;
        let queues = self.queues();
        (!words.is_empty() && queues > 0).then(|| Promises::read(words, queues))
    }

    /// Replaces the promise count. If no promises remain, removes the count and moves the ends of
    /// the queues back to the stored tails.
    fn set_promises(&self, bucket: &mut Bucket, promises: &Promises) {
        if promises.is_over() {
            self.go_back(bucket, promises);
            return self.forget_promises(bucket);
        }
        let end = self.own_end(&bucket.words);
        if end
            .saturating_add(HEAD)
            .saturating_add(promises.tails.len())
            .saturating_add(ROOT)
            > MAX_BUCKET_WORDS
        {
            return;
        }
        bucket.words.resize(end, 0);
        promises.write(&mut bucket.words);
    }

    fn forget_promises(&self, bucket: &mut Bucket) {
        let end = self.own_end(&bucket.words);
        bucket.words.truncate(end);
    }

    /// Calls `f` with the words of each queue.
    fn each_queue(&self, bucket: &mut Bucket, f: &mut dyn FnMut(&mut [u64])) {
        if bucket.words.len() < self.words() {
            bucket.words.resize(self.words(), 0);
        }
        let mut rest = self.own_words(&mut bucket.words);
        for limit in &self.list {
            let meter = limit.algorithm.meter();
            let Some((words, tail)) = rest.split_at_mut_checked(meter.words()) else {
                return;
            };
            if is_queue(meter) {
                f(words);
            }
            rest = tail;
        }
    }

    fn go_back(&self, bucket: &mut Bucket, promises: &Promises) {
        let mut tails = promises.tails.iter();
        self.each_queue(bucket, &mut |words| {
            let tail = tails.next().copied().unwrap_or(u64::MAX);
            leak::cut(words, Nanos::new(tail));
        });
        bucket.queue_end = bucket.queue_end.min(promises.queue_end);
    }

    /// Returns the time at which the level of each queue reaches zero.
    fn tails(&self, bucket: &Bucket) -> Words {
        let mut tails = Words::new();
        let mut at = self.numbers.len();
        for limit in &self.list {
            let meter = limit.algorithm.meter();
            if is_queue(meter) {
                let words = bucket.words.get(at..).unwrap_or(&[]);
                tails.push(leak::tail(words).get());
            }
            at = at.saturating_add(meter.words());
        }
        tails
    }

    /// Returns the mark of the promise made to the request that left the bucket in the state
    /// `bucket`.
    pub(crate) fn mark(&self, bucket: &Bucket) -> Nanos {
        let tails = self.tails(bucket);
        let last = tails.iter().copied().max().unwrap_or(0);
        bucket.queue_end.max(Nanos::new(last))
    }

    /// Removes the promises that have expired by `now`. Returns true if that changed `bucket`.
    pub(crate) fn drop_expired(&self, bucket: &mut Bucket, now: Nanos) -> bool {
        let Some(promises) = self.promises(bucket) else {
            return false;
        };
        if promises.middle > now {
            return false;
        }
        let mark = self.mark(bucket);
        if mark <= now {
            self.forget_promises(bucket);
            return true;
        }
        let settled = Promises {
            early: promises.late,
            late: 0,
            start: promises.middle,
            middle: mark,
            ..promises
        };
        self.set_promises(bucket, &settled);
        true
    }

    /// Counts an admitted request that changed the bucket from `before` to `after`. `waits` is true
    /// if the request is held.
    pub(super) fn promise(&self, before: &Bucket, after: &mut Bucket, waits: bool) {
        let counted = self.promises(after);
        if !waits && counted.is_none() || self.queues() == 0 {
            return;
        }
        let mut promises = counted.unwrap_or_else(|| {
            let start = self.mark(before);
            Promises {
                early: 0,
                late: 0,
                start,
                middle: start,
                queue_end: before.queue_end,
                tails: self.tails(before),
                root: 0,
            }
        });
        if waits {
            let group = promises.group(self.mark(after));
            *group = group.saturating_add(1);
        } else {
            promises.keep(&self.tails(after));
        }
        self.set_promises(after, &promises);
    }

    /// Updates the promise count after units were given back. `mark` is the mark of the bucket
    /// before they were given back. Promises made from now on may have earlier marks than current
    /// promises, so all current promises become early promises, with marks up to `mark`.
    pub(crate) fn gather(&self, bucket: &mut Bucket, mark: Nanos) {
        if let Some(promises) = self.promises(bucket)
            && promises.late > 0
        {
            let gathered = Promises {
                early: promises.early.saturating_add(promises.late),
                late: 0,
                middle: mark.max(promises.middle),
                ..promises
            };
            self.set_promises(bucket, &gathered);
        }
    }

    /// Resolves the promise made to a request that has passed or left. `after` is the bucket in the
    /// state in which this request left it on arrival. Returns true if no promises remain, in which
    /// case the ends of the queues have moved back.
    pub(crate) fn resolve(&self, bucket: &mut Bucket, after: &Bucket, passed: bool) -> bool {
        let Some(mut promises) = self.promises(bucket) else {
            return false;
        };
        let mark = self.mark(after);
        if mark <= promises.start {
            return false;
        }
        if passed {
            promises.keep(&self.tails(after));
        }
        let group = promises.group(mark);
        *group = group.saturating_sub(1);
        self.set_promises(bucket, &promises);
        promises.is_over()
    }

    /// Converts the promise count of `bucket`, which has the limits `old`, and stores it in
    /// `converted`, the same bucket under these limits. `convert` is the conversion that produced
    /// `converted`.
    pub(crate) fn continue_promises(
        &self,
        converted: &mut Bucket,
        (old, bucket): (&Self, &Bucket),
        convert: &dyn Fn(&Bucket) -> Bucket,
    ) {
        let mut before = bucket.clone();
        old.drop_expired(&mut before, converted.last);
        let Some(promises) = old.promises(&before) else {
            return;
        };
        if self.queues() == 0 {
            return;
        }
        // Returns the converted bucket with its queues cut back to the given tails.
        let at = |tails: &mut dyn Iterator<Item = u64>, queue_end: Nanos| {
            let mut was = before.clone();
            old.forget_promises(&mut was);
            was.queue_end = queue_end;
            old.each_queue(&mut was, &mut |words| {
                leak::cut(words, Nanos::new(tails.next().unwrap_or(u64::MAX)));
            });
            convert(&was)
        };
        let start = promises.start.get();
        let start = at(&mut core::iter::repeat(start), promises.start);
        let passed = at(&mut promises.tails.iter().copied(), promises.queue_end);
        let continued = Promises {
            early: promises.early.saturating_add(promises.late),
            late: 0,
            start: self.mark(&start),
            middle: self.mark(converted),
            queue_end: passed.queue_end,
            tails: self.tails(&passed),
            root: promises.root,
        };
        self.set_promises(converted, &continued);
    }

    /// Returns true if the bucket has a single limit, and requests have been waiting in its queue
    /// without interruption since `then` or earlier. The promise count began before its `start`
    /// time, and no decision since then has found the queue empty. With several limits, the count
    /// does not show which limit had the queue.
    pub(crate) fn waited_since(&self, bucket: &Bucket, then: Nanos) -> bool {
        let promises = self.promises(bucket).filter(|_| self.list.len() == 1);
        promises.is_some_and(|promises| promises.start <= then)
    }

    /// Returns the root that the caller assigned to the promise count after an edit, or 0 if it has
    /// none.
    pub fn root(&self, bucket: &Bucket) -> u64 {
        self.promises(bucket).map_or(0, |promises| promises.root)
    }

    /// Sets the root of the promise count, if there is a count and its root is not set yet.
    pub fn set_root(&self, bucket: &mut Bucket, root: u64) {
        if let Some(mut promises) = self.promises(bucket)
            && promises.root == 0
        {
            promises.root = root;
            self.set_promises(bucket, &promises);
        }
    }

    /// Resets a bucket in which a request is waiting, as of `clock`. The result is a new bucket
    /// that keeps the queues, so that later requests stay behind the waiting requests. Returns
    /// `None` if no request is waiting.
    ///
    /// ```
    /// use loudou_limiter::{Clock, Limit, Limits, Nanos, Rate, algorithm::LeakyQueue};
    ///
    /// let queue = LeakyQueue::new(9, Rate::parse("1/s").unwrap()).unwrap();
    /// let limits = Limits::new(vec![Limit::new("queue", queue)]).unwrap();
    /// let mut bucket = limits.start(Nanos::ZERO);
    /// let now = Nanos::from_millis(500);
    /// limits.decide(&mut bucket, 1, Nanos::ZERO);
    /// assert_eq!(limits.reset_behind_queue(&bucket, Clock::at(now)), None, "nobody waits");
    /// limits.decide(&mut bucket, 1, Nanos::ZERO);
    /// let mut bucket = limits.reset_behind_queue(&bucket, Clock::at(now)).unwrap();
    /// assert_eq!(limits.decide(&mut bucket, 1, now).wait(), Nanos::from_millis(1_500));
    /// ```
    pub fn reset_behind_queue(&self, bucket: &Bucket, clock: Clock) -> Option<Bucket> {
        let clock = clock.moved_to(clock.now.max(bucket.last));
        if bucket.queue_end <= clock.now || self.queues() == 0 {
            return None;
        }
        let mut new_bucket = Bucket {
            queue_end: bucket.queue_end,
            given: bucket.given,
            ..self.start_at(clock)
        };
        self.set_queue_words(&mut new_bucket, &self.queue_words(bucket));
        if let Some(promises) = self.promises(bucket) {
            self.set_promises(&mut new_bucket, &promises);
        }
        Some(new_bucket)
    }

    fn set_queue_words(&self, bucket: &mut Bucket, words: &[u64]) {
        let mut rest = words;
        self.each_queue(bucket, &mut |words| {
            if let Some((own, tail)) = rest.split_at_checked(words.len()) {
                words.copy_from_slice(own);
                rest = tail;
            }
        });
    }

    /// Returns the words of all queues.
    fn queue_words(&self, bucket: &Bucket) -> Words {
        let mut words = Words::new();
        self.each_queue(&mut bucket.clone(), &mut |queue| {
            words.extend_from_slice(queue);
        });
        words
    }

    /// Gives back the place of a waiting request that is leaving, if it is the last request in the
    /// queues. `after` is the bucket in the state in which this request left it on arrival. Returns
    /// true if the place was given back.
    pub(crate) fn leave_last(&self, bucket: &mut Bucket, taken: &Taken, after: &Bucket) -> bool {
        let before = taken.before();
        let has_queue_end = after.queue_end > bucket.last && after.queue_end == bucket.queue_end;
        // After an edit, only the levels show the length of the queue.
        let waits = has_queue_end || taken.request().is_queued;
        let is_alone = waits && bucket.given == before.given && self.queues() > 0;
        if !is_alone || self.queue_words(bucket) != self.queue_words(after) {
            return false;
        }
        self.set_queue_words(bucket, &self.queue_words(before));
        bucket.queue_end = before.queue_end;
        true
    }
}
