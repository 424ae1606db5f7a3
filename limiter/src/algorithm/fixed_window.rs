//! `fixed_window`: so many per window, counted from zero in each.
//!
//! For quotas that people reason about ("a thousand a day"). A window begins with the first request
//! that is admitted after the one before has ended (`first`), or ends at the next multiple of its
//! length on the wall clock (`clock`, for instance at midnight UTC for a day). When it ends, all of the
//! capacity is back at once. The price of the simplicity: in any time of length w at most
//! `capacity·(⌈w/window⌉ + 1)` is admitted, which is twice the capacity around the end of a window.
//!
//! Source: the counter with an expiry that the documentation of Redis' INCR calls a rate limiter.
//!
//! The end of a running window is an instant on the monotonic clock. A jump of the wall clock never
//! moves it; only the window that begins next is longer or shorter, never longer than `window`.
//!
//! What an edit brings over from other numbers is kept apart from the window that runs, because it has
//! an end of its own: it must not last longer than it did, and the end of a window must not depend on
//! it.

use serde::Serialize;

use super::window::{carried, check, rate, units, used};
use super::{Algorithm, Back, BadNumbers, Meter, Used};
use crate::ask::Ask;
use crate::carry::Carry;
use crate::decision::Decision;
use crate::rate::Rate;
use crate::time::Nanos;

/// When a window ends.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq, Serialize)]
#[serde(rename_all = "snake_case")]
pub enum Align {
    /// One window's length after its first admitted request.
    #[default]
    First,
    /// At the next multiple of its length on the wall clock, since the Unix epoch.
    Clock,
}

impl Align {
    /// The names in rule files.
    pub const NAMES: [&'static str; 2] = ["first", "clock"];
}

/// Numbers of a fixed window.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Serialize)]
pub struct FixedWindow {
    capacity: u64,
    window: Nanos,
    align: Align,
}

/// A count that comes back as a whole, `left` from now; nothing when `left` is zero.
#[derive(Clone, Copy, Debug, Default)]
struct Part {
    count: u64,
    left: Nanos,
}

impl Part {
    /// The part whose count `words` keep after its end.
    fn read(words: [u64; 2], longest: Nanos, now: Nanos) -> Self {
        let [end, count] = words;
        let left = Nanos::new(end).since(now).min(longest);
        Self::new(count, left)
    }

    fn new(count: u64, left: Nanos) -> Self {
        if count == 0 || left == Nanos::ZERO {
            return Self::default();
        }
        Self { count, left }
    }

    fn words(self, now: Nanos) -> [u64; 2] {
        if self.count == 0 {
            return [0, 0];
        }
        [now.saturating_add(self.left).get(), self.count]
    }
}

/// The window that runs, and what was brought over from other numbers.
#[derive(Clone, Copy, Debug, Default)]
struct State {
    window: Part,
    carried: Part,
}

impl State {
    const fn used(self) -> u64 {
        self.window.count.saturating_add(self.carried.count)
    }

    fn write(self, words: &mut [u64], now: Nanos) {
        let parts = [self.window, self.carried].map(|part| part.words(now));
        for (word, value) in words.iter_mut().zip(parts.into_iter().flatten()) {
            *word = value;
        }
    }
}

impl FixedWindow {
    /// `capacity` per `window`.
    pub fn new(capacity: u64, window: Nanos, align: Align) -> Result<Self, BadNumbers> {
        check(capacity, window)?;
        Ok(Self {
            capacity,
            window,
            align,
        })
    }

    fn read(&self, words: &[u64], now: Nanos) -> State {
        let [end, count, until, carried] = words else {
            return State::default();
        };
        State {
            window: Part::read([*end, *count], self.window, now),
            carried: Part::read([*until, *carried], self.window, now),
        }
    }

    /// How long a window lasts that begins now.
    fn length(&self, ask: &Ask) -> Nanos {
        let past = match self.align {
            Align::First => 0,
            Align::Clock => ask.wall.get().checked_rem(self.window.get()).unwrap_or(0),
        };
        self.window.since(Nanos::new(past))
    }

    /// What is left of the window that runs, or of the one that begins now.
    fn left(&self, running: Part, ask: &Ask) -> Nanos {
        if running.count == 0 {
            self.length(ask)
        } else {
            running.left
        }
    }

    fn fits(&self, used: u64, cost: u64) -> bool {
        used.saturating_add(cost) <= self.capacity
    }

    /// The time until a cost fits that does not now.
    fn retry_after(&self, state: State, cost: u64) -> Option<Nanos> {
        let State { window, carried } = state;
        let (first, last) = if window.left <= carried.left {
            (window, carried)
        } else {
            (carried, window)
        };
        let without_first = self.fits(last.count, cost).then_some(first.left);
        (cost <= self.capacity).then(|| without_first.unwrap_or(last.left))
    }

    /// The answer that leaves `state`.
    fn at(&self, state: State) -> Decision {
        let remaining = self.capacity.saturating_sub(state.used());
        let reset_after = state.window.left.max(state.carried.left);
        Decision::admit(self.capacity, remaining, reset_after)
    }
}

impl Meter for FixedWindow {
    fn capacity(&self) -> u64 {
        self.capacity
    }

    fn rate(&self) -> Option<Rate> {
        rate(self.capacity, self.window)
    }

    fn drain_time(&self) -> Nanos {
        self.window
    }

    fn reads_wall(&self) -> bool {
        self.align == Align::Clock
    }

    /// The end and the count of the window; the end and the count of what was brought over.
    fn words(&self) -> usize {
        4
    }

    fn start(&self, words: &mut [u64], _now: Nanos) {
        words.fill(0);
    }

    fn decide(&self, words: &mut [u64], ask: &Ask) -> Decision {
        let mut state = self.read(words, ask.now);
        if ask.cost > 0 && !self.fits(state.used(), ask.cost) {
            let retry_after = self.retry_after(state, ask.cost);
            return self.at(state).refused(retry_after);
        }
        if ask.cost > 0 {
            let running = state.window;
            let left = self.left(running, ask);
            state.window = Part::new(running.count.saturating_add(ask.cost), left);
            state.write(words, ask.now);
        }
        self.at(state)
    }

    /// In the window in which it was taken.
    fn give_back(&self, words: &mut [u64], back: &Back<'_>) -> bool {
        let Ask { cost, now: at, .. } = back.ask;
        let end = at.saturating_add(self.left(self.read(back.before, at).window, &back.ask));
        let mut state = self.read(words, back.last);
        let Part { count, left } = state.window;
        if count == 0 || back.last.saturating_add(left) != end {
            return false;
        }
        state.window = Part::new(count.saturating_sub(cost), left);
        state.write(words, back.last);
        true
    }

    fn used(&self, words: &[u64], now: Nanos) -> Used {
        used(self.read(words, now).used())
    }

    fn resume(&self, words: &mut [u64], used: Used, reset_after: Nanos, now: Nanos) {
        let count = units(used).min(self.capacity);
        let state = State {
            window: Part::default(),
            carried: Part::new(count, reset_after.min(self.window)),
        };
        state.write(words, now);
    }

    /// The window goes on, unless that would move its end away from where the clock has it.
    fn adopt(
        &self,
        words: &mut [u64],
        from: &Algorithm,
        old: &[u64],
        carry: Carry,
        at: Nanos,
    ) -> bool {
        let Algorithm::FixedWindow(before) = from else {
            return false;
        };
        let same_end = (before.align, before.window) == (self.align, self.window);
        if self.align == Align::Clock && !same_end {
            return false;
        }
        let state = before.read(old, at);
        let scale = |part: Part, most: u64| {
            let count = carried(part.count, carry, before.capacity, self.capacity);
            Part::new(count.min(most), part.left.min(self.window))
        };
        let window = scale(state.window, self.capacity);
        let carried = scale(state.carried, self.capacity.saturating_sub(window.count));
        State { window, carried }.write(words, at);
        true
    }
}
