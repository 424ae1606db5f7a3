//! What a request took, and giving it back when the request comes to nothing: a later rule refused
//! it, or the client left while it waited.
//!
//! Nobody may be better off for it than if the request had never been made. If nobody took after it,
//! the bucket is as it found it. Else each limit gives back what certainly would still be there: what
//! has drained since is gone (what it found in front of it drains first), and of a queue in which
//! somebody may be waiting nothing comes back, because those who wait were promised their instants and
//! a gap in front of them cannot be filled by who comes after them.

use crate::ask::Ask;
use crate::limit::{Bucket, GIVEN, Limits};
use crate::time::Nanos;
use crate::used::Back;

/// What a request took from a bucket, so that it can be given back.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Taken {
    before: Bucket,
    ask: Ask,
}

impl Taken {
    /// What `ask` is about to take from `bucket`, if it is admitted.
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

    /// How much, in cost units.
    pub const fn cost(&self) -> u64 {
        self.ask.cost
    }
}

impl Limits {
    /// Gives back what a request took that came to nothing. Nothing is better after it than if the
    /// request had never been made, so not all of it may come back; whether anything did. `bucket` was
    /// only decided on and given back to since.
    ///
    /// If nobody took after it, the bucket is as it was.
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
