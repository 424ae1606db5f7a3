//! Changing the numbers under live buckets: one conversion of a bucket.
//!
//! The used amount is carried limit by limit, found by name. It is counted in cost units, so it leaves at
//! the new numbers' pace: a slower rate frees nothing sooner, and may make a bucket full later than
//! before. An amount beyond a smaller capacity is remembered. So conversions there and back hand out
//! nothing. `loudou_rules::versions` knows the conversions that a bucket undergoes.

use alloc::borrow::ToOwned as _;
use alloc::string::String;
use alloc::vec::Vec;

use crate::algorithm::Algorithm;
use crate::carry::Carry;
use crate::limit::{Bucket, Limit, Limits};
use crate::time::{Clock, Nanos};
use crate::used::{USED_ONE, Used};

/// `bucket`, written under `old`, as it is under `new` from the instant `clock` on. Waiting requests pass
/// at the instants promised to them, and no later request passes before those.
///
/// ```
/// use loudou_limiter::{Carry, Clock, Limit, Limits, Nanos, Rate, algorithm::Funnel, convert};
///
/// let funnel = |capacity| {
///     let funnel = Funnel::new(capacity, Rate::parse("1/s").unwrap()).unwrap();
///     Limits::new(vec![Limit::new("burst", funnel)]).unwrap()
/// };
/// let (old, new) = (funnel(10), funnel(20));
/// let mut bucket = old.start(Nanos::ZERO);
/// old.decide(&mut bucket, 4, Nanos::ZERO);
/// for (carry, used) in [(Carry::Keep, 4), (Carry::Proportional, 8), (Carry::Reset, 0)] {
///     let converted = convert(&old, &new, carry, &bucket, Clock::at(Nanos::ZERO));
///     assert_eq!(new.used(&converted, Nanos::ZERO), [used]);
/// }
/// ```
pub fn convert(old: &Limits, new: &Limits, carry: Carry, bucket: &Bucket, clock: Clock) -> Bucket {
    let clock = clock.moved_to(clock.now.max(bucket.last));
    // It was last touched by the edit: an earlier `now` must not move its clock back.
    let mut converted = new.start_at(clock);
    // One that has passed is none, as in a bucket that is stored.
    if bucket.line > clock.now {
        converted.line = bucket.line;
    }
    if carry == Carry::Reset {
        return converted;
    }
    let levels = levels(old, bucket, clock);
    let sources = new.iter().enumerate();
    let sources: Vec<_> = sources
        .map(|(index, limit)| {
            let level = counterpart(&levels, limit, index, new)?;
            Some((level, level.algorithm() == limit.algorithm()))
        })
        .collect();
    new.each_with_surplus(&mut converted, &mut |index, meter, words| {
        let Some((level, is_same)) = sources.get(index).copied().flatten() else {
            return;
        };
        if is_same {
            words
                .iter_mut()
                .zip(&level.words)
                .for_each(|(word, old)| *word = *old);
        } else if !meter.adopt(words, level.algorithm().meter(), &level.words, carry, clock) {
            let used = carry.apply(level.used, level.full, meter.full());
            meter.resume(words, used, clock);
        }
    });
    converted
}

/// A bucket of whose limits these units are used at `clock`, in their order: for previews, where a live bucket is known
/// by its numbers alone.
///
/// ```
/// use loudou_limiter::{Clock, Limit, Limits, Nanos, Rate, algorithm::Funnel, partly_used};
///
/// let funnel = Funnel::new(5, Rate::parse("1/s").unwrap()).unwrap();
/// let limits = Limits::new(vec![Limit::new("pace", funnel)]).unwrap();
/// let bucket = partly_used(&limits, &[3], Clock::at(Nanos::ZERO));
/// assert_eq!(limits.used(&bucket, Nanos::from_secs(1)), [2]);
/// ```
pub fn partly_used(limits: &Limits, used: &[u64], clock: Clock) -> Bucket {
    let mut bucket = limits.start_at(clock);
    limits.each(&mut bucket, &mut |index, meter, words| {
        if let Some(units) = used.get(index) {
            let used = Used::from(*units).saturating_mul(USED_ONE);
            meter.resume(words, used, clock);
        }
    });
    bucket
}

/// A limit whose used-up bucket is full again later after an edit than before.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Later {
    /// Its name.
    pub limit: String,
    /// The time until it was full again.
    pub before: Nanos,
    /// The time until it is full again if the edit comes when all is used.
    pub after: Nanos,
}

/// The limits whose used-up bucket an edit makes full again later.
pub fn full_later(old: &Limits, new: &Limits, carry: Carry) -> Vec<Later> {
    let clock = Clock::at(Nanos::ZERO);
    let reset_after = |limits: &Limits, bucket: &Bucket| -> Vec<Nanos> {
        let answer = limits.peek(bucket, 0, Nanos::ZERO);
        answer.decisions().map(|limit| limit.reset_after).collect()
    };
    let mut used_up = old.start(Nanos::ZERO);
    old.each(&mut used_up, &mut |_, meter, words| {
        meter.resume(words, meter.full(), clock);
    });
    let before = reset_after(old, &used_up);
    let after = reset_after(new, &convert(old, new, carry, &used_up, clock));
    let mut later = Vec::new();
    for (limit, after) in new.iter().zip(after) {
        let place = old.iter().position(|old| old.name() == limit.name());
        let before = place.and_then(|place| before.get(place)).copied();
        if let Some(before) = before.filter(|before| *before < after) {
            let limit = limit.name().to_owned();
            later.push(Later {
                limit,
                before,
                after,
            });
        }
    }
    later
}

/// The level of one limit.
struct Level<'a> {
    limit: &'a Limit,
    words: Vec<u64>,
    used: Used,
    full: Used,
}

impl Level<'_> {
    const fn algorithm(&self) -> &Algorithm {
        self.limit.algorithm()
    }
}

fn levels<'a>(limits: &'a Limits, bucket: &Bucket, clock: Clock) -> Vec<Level<'a>> {
    let mut levels = Vec::with_capacity(limits.iter().len());
    let mut scratch = bucket.clone();
    let mut names = limits.iter();
    limits.each(&mut scratch, &mut |_, meter, words| {
        if let Some(limit) = names.next() {
            levels.push(Level {
                limit,
                words: words.to_vec(),
                used: meter.used(words, clock.now),
                full: meter.full(),
            });
        }
    });
    levels
}

/// The old level that a new limit continues from: of the same name, else in the same place if that
/// one's name is gone (a renamed limit must not be a fresh one).
fn counterpart<'a, 'b>(
    levels: &'b [Level<'a>],
    limit: &Limit,
    index: usize,
    new: &Limits,
) -> Option<&'b Level<'a>> {
    levels
        .iter()
        .find(|level| level.limit.name() == limit.name())
        .or_else(|| {
            levels
                .get(index)
                .filter(|level| new.iter().all(|limit| limit.name() != level.limit.name()))
        })
}
