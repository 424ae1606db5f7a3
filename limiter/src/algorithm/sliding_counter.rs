//! `sliding_counter`: about so many in any window, from two counters.
//!
//! Windows lie at multiples of `window` on the process's clock. What counts is all of the current
//! window's requests and, of those of the window before it, the share that still overlaps with a window
//! that ends now: `previous·(window - elapsed) + current·window ≤ capacity·window`, in whole numbers.
//! It is as cheap as a fixed window and has no lump at its end.
//!
//! It can be wrong because it takes the previous window's requests to have come evenly. Against an
//! exact count of the last window it is at most `previous·elapsed/window` too low (they came late)
//! and `previous·(window - elapsed)/window` too high (they came early), so never by more than
//! the capacity. In any time of length w it admits at most `capacity + capacity·w/window`, as a funnel of
//! the same capacity and rate does: a capacity at the very end of one window is followed by almost
//! another one spread over the next.
//!
//! Source: Cloudflare's "How we built rate limiting capable of scaling to millions of domains" (2017).

use serde::Serialize;

use super::window::{check, rate, units};
use crate::ask::Ask;
use crate::bounds::BadNumbers;
use crate::carry::Carry;
use crate::decision::Decision;
use crate::meter::{Meter, same};
use crate::rate::Rate;
use crate::time::{Clock, Nanos};
use crate::used::{Back, USED_ONE, Used};
use crate::wide::{clamp, mul_div_ceil, times};

/// Numbers of a sliding counter.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Serialize)]
pub struct SlidingCounter {
    capacity: u64,
    window: Nanos,
}

/// The largest count in half a word.
const LOW: u64 = 0xffff_ffff;

/// The two counters, as they are at some instant.
#[derive(Clone, Copy, Debug)]
struct State {
    previous: u64,
    current: u64,
    /// What is left of the current window; at least 1 ns.
    left: Nanos,
}

impl SlidingCounter {
    /// About `capacity` in any `window`.
    pub fn new(capacity: u64, window: Nanos) -> Result<Self, BadNumbers> {
        check(capacity, window)?;
        Ok(Self { capacity, window })
    }

    fn index(&self, instant: Nanos) -> u64 {
        instant.get().checked_div(self.window.get()).unwrap_or(0)
    }

    fn left(&self, now: Nanos) -> Nanos {
        let elapsed = now.get().checked_rem(self.window.get()).unwrap_or(0);
        self.window.since(Nanos::new(elapsed))
    }

    /// The state is the number of the window that was current, and its count with the one before.
    fn read(&self, words: &[u64], now: Nanos) -> State {
        let [index, packed] = words else {
            return self.state(0, 0, now);
        };
        let (current, previous) = (packed & LOW, packed >> 32);
        match self.index(now).saturating_sub(*index) {
            0 => self.state(previous, current, now),
            1 => self.state(current, 0, now),
            _ => self.state(0, 0, now),
        }
    }

    fn state(&self, previous: u64, current: u64, now: Nanos) -> State {
        State {
            previous,
            current,
            left: self.left(now),
        }
    }

    fn write(&self, words: &mut [u64], state: State, now: Nanos) {
        let packed = state.current.min(LOW) | state.previous.min(LOW) << 32;
        if let [index, counts] = words {
            *index = if packed == 0 { 0 } else { self.index(now) };
            *counts = packed;
        }
    }

    /// `units` in the 1/window units that levels are counted in.
    fn scaled(&self, units: u64) -> u128 {
        times(units, self.window.get())
    }

    fn level(&self, state: State) -> u128 {
        let overlap = times(state.previous, state.left.get());
        overlap.saturating_add(self.scaled(state.current))
    }

    /// What is left of a window when `count` in the one before it takes up no more than `room`, at the
    /// earliest.
    fn left_when(&self, room: u64, count: u64) -> Nanos {
        let left = self.scaled(room).checked_div(count.into());
        Nanos::new(clamp(left.unwrap_or(u128::MAX))).min(self.window)
    }

    /// The time until a cost fits that does not now.
    fn retry_after(&self, state: State, cost: u64) -> Option<Nanos> {
        let room = self.capacity.checked_sub(cost)?;
        if let Some(room) = room.checked_sub(state.current) {
            // In this window, as the previous one weighs less and less; or just at its end.
            return Some(state.left.since(self.left_when(room, state.previous)));
        }
        let next = self.window.since(self.left_when(room, state.current));
        Some(state.left.saturating_add(next))
    }

    /// The answer that leaves `state`.
    fn at(&self, state: State) -> Decision {
        let free = self.scaled(self.capacity).saturating_sub(self.level(state));
        let remaining = free.checked_div(self.window.get().into()).unwrap_or(0);
        let reset_after = match (state.current, state.previous) {
            (0, 0) => Nanos::ZERO,
            (0, _) => state.left,
            _ => state.left.saturating_add(self.window),
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

    fn words(&self) -> usize {
        2
    }

    fn start(&self, words: &mut [u64], _now: Nanos) {
        words.fill(0);
    }

    fn decide(&self, words: &mut [u64], ask: &Ask) -> Decision {
        let Ask { cost, now, .. } = *ask;
        let mut state = self.read(words, now);
        let level = self.level(state).saturating_add(self.scaled(cost));
        if cost > 0 && level > self.scaled(self.capacity) {
            return self.at(state).refused(self.retry_after(state, cost));
        }
        if cost > 0 {
            state.current = state.current.saturating_add(cost);
            self.write(words, state, now);
        }
        self.at(state)
    }

    /// In the window in which it was taken.
    fn give_back(&self, words: &mut [u64], back: &Back<'_>) -> bool {
        let Ask { cost, now: at, .. } = back.ask;
        let mut state = self.read(words, back.last);
        let counter = match self.index(back.last).saturating_sub(self.index(at)) {
            0 => &mut state.current,
            1 => &mut state.previous,
            _ => return false,
        };
        *counter = counter.saturating_sub(cost);
        self.write(words, state, back.last);
        true
    }

    fn used(&self, words: &[u64], now: Nanos) -> Used {
        let level = self.level(self.read(words, now));
        level
            .saturating_mul(USED_ONE)
            .div_ceil(u128::from(self.window.get()).max(1))
    }

    /// In the current window.
    fn resume(&self, words: &mut [u64], used: Used, clock: Clock) {
        let state = self.state(0, units(used), clock.now);
        self.write(words, state, clock.now);
    }

    /// With the same window both counters go on.
    fn adopt(
        &self,
        words: &mut [u64],
        from: &dyn Meter,
        old: &[u64],
        carry: Carry,
        clock: Clock,
    ) -> bool {
        let same = same::<Self>(from).filter(|before| before.window == self.window);
        let Some(before) = same else {
            return false;
        };
        let old = before.read(old, clock.now);
        let level = before.level(old);
        let full = self.scaled(before.capacity);
        let goes_on = carry.apply(level, full, self.scaled(self.capacity));
        let share = |count: u64| clamp(mul_div_ceil(count.into(), goes_on, level.max(1)));
        let state = self.state(share(old.previous), share(old.current), clock.now);
        self.write(words, state, clock.now);
        true
    }
}
