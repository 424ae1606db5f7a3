//! Health of an upstream: the error rate of its recent responses, and whether it counts as failing,
//! which an [`UpstreamCondition`] derives from this rate.
//!
//! The time window consists of ten slots, which start at multiples of the slot length. The newest
//! slot is still being filled, so the window covers at least nine tenths of its nominal length. The
//! failing state is updated at each response and at the start of each slot. The error rate changes
//! only at these times, so all readers of the same counts see the same state, regardless of when
//! they read it.

use alloc::vec::Vec;

use loudou_limiter::Nanos;

use crate::upstreams::UpstreamCondition;

/// Number of slots in the window.
const SLOTS: usize = 10;
/// [`SLOTS`] as a `u64`.
const SLOTS_U64: u64 = 10;
const VERSION: u8 = 1;
/// Encoded size of a [`Health`], in bytes.
pub const HEALTH_BYTES: usize = 2 + 3 * size_of::<u64>() + SLOTS * size_of::<u64>();

/// Response and error counts.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub struct Count {
    /// Total number of responses, including errors.
    pub responses: u32,
    /// Number of errors.
    pub errors: u32,
}

impl Count {
    /// Compares the error rate with `share` without dividing. Returns `Greater` if the error rate
    /// is higher.
    fn compare(self, share: loudou_limiter::Decimal) -> core::cmp::Ordering {
        let errors = u64::from(self.errors).saturating_mul(1_000);
        let share = u64::from(share.thousandths());
        errors.cmp(&u64::from(self.responses).saturating_mul(share))
    }
}

/// The health of one upstream.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Health {
    /// Length of a slot; never zero.
    slot: Nanos,
    /// Number of the newest slot.
    newest: u64,
    /// Ring of counts, indexed by slot number modulo [`SLOTS`].
    counts: [Count; SLOTS],
    fails: bool,
    since: Nanos,
}

impl Health {
    /// Creates the health of an upstream that was first seen at `now`.
    pub fn new(when: &UpstreamCondition, now: Nanos) -> Self {
        let slot = Nanos::new((when.within.get() / SLOTS_U64).max(1));
        Self {
            slot,
            newest: number(now, slot),
            counts: [Count::default(); SLOTS],
            fails: false,
            since: now,
        }
    }

    /// Returns true if the upstream is failing, so that the rule applies.
    pub const fn fails(&self) -> bool {
        self.fails
    }

    /// Returns the time at which [`fails`](Self::fails) last changed.
    pub const fn since(&self) -> Nanos {
        self.since
    }

    /// Returns the sum of the counts in the window.
    pub fn count(&self) -> Count {
        let mut sum = Count::default();
        for count in &self.counts {
            sum.responses = sum.responses.saturating_add(count.responses);
            sum.errors = sum.errors.saturating_add(count.errors);
        }
        sum
    }

    /// Advances the window to `now`. Does nothing if the clock went backwards.
    pub fn advance(&mut self, when: &UpstreamCondition, now: Nanos) {
        let current = number(now, self.slot);
        // After `SLOTS` steps, the window is empty, so further steps would change nothing.
        for _ in 0..SLOTS {
            if self.newest >= current {
                return;
            }
            self.newest = self.newest.saturating_add(1);
            if let Some(count) = self.newest_count() {
                *count = Count::default();
            }
            self.switch(when, self.start());
        }
        self.newest = self.newest.max(current);
    }

    /// Counts a response from the upstream.
    pub fn respond(&mut self, when: &UpstreamCondition, is_error: bool, now: Nanos) {
        self.advance(when, now);
        if let Some(count) = self.newest_count() {
            count.responses = count.responses.saturating_add(1);
            count.errors = count.errors.saturating_add(is_error.into());
        }
        self.switch(when, now.max(self.start()));
    }

    /// Returns true if the window is empty at `now`.
    pub fn is_stale(&self, now: Nanos) -> bool {
        number(now, self.slot) >= self.newest.saturating_add(SLOTS_U64)
    }

    fn switch(&mut self, when: &UpstreamCondition, at: Nanos) {
        let count = self.count();
        let fails = if self.fails {
            count.responses > 0 && count.compare(when.until_under).is_ge()
        } else {
            count.responses >= when.least && count.compare(when.over).is_gt()
        };
        if fails != self.fails {
            (self.fails, self.since) = (fails, at);
        }
    }

    /// Returns the time at which the newest slot starts.
    const fn start(&self) -> Nanos {
        Nanos::new(self.newest.saturating_mul(self.slot.get()))
    }

    fn newest_count(&mut self) -> Option<&mut Count> {
        let index = usize::try_from(self.newest % SLOTS_U64).ok()?;
        self.counts.get_mut(index)
    }

    /// Encodes the health and appends it to `out`.
    pub fn encode(&self, out: &mut Vec<u8>) {
        out.extend_from_slice(&[VERSION, self.fails.into()]);
        for number in [self.slot.get(), self.newest, self.since.get()] {
            out.extend_from_slice(&number.to_le_bytes());
        }
        for count in &self.counts {
            out.extend_from_slice(&count.responses.to_le_bytes());
            out.extend_from_slice(&count.errors.to_le_bytes());
        }
    }

    /// Decodes the output of [`Health::encode`], and also returns the remaining bytes. Returns
    /// `None` if the bytes are invalid.
    pub fn decode(bytes: &[u8]) -> Option<(Self, &[u8])> {
        let ([VERSION, fails], mut rest) = bytes.split_first_chunk()? else {
            return None;
        };
        let mut next = || {
            let (number, tail) = rest.split_first_chunk::<8>()?;
            rest = tail;
            Some(u64::from_le_bytes(*number))
        };
        let (slot, newest, since) = (next()?, next()?, next()?);
        let mut counts = [Count::default(); SLOTS];
        for count in &mut counts {
            let both = next()?;
            count.responses = u32::try_from(both & u64::from(u32::MAX)).ok()?;
            count.errors = u32::try_from(both >> 32).ok()?;
        }
        let health = Self {
            slot: Nanos::new(slot),
            newest,
            counts,
            fails: *fails == 1,
            since: Nanos::new(since),
        };
        (slot > 0 && *fails <= 1).then_some((health, rest))
    }
}

/// Returns the number of the slot that contains `now`.
fn number(now: Nanos, slot: Nanos) -> u64 {
    now.get().checked_div(slot.get()).unwrap_or(0)
}
