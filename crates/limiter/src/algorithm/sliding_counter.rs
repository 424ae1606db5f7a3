//! `sliding_counter`: approximately a number of units in any window, from two counters.
//!
//! Windows begin at multiples of `window` on the clock of the process, or on the wall clock
//! (`align: clock`). All units of the current window count. The units of the previous window count
//! in proportion to its overlap with a window that ends now: `previous·(window - elapsed) +
//! current·window ≤ capacity·window`, in whole numbers. This is as cheap as a fixed window, without
//! the jump at the end of a window.
//!
//! The estimate is wrong if the requests of the previous window were not spread evenly. Compared
//! with an exact count of the last window, it is at most `previous·elapsed/window` too low (if they
//! came late) and `previous·(window - elapsed)/window` too high (if they came early), so it is
//! never wrong by more than the capacity. In any time of length w it admits at most `capacity +
//! capacity·w/window`, like a funnel of the same capacity and rate. The extreme case is a whole
//! capacity at the very end of one window, followed by almost another capacity during the next
//! window.
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

/// Numbers of a sliding counter.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Serialize)]
pub struct SlidingCounter {
    capacity: u64,
    window: Nanos,
    #[serde(skip_serializing_if = "Grid::is_process")]
    align: Grid,
}

/// Mask of the lower half of a word, which is also the largest count.
const LOW: u64 = 0xffff_ffff;

/// The two counters at an instant.
#[derive(Clone, Copy, Debug)]
struct CounterState {
    previous: u64,
    current: u64,
    place: Place,
}

impl SlidingCounter {
    /// Creates a limit of approximately `capacity` in any `window`.
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

    /// Returns this limit with windows that begin at multiples of their length on `align`.
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

    /// Reads the state: the number of the window that was current when it was written, and one word
    /// with the counts of that window and of the previous one.
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

    /// Returns `units` in units of 1/window, in which levels are counted.
    fn scaled(&self, units: u64) -> u128 {
        times(units, self.window.get())
    }

    fn level(&self, state: &CounterState) -> u128 {
        let left = self.left(state).min(self.window);
        let overlap = times(state.previous, left.get());
        overlap.saturating_add(self.scaled(state.current))
    }

    /// Returns the remaining time of the current window at the first instant at which the previous
    /// window's `count` weighs at most `room`.
    fn left_when(&self, room: u64, count: u64) -> Nanos {
        let left = self.scaled(room).checked_div(count.into());
        Nanos::new(clamp(left.unwrap_or(u128::MAX))).min(self.window)
    }

    /// Returns the time until a cost fits that does not fit now.
    fn retry_after(&self, state: &CounterState, cost: u64) -> Option<Nanos> {
        let (room, left) = (self.capacity.checked_sub(cost)?, self.left(state));
        if let Some(room) = room.checked_sub(state.current) {
            // The cost fits within this window, as the previous window weighs less and less, or
            // exactly at its end.
            return Some(left.since(self.left_when(room, state.previous)));
        }
        let next = self.window.since(self.left_when(room, state.current));
        Some(left.saturating_add(next))
    }

    /// Returns the position that is stored when a request takes units now.
    fn taking(&self, state: &CounterState, request: &BucketRequest) -> Place {
        let is_idle = state.previous == 0 && state.current == 0;
        self.periods().follow(state.place, is_idle, request.clock())
    }

    /// Returns the answer after a decision that leaves `state`.
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

    /// Gives units back to the window from which they were taken.
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

    /// The units of both windows, without the weight of the earlier one.
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

    /// Writes the level into the current window.
    fn resume(&self, words: &mut [u64], used: Used, clock: Clock) {
        let state = CounterState {
            previous: 0,
            current: units(used),
            place: self.periods().fresh(clock),
        };
        self.write(words, &state);
    }

    /// If the window and the clock are equal, both counters continue.
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
