//! Periods: multiples of one length on a clock, where refills come and windows and slots begin.
//!
//! On the process's clock they are the same for every bucket, and need no state. On the
//! wall clock a bucket keeps in its last word by how much that is ahead of the process's clock. So it
//! knows a wall clock that never jumps: that difference is read again only by a request that takes
//! from a later period than the one before it, or from a bucket in which nothing counts. A jump never
//! moves the end of the period that runs.
//!
//! The two clocks are not read at one instant, and the wall clock in whole milliseconds. A period that
//! just began could seem to begin once more, or one that is about to end to be over. Therefore the next
//! end is never moved by more than half a period: of the ends on the wall clock it becomes the nearest.

use serde::Serialize;

use crate::leak::{div_ceil, div_rem};
use crate::time::{Clock, Nanos};
use crate::wide::{clamp, product, times};

/// The clock on which periods begin at multiples of their length.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq, Serialize)]
#[serde(rename_all = "snake_case")]
pub enum Grid {
    /// The process's monotonic clock, so at another time of day in each process.
    #[default]
    Process,
    /// The wall clock, since the Unix epoch: a day begins at midnight UTC.
    Clock,
}

impl Grid {
    /// The names in rule files.
    pub const NAMES: [&'static str; 2] = ["process", "clock"];

    /// Returns true if it is the default.
    #[expect(clippy::trivially_copy_pass_by_ref, reason = "as serde calls it")]
    pub(super) const fn is_process(&self) -> bool {
        matches!(self, Self::Process)
    }
}

/// Windows that are cut into equal parts; each part is a period.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(super) struct Periods {
    pub(super) grid: Grid,
    pub(super) window: Nanos,
    pub(super) parts: u32,
}

/// Where an instant lies among the periods of a bucket.
#[derive(Clone, Copy, Debug)]
pub(super) struct Place {
    /// The number of the current period. It begins later than now where the wall clock was put back.
    pub(super) number: u128,
    /// The periods that have begun since the state was written.
    pub(super) gone: u128,
    /// The instant on the clock of the periods.
    at: Nanos,
    /// By how much that clock is ahead of the process's, modulo 2^64.
    ahead: u64,
}

impl Periods {
    /// Periods that are not parts of anything.
    pub(super) const fn of(grid: Grid, window: Nanos) -> Self {
        Self {
            grid,
            window,
            parts: 1,
        }
    }

    /// The words of state that they need, behind all others.
    pub(super) const fn words(self) -> usize {
        match self.grid {
            Grid::Process => 0,
            Grid::Clock => 1,
        }
    }

    /// The number of the period that an instant is in.
    pub(super) fn number(self, instant: Nanos) -> u128 {
        let scaled = times(instant.get(), self.parts.into());
        div_rem(scaled, self.window.get()).0
    }

    /// The first instant of a period.
    pub(super) fn begin(self, number: u128) -> Nanos {
        let scaled = product(number, self.window.get().into());
        Nanos::new(clamp(div_ceil(scaled, self.parts.into())))
    }

    /// Where `now` lies by a state that was written in the period `written`.
    pub(super) fn place(self, written: u128, words: &[u64], now: Nanos) -> Place {
        let ahead = match self.grid {
            Grid::Process => 0,
            Grid::Clock => words.last().copied().unwrap_or(0),
        };
        let at = Nanos::new(now.get().saturating_add_signed(ahead.cast_signed()));
        let number = self.number(at);
        Place {
            // No state is written further ahead; with other numbers, which only damage leaves, a bucket
            // would not be full again for centuries.
            number: number.max(written.min(number.saturating_add(1))),
            gone: number.saturating_sub(written),
            at,
            ahead,
        }
    }

    /// Where an instant lies in a bucket in which nothing counts.
    pub(super) fn fresh(self, clock: Clock) -> Place {
        let at = match self.grid {
            Grid::Process => clock.now,
            Grid::Clock => clock.wall,
        };
        Place {
            number: self.number(at),
            gone: 0,
            at,
            ahead: at.get().wrapping_sub(clock.now.get()),
        }
    }

    /// The place that a request leaves which takes at once.
    pub(super) fn follow(self, place: Place, is_idle: bool, clock: Clock) -> Place {
        if self.grid == Grid::Process || (place.gone == 0 && !is_idle) {
            return place;
        }
        let mut fresh = self.fresh(clock);
        if is_idle {
            return fresh;
        }
        let (ends, would_end) = (self.until(&place, 1), self.until(&fresh, 1));
        let half = self.half();
        if ends > would_end.saturating_add(half) {
            fresh.number = fresh.number.saturating_add(1);
        } else if would_end > ends.saturating_add(half) {
            fresh.number = fresh.number.saturating_sub(1);
        }
        fresh
    }

    /// Half the length of a period, rounded down.
    fn half(self) -> Nanos {
        let parts = u64::from(self.parts).saturating_mul(2);
        Nanos::new(clamp(div_rem(self.window.get().into(), parts).0))
    }

    /// The periods from the one in which a request took until `place`; `None` when it is not known,
    /// because the wall clock jumped since. By less than half a period, periods keep their numbers: the
    /// two clocks drift, and are never read at one instant.
    pub(super) fn since(self, place: &Place, taken: &Place) -> Option<u128> {
        let moved = place.ahead.wrapping_sub(taken.ahead).cast_signed();
        let is_same = moved.unsigned_abs() <= self.half().get();
        is_same.then(|| place.number.saturating_sub(taken.number))
    }

    /// The time until the period begins that is `ahead` periods after the current one.
    pub(super) fn until(self, place: &Place, ahead: u64) -> Nanos {
        let begin = self.begin(place.number.saturating_add(ahead.into()));
        begin.since(place.at)
    }

    /// Notes the clock of a place in a state.
    pub(super) fn note(self, words: &mut [u64], place: &Place) {
        if let (Grid::Clock, Some(last)) = (self.grid, words.last_mut()) {
            *last = place.ahead;
        }
    }
}
