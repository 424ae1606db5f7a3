//! How an upstream does: the share of errors among its latest responses, and the switch that
//! [`When`] makes of it.
//!
//! The window is cut into slots that start at multiples of their length on the clock, so it covers at
//! least nine tenths of its time and never more than all of it. The switch is looked at with each
//! response and at each start of a slot, the only instants at which the share changes: so everybody
//! who looks at the same counts sees the same, whether or not somebody looked in between.

use alloc::vec::Vec;

use loudou_limiter::Nanos;

use crate::when::When;

/// The number of slots.
const SLOTS: usize = 10;
/// The same, to count with.
const SLOTS_U64: u64 = 10;
const VERSION: u8 = 1;
/// The bytes of a [`Health`] as it is written.
pub const HEALTH_BYTES: usize = 2 + 3 * size_of::<u64>() + SLOTS * size_of::<u64>();

/// Responses, and how many of them are errors.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub struct Count {
    /// All of them.
    pub responses: u32,
    /// Those that are errors.
    pub errors: u32,
}

impl Count {
    /// Whether the share of errors is over (`Greater`), at or under `share`, without a division.
    fn compare(self, share: loudou_limiter::Decimal) -> core::cmp::Ordering {
        let errors = u64::from(self.errors).saturating_mul(1_000);
        let share = u64::from(share.thousandths());
        errors.cmp(&u64::from(self.responses).saturating_mul(share))
    }
}

/// What is known of one upstream.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Health {
    /// The length of a slot; never zero.
    slot: Nanos,
    /// The number of the newest slot.
    newest: u64,
    /// By the number of the slot, around.
    counts: [Count; SLOTS],
    fails: bool,
    since: Nanos,
}

impl Health {
    /// An upstream that nothing is known of, first seen at `now`.
    pub fn new(when: &When, now: Nanos) -> Self {
        let slot = Nanos::new((when.within.get() / SLOTS_U64).max(1));
        Self {
            slot,
            newest: number(now, slot),
            counts: [Count::default(); SLOTS],
            fails: false,
            since: now,
        }
    }

    /// Whether it fails, so that the rule applies.
    pub const fn fails(&self) -> bool {
        self.fails
    }

    /// Since when it does, or does not.
    pub const fn since(&self) -> Nanos {
        self.since
    }

    /// What is in the window.
    pub fn count(&self) -> Count {
        let mut sum = Count::default();
        for count in &self.counts {
            sum.responses = sum.responses.saturating_add(count.responses);
            sum.errors = sum.errors.saturating_add(count.errors);
        }
        sum
    }

    /// Moves the window on to `now`. A clock that goes back moves nothing.
    pub fn advance(&mut self, when: &When, now: Nanos) {
        let current = number(now, self.slot);
        // Whatever is further away finds the window empty.
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

    /// Counts a response.
    pub fn respond(&mut self, when: &When, is_error: bool, now: Nanos) {
        self.advance(when, now);
        if let Some(count) = self.newest_count() {
            count.responses = count.responses.saturating_add(1);
            count.errors = count.errors.saturating_add(is_error.into());
        }
        self.switch(when, now.max(self.start()));
    }

    /// Whether nothing in it counts at `now`.
    pub fn is_stale(&self, now: Nanos) -> bool {
        number(now, self.slot) >= self.newest.saturating_add(SLOTS_U64)
    }

    fn switch(&mut self, when: &When, at: Nanos) {
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

    /// When the newest slot started.
    const fn start(&self) -> Nanos {
        Nanos::new(self.newest.saturating_mul(self.slot.get()))
    }

    fn newest_count(&mut self) -> Option<&mut Count> {
        let index = usize::try_from(self.newest % SLOTS_U64).ok()?;
        self.counts.get_mut(index)
    }

    /// Its bytes, behind what is there.
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

    /// What [`Health::encode`] wrote, and the bytes behind it; `None` of what it never writes.
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

/// The number of the slot that `now` is in.
fn number(now: Nanos, slot: Nanos) -> u64 {
    now.get().checked_div(slot.get()).unwrap_or(0)
}
