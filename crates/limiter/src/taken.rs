//! The cost that a request took, and how it is given back if the request is abandoned. A request is
//! abandoned if a later rule refuses it, or if the client disconnects while the request is waiting.
//!
//! Other requests must not end up better off than if the abandoned request had never been made. If
//! no request has taken units since then, the bucket is restored to the state in which the
//! abandoned request found it. Otherwise, the units that certainly have not drained yet are given
//! back to each limit. Units drain in the order in which they were taken. Nothing is given back to
//! a queue in which requests may be waiting, because these requests keep their promised times, and
//! later requests cannot use a gap in front of them. Instead, the bucket counts the waiting
//! requests, and the queue drops its empty places when the last of these requests has passed or
//! left (`limit::promises`).

use alloc::boxed::Box;

use crate::convert::Carry;
use crate::convert::convert;
use crate::decision::BucketRequest;
use crate::limit::{Bucket, BucketDecision, GIVEN, Limits, is_queue};
use crate::meter::Refund;
use crate::time::{Clock, Nanos};

/// Record of the cost that a request took from a bucket, with all the state needed to give the cost
/// back.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Taken {
    before: Bucket,
    request: BucketRequest,
    /// After an edit, the bucket as the request left it, converted to the new limits.
    after: Option<Box<Bucket>>,
}

impl Taken {
    /// Records the state of `bucket` before `request` takes its cost from it.
    ///
    /// ```
    /// use loudou_limiter::{BucketRequest, Limit, Limits, Nanos, Rate, Taken, algorithm::Funnel};
    ///
    /// let funnel = Funnel::new(5, Rate::parse("1/s").unwrap()).unwrap();
    /// let limits = Limits::new(vec![Limit::new("burst", funnel)]).unwrap();
    /// let mut bucket = limits.start(Nanos::ZERO);
    ///
    /// let request = BucketRequest::new(3, Nanos::ZERO);
    /// let taken = Taken::new(&bucket, &request);
    /// limits.answer(&mut bucket, &request);
    /// // A later rule refused the request.
    /// assert!(limits.give_back(&mut bucket, &taken));
    /// assert_eq!(limits.used(&bucket, Nanos::ZERO), [0]);
    /// ```
    pub fn new(bucket: &Bucket, request: &BucketRequest) -> Self {
        Self::from(bucket.clone(), *request)
    }

    /// Like [`Taken::new`], but takes ownership of the bucket instead of copying it.
    pub fn from(before: Bucket, request: BucketRequest) -> Self {
        let request = request.not_before(before.last);
        Self {
            before,
            request,
            after: None,
        }
    }

    /// Returns the time at which the cost was taken, on the bucket's clock.
    pub const fn at(&self) -> Nanos {
        self.request.now
    }

    /// Returns the cost of the request.
    pub const fn cost(&self) -> u64 {
        self.request.cost
    }

    /// Converts the record of a waiting request after an edit at `clock` replaced the limits `old`
    /// with `new`, in the same way as [`convert`] converts the bucket. The request's place in a
    /// queue is determined by the level below its own cost, so that requests waiting behind it stay
    /// behind it.
    ///
    /// ```
    /// use loudou_limiter::{BucketRequest, Carry, Clock, Limit, Limits, Nanos, Plan, Rate, Taken};
    /// use loudou_limiter::algorithm::LeakyQueue;
    ///
    /// let queue = |rate| {
    ///     let queue = LeakyQueue::new(9, Rate::parse(rate).unwrap()).unwrap();
    ///     Limits::new(vec![Limit::new("queue", queue)]).unwrap()
    /// };
    /// let (old, new) = (queue("1/s"), queue("10/s"));
    /// let mut bucket = old.start(Nanos::ZERO);
    /// let request = BucketRequest::new(1, Nanos::ZERO);
    /// old.answer(&mut bucket, &request);
    /// let taken = Taken::new(&bucket, &request);
    /// assert_eq!(old.answer(&mut bucket, &request).wait(), Nanos::from_secs(1));
    ///
    /// // After half a second, half a unit is in front of it: it leaves in 50 ms.
    /// let clock = Clock::at(Nanos::from_millis(500));
    /// let taken = taken.converted(&old, &new, Carry::Keep, clock);
    /// let plan = new.plan(&old, &taken, Nanos::from_secs(1));
    /// assert_eq!(plan, Plan::At(Nanos::from_millis(550)));
    /// ```
    #[must_use]
    pub fn converted(&self, old: &Limits, new: &Limits, carry: Carry, clock: Clock) -> Self {
        let in_place = self.in_place();
        let request = in_place.request;
        let after = old.after(&in_place);
        let mut found = self.before.clone();
        found.last = request.now;
        let mut before = convert(old, new, carry, &found, clock);
        let mut after = convert(old, new, carry, &after, clock);
        before.words.resize(new.words(), 0);
        let now = before.last;
        let mut rest = new.own_words(&mut before.words);
        new.each(&mut after, &mut |_, meter, words| {
            let own = core::mem::take(&mut rest).split_at_mut_checked(meter.words());
            let Some((own, next)) = own else { return };
            rest = next;
            if own == words {
                // The request has taken nothing from this limit, because the limit is new or its
                // usage was discarded.
            } else if let Some(level) = meter.as_level() {
                let found = level
                    .read(words, now)
                    .saturating_sub(level.drops(request.cost));
                level.write(own, found, now);
            } else if let Some(count) = meter.counted(words, now) {
                own.iter_mut()
                    .zip(words)
                    .for_each(|(own, word)| *own = *word);
                meter.recount(own, count.saturating_sub(request.cost), now);
            }
        });
        after.queue_end = new.queue_end_of(&after);
        Self {
            after: Some(Box::new(after)),
            ..Self::from(before, request)
        }
    }

    /// Returns the record of a waiting request after its bucket was reset. The reset discards
    /// everything that the request took, except for its place in a queue.
    #[must_use]
    pub fn in_place(&self) -> Self {
        Self {
            request: self.request.queued(),
            ..self.clone()
        }
    }

    /// Returns the bucket as the request found it.
    pub const fn before(&self) -> &Bucket {
        &self.before
    }

    /// Returns the state words of the bucket as the request left it, converted by an edit. Returns
    /// no words before an edit.
    pub(crate) fn after_words(&self) -> &[u64] {
        self.after.as_ref().map_or(&[], |after| &after.words)
    }

    pub(crate) const fn request(&self) -> &BucketRequest {
        &self.request
    }
}

impl Limits {
    /// Gives back the cost of an abandoned request. Returns true if any units were given back. Some
    /// units may stay used, because other requests must not end up better off than if the abandoned
    /// request had never been made. Since the request was made, the bucket must have been changed
    /// only by decisions and by costs being given back.
    ///
    /// If no other request has taken units since the abandoned request, the bucket is restored to
    /// its earlier state.
    pub fn give_back(&self, bucket: &mut Bucket, taken: &Taken) -> bool {
        self.return_to(bucket, taken, false)
    }

    /// Gives back a cost. `nobody_waits` is true if no request can be waiting in the bucket.
    fn return_to(&self, bucket: &mut Bucket, taken: &Taken, nobody_waits: bool) -> bool {
        let Taken {
            before, request, ..
        } = taken;
        let Some((after, waits)) = self.taken_from(taken) else {
            return false;
        };
        // After an edit, the promise count no longer refers to this request.
        let is_whole = !request.is_queued && bucket.given == before.given;
        if is_whole && bucket.words() == after.words() {
            bucket.words.clone_from(&before.words);
            bucket.queue_end = before.queue_end;
            return true;
        }
        let is_last = waits && self.leave_last(bucket, taken, &after);
        let is_over = waits && self.resolve(bucket, &after, false);
        let goes_back = is_last || is_over;
        if request.is_queued {
            // Nothing is given back to limits without a queue, because it is unknown how many units
            // from before the edit they still count.
            return goes_back;
        }
        let given = bucket.given.wrapping_sub(before.given) & GIVEN;
        let last = bucket.last;
        // Promises that had expired when the request arrived were removed at that time.
        let mut found = before.clone();
        self.drop_expired(&mut found, request.now);
        found.words.resize(self.words(), 0);
        let mut rest = found.words.get(self.numbers().len()..).unwrap_or(&[]);
        let mut comes_back = false;
        let mark = self.mark(bucket);
        // A queue that has just dropped its empty places has nothing more to give back.
        self.each(bucket, &mut |_, meter, words| {
            let Some((before, tail)) = rest.split_at_checked(meter.words()) else {
                return;
            };
            rest = tail;
            if goes_back && is_queue(meter) {
                return;
            }
            let refund = Refund {
                request: *request,
                before,
                given,
                last,
                nobody_waits,
            };
            comes_back |= meter.give_back(words, &refund);
        });
        if comes_back {
            bucket.given = bucket.given.wrapping_add(request.cost) & GIVEN;
            self.gather(bucket, mark);
        }
        comes_back || goes_back
    }

    /// Replaces the reserved cost of a request that has passed with its final cost, `actual`. If
    /// the final cost is lower, the difference is given back, as if a second request had taken it
    /// and had then been abandoned. If the final cost is higher, the difference is taken now. Units
    /// that are not available become a debt, which is repaid before the next request is admitted.
    /// An algorithm that cannot keep a debt takes only the available units.
    ///
    /// The limits must not hold requests. Returns true if the bucket changed.
    ///
    /// ```
    /// use loudou_limiter::{BucketRequest, Clock, Limit, Limits, Nanos, Rate, Taken, algorithm::Funnel};
    ///
    /// let funnel = Funnel::new(100, Rate::parse("1/s").unwrap()).unwrap();
    /// let limits = Limits::new(vec![Limit::new("tokens", funnel)]).unwrap();
    /// let mut bucket = limits.start(Nanos::ZERO);
    /// let mut take = |cost| {
    ///     let request = BucketRequest::new(cost, Nanos::ZERO);
    ///     let taken = Taken::new(&bucket, &request);
    ///     assert!(!limits.answer(&mut bucket, &request).is_refused());
    ///     taken
    /// };
    /// let (first, second) = (take(40), take(40));
    /// // One cost less than it had reserved, the other one more: 10 + 120 of 100.
    /// limits.settle(&mut bucket, &first, 10, Clock::at(Nanos::ZERO));
    /// limits.settle(&mut bucket, &second, 120, Clock::at(Nanos::ZERO));
    /// let answer = limits.peek(&bucket, 1, Nanos::ZERO);
    /// let decision = answer.reported().unwrap();
    /// assert_eq!(decision.remaining, 0);
    /// assert_eq!(decision.retry_after, Some(Nanos::from_secs(31)));
    /// ```
    pub fn settle(&self, bucket: &mut Bucket, taken: &Taken, actual: u64, clock: Clock) -> bool {
        let cost = taken.cost();
        if actual < cost {
            return self.return_to(bucket, &self.unspent(taken, actual), true);
        }
        self.overdraw(bucket, actual.saturating_sub(cost), clock)
    }

    /// Like [`Limits::answer`], but for a request whose cost is charged only when it ends, by [`Limits::settle`]. The
    /// request takes nothing, but it is admitted only if each limit has a unit available. A key must therefore repay
    /// its debt first.
    ///
    /// ```
    /// use loudou_limiter::{BucketRequest, Clock, Limit, Limits, Nanos, Rate, Taken, algorithm::Funnel};
    ///
    /// let funnel = Funnel::new(100, Rate::parse("1/s").unwrap()).unwrap();
    /// let limits = Limits::new(vec![Limit::new("tokens", funnel)]).unwrap();
    /// let mut bucket = limits.start(Nanos::ZERO);
    /// let request = BucketRequest::new(0, Nanos::ZERO);
    /// // Any number of requests in flight is admitted, until the first one ends.
    /// let taken = [(); 3].map(|()| {
    ///     let taken = Taken::new(&bucket, &request);
    ///     assert!(!limits.answer_at_end(&mut bucket, &request).is_refused());
    ///     taken
    /// });
    /// limits.settle(&mut bucket, &taken[0], 130, Clock::at(Nanos::ZERO));
    /// let answer = limits.answer_at_end(&mut bucket, &request);
    /// assert_eq!(answer.reported().unwrap().retry_after, Some(Nanos::from_secs(31)));
    /// ```
    pub fn answer_at_end(&self, bucket: &mut Bucket, request: &BucketRequest) -> BucketDecision {
        let mut refused = bucket.clone();
        let answer = self.answer(
            &mut refused,
            &BucketRequest {
                cost: 1,
                ..*request
            },
        );
        if answer.is_refused() {
            *bucket = refused;
            return answer;
        }
        self.answer(
            bucket,
            &BucketRequest {
                cost: 0,
                ..*request
            },
        )
    }

    /// Takes the units by which a request's final cost exceeds its reservation. Returns true if the
    /// bucket changed.
    pub fn overdraw(&self, bucket: &mut Bucket, units: u64, clock: Clock) -> bool {
        if units == 0 {
            return false;
        }
        let clock = clock.moved_to(clock.now.max(bucket.last));
        bucket.last = clock.now;
        self.each(bucket, &mut |_, meter, words| {
            meter.overdraw(words, units, clock);
        });
        true
    }

    /// Returns the unused part of a cost as the record of a second request, which took this part
    /// immediately after the used part. Units drain in the order in which they were taken, so the
    /// unused part drains last.
    fn unspent(&self, taken: &Taken, actual: u64) -> Taken {
        let (mut before, request) = (taken.before.clone(), taken.request);
        let with = |cost| BucketRequest { cost, ..request };
        self.answer(&mut before, &with(actual));
        Taken::from(before, with(request.cost.saturating_sub(actual)))
    }

    /// Resolves the promise made to a request that has waited and is now passing. Returns true if
    /// no promises remain, in which case the ends of the queues have moved back. Since the cost was
    /// taken, the bucket must have been changed only by decisions, by costs being given back, and
    /// by requests passing.
    ///
    /// ```
    /// use loudou_limiter::{BucketRequest, Limit, Limits, Nanos, Rate, Taken, algorithm::LeakyQueue};
    ///
    /// let queue = LeakyQueue::new(9, Rate::parse("1/s").unwrap()).unwrap();
    /// let limits = Limits::new(vec![Limit::new("queue", queue)]).unwrap();
    /// let mut bucket = limits.start(Nanos::ZERO);
    /// let request = BucketRequest::new(1, Nanos::ZERO);
    /// let taken = [(); 4].map(|()| {
    ///     let taken = Taken::new(&bucket, &request);
    ///     limits.answer(&mut bucket, &request);
    ///     taken
    /// });
    /// // The first one did not wait. The second one passes, and the others leave in any order.
    /// limits.peek(&bucket, 0, Nanos::from_secs(1));
    /// limits.pass(&mut bucket, &taken[1]);
    /// limits.give_back(&mut bucket, &taken[2]);
    /// limits.give_back(&mut bucket, &taken[3]);
    /// assert_eq!(limits.used(&bucket, Nanos::from_secs(1)), [1]);
    /// ```
    pub fn pass(&self, bucket: &mut Bucket, taken: &Taken) -> bool {
        match self.taken_from(taken) {
            Some((after, true)) => self.resolve(bucket, &after, true),
            _ => false,
        }
    }

    /// Returns the bucket as a waiting request left it, even if some limits would now refuse its
    /// cost.
    fn after(&self, taken: &Taken) -> Bucket {
        if let Some(after) = &taken.after {
            return Bucket::clone(after);
        }
        let mut after = taken.before.clone();
        after.last = taken.request.now;
        self.each(&mut after, &mut |_, meter, words| {
            meter.decide(words, &taken.request);
        });
        after.queue_end = self.queue_end_of(&after);
        after
    }

    /// Returns the bucket as a request left it, and true if the request is waiting. Returns `None`
    /// if the request took nothing.
    fn taken_from(&self, taken: &Taken) -> Option<(Bucket, bool)> {
        let Taken {
            before, request, ..
        } = taken;
        if request.is_queued {
            return Some((self.after(taken), true));
        }
        let mut after = before.clone();
        let answer = self.answer(&mut after, request);
        let took = request.cost > 0 && !answer.is_refused();
        took.then(|| (after, answer.wait() > Nanos::ZERO))
    }
}
