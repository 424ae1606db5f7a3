//! The cost that a request took, and giving it back when the request is abandoned: a later rule refused
//! it, or the client left while it waited.
//!
//! No other request may be better off for it than if that one had never been made. If none took after
//! it, the bucket is restored to the state that it found. Else each limit gives back the units that
//! certainly would still be there: those that have drained since are gone (earlier ones drain first).
//! A queue in which requests may be waiting gives nothing back, because these were promised their
//! instants and later requests cannot fill a gap before them; but it counts them, and goes back when the
//! last one has passed or left (`limit::promises`).

use crate::ask::Ask;
use crate::limit::{Bucket, GIVEN, Limits, is_queue};
use crate::time::Nanos;
use crate::used::Back;

/// The cost that a request took from a bucket, so that it can be given back.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Taken {
    before: Bucket,
    ask: Ask,
}

impl Taken {
    /// The cost that `ask` is about to take from `bucket`, if it is admitted.
    ///
    /// ```
    /// use loudou_limiter::{Ask, Limit, Limits, Nanos, Rate, Taken, algorithm::Funnel};
    ///
    /// let funnel = Funnel::new(5, Rate::parse("1/s").unwrap()).unwrap();
    /// let limits = Limits::new(vec![Limit::new("burst", funnel)]).unwrap();
    /// let mut bucket = limits.start(Nanos::ZERO);
    ///
    /// let ask = Ask::new(3, Nanos::ZERO);
    /// let taken = Taken::new(&bucket, &ask);
    /// limits.answer(&mut bucket, &ask);
    /// // A later rule refused the request.
    /// assert!(limits.give_back(&mut bucket, &taken));
    /// assert_eq!(limits.used(&bucket, Nanos::ZERO), [0]);
    /// ```
    pub fn new(bucket: &Bucket, ask: &Ask) -> Self {
        Self::from(bucket.clone(), *ask)
    }

    /// The same with a copy of the bucket.
    pub fn from(before: Bucket, ask: Ask) -> Self {
        let ask = ask.not_before(before.last);
        Self { before, ask }
    }

    /// When it was taken, on the bucket's clock.
    pub const fn at(&self) -> Nanos {
        self.ask.now
    }

    /// The cost, in cost units.
    pub const fn cost(&self) -> u64 {
        self.ask.cost
    }
}

impl Limits {
    /// Gives back the cost of an abandoned request; whether anything came back. Not all of it may, since
    /// no other request may be better off than if that one had never been made. Since then there were
    /// only decisions and returns on `bucket`.
    ///
    /// If no other request took after it, the bucket is as it was.
    pub fn give_back(&self, bucket: &mut Bucket, taken: &Taken) -> bool {
        let Taken { before, ask } = taken;
        let Some((after, waits)) = self.taken_from(taken) else {
            return false;
        };
        if bucket.given == before.given && bucket.words() == after.words() {
            bucket.words.clone_from(&before.words);
            bucket.line = before.line;
            return true;
        }
        let is_last = waits && self.leave_last(bucket, before, &after);
        let is_over = waits && self.resolve(bucket, &after, false);
        let goes_back = is_last || is_over;
        let given = bucket.given.wrapping_sub(before.given) & GIVEN;
        let last = bucket.last;
        // What had expired when the request came was gone then.
        let mut found = before.clone();
        self.settle(&mut found, ask.now);
        found.words.resize(self.words(), 0);
        let mut rest = found.words.as_slice();
        let mut comes_back = false;
        let mark = self.mark(bucket);
        // Queues that went back have nothing more to give.
        self.each(bucket, &mut |_, meter, words| {
            let Some((before, tail)) = rest.split_at_checked(meter.words()) else {
                return;
            };
            rest = tail;
            if goes_back && is_queue(meter) {
                return;
            }
            let back = Back {
                ask: *ask,
                before,
                given,
                last,
            };
            comes_back |= meter.give_back(words, &back);
        });
        if comes_back {
            bucket.given = bucket.given.wrapping_add(ask.cost) & GIVEN;
            self.gather(bucket, mark);
        }
        comes_back || goes_back
    }

    /// Resolves the promise to a request that waited and now passes; whether that changed `bucket`. Since
    /// it was taken there were only decisions, returns and passes on `bucket`.
    ///
    /// ```
    /// use loudou_limiter::{Ask, Limit, Limits, Nanos, Rate, Taken, algorithm::LeakyQueue};
    ///
    /// let queue = LeakyQueue::new(9, Rate::parse("1/s").unwrap()).unwrap();
    /// let limits = Limits::new(vec![Limit::new("queue", queue)]).unwrap();
    /// let mut bucket = limits.start(Nanos::ZERO);
    /// let ask = Ask::new(1, Nanos::ZERO);
    /// let taken = [(); 4].map(|()| {
    ///     let taken = Taken::new(&bucket, &ask);
    ///     limits.answer(&mut bucket, &ask);
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

    /// The bucket as a request left it, and whether it waits.
    fn taken_from(&self, taken: &Taken) -> Option<(Bucket, bool)> {
        let Taken { before, ask } = taken;
        let mut after = before.clone();
        let answer = self.answer(&mut after, ask);
        let took = ask.cost > 0 && !answer.is_refused();
        took.then(|| (after, answer.wait() > Nanos::ZERO))
    }
}
