//! `sliding_log`: admits a number of units in any window, exact to the nanosecond.
//!
//! Use it for small limits that must be exact ("five password attempts in ten minutes"). The bucket
//! stores one entry for each admitted cost unit. An entry made at t counts while `now < t +
//! window`, so at most `capacity` units are admitted in any half-open interval of one window
//! length, and at most `capacity·(⌊w/window⌋ + 1)` in any interval of length w. The price is
//! memory: 8 bytes for each entry that counts. The capacity is limited to [`MAX_ENTRIES`], because
//! large buckets make pages large, and every request reads a whole page of buckets.
//!
//! With `count_refused`, a refused request also adds entries, one per cost unit but at most
//! `capacity`. The new entries replace the oldest entries. A client that keeps sending requests is
//! refused until it has paused for a whole window. A refused request adds its entries even if it
//! was refused by a different limit of the rule.
//!
//! Source: the sorted set of timestamps in Redis that Figma and others describe. Here, each entry
//! stores its expiry time rather than the time of the request, and refusals cannot make the log
//! grow without bound.

use serde::Serialize;

use super::window::{left_after, rate, units};
use crate::bounds::{BadNumbers, check_window};
use crate::convert::Carry;
use crate::decision::BucketRequest;
use crate::decision::Decision;
use crate::meter::{Meter, same};
use crate::meter::{Refund, Used};
use crate::time::Rate;
use crate::time::{Clock, Nanos};

/// Maximum capacity.
pub const MAX_ENTRIES: u32 = 256;

/// Parameters of a sliding log.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Serialize)]
pub struct SlidingLog {
    capacity: u64,
    window: Nanos,
    count_refused: bool,
}

impl SlidingLog {
    /// Creates a limit that admits `capacity` units in any `window`.
    ///
    /// ```
    /// use loudou_limiter::{Limit, Limits, Nanos, algorithm::SlidingLog};
    ///
    /// let log = SlidingLog::new(2, Nanos::from_secs(60), false).unwrap();
    /// let limits = Limits::new(vec![Limit::new("login", log)]).unwrap();
    /// let mut bucket = limits.start(Nanos::ZERO);
    /// for (second, is_refused) in [(0, false), (30, false), (59, true), (60, false), (89, true)] {
    ///     let answer = limits.decide(&mut bucket, 1, Nanos::from_secs(second));
    ///     assert_eq!(answer.is_refused(), is_refused);
    /// }
    /// ```
    pub fn new(capacity: u64, window: Nanos, count_refused: bool) -> Result<Self, BadNumbers> {
        check_window(capacity, window)?;
        if capacity > u64::from(MAX_ENTRIES) {
            return Err(BadNumbers::Capacity);
        }
        Ok(Self {
            capacity,
            window,
            count_refused,
        })
    }

    /// Returns a copy of this limit with the given capacity.
    pub(super) fn with(&self, capacity: Option<u64>) -> Result<Self, BadNumbers> {
        Self::new(
            capacity.unwrap_or(self.capacity),
            self.window,
            self.count_refused,
        )
    }

    fn left(&self, end: u64, now: Nanos) -> Nanos {
        Nanos::new(end).since(now).min(self.window)
    }

    /// Returns the expiry times of the entries that count, newest first. In the state, these
    /// entries precede all expired entries and zeros.
    fn live(words: &[u64], now: Nanos) -> &[u64] {
        let live = words.iter().take_while(|end| **end > now.get()).count();
        words.get(..live).unwrap_or(&[])
    }

    /// Inserts `count` new entries in front of the newest `kept` entries, and removes all other
    /// entries.
    fn push(&self, words: &mut [u64], count: usize, kept: usize, now: Nanos) {
        let end = now.saturating_add(self.window).get();
        words.rotate_right(count.min(words.len()));
        let mut words = words.iter_mut();
        words.by_ref().take(count).for_each(|word| *word = end);
        words.skip(kept).for_each(|word| *word = 0);
    }

    /// Returns the decision for a request that leaves `live` as the entries that count.
    fn at(&self, live: &[u64], now: Nanos) -> Decision {
        let remaining = self.capacity.saturating_sub(count(live));
        let newest = live.first().copied().unwrap_or(0);
        Decision::admit(self.capacity, remaining, self.left(newest, now))
    }
}

fn count(entries: &[u64]) -> u64 {
    u64::try_from(entries.len()).unwrap_or(u64::MAX)
}

/// Converts a count, which never exceeds a capacity, to a number of entries.
fn entries(count: u64) -> usize {
    usize::try_from(count).unwrap_or(usize::MAX)
}

impl Meter for SlidingLog {
    fn capacity(&self) -> u64 {
        self.capacity
    }

    fn rate(&self) -> Option<Rate> {
        rate(self.capacity, self.window)
    }

    fn drain_time(&self) -> Nanos {
        self.window
    }

    fn words(&self) -> usize {
        entries(self.capacity)
    }

    fn decide(&self, words: &mut [u64], request: &BucketRequest) -> Decision {
        let BucketRequest { cost, now, .. } = *request;
        let live = Self::live(words, now);
        let over = count(live)
            .saturating_add(cost)
            .saturating_sub(self.capacity);
        if cost > 0 && over > 0 {
            // The cost fits once the `over` oldest entries have expired.
            let place = live.len().checked_sub(entries(over));
            let maker = place.and_then(|place| live.get(place));
            let retry_after = maker.map(|end| self.left(*end, now));
            return self.at(live, now).refused(retry_after);
        }
        let kept = live.len();
        if cost > 0 {
            self.push(words, entries(cost), kept, now);
        }
        self.at(Self::live(words, now), now)
    }

    fn note_refusal(&self, words: &mut [u64], request: &BucketRequest) -> bool {
        if !self.count_refused || request.cost == 0 {
            return false;
        }
        let cost = request.cost.min(self.capacity);
        let kept = Self::live(words, request.now).len();
        self.push(words, entries(cost), kept, request.now);
        true
    }

    /// Removes the request's own entries. With `count_refused`, refusals may have displaced entries
    /// in a full log that would still count, so a full log keeps all its entries.
    fn give_back(&self, words: &mut [u64], refund: &Refund<'_>) -> bool {
        let BucketRequest { cost, now: at, .. } = refund.request;
        let live = Self::live(words, refund.last);
        if self.count_refused && count(live) >= self.capacity {
            return false;
        }
        let end = at.saturating_add(self.window).get();
        let newer = live.iter().take_while(|entry| **entry > end).count();
        let own = live.iter().skip(newer).take_while(|entry| **entry == end);
        let own = own.take(entries(cost)).count();
        let live = live.len();
        let Some(from_own) = words.get_mut(newer..live) else {
            return false;
        };
        from_own.rotate_left(own.min(from_own.len()));
        from_own
            .iter_mut()
            .rev()
            .take(own)
            .for_each(|word| *word = 0);
        own > 0
    }

    fn counted(&self, words: &[u64], now: Nanos) -> Option<u64> {
        Some(count(Self::live(words, now)))
    }

    /// Removes or duplicates evenly spaced entries until there are `count` entries.
    fn recount(&self, words: &mut [u64], count: u64, now: Nanos) {
        let old = Self::live(words, now).to_vec();
        let target = entries(count);
        words.fill(0);
        for (place, word) in words.iter_mut().enumerate().take(target) {
            let source = place.saturating_mul(old.len()).checked_div(target);
            *word = source.and_then(|at| old.get(at)).copied().unwrap_or(0);
        }
    }

    fn resume(&self, words: &mut [u64], used: Used, clock: Clock) {
        words.fill(0);
        let end = clock.now.saturating_add(self.window).get();
        let count = entries(units(used));
        words.iter_mut().take(count).for_each(|word| *word = end);
    }

    fn max_surplus(&self) -> usize {
        entries(u64::from(MAX_ENTRIES).saturating_sub(self.capacity))
    }

    /// Keeps the entries, each for at most the new window length.
    fn adopt(
        &self,
        words: &mut [u64],
        from: &dyn Meter,
        old: &[u64],
        _carry: Carry,
        clock: Clock,
    ) -> bool {
        let Some(before) = same::<Self>(from) else {
            return false;
        };
        let now = clock.now;
        let old = Self::live(old, now);
        words.fill(0);
        for (word, end) in words.iter_mut().zip(old) {
            let left = left_after(before.left(*end, now), before.window, self.window);
            *word = now.saturating_add(left).get();
        }
        true
    }
}
