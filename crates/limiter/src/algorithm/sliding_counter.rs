//! `sliding_counter`: admits approximately a number of units in any window, estimated from two
//! counters.
//!
//! Windows begin at multiples of `window` on the process clock, or on the wall clock (`align:
//! clock`). Units of the current window count in full. The units of the previous window count in
//! proportion to its overlap with a window that ends now. In integer arithmetic, the limit is
//! `previous·(window - elapsed) + current·window ≤ capacity·window`. A sliding counter is as cheap
//! as a fixed window, but its capacity does not become available all at once when a window ends.
//!
//! The estimate is exact only if the requests of the previous window were spread evenly. The
//! estimate is at most `previous·elapsed/window` too low (if those requests arrived late) and at
//! most `previous·(window - elapsed)/window` too high (if they arrived early), so the error never
//! exceeds the capacity. In any interval of length w, the limit admits at most `capacity +
//! capacity·w/window`, like a funnel with the same capacity and rate. In the worst case, a client
//! uses the whole capacity at the very end of one window, and almost the whole capacity again
//! during the next window.
//!
//! Source: Cloudflare's "How we built rate limiting capable of scaling to millions of domains"
//! (2017).

use serde::Serialize;

use super::grid::{Grid, Periods, Place};
use super::window::{rate, units};
use crate::bounds::{BadNumbers, check_window};
use crate::convert::Carry;
use crate::decision::BucketRequest;
use crate::decision::Decision;
use crate::meter::{Meter, same};
use crate::meter::{Refund, USED_ONE, Used};
use crate::time::Rate;
use crate::time::{Clock, Nanos};
use crate::wide::{clamp, mul_div_ceil, times};

/// Parameters of a sliding counter.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Serialize)]
pub struct SlidingCounter {
    capacity: u64,
    window: Nanos,
    #[serde(skip_serializing_if = "Grid::is_process")]
    align: Grid,
}

/// Mask for the lower half of a word, and also the maximum count.
const LOW: u64 = 0xffff_ffff;

/// Values of both counters at an instant.
#[derive(Clone, Copy, Debug)]
struct CounterState {
    previous: u64,
    current: u64,
    place: Place,
}

impl SlidingCounter {
    /// Creates a limit that admits approximately `capacity` units in any `window`.
    ///
    /// ```
    /// use loudou_limiter::{Limit, Limits, Nanos, algorithm::SlidingCounter};
    ///
    /// let counter = SlidingCounter::new(10, Nanos::from_secs(60)).unwrap();
    /// let limits = Limits::new(vec![Limit::new("counter", counter)]).unwrap();
    /// let mut bucket = limits.start(Nanos::ZERO);
    /// limits.decide(&mut bucket, 10, Nanos::from_secs(59));
    /// // Half of the window before still overlaps, so half of its ten count.
    /// let look = limits.peek(&bucket, 0, Nanos::from_secs(90));
    /// assert_eq!(look.reported().unwrap().remaining, 5);
    /// ```
    pub fn new(capacity: u64, window: Nanos) -> Result<Self, BadNumbers> {
        check_window(capacity, window)?;
        Ok(Self {
            capacity,
            window,
            align: Grid::Process,
        })
    }

    /// Returns a copy of this limit with the given capacity.
    pub(super) fn with(&self, capacity: Option<u64>) -> Result<Self, BadNumbers> {
        Ok(Self::new(capacity.unwrap_or(self.capacity), self.window)?.aligned(self.align))
    }

    /// Returns this limit with windows aligned to the clock `align`.
    ///
    /// ```
    /// use loudou_limiter::algorithm::{Grid, SlidingCounter};
    /// use loudou_limiter::{BucketRequest, Limit, Limits, Nanos};
    ///
    /// let counter = SlidingCounter::new(10, Nanos::from_secs(60)).unwrap();
    /// let limits = Limits::new(vec![Limit::new("counter", counter.aligned(Grid::Clock))]).unwrap();
    /// let mut bucket = limits.start(Nanos::ZERO);
    /// // At the end of a minute: after ten seconds of the next one, five sixths count.
    /// let request = BucketRequest::new(6, Nanos::ZERO).at_wall(Nanos::from_secs(59));
    /// limits.answer(&mut bucket, &request);
    /// assert_eq!(limits.used(&bucket, Nanos::from_secs(11)), [5]);
    /// ```
    #[must_use]
    pub const fn aligned(self, align: Grid) -> Self {
        Self { align, ..self }
    }

    const fn periods(&self) -> Periods {
        Periods::of(self.align, self.window)
    }

    /// Reads the state. The first word is the index of the window that was current when the state
    /// was written. The second word packs the counts of that window and the previous window.
    fn read(&self, words: &[u64], now: Nanos) -> CounterState {
        let (index, packed) = match words {
            [index, packed, ..] => (*index, *packed),
            _ => (0, 0),
        };
        let place = self.periods().place(index.into(), words, now);
        let (current, previous) = (packed & LOW, packed >> 32);
        let (previous, current) = match place.gone {
            0 => (previous, current),
            1 => (current, 0),
            _ => (0, 0),
        };
        CounterState {
            previous,
            current,
            place,
        }
    }

    fn write(&self, words: &mut [u64], state: &CounterState) {
        let packed = state.current.min(LOW) | state.previous.min(LOW) << 32;
        if let [index, counts, ..] = words {
            *index = if packed == 0 {
                0
            } else {
                clamp(state.place.number)
            };
            *counts = packed;
        }
        self.periods().note(words, &state.place);
    }

    /// Returns the time until the current window ends.
    fn left(&self, state: &CounterState) -> Nanos {
        self.periods().until(&state.place, 1)
    }

    /// Converts `units` to multiples of 1/window, the unit in which levels are measured.
    fn scaled(&self, units: u64) -> u128 {
        times(units, self.window.get())
    }

    fn level(&self, state: &CounterState) -> u128 {
        let left = self.left(state).min(self.window);
        let overlap = times(state.previous, left.get());
        overlap.saturating_add(self.scaled(state.current))
    }

    /// Returns how much time will remain in the current window when the previous window's `count`
    /// first weighs at most `room`.
    fn left_when(&self, room: u64, count: u64) -> Nanos {
        let left = self.scaled(room).checked_div(count.into());
        Nanos::new(clamp(left.unwrap_or(u128::MAX))).min(self.window)
    }

    /// Returns the time until a cost that does not fit now will fit.
    fn retry_after(&self, state: &CounterState, cost: u64) -> Option<Nanos> {
        let (room, left) = (self.capacity.checked_sub(cost)?, self.left(state));
        if let Some(room) = room.checked_sub(state.current) {
            // The previous window's weight decreases over time, so the cost fits during the current
            // window or exactly at its end.
            return Some(left.since(self.left_when(room, state.previous)));
        }
        let next = self.window.since(self.left_when(room, state.current));
        Some(left.saturating_add(next))
    }

    /// Returns the position to store when a request takes units now.
    fn taking(&self, state: &CounterState, request: &BucketRequest) -> Place {
        let is_idle = state.previous == 0 && state.current == 0;
        self.periods().follow(state.place, is_idle, request.clock())
    }

    /// Returns the decision for a request that leaves the bucket in `state`.
    fn at(&self, state: &CounterState) -> Decision {
        let free = self.scaled(self.capacity).saturating_sub(self.level(state));
        let remaining = free.checked_div(self.window.get().into()).unwrap_or(0);
        let reset_after = match (state.current, state.previous) {
            (0, 0) => Nanos::ZERO,
            (0, _) => self.left(state),
            _ => self.left(state).saturating_add(self.window),
        };
        Decision::admit(self.capacity, clamp(remaining), reset_after)
    }
}

impl Meter for SlidingCounter {
    fn capacity(&self) -> u64 {
        self.capacity
    }

    fn rate(&self) -> Option<Rate> {
        rate(self.capacity, self.window)
    }

    fn drain_time(&self) -> Nanos {
        self.window.saturating_add(self.window)
    }

    fn reads_wall(&self) -> bool {
        self.align == Grid::Clock
    }

    fn words(&self) -> usize {
        self.periods().words().saturating_add(2)
    }

    fn decide(&self, words: &mut [u64], request: &BucketRequest) -> Decision {
        let cost = request.cost;
        let mut state = self.read(words, request.now);
        let level = self.level(&state).saturating_add(self.scaled(cost));
        if cost > 0 && level > self.scaled(self.capacity) {
            let retry_after = self.retry_after(&state, cost);
            return self.at(&state).refused(retry_after);
        }
        if cost > 0 {
            state.place = self.taking(&state, request);
            state.current = state.current.saturating_add(cost);
            self.write(words, &state);
        }
        self.at(&state)
    }

    /// Subtracts the units from the window in which they were taken.
    fn give_back(&self, words: &mut [u64], refund: &Refund<'_>) -> bool {
        let taken = self.taking(
            &self.read(refund.before, refund.request.now),
            &refund.request,
        );
        let mut state = self.read(words, refund.last);
        let counter = match self.periods().since(&state.place, &taken) {
            Some(0) => &mut state.current,
            Some(1) => &mut state.previous,
            _ => return false,
        };
        *counter = counter.saturating_sub(refund.request.cost);
        self.write(words, &state);
        true
    }

    fn used(&self, words: &[u64], now: Nanos) -> Used {
        let level = self.level(&self.read(words, now));
        level
            .saturating_mul(USED_ONE)
            .div_ceil(u128::from(self.window.get()).max(1))
    }

    /// Sums the counts of both windows, without weighting the previous one.
    fn counted(&self, words: &[u64], now: Nanos) -> Option<u64> {
        let state = self.read(words, now);
        Some(state.current.saturating_add(state.previous))
    }

    fn recount(&self, words: &mut [u64], count: u64, now: Nanos) {
        let old = self.read(words, now);
        let all = old.current.saturating_add(old.previous);
        let current = mul_div_ceil(old.current.into(), count.into(), all.max(1).into());
        let current = clamp(current).min(count);
        let state = CounterState {
            previous: count.saturating_sub(current),
            current,
            place: old.place,
        };
        self.write(words, &state);
    }

    /// Writes the level as the count of the current window.
    fn resume(&self, words: &mut [u64], used: Used, clock: Clock) {
        let state = CounterState {
            previous: 0,
            current: units(used),
            place: self.periods().fresh(clock),
        };
        self.write(words, &state);
    }

    /// Both counters continue if the window length and the clock are unchanged.
    fn adopt(
        &self,
        words: &mut [u64],
        from: &dyn Meter,
        old: &[u64],
        _carry: Carry,
        clock: Clock,
    ) -> bool {
        let same = same::<Self>(from).filter(|before| before.periods() == self.periods());
        let Some(before) = same else {
            return false;
        };
        let state = before.read(old, clock.now);
        self.write(words, &state);
        true
    }
}
