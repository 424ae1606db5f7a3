//! `sliding_window`: a number of units per window, which moves slot by slot.
//!
//! The window is cut into slots, which begin at multiples of `window/slots` on the clock of the
//! process, or on the wall clock (`align: clock`). The current slot and the `slots - 1` slots
//! before it admit at most `capacity` in total, and one slot admits at most `slot_capacity`.
//! `slot_capacity` prevents a client from using up a whole window at once, so that capacity becomes
//! free slot by slot. A cost above `slot_capacity` never fits. The remaining units of an answer are
//! the units that could be taken now, which for a new bucket is the capacity of a slot.
//!
//! A request counts for a time between `window - window/slots` and `window`, or up to one slot more
//! or less if the wall clock has jumped. A time of length w that touches k slots therefore admits
//! at most `capacity·⌊k/slots⌋ + min(capacity, slot_capacity·(k mod slots))`. A time of one window
//! length touches `slots + 1` slots and admits at most `capacity + slot_capacity`.
//!
//! Source: the leap array of Alibaba Sentinel. Here, slots need not be whole milliseconds: a slot
//! begins at the first nanosecond at or after its multiple.

use core::array;

use serde::Serialize;

use super::grid::{Grid, Periods, Place};
use super::window::{left_after, rate, units};
use crate::bounds::{BadNumbers, check_window};
use crate::convert::Carry;
use crate::decision::BucketRequest;
use crate::decision::Decision;
use crate::meter::{Meter, same};
use crate::meter::{Refund, Used};
use crate::time::Rate;
use crate::time::{Clock, Nanos};
use crate::wide::{clamp, times};

/// Minimum number of slots.
pub const MIN_SLOTS: u32 = 2;
/// Maximum number of slots.
pub const MAX_SLOTS: u32 = 64;
/// Number of slots of a window that does not set one.
pub const DEFAULT_SLOTS: u32 = 10;

/// Numbers of a sliding window.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Serialize)]
pub struct SlidingWindow {
    capacity: u64,
    window: Nanos,
    slots: u32,
    slot_capacity: u64,
    #[serde(skip_serializing_if = "Grid::is_process")]
    align: Grid,
}

/// Mask of the lower half of a word, which is also the largest count.
const LOW: u64 = 0xffff_ffff;

/// Units admitted in each slot, the current slot first. Entries beyond the number of slots are
/// zero.
type Counts = [u64; 64];

impl SlidingWindow {
    /// Creates a limit of `capacity` per `window` with that number of slots, and of `slot_capacity`
    /// in each slot. `None` means twice the even share of a slot.
    ///
    /// ```
    /// use loudou_limiter::{Limit, Limits, Nanos, algorithm::SlidingWindow};
    ///
    /// // There are slots of twenty seconds, and each admits at most four units.
    /// let window = SlidingWindow::new(6, Nanos::from_secs(60), 3, None).unwrap();
    /// let limits = Limits::new(vec![Limit::new("window", window)]).unwrap();
    /// let mut bucket = limits.start(Nanos::ZERO);
    /// assert!(!limits.decide(&mut bucket, 4, Nanos::from_secs(19)).is_refused());
    /// assert!(!limits.decide(&mut bucket, 2, Nanos::from_secs(20)).is_refused());
    /// // The first slot leaves when the fourth begins.
    /// let answer = limits.decide(&mut bucket, 1, Nanos::from_secs(40));
    /// assert_eq!(answer.reported().unwrap().retry_after, Some(Nanos::from_secs(20)));
    /// ```
    pub fn new(
        capacity: u64,
        window: Nanos,
        slots: u32,
        slot_capacity: Option<u64>,
    ) -> Result<Self, BadNumbers> {
        check_window(capacity, window)?;
        if !(MIN_SLOTS..=MAX_SLOTS).contains(&slots) {
            return Err(BadNumbers::Slots);
        }
        let share = |of: u64| of.div_ceil(u64::from(slots).max(1));
        let twice = || share(capacity.saturating_mul(2));
        let slot_capacity = slot_capacity.unwrap_or_else(twice);
        // With a smaller slot capacity, the window could never be full.
        if slot_capacity < share(capacity) || slot_capacity > capacity {
            return Err(BadNumbers::SlotCapacity);
        }
        Ok(Self {
            capacity,
            window,
            slots,
            slot_capacity,
            align: Grid::Process,
        })
    }

    /// Returns a copy of this limit with the given capacity, from which the capacity of a slot follows.
    pub(super) fn with(&self, capacity: Option<u64>) -> Result<Self, BadNumbers> {
        let window = Self::new(
            capacity.unwrap_or(self.capacity),
            self.window,
            self.slots,
            None,
        )?;
        Ok(window.aligned(self.align))
    }

    /// Returns this limit with slots that begin at multiples of their length on `align`.
    ///
    /// ```
    /// use loudou_limiter::algorithm::{Grid, SlidingWindow};
    /// use loudou_limiter::{BucketRequest, Limit, Limits, Nanos};
    ///
    /// // A day that moves on at every full hour.
    /// let day = SlidingWindow::new(1000, Nanos::from_secs(86_400), 24, Some(1000)).unwrap();
    /// let limits = Limits::new(vec![Limit::new("day", day.aligned(Grid::Clock))]).unwrap();
    /// let mut bucket = limits.start(Nanos::ZERO);
    /// // At 00:50 UTC.
    /// let request = BucketRequest::new(1, Nanos::ZERO).at_wall(Nanos::from_secs(3_000));
    /// let answer = limits.answer(&mut bucket, &request);
    /// assert_eq!(answer.reset_after(), Nanos::from_secs(86_400 - 3_000));
    /// ```
    #[must_use]
    pub const fn aligned(self, align: Grid) -> Self {
        Self { align, ..self }
    }

    const fn periods(&self) -> Periods {
        Periods {
            grid: self.align,
            window: self.window,
            parts: self.slots,
        }
    }

    fn slots(&self) -> usize {
        usize::try_from(self.slots).unwrap_or(0)
    }

    /// Returns the number of words with counts. Each word has two counts.
    fn pairs(&self) -> usize {
        self.slots().div_ceil(2)
    }

    /// Returns the position of `now`. The state has the first instant of the newest slot, and then
    /// the counts from that slot backwards, two in each word.
    fn place(&self, words: &[u64], now: Nanos) -> Place {
        let newest = Nanos::new(words.first().copied().unwrap_or(0));
        let written = self.periods().number(newest);
        self.periods().place(written, words, now)
    }

    fn read(&self, words: &[u64], place: &Place) -> Counts {
        let mut counts = [0; 64];
        let gone = usize::try_from(place.gone).unwrap_or(usize::MAX);
        let packed = words.iter().skip(1);
        let stored = packed.flat_map(|pair| [pair & LOW, pair >> 32]);
        let slots = counts.iter_mut().take(self.slots()).skip(gone);
        for (slot, count) in slots.zip(stored) {
            *slot = count;
        }
        counts
    }

    fn write(&self, words: &mut [u64], counts: &Counts, place: &Place) {
        let is_new = total(counts) == 0;
        self.periods().note(words, place);
        let Some((newest, packed)) = words.split_first_mut() else {
            return;
        };
        *newest = if is_new {
            0
        } else {
            self.periods().begin(place.number).get()
        };
        for (word, pair) in packed.iter_mut().take(self.pairs()).zip(counts.chunks(2)) {
            let [low, high] = array::from_fn(|i| pair.get(i).map_or(0, |count| (*count).min(LOW)));
            *word = low | high << 32;
        }
    }

    /// Returns the position that is stored when a request that finds `counts` takes units now.
    fn taking(&self, place: Place, counts: &Counts, request: &BucketRequest) -> Place {
        self.periods()
            .follow(place, total(counts) == 0, request.clock())
    }

    /// Returns the time until a slot leaves the window that is `age` slots older than the current
    /// one.
    fn leaves(&self, age: usize, place: &Place) -> Nanos {
        let age = u64::try_from(age).unwrap_or(u64::MAX);
        let ahead = u64::from(self.slots).saturating_sub(age);
        self.periods().until(place, ahead)
    }

    /// Returns the answer after a decision that leaves `counts`.
    fn at(&self, counts: &Counts, place: &Place) -> Decision {
        let in_window = self.capacity.saturating_sub(total(counts));
        let in_slot = self.slot_capacity.saturating_sub(first(counts));
        let newest = counts.iter().position(|count| *count > 0);
        let reset_after = newest.map_or(Nanos::ZERO, |age| self.leaves(age, place));
        Decision::admit(self.capacity, in_window.min(in_slot), reset_after)
    }

    /// Returns the time until a cost fits that does not fit now, which is when enough slots have
    /// left the window.
    fn retry_after(&self, counts: &Counts, cost: u64, place: &Place) -> Option<Nanos> {
        if cost > self.slot_capacity {
            return None;
        }
        let mut staying = 0_u64;
        let stay = counts.iter().take_while(|count| {
            staying = staying.saturating_add(**count);
            staying.saturating_add(cost) <= self.capacity
        });
        // If the window has room and only the current slot is full, the cost fits when this slot
        // ends.
        let stay = stay.count().min(self.slots().saturating_sub(1));
        Some(self.leaves(stay, place))
    }

    /// Returns the oldest slot, counted backwards from the current one, that leaves the window no
    /// earlier than `left` from now. If no slot leaves so late, returns the current one.
    fn leaving_after(&self, left: Nanos, place: &Place) -> usize {
        let mut late = (0..self.slots())
            .rev()
            .filter(|age| self.leaves(*age, place) >= left);
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

    /// A slot leaves the window one window length after its first instant, before which nothing was
    /// taken from it.
    fn drain_time(&self) -> Nanos {
        self.window
    }

    fn max_cost(&self) -> u64 {
        self.slot_capacity
    }

    fn reads_wall(&self) -> bool {
        self.align == Grid::Clock
    }

    fn words(&self) -> usize {
        let words = self.pairs().saturating_add(1);
        words.saturating_add(self.periods().words())
    }

    fn decide(&self, words: &mut [u64], request: &BucketRequest) -> Decision {
        let cost = request.cost;
        let place = self.place(words, request.now);
        let mut counts = self.read(words, &place);
        let in_slot = first(&counts).saturating_add(cost);
        let in_window = total(&counts).saturating_add(cost);
        if cost == 0 {
            return self.at(&counts, &place);
        }
        if in_slot > self.slot_capacity || in_window > self.capacity {
            let retry_after = self.retry_after(&counts, cost, &place);
            return self.at(&counts, &place).refused(retry_after);
        }
        let place = self.taking(place, &counts, request);
        if let Some(current) = counts.first_mut() {
            *current = in_slot;
        }
        self.write(words, &counts, &place);
        self.at(&counts, &place)
    }

    /// Gives units back to the slot from which they were taken.
    fn give_back(&self, words: &mut [u64], refund: &Refund<'_>) -> bool {
        let found = self.place(refund.before, refund.request.now);
        let taken = self.taking(found, &self.read(refund.before, &found), &refund.request);
        let place = self.place(words, refund.last);
        let Some(age) = self.periods().since(&place, &taken) else {
            return false;
        };
        let mut counts = self.read(words, &place);
        let age = usize::try_from(age).unwrap_or(usize::MAX);
        let Some(slot) = counts.get_mut(age).filter(|count| **count > 0) else {
            return false;
        };
        *slot = slot.saturating_sub(refund.request.cost);
        self.write(words, &counts, &place);
        true
    }

    fn counted(&self, words: &[u64], now: Nanos) -> Option<u64> {
        Some(total(&self.read(words, &self.place(words, now))))
    }

    fn recount(&self, words: &mut [u64], count: u64, now: Nanos) {
        let place = self.place(words, now);
        let mut counts = self.read(words, &place);
        let all = total(&counts);
        let (mut seen, mut taken) = (0_u64, 0);
        for slot in &mut counts {
            seen = seen.saturating_add(*slot);
            // The share of all units that continues, rounded up, so that no slot loses units that a
            // newer slot has gained.
            let target = clamp(times(seen, count).div_ceil(u128::from(all.max(1))));
            *slot = target.saturating_sub(taken);
            taken = target;
        }
        self.write(words, &counts, &place);
    }

    /// Writes the level so that it counts as long as possible, with at most `slot_capacity` in each
    /// slot. It starts with the slot before the current one, so that the capacity of the current
    /// slot is not used up by earlier requests. Units that do not fit into all these slots go to
    /// the current slot.
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
        self.write(words, &counts, &self.periods().fresh(clock));
    }

    /// Every slot continues in the oldest slot that does not leave before its requests would leave
    /// in a window of this length.
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
        let at = before.place(old, clock.now);
        let old = before.read(old, &at);
        let in_same_slots = before.periods() == self.periods();
        let place = if in_same_slots {
            at
        } else {
            self.periods().fresh(clock)
        };
        let mut counts = [0_u64; 64];
        for (age, count) in old.iter().enumerate().take(before.slots()) {
            // Slots shorter than a nanosecond leave together, so the end alone would not identify a
            // slot.
            let slot = if in_same_slots {
                age
            } else {
                let left = left_after(before.leaves(age, &at), before.window, self.window);
                self.leaving_after(left, &place)
            };
            if let Some(slot) = counts.get_mut(slot) {
                *slot = slot.saturating_add(*count);
            }
        }
        self.write(words, &counts, &place);
        true
    }
}
