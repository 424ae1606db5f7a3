//! Notes: information about a bucket that later edits need, and that cannot be stored in the words
//! of its limits.
//!
//! - *Permits*: the requests that were in flight when an edit removed the bucket's `concurrency` limit. As these
//!   requests end, their permits are removed from the notes. If a later edit adds a `concurrency` limit, it starts with
//!   the remaining permits.
//! - *Shares*: one for each limit after a proportional edit. A share contains the fraction of a
//!   unit by which the count was rounded up, so that the next proportional edit starts from the
//!   exact value. A share also contains the largest capacity since that edit, and the number of
//!   units that requests actually took, stored as the difference from the used units. With these
//!   values, an edit never leaves more units available than the largest capacity minus the taken
//!   units. Without them, a sequence of edits could grant units twice: a proportional edit that
//!   reduces the capacity also lowers the used units, and a later edit that restores the capacity
//!   with carry `keep` would make the difference available again.
//!
//! The notes are stored between the words of the limits and the promise count, and only while there are permits or
//! shares:
//!
//! ```text
//! 0xff u8, 0 u32, permits u8, shares u16 | 0 | u64::MAX | permits: name, lease ns, ends ns, young, old
//! | shares of each limit: until ns, largest capacity, used, taken less used, fraction | 1
//! ```
//!
//! Capacities and amounts are in multiples of 2^-32 cost units. Taken units drain over time in proportion to the used
//! units. A share is dropped at its `until` time, when none of its units count any more. Code that does not support
//! notes reads them as a promise count that never ends, which does not change any level.

use alloc::vec::Vec;

use super::{Bucket, Limits, MAX_BUCKET_WORDS};
use crate::algorithm::{Algorithm, Concurrency};
use crate::meter::Meter as _;
use crate::meter::{USED_ONE, Used};
use crate::time::{Clock, Nanos};
use crate::wide::{clamp, mul_div};

/// Number of words before the permits.
const HEAD: usize = 3;
/// Number of words occupied by the permits.
const PERMITS: usize = 5;
/// Most significant byte of the first word, which identifies notes. No promise count has this byte,
/// because that would mean more than 2^31 waiting requests.
const TAG: u64 = 0xff;

/// Requests in flight under a `concurrency` limit that an edit removed.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) struct Permits {
    /// Hash of the limit's name.
    pub(crate) name: u64,
    lease: Nanos,
    words: [u64; 3],
}

impl Permits {
    /// Reads the requests in flight at `now` from the words of a `concurrency` limit. Returns
    /// `None` if there are none.
    pub(crate) fn of(
        name: &str,
        concurrency: &Concurrency,
        words: &[u64],
        now: Nanos,
    ) -> Option<Self> {
        let [ends, young, old] = *words else {
            return None;
        };
        let permits = Self {
            name: name_hash(name),
            lease: concurrency.lease(),
            words: [ends, young, old],
        };
        (concurrency.used(words, now) > 0).then_some(permits)
    }

    /// Returns a limit with the same lease as the limit that issued the permits. Its capacity is
    /// irrelevant.
    pub(crate) fn limit(&self) -> Option<Concurrency> {
        Concurrency::new(1, self.lease).ok()
    }

    /// Returns the state words of the limit that issued the permits.
    pub(crate) const fn words(&self) -> &[u64; 3] {
        &self.words
    }

    pub(crate) fn used(&self, now: Nanos) -> Used {
        self.limit().map_or(0, |limit| limit.used(&self.words, now))
    }

    /// Returns the time at which the last permit expires.
    fn until(&self, now: Nanos) -> Option<Nanos> {
        let limit = self.limit().filter(|_| self.used(now) > 0)?;
        let look = limit.decide(
            &mut self.words.clone(),
            &crate::decision::BucketRequest::new(0, now),
        );
        Some(now.saturating_add(look.reset_after))
    }
}

/// Hashes a limit name with FNV-1a, which is sufficient for the few names in a rule.
pub(crate) fn name_hash(name: &str) -> u64 {
    name.bytes().fold(0xcbf2_9ce4_8422_2325, |hash, byte| {
        (hash ^ u64::from(byte)).wrapping_mul(0x0100_0000_01b3)
    })
}

/// Notes about a limit after a proportional edit.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub(crate) struct Share {
    /// Time from which none of the units recorded here count any longer.
    pub(crate) until: Nanos,
    /// Largest capacity since the proportional edit; 0 if there was no such edit.
    pub(crate) most: u64,
    /// Used amount when this share was written.
    pub(crate) used: u64,
    /// Taken amount minus used amount when this share was written.
    pub(crate) more: i64,
    /// Amount by which rounding inflated the count, in multiples of 2^-64 cost units.
    pub(crate) fraction: u64,
}

/// Number of words in a share.
const SHARE: usize = 5;

impl Share {
    /// Creates a limit's share from the exact amounts of used and taken units.
    pub(crate) fn of(most: Used, used: Used, taken: Used, fraction: u64) -> Self {
        let more = i128::try_from(taken).unwrap_or(i128::MAX);
        let more = more.saturating_sub(i128::try_from(used).unwrap_or(i128::MAX));
        Self {
            until: Nanos::ZERO,
            most: clamp(most),
            used: clamp(used),
            more: i64::try_from(more).unwrap_or(if more > 0 { i64::MAX } else { i64::MIN }),
            fraction,
        }
    }

    /// Returns the amount by which rounding inflated the level.
    pub(crate) fn excess(&self) -> Used {
        Used::from(self.fraction >> 32)
    }

    /// Returns the taken amount that still counts, given the amount that is still used.
    pub(crate) fn taken(&self, used: Used) -> Used {
        let was = Used::from(self.used).max(1);
        let more = Used::from(self.more.unsigned_abs());
        let more = mul_div(more, used.min(was), was);
        if self.more < 0 {
            used.saturating_sub(more)
        } else {
            used.saturating_add(more)
        }
    }
}

/// A bucket's notes.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub(crate) struct Notes {
    pub(crate) permits: Option<Permits>,
    /// Shares of the limits, in order; empty if there are none.
    pub(crate) shares: Vec<Share>,
}

impl Notes {
    fn is_empty(&self) -> bool {
        self.permits.is_none() && self.shares.is_empty()
    }

    /// Returns the number of words that notes occupy at the start of `words`, or 0 if `words` does
    /// not start with notes.
    pub(super) fn length(words: &[u64]) -> usize {
        let Some(head) = words.first().copied().filter(|head| head >> 56 == TAG) else {
            return 0;
        };
        let [permits, shares] = counts(head);
        let length = permits
            .saturating_mul(PERMITS)
            .saturating_add(shares.saturating_mul(SHARE))
            .saturating_add(HEAD)
            .saturating_add(1);
        length.min(words.len())
    }

    fn read(words: &[u64], now: Nanos) -> Self {
        let Some((head, rest)) = words.split_at_checked(HEAD) else {
            return Self::default();
        };
        let [permits, shares] = counts(head.first().copied().unwrap_or(0));
        let (first, rest) = match (permits, rest.split_at_checked(PERMITS)) {
            (1, Some((first, rest))) => (first, rest),
            _ => (&[][..], rest),
        };
        let permits = match *first {
            [name, lease, ends, young, old] => Some(Permits {
                name,
                lease: Nanos::new(lease),
                words: [ends, young, old],
            }),
            _ => None,
        };
        let permits = permits.filter(|permits| permits.used(now) > 0);
        let (chunks, _) = rest.as_chunks::<SHARE>();
        let share = |[until, most, used, more, fraction]: &[u64; SHARE]| Share {
            until: Nanos::new(*until),
            most: *most,
            used: *used,
            more: more.cast_signed(),
            fraction: *fraction,
        };
        let shares = chunks.get(..shares).unwrap_or(&[]).iter().map(share);
        let shares = shares.map(|share| Some(share).filter(|share| share.until > now));
        Self {
            permits,
            shares: shares.map(Option::unwrap_or_default).collect(),
        }
    }

    fn write(&self, words: &mut super::Words) {
        let count = |len: usize| u64::try_from(len).unwrap_or(0);
        let permits = count(self.permits.iter().len());
        words.push(TAG << 56 | permits << 16 | count(self.shares.len()));
        words.extend([0, u64::MAX]);
        if let Some(permits) = &self.permits {
            words.extend([permits.name, permits.lease.get()]);
            words.extend(permits.words);
        }
        for share in &self.shares {
            words.extend([
                share.until.get(),
                share.most,
                share.used,
                share.more.cast_unsigned(),
                share.fraction,
            ]);
        }
        // Ends the notes with a nonzero word, because a bucket's trailing zeros are not stored.
        words.push(1);
    }
}

fn counts(head: u64) -> [usize; 2] {
    [head >> 16 & 0xff, head & 0xffff].map(|count| usize::try_from(count).unwrap_or(0))
}

impl Limits {
    /// Returns the bucket's notes that still count at `now`.
    pub(crate) fn notes(&self, bucket: &Bucket, now: Nanos) -> Notes {
        if bucket.words.len() <= self.words() {
            return Notes::default();
        }
        let begin = self.surplus_end(&bucket.words);
        let words = bucket.words.get(begin..).unwrap_or(&[]);
        match Notes::length(words) {
            0 => Notes::default(),
            length => Notes::read(words.get(..length).unwrap_or(&[]), now),
        }
    }

    /// Replaces the notes of a bucket. The new notes are dropped if the bucket would become too
    /// large.
    pub(crate) fn set_notes(&self, bucket: &mut Bucket, notes: &Notes) {
        if notes.is_empty() && bucket.words.len() <= self.words() {
            return;
        }
        let begin = self.surplus_end(&bucket.words);
        if bucket.words.len() < begin {
            bucket.words.resize(begin, 0);
        }
        let behind = bucket.words.get(begin..).unwrap_or(&[]);
        let promises = behind.get(Notes::length(behind)..).unwrap_or(&[]).to_vec();
        bucket.words.truncate(begin);
        if !notes.is_empty() {
            notes.write(&mut bucket.words);
        }
        if bucket.words.len().saturating_add(promises.len()) > MAX_BUCKET_WORDS {
            bucket.words.truncate(begin);
        }
        bucket.words.extend(promises);
    }

    /// Returns the time at which the last permit of a removed limit expires, if the bucket contains
    /// such permits.
    pub fn noted_until(&self, bucket: &Bucket, now: Nanos) -> Option<Nanos> {
        if bucket.words.len() <= self.words() {
            return None;
        }
        self.notes(bucket, now).permits?.until(now)
    }

    /// Returns true if units may be given back to the bucket when a request ends.
    pub fn may_release(&self, bucket: &Bucket) -> bool {
        self.holds_until_end() || self.noted_until(bucket, bucket.last).is_some()
    }

    /// Subtracts `cost` from the permits in the notes, for a request that was admitted at
    /// `taken_at`.
    pub(super) fn release_noted(
        &self,
        bucket: &mut Bucket,
        cost: u64,
        taken_at: Nanos,
        now: Nanos,
    ) {
        if bucket.words.len() <= self.words() {
            return;
        }
        let mut notes = self.notes(bucket, now);
        let Some(permits) = &mut notes.permits else {
            return;
        };
        if let Some(limit) = permits.limit() {
            limit.release(&mut permits.words, cost, taken_at, now);
        }
        notes.permits = notes.permits.filter(|permits| permits.used(now) > 0);
        self.set_notes(bucket, &notes);
    }
}

/// Returns the permits in the notes and the index of the limit in `new` that adopts them, if there
/// is one. `is_taken` returns true for the index of a limit that already continues other permits.
pub(crate) fn moved(
    permits: Option<Permits>,
    new: &Limits,
    is_taken: &dyn Fn(usize) -> bool,
) -> Option<(usize, Permits)> {
    let permits = permits?;
    let free = new.iter().enumerate().filter(|(index, limit)| {
        matches!(limit.algorithm(), Algorithm::Concurrency(_)) && !is_taken(*index)
    });
    let mut free = free.map(|(index, limit)| (index, name_hash(limit.name()) == permits.name));
    let first = free.clone().next();
    let (index, _) = free.find(|(_, is_named)| *is_named).or(first)?;
    Some((index, permits))
}

/// Writes permits from the notes to `words`, the state of `limit`.
pub(crate) fn adopt(limit: &Concurrency, words: &mut [u64], permits: &Permits, clock: Clock) {
    if let Some(before) = permits.limit() {
        limit.adopt(
            words,
            &before,
            permits.words(),
            crate::convert::Carry::Keep,
            clock,
        );
    }
}

/// One unit, as represented in fraction arithmetic.
pub(crate) const WHOLE: u128 = 1 << 64;
/// A fraction that is closer than this to a whole unit is rounded to that unit. Otherwise, a tiny
/// rounding error could be rounded up to a whole unit.
const NEAR: u128 = 1 << 32;

/// Returns the exact amount of a count that was rounded up by `fraction`.
pub(crate) fn exact(count: u64, fraction: u64) -> u128 {
    let whole = u128::from(count).saturating_mul(WHOLE);
    whole.saturating_sub(u128::from(fraction).min(whole))
}

/// Rounds an exact amount up to whole units. Returns the count and the fraction by which it was
/// rounded up.
pub(crate) fn counted(exact: u128) -> (u64, u64) {
    let below = exact.checked_rem(WHOLE).unwrap_or(0);
    let floor = exact.saturating_sub(below).checked_div(WHOLE).unwrap_or(0);
    let floor = u64::try_from(floor).unwrap_or(u64::MAX);
    if below < NEAR {
        return (floor, 0);
    }
    let fraction = WHOLE.saturating_sub(below);
    let fraction = if fraction < NEAR { 0 } else { fraction };
    (
        floor.saturating_add(1),
        u64::try_from(fraction).unwrap_or(0),
    )
}

/// Converts a [`Used`] to an exact amount.
pub(crate) const fn of_used(used: Used) -> u128 {
    used.saturating_mul(USED_ONE)
}
