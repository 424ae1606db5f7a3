//! Notes: facts about a bucket that the words of its limits cannot hold, and that a later edit needs.
//!
//! - *Permits*: requests that are still in flight although the bucket has no `concurrency` limit since an edit. They
//!   are given back here when they end, and such a limit that comes back begins with those that are left.
//! - *Shares* of each limit, since an edit in shares: the fraction of a unit by which its count was rounded up, so that
//!   the next edit in shares starts from the exact share; the units that were really taken, as their difference to the
//!   used ones; and the largest capacity since then. An edit never leaves more than the largest capacity less what was
//!   taken. In shares alone and in units alone that follows anyway. But lowering in shares forgives units, which
//!   raising in units would hand out again.
//!
//! The notes follow the words of the limits, before the count of promises, and only while there are any:
//!
//! ```text
//! 0xff u8, 0 u32, permits u8, shares u16 | 0 | u64::MAX | permits: name, lease ns, ends ns, young, old
//! | shares of each limit: until ns, largest capacity, used, taken less used, fraction | 1
//! ```
//! Capacities and amounts are in 2^-32 units. As what is used leaves with time, what was taken leaves in the same
//! ratio. A share is forgotten at its `until`, when nothing is left of what was used and taken. Code that does not know the notes takes
//! them for a count of promises that never ends: it changes no level because of them.

use alloc::vec::Vec;

use super::{Bucket, Limits, MAX_BUCKET_WORDS};
use crate::algorithm::{Algorithm, Concurrency};
use crate::meter::Meter as _;
use crate::meter::{USED_ONE, Used};
use crate::time::{Clock, Nanos};
use crate::wide::{clamp, mul_div};

/// The words before the permits.
const HEAD: usize = 3;
/// The words of permits.
const PERMITS: usize = 5;
/// The highest byte of the first word. No count of promises has it: that would be 2^31 waiting requests.
const TAG: u64 = 0xff;

/// Requests in flight of a `concurrency` limit that an edit removed.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) struct Permits {
    /// A hash of the limit's name.
    pub(crate) name: u64,
    lease: Nanos,
    words: [u64; 3],
}

impl Permits {
    /// The requests in flight at `now` by the words of `concurrency`; `None` if there are none.
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

    /// The limit that gave them out; its capacity does not matter.
    pub(crate) fn limit(&self) -> Option<Concurrency> {
        Concurrency::new(1, self.lease).ok()
    }

    /// The words of that limit.
    pub(crate) const fn words(&self) -> &[u64; 3] {
        &self.words
    }

    pub(crate) fn used(&self, now: Nanos) -> Used {
        self.limit().map_or(0, |limit| limit.used(&self.words, now))
    }

    /// The time from which nothing is left of them.
    fn until(&self, now: Nanos) -> Option<Nanos> {
        let limit = self.limit().filter(|_| self.used(now) > 0)?;
        let look = limit.decide(&mut self.words.clone(), &crate::decision::Ask::new(0, now));
        Some(now.saturating_add(look.reset_after))
    }
}

/// FNV-1a: the names of one rule are few.
pub(crate) fn name_hash(name: &str) -> u64 {
    name.bytes().fold(0xcbf2_9ce4_8422_2325, |hash, byte| {
        (hash ^ u64::from(byte)).wrapping_mul(0x0100_0000_01b3)
    })
}

/// The notes of a limit since an edit in shares.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub(crate) struct Share {
    /// When nothing is left of the use since that edit.
    pub(crate) until: Nanos,
    /// The largest capacity; 0 if there was no such edit.
    pub(crate) most: u64,
    /// What was used when this was noted.
    pub(crate) used: u64,
    /// What was taken less what was used.
    pub(crate) more: i64,
    /// By this the count is too high, in 2^-64 units.
    pub(crate) fraction: u64,
}

/// The words of a share.
const SHARE: usize = 5;

impl Share {
    /// The note for a level of `used` from which `taken` was taken, both exact.
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

    /// By how much a level is above what is really used of it.
    pub(crate) fn excess(&self) -> Used {
        Used::from(self.fraction >> 32)
    }

    /// What was taken, of which `used` is still used.
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

/// The notes of a bucket.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub(crate) struct Notes {
    pub(crate) permits: Option<Permits>,
    /// For each limit; empty without any.
    pub(crate) shares: Vec<Share>,
}

impl Notes {
    fn is_empty(&self) -> bool {
        self.permits.is_none() && self.shares.is_empty()
    }

    /// The number of words that begin here; 0 if these are no notes.
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
        // Zeros at the end of a bucket are not stored.
        words.push(1);
    }
}

fn counts(head: u64) -> [usize; 2] {
    [head >> 16 & 0xff, head & 0xffff].map(|count| usize::try_from(count).unwrap_or(0))
}

impl Limits {
    /// The notes of a bucket, as far as they matter at `now`.
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

    /// Replaces the notes of a bucket. A bucket that would become too large has none.
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

    /// Until when the bucket holds permits that no limit of it gave out, if it does.
    pub fn noted_until(&self, bucket: &Bucket, now: Nanos) -> Option<Nanos> {
        if bucket.words.len() <= self.words() {
            return None;
        }
        self.notes(bucket, now).permits?.until(now)
    }

    /// Returns true if a request that ends may give something back to this bucket.
    pub fn may_release(&self, bucket: &Bucket) -> bool {
        self.holds_until_end() || self.noted_until(bucket, bucket.last).is_some()
    }

    /// Takes `cost` off the noted permits that were given out at `taken_at`.
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

/// The permits of a bucket of `old` that no limit of `new` continues, and the limit of `new` that takes over those
/// that were noted before.
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

/// Adopts noted permits in the words of `limit`.
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

/// One unit in the arithmetic of fractions.
pub(crate) const WHOLE: u128 = 1 << 64;
/// Fractions this close to a whole unit are that unit, so that the rounding of a fraction never becomes one of a unit.
const NEAR: u128 = 1 << 32;

/// The exact amount of a count.
pub(crate) fn exact(count: u64, fraction: u64) -> u128 {
    let whole = u128::from(count).saturating_mul(WHOLE);
    whole.saturating_sub(u128::from(fraction).min(whole))
}

/// A count of whole units for an exact amount, and by which fraction it is too high.
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

/// [`Used`] as an exact amount.
pub(crate) const fn of_used(used: Used) -> u128 {
    used.saturating_mul(USED_ONE)
}
