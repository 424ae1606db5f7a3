//! `sliding_window`: admits a number of units per window. The window advances slot by slot.
//!
//! The window is divided into slots, which begin at multiples of `window/slots` on the process
//! clock, or on the wall clock (`align: clock`). The current slot and the `slots - 1` slots before
//! it admit at most `capacity` in total, and one slot admits at most `slot_capacity`.
//! `slot_capacity` prevents a client from using the whole capacity at once, so that units become
//! available again slot by slot. A request whose cost exceeds `slot_capacity` is always refused.
//! The number of remaining units reported is the number that a request could take now, which is
//! `slot_capacity` for a new bucket.
//!
//! A request counts for between `window - window/slots` and `window`, or up to one slot more or
//! less if the wall clock has jumped. In an interval that overlaps k slots, at most
//! `capacity·⌊k/slots⌋ + min(capacity, slot_capacity·(k mod slots))` units are therefore admitted.
//! An interval of one window length overlaps up to `slots + 1` slots, so at most `capacity +
//! slot_capacity` units are admitted in it.
//!
//! Source: Alibaba Sentinel's leap array. Unlike in Sentinel, slots need not be whole milliseconds.
//! A slot begins at the first nanosecond at or after the multiple of `window/slots`.

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
/// Default number of slots.
pub const DEFAULT_SLOTS: u32 = 10;

/// Parameters of a sliding window.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Serialize)]
pub struct SlidingWindow {
    capacity: u64,
    window: Nanos,
    slots: u32,
    slot_capacity: u64,
    #[serde(skip_serializing_if = "Grid::is_process")]
    align: Grid,
}

/// Mask for the lower half of a word, and also the maximum count.
const LOW: u64 = 0xffff_ffff;

/// Units admitted in each slot, starting with the current slot. Entries beyond the number of slots
/// are zero.
type Counts = [u64; 64];

impl SlidingWindow {
    /// Creates a limit of `capacity` units per `window`, divided into `slots` slots of at most
    /// `slot_capacity` units each. If `slot_capacity` is `None`, each slot admits twice its even
    /// share of the capacity.
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
        // With a smaller slot capacity, clients could never use the whole capacity of the window.
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

    /// Returns a copy of this limit with the given capacity and the corresponding default slot capacity.
    pub(super) fn with(&self, capacity: Option<u64>) -> Result<Self, BadNumbers> {
        let window = Self::new(
            capacity.unwrap_or(self.capacity),
            self.window,
            self.slots,
            None,
        )?;
        Ok(window.aligned(self.align))
    }

    /// Returns this limit with slots aligned to the clock `align`.
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

    /// Returns the number of words that store counts, two counts per word.
    fn pairs(&self) -> usize {
        self.slots().div_ceil(2)
    }

    /// Returns the position of `now`. The state starts with the first instant of the newest slot.
    /// The counts follow, from the newest to the oldest slot, two in each word.
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

    /// Returns the position to store when a request takes units now, given the `counts` before that
    /// request.
    fn taking(&self, place: Place, counts: &Counts, request: &BucketRequest) -> Place {
        self.periods()
            .follow(place, total(counts) == 0, request.clock())
    }

    /// Returns the time until the slot that is `age` slots older than the current slot leaves the
    /// window.
    fn leaves(&self, age: usize, place: &Place) -> Nanos {
        let age = u64::try_from(age).unwrap_or(u64::MAX);
        let ahead = u64::from(self.slots).saturating_sub(age);
        self.periods().until(place, ahead)
    }

    /// Returns the decision for a request that leaves the bucket with `counts`.
    fn at(&self, counts: &Counts, place: &Place) -> Decision {
        let in_window = self.capacity.saturating_sub(total(counts));
        let in_slot = self.slot_capacity.saturating_sub(first(counts));
        let newest = counts.iter().position(|count| *count > 0);
        let reset_after = newest.map_or(Nanos::ZERO, |age| self.leaves(age, place));
        Decision::admit(self.capacity, in_window.min(in_slot), reset_after)
    }

    /// Returns the time until enough slots have left the window for `cost` to fit. Must be called
    /// only if the cost does not fit now.
    fn retry_after(&self, counts: &Counts, cost: u64, place: &Place) -> Option<Nanos> {
        if cost > self.slot_capacity {
            return None;
        }
        let mut staying = 0_u64;
        let stay = counts.iter().take_while(|count| {
            staying = staying.saturating_add(**count);
            staying.saturating_add(cost) <= self.capacity
        });
        // If the cost fits in the window and only the current slot is full, the cost fits as soon
        // as the next slot begins.
        let stay = stay.count().min(self.slots().saturating_sub(1));
        Some(self.leaves(stay, place))
    }

    /// Returns the age of the oldest slot that stays in the window for at least the time `left`. If
    /// no slot stays that long, returns 0, the age of the current slot.
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

    /// Units are taken from a slot at its first instant at the earliest, and the slot leaves the
    /// window one window length after that instant.
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

    /// Subtracts the units from the slot in which they were taken.
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
            // Rounds the cumulative share up, so that no slot loses units that a newer slot has
            // gained.
            let target = clamp(times(seen, count).div_ceil(u128::from(all.max(1))));
            *slot = target.saturating_sub(taken);
            taken = target;
        }
        self.write(words, &counts, &place);
    }

    /// Distributes the level over the slots so that its units count for as long as possible, with
    /// at most `slot_capacity` in each slot. Filling starts with the slot before the current one,
    /// so that earlier usage does not take capacity from the current slot. Units that do not fit
    /// into the previous slots go to the current slot.
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

    /// Moves the count of each old slot to the oldest new slot in which the count does not expire
    /// too early.
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
            // Slots shorter than a nanosecond can leave the window at the same instant, so that
            // instant would not identify a slot.
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
