//! `sliding_window`: so many per window, and the window moves on slot by slot.
//!
//! The window is cut into slots that lie at multiples of `window/slots` on the process's clock. What is
//! admitted in the current slot and the `slots - 1` before it is at most `capacity`, and what is
//! admitted in one slot at most `slot_capacity`: the second number keeps a whole window from being
//! spent at once, so a client sees a steady trickle come back instead of one lump. A cost above
//! `slot_capacity` never fits. What an answer calls left is what could be taken at once: of a new
//! bucket, that is a slot's capacity.
//!
//! A request counts for between `window - window/slots` and `window`. So a time of length w that
//! touches k slots admits at most `capacity·⌊k/slots⌋ + min(capacity, slot_capacity·(k mod slots))`;
//! one of a window's length touches `slots + 1` of them and admits at most `capacity + slot_capacity`.
//!
//! Source: the leap array of Alibaba Sentinel, with slots that need not be whole numbers of a
//! millisecond: a slot begins at the first nanosecond at or after its multiple.

use core::array;

use serde::Serialize;

use super::window::{carried, check, left_after, rate, units, used};
use crate::ask::Ask;
use crate::bounds::BadNumbers;
use crate::carry::Carry;
use crate::decision::Decision;
use crate::meter::{Meter, same};
use crate::rate::Rate;
use crate::time::{Clock, Nanos};
use crate::used::{Back, Used};
use crate::wide::{clamp, times};

/// The fewest slots.
pub const MIN_SLOTS: u32 = 2;
/// The most slots.
pub const MAX_SLOTS: u32 = 64;
/// The slots of a window that says nothing of them.
pub const DEFAULT_SLOTS: u32 = 10;

/// Numbers of a sliding window.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Serialize)]
pub struct SlidingWindow {
    capacity: u64,
    window: Nanos,
    slots: u32,
    slot_capacity: u64,
}

/// The largest count in half a word.
const LOW: u64 = 0xffff_ffff;

/// What each slot has admitted, the current one first; nothing beyond the number of slots.
type Counts = [u64; 64];

impl SlidingWindow {
    /// `capacity` per `window` of so many slots, and at most `slot_capacity` in one slot; `None` for
    /// twice its share.
    pub fn new(
        capacity: u64,
        window: Nanos,
        slots: u32,
        slot_capacity: Option<u64>,
    ) -> Result<Self, BadNumbers> {
        check(capacity, window)?;
        if !(MIN_SLOTS..=MAX_SLOTS).contains(&slots) {
            return Err(BadNumbers::Slots);
        }
        let share = |of: u64| of.div_ceil(u64::from(slots).max(1));
        let twice = || share(capacity.saturating_mul(2));
        let slot_capacity = slot_capacity.unwrap_or_else(twice);
        // With less, no request would ever find the window full.
        if slot_capacity < share(capacity) || slot_capacity > capacity {
            return Err(BadNumbers::SlotCapacity);
        }
        Ok(Self {
            capacity,
            window,
            slots,
            slot_capacity,
        })
    }

    fn slots(&self) -> usize {
        usize::try_from(self.slots).unwrap_or(0)
    }

    /// The number of the slot that `instant` is in.
    fn index(&self, instant: u128) -> u128 {
        let scaled = instant.saturating_mul(self.slots.into());
        scaled.checked_div(self.window.get().into()).unwrap_or(0)
    }

    /// The first instant of a slot.
    fn begin(&self, index: u128) -> u128 {
        let scaled = index.saturating_mul(self.window.get().into());
        scaled.div_ceil(u128::from(self.slots).max(1))
    }

    fn current(&self, now: Nanos) -> u128 {
        self.index(now.get().into())
    }

    /// The time from `now` until the slot `ahead` of the current one begins.
    fn until(&self, ahead: usize, now: Nanos) -> Nanos {
        let ahead = u128::try_from(ahead).unwrap_or(0);
        let begin = self.begin(self.current(now).saturating_add(ahead));
        Nanos::new(clamp(begin.saturating_sub(now.get().into())))
    }

    /// The state is the first instant of the newest slot, and the counts from that slot on backwards,
    /// two to a word.
    fn read(&self, words: &[u64], now: Nanos) -> Counts {
        let mut counts = [0; 64];
        let Some((newest, packed)) = words.split_first() else {
            return counts;
        };
        let gone = self
            .current(now)
            .saturating_sub(self.index((*newest).into()));
        let gone = usize::try_from(gone).unwrap_or(usize::MAX);
        let stored = packed.iter().flat_map(|pair| [pair & LOW, pair >> 32]);
        let slots = counts.iter_mut().take(self.slots()).skip(gone);
        for (slot, count) in slots.zip(stored) {
            *slot = count;
        }
        counts
    }

    fn write(&self, words: &mut [u64], counts: &Counts, now: Nanos) {
        let is_new = counts.iter().all(|count| *count == 0);
        let begin = clamp(self.begin(self.current(now)));
        let Some((newest, packed)) = words.split_first_mut() else {
            return;
        };
        *newest = if is_new { 0 } else { begin };
        for (word, pair) in packed.iter_mut().zip(counts.chunks(2)) {
            let [low, high] = array::from_fn(|i| pair.get(i).map_or(0, |count| (*count).min(LOW)));
            *word = low | high << 32;
        }
    }

    /// The answer that leaves `counts`.
    fn at(&self, counts: &Counts, now: Nanos) -> Decision {
        let in_window = self.capacity.saturating_sub(total(counts));
        let in_slot = self.slot_capacity.saturating_sub(first(counts));
        Decision::admit(
            self.capacity,
            in_window.min(in_slot),
            self.reset_after(counts, now),
        )
    }

    fn reset_after(&self, counts: &Counts, now: Nanos) -> Nanos {
        let newest = counts.iter().position(|count| *count > 0);
        newest.map_or(Nanos::ZERO, |age| {
            self.until(self.slots().saturating_sub(age), now)
        })
    }

    /// The time until a cost fits that does not now: until enough slots have left.
    fn retry_after(&self, counts: &Counts, cost: u64, now: Nanos) -> Option<Nanos> {
        if cost > self.slot_capacity {
            return None;
        }
        let mut staying = 0_u64;
        let stay = counts.iter().take_while(|count| {
            staying = staying.saturating_add(**count);
            staying.saturating_add(cost) <= self.capacity
        });
        // However little is taken, the current slot has to be over.
        let stay = stay.count().min(self.slots().saturating_sub(1));
        Some(self.until(self.slots().saturating_sub(stay), now))
    }

    /// The oldest slot, counted backwards from the current one, that leaves no earlier than `left` from
    /// now; the current one if none does.
    fn leaving_after(&self, left: Nanos, now: Nanos) -> usize {
        let ages = (0..self.slots()).rev();
        let mut late =
            ages.filter(|age| self.until(self.slots().saturating_sub(*age), now) >= left);
        late.next().unwrap_or(0)
    }
}

fn total(counts: &Counts) -> u64 {
    counts.iter().copied().fold(0, u64::saturating_add)
}

fn first(counts: &Counts) -> u64 {
    counts.first().copied().unwrap_or(0)
}

impl Meter for SlidingWindow {
    fn capacity(&self) -> u64 {
        self.capacity
    }

    fn rate(&self) -> Option<Rate> {
        rate(self.capacity, self.window)
    }

    /// A slot leaves a window after its first instant, and nothing was taken before that.
    fn drain_time(&self) -> Nanos {
        self.window
    }

    fn max_cost(&self) -> u64 {
        self.slot_capacity
    }

    fn words(&self) -> usize {
        self.slots().div_ceil(2).saturating_add(1)
    }

    fn start(&self, words: &mut [u64], _now: Nanos) {
        words.fill(0);
    }

    fn decide(&self, words: &mut [u64], ask: &Ask) -> Decision {
        let Ask { cost, now, .. } = *ask;
        let mut counts = self.read(words, now);
        let in_slot = first(&counts).saturating_add(cost);
        let in_window = total(&counts).saturating_add(cost);
        if cost > 0 && (in_slot > self.slot_capacity || in_window > self.capacity) {
            let retry_after = self.retry_after(&counts, cost, now);
            return self.at(&counts, now).refused(retry_after);
        }
        if cost > 0 {
            if let Some(current) = counts.first_mut() {
                *current = in_slot;
            }
            self.write(words, &counts, now);
        }
        self.at(&counts, now)
    }

    /// In the slot in which it was taken.
    fn give_back(&self, words: &mut [u64], back: &Back<'_>) -> bool {
        let Ask { cost, now: at, .. } = back.ask;
        let age = self.current(back.last).saturating_sub(self.current(at));
        let age = usize::try_from(age).unwrap_or(usize::MAX);
        let mut counts = self.read(words, back.last);
        let Some(slot) = counts.get_mut(age).filter(|count| **count > 0) else {
            return false;
        };
        *slot = slot.saturating_sub(cost);
        self.write(words, &counts, back.last);
        true
    }

    fn used(&self, words: &[u64], now: Nanos) -> Used {
        used(total(&self.read(words, now)))
    }

    /// As late as it may leave, and no more in a slot than it takes: behind the current slot, whose
    /// capacity is not used up by what was taken before. What is too much for all of them is in that one.
    fn resume(&self, words: &mut [u64], used: Used, clock: Clock) {
        let mut counts = [0; 64];
        let mut left = units(used);
        for slot in counts.iter_mut().take(self.slots()).skip(1) {
            *slot = left.min(self.slot_capacity);
            left = left.saturating_sub(*slot);
        }
        if let Some(current) = counts.first_mut() {
            *current = left;
        }
        self.write(words, &counts, clock.now);
    }

    /// Every slot goes on in the oldest one that does not leave before its requests do, in a window of
    /// this length.
    fn adopt(
        &self,
        words: &mut [u64],
        from: &dyn Meter,
        old: &[u64],
        carry: Carry,
        clock: Clock,
    ) -> bool {
        let Some(before) = same::<Self>(from) else {
            return false;
        };
        let at = clock.now;
        let old = before.read(old, at);
        let mut counts = [0_u64; 64];
        let all = total(&old);
        let goes_on = carried(all, carry, before.capacity, self.capacity);
        let (mut seen, mut taken) = (0_u64, 0);
        for (age, count) in old.iter().enumerate().take(before.slots()) {
            seen = seen.saturating_add(*count);
            // The share of all that goes on, rounded up: no slot loses what a newer one has gained.
            let target = clamp(times(seen, goes_on).div_ceil(u128::from(all.max(1))));
            let left = before.until(before.slots().saturating_sub(age), at);
            let left = left_after(left, before.window, self.window);
            if let Some(slot) = counts.get_mut(self.leaving_after(left, at)) {
                *slot = slot.saturating_add(target.saturating_sub(taken));
            }
            taken = target;
        }
        self.write(words, &counts, at);
        true
    }
}
