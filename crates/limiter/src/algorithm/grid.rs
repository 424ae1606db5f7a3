//! Periods, which begin at multiples of their length on a clock. Refills, windows and slots use
//! them: each begins with a period.
//!
//! On the clock of the process, periods are the same for every bucket and need no state. For the
//! wall clock, a bucket stores in its last word how far the wall clock is ahead of the clock of the
//! process. The bucket therefore works with a wall clock that never jumps. The difference is read
//! again only by a request that takes from a later period than the previous request, or from a
//! bucket in which no request counts. So a jump never moves the end of the current period.
//!
//! The two clocks are not read at the same instant, and the wall clock has a resolution of a
//! millisecond. Without a correction, a period that has just begun could seem to begin a second
//! time, or a period that is about to end could seem to be over. The next end is therefore never
//! moved by more than half a period: it becomes the nearest end on the wall clock.

use serde::Serialize;

use crate::leak::{div_ceil, div_rem};
use crate::time::{Clock, Nanos};
use crate::wide::{clamp, product, times};

/// The clock on which periods begin at multiples of their length.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq, Serialize)]
#[serde(rename_all = "snake_case")]
pub enum Grid {
    /// The monotonic clock of the process. Periods begin at another time of day in each process.
    #[default]
    Process,
    /// The wall clock, counted from the Unix epoch. A day begins at midnight UTC.
    Clock,
}

impl Grid {
    /// Names in rule files.
    pub const NAMES: [&'static str; 2] = ["process", "clock"];

    #[expect(clippy::trivially_copy_pass_by_ref, reason = "as serde calls it")]
    pub(super) const fn is_process(&self) -> bool {
        matches!(self, Self::Process)
    }
}

/// Windows that are cut into `parts` equal parts. Each part is a period.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(super) struct Periods {
    pub(super) grid: Grid,
    pub(super) window: Nanos,
    pub(super) parts: u32,
}

/// Position of an instant among the periods of a bucket.
#[derive(Clone, Copy, Debug)]
pub(super) struct Place {
    /// Number of the current period. If the wall clock was set back, this period begins later than
    /// now.
    pub(super) number: u128,
    /// Number of periods that have begun since the state was written.
    pub(super) gone: u128,
    /// Time on the clock that the periods follow.
    at: Nanos,
    /// Lead of that clock over the process clock, modulo 2^64.
    ahead: u64,
}

impl Place {
    /// Returns the time on the clock that the periods follow: the process clock or the wall clock.
    pub(super) const fn at(&self) -> Nanos {
        self.at
    }
}

impl Periods {
    /// Returns whole windows as periods.
    pub(super) const fn of(grid: Grid, window: Nanos) -> Self {
        Self {
            grid,
            window,
            parts: 1,
        }
    }

    /// Returns the number of state words that the periods need. They follow all other words.
    pub(super) const fn words(self) -> usize {
        match self.grid {
            Grid::Process => 0,
            Grid::Clock => 1,
        }
    }

    /// Returns the number of the period that contains an instant.
    pub(super) fn number(self, instant: Nanos) -> u128 {
        let scaled = times(instant.get(), self.parts.into());
        div_rem(scaled, self.window.get()).0
    }

    /// Returns the first instant of a period.
    pub(super) fn begin(self, number: u128) -> Nanos {
        let scaled = product(number, self.window.get().into());
        Nanos::new(clamp(div_ceil(scaled, self.parts.into())))
    }

    /// Returns the position of `now` for a state that was written in the period `written`.
    pub(super) fn place(self, written: u128, words: &[u64], now: Nanos) -> Place {
        let ahead = match self.grid {
            Grid::Process => 0,
            Grid::Clock => words.last().copied().unwrap_or(0),
        };
        let at = Nanos::new(now.get().saturating_add_signed(ahead.cast_signed()));
        let number = self.number(at);
        Place {
            // No state is written more than one period ahead. Only a damaged state has a larger
            // number. It is limited here, because such a bucket would otherwise stay used for
            // centuries.
            number: number.max(written.min(number.saturating_add(1))),
            gone: number.saturating_sub(written),
            at,
            ahead,
        }
    }

    /// Returns the position of an instant in a bucket in which no request counts.
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

    /// Returns the position that is stored when a request takes units now.
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

    /// Returns half the length of a period, rounded down.
    fn half(self) -> Nanos {
        let parts = u64::from(self.parts).saturating_mul(2);
        Nanos::new(clamp(div_rem(self.window.get().into(), parts).0))
    }

    /// Returns the number of periods from the period in which a request took units to `place`;
    /// `None` if the wall clock has jumped since, so that the number is unknown. A difference of
    /// less than half a period is not a jump, because the two clocks drift and are never read at
    /// the same instant.
    pub(super) fn since(self, place: &Place, taken: &Place) -> Option<u128> {
        let moved = place.ahead.wrapping_sub(taken.ahead).cast_signed();
        let is_same = moved.unsigned_abs() <= self.half().get();
        is_same.then(|| place.number.saturating_sub(taken.number))
    }

    /// Returns the time until the beginning of the period that is `ahead` periods after the current
    /// one.
    pub(super) fn until(self, place: &Place, ahead: u64) -> Nanos {
        let begin = self.begin(place.number.saturating_add(ahead.into()));
        begin.since(place.at)
    }

    /// Stores the clock difference of a position in a state.
    pub(super) fn note(self, words: &mut [u64], place: &Place) {
        if let (Grid::Clock, Some(last)) = (self.grid, words.last_mut()) {
            *last = place.ahead;
        }
    }
}
