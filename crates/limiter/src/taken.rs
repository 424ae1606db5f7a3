//! The cost that a request took, and giving it back when the request is abandoned: a later rule refused
//! it, or the client left while it waited.
//!
//! No other request may be better off for it than if that one had never been made. If none took after
//! it, the bucket is restored to the state that it found. Else each limit gives back the units that
//! certainly would still be there: those that have drained since are gone (earlier ones drain first).
//! A queue in which requests may be waiting gives nothing back, because these were promised their
//! instants and later requests cannot fill a gap before them; but it counts them, and goes back when the
//! last one has passed or left (`limit::promises`).

use alloc::boxed::Box;

use crate::convert::Carry;
use crate::convert::convert;
use crate::decision::Ask;
use crate::limit::{Bucket, GIVEN, Limits, is_queue};
use crate::meter::Back;
use crate::time::{Clock, Nanos};

/// The cost that a request took from a bucket, so that it can be given back.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Taken {
    before: Bucket,
    ask: Ask,
    /// After an edit: the bucket as the request left it, as it is now.
    after: Option<Box<Bucket>>,
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
        Self {
            before,
            ask,
            after: None,
        }
    }

    /// When it was taken, on the bucket's clock.
    pub const fn at(&self) -> Nanos {
        self.ask.now
    }

    /// The cost, in cost units.
    pub const fn cost(&self) -> u64 {
        self.ask.cost
    }

    /// The same for a request that waits, after an edit at `clock` made `new` of the limits `old`, as [`convert`]
    /// converts the bucket. Its place in a level or in a count is the part
    /// below its own cost, so that a request that waits behind it stays behind it.
    ///
    /// ```
    /// use loudou_limiter::{Ask, Carry, Clock, Limit, Limits, Nanos, Plan, Rate, Taken};
    /// use loudou_limiter::algorithm::LeakyQueue;
    ///
    /// let queue = |rate| {
    ///     let queue = LeakyQueue::new(9, Rate::parse(rate).unwrap()).unwrap();
    ///     Limits::new(vec![Limit::new("queue", queue)]).unwrap()
    /// };
    /// let (old, new) = (queue("1/s"), queue("10/s"));
    /// let mut bucket = old.start(Nanos::ZERO);
    /// let ask = Ask::new(1, Nanos::ZERO);
    /// old.answer(&mut bucket, &ask);
    /// let taken = Taken::new(&bucket, &ask);
    /// assert_eq!(old.answer(&mut bucket, &ask).wait(), Nanos::from_secs(1));
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
        let ask = in_place.ask;
        let after = old.after(&in_place);
        let mut found = self.before.clone();
        found.last = ask.now;
        let mut before = convert(old, new, carry, &found, clock);
        let mut after = convert(old, new, carry, &after, clock);
        before.words.resize(new.words(), 0);
        let now = before.last;
        let mut rest = before.words.as_mut_slice();
        new.each(&mut after, &mut |_, meter, words| {
            let own = core::mem::take(&mut rest).split_at_mut_checked(meter.words());
            let Some((own, next)) = own else { return };
            rest = next;
            if own == words {
                // It took nothing here: the limit is new to it, or forgot what it took.
            } else if let Some(level) = meter.as_level() {
                let found = level.read(words, now).saturating_sub(level.drops(ask.cost));
                level.write(own, found, now);
            } else if let Some(count) = meter.counted(words, now) {
                own.iter_mut()
                    .zip(words)
                    .for_each(|(own, word)| *own = *word);
                meter.recount(own, count.saturating_sub(ask.cost), now);
            }
        });
        after.line = new.line_of(&after);
        Self {
            after: Some(Box::new(after)),
            ..Self::from(before, ask)
        }
    }

    /// The same for a request that waits in a bucket that was reset: there it has nothing but its place in a queue.
    #[must_use]
    pub fn in_place(&self) -> Self {
        Self {
            ask: self.ask.in_place(),
            ..self.clone()
        }
    }

    pub(crate) const fn before(&self) -> &Bucket {
        &self.before
    }

    /// The words of the bucket as the request left it, once an edit has converted it.
    pub(crate) fn after_words(&self) -> &[u64] {
        self.after.as_ref().map_or(&[], |after| &after.words)
    }

    pub(crate) const fn ask(&self) -> &Ask {
        &self.ask
    }
}

impl Limits {
    /// Gives back the cost of an abandoned request; whether anything came back. Not all of it may, since
    /// no other request may be better off than if that one had never been made. Since then there were
    /// only decisions and returns on `bucket`.
    ///
    /// If no other request took after it, the bucket is as it was.
    pub fn give_back(&self, bucket: &mut Bucket, taken: &Taken) -> bool {
        let Taken { before, ask, .. } = taken;
        let Some((after, waits)) = self.taken_from(taken) else {
            return false;
        };
        // After an edit, the count of promises no longer belongs to the request.
        let is_whole = !ask.has_place && bucket.given == before.given;
        if is_whole && bucket.words() == after.words() {
            bucket.words.clone_from(&before.words);
            bucket.line = before.line;
            return true;
        }
        let is_last = waits && self.leave_last(bucket, taken, &after);
        let is_over = waits && self.resolve(bucket, &after, false);
        let goes_back = is_last || is_over;
        if ask.has_place {
            // Of what it took from other limits before the edit, more or less may be left by now.
            return goes_back;
        }
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

    /// The bucket as a request left it that waits already, whatever other limits say of its cost.
    fn after(&self, taken: &Taken) -> Bucket {
        if let Some(after) = &taken.after {
            return Bucket::clone(after);
        }
        let mut after = taken.before.clone();
        after.last = taken.ask.now;
        self.each(&mut after, &mut |_, meter, words| {
            meter.decide(words, &taken.ask);
        });
        after.line = self.line_of(&after);
        after
    }

    /// The bucket as a request left it, and whether it waits.
    fn taken_from(&self, taken: &Taken) -> Option<(Bucket, bool)> {
        let Taken { before, ask, .. } = taken;
        if ask.has_place {
            return Some((self.after(taken), true));
        }
        let mut after = before.clone();
        let answer = self.answer(&mut after, ask);
        let took = ask.cost > 0 && !answer.is_refused();
        took.then(|| (after, answer.wait() > Nanos::ZERO))
    }
}
