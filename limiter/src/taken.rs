//! The cost that a request took, and giving it back when the request is abandoned: a later rule refused
//! it, or the client left while it waited.
//!
//! No other request may be better off for it than if that one had never been made. If none took after
//! it, the bucket is restored to the state that it found. Else each limit gives back the units that
//! certainly would still be there: those that have drained since are gone (earlier ones drain first),
//! and a queue in which requests may be waiting gives nothing back, because these were promised their
//! instants and later requests cannot fill a gap before them.

use crate::ask::Ask;
use crate::limit::{Bucket, GIVEN, Limits};
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
        Self {
            before: bucket.clone(),
            ask: ask.not_before(bucket.last),
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
}

impl Limits {
    /// Gives back the cost of an abandoned request; whether anything came back. Not all of it may, since
    /// no other request may be better off than if that one had never been made. Since then there were
    /// only decisions and returns on `bucket`.
    ///
    /// If no other request took after it, the bucket is as it was.
    pub fn give_back(&self, bucket: &mut Bucket, taken: &Taken) -> bool {
        let Taken { before, ask } = taken;
        let mut after = before.clone();
        if ask.cost == 0 || self.answer(&mut after, ask).is_refused() {
            return false;
        }
        if bucket.given == before.given && bucket.words() == after.words() {
            bucket.words.clone_from(&before.words);
            bucket.line = before.line;
            return true;
        }
        let given = bucket.given.wrapping_sub(before.given) & GIVEN;
        let last = bucket.last;
        let mut found = before.words.clone();
        found.resize(self.words(), 0);
        let mut rest = found.as_slice();
        let mut comes_back = false;
        self.each(bucket, &mut |_, meter, words| {
            let Some((before, tail)) = rest.split_at_checked(meter.words()) else {
                return;
            };
            rest = tail;
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
        }
        comes_back
    }
}
