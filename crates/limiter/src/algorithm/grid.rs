//! Periods that begin at multiples of their length on a clock. Refills, windows and slots are
//! aligned to these periods.
//!
//! On the process clock, the periods are the same for every bucket, so they need no state. For the
//! wall clock, a bucket stores in its last word how far the wall clock is ahead of the process
//! clock. Adding this offset to the process clock gives the bucket a wall clock that never jumps.
//! The offset is updated only when a request takes units in a later period than the previous
//! request, or from an idle bucket. A wall clock jump therefore never moves the end of the current
//! period.
//!
//! The two clocks are not read at the same instant, and the wall clock has a resolution of a
//! millisecond. Without a correction, a period that has just begun could appear to begin a second
//! time, or a period that is about to end could appear to have ended. An update therefore moves the
//! end of the period by at most half a period, to the nearest period end on the wall clock.

use serde::Serialize;

use crate::leak::{div_ceil, div_rem};
use crate::time::{Clock, Nanos};
use crate::wide::{clamp, product, times};

/// Clock to which periods are aligned.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq, Serialize)]
#[serde(rename_all = "snake_case")]
pub enum Grid {
    /// The monotonic clock of the process. Periods begin at a different time of day in each
    /// process.
    #[default]
    Process,
    /// The wall clock, counted from the Unix epoch. A day begins at midnight UTC.
    Clock,
}

impl Grid {
    /// Names of the variants, as written in rule files.
    pub const NAMES: [&'static str; 2] = ["process", "clock"];

    #[expect(clippy::trivially_copy_pass_by_ref, reason = "as serde calls it")]
    pub(super) const fn is_process(&self) -> bool {
        matches!(self, Self::Process)
    }
}

/// Windows, each divided into `parts` equal periods.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(super) struct Periods {
    pub(super) grid: Grid,
    pub(super) window: Nanos,
    pub(super) parts: u32,
}

/// Position of an instant in a bucket's sequence of periods.
#[derive(Clone, Copy, Debug)]
pub(super) struct Place {
    /// Index of the current period. After the wall clock has been set back, this period may begin
    /// in the future.
    pub(super) number: u128,
    /// Number of periods that have begun since the state was written.
    pub(super) gone: u128,
    /// Time on the clock to which the periods are aligned.
    at: Nanos,
    /// Offset of the periods' clock from the process clock, modulo 2^64.
    ahead: u64,
}

impl Place {
    /// Returns the time on the clock to which the periods are aligned.
    pub(super) const fn at(&self) -> Nanos {
        self.at
    }
}

impl Periods {
    /// Returns periods that are as long as a whole window.
    pub(super) const fn of(grid: Grid, window: Nanos) -> Self {
        Self {
            grid,
            window,
            parts: 1,
        }
    }

    /// Returns the number of state words that the periods need. These words follow all other state
    /// words.
    pub(super) const fn words(self) -> usize {
        match self.grid {
            Grid::Process => 0,
            Grid::Clock => 1,
        }
    }

    /// Returns the index of the period that contains an instant.
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
            // No state is written more than one period ahead, so only corrupt state contains a
            // larger index. The index is capped here, because a corrupt bucket could otherwise
            // count as used for centuries.
            number: number.max(written.min(number.saturating_add(1))),
            gone: number.saturating_sub(written),
            at,
            ahead,
        }
    }

    /// Returns the current position for an idle bucket, as read from the clock.
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

    /// Returns the position to store when a request takes units now.
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

    /// Returns the number of periods between `taken`, the position at which a request took units,
    /// and `place`. Returns `None` if the wall clock has jumped in between, because the number of
    /// periods is then unknown. A change of the offset by up to half a period is not a jump,
    /// because the two clocks drift and are never read at the same instant.
    pub(super) fn since(self, place: &Place, taken: &Place) -> Option<u128> {
        let moved = place.ahead.wrapping_sub(taken.ahead).cast_signed();
        let is_same = moved.unsigned_abs() <= self.half().get();
        is_same.then(|| place.number.saturating_sub(taken.number))
    }

    /// Returns the time until the start of the period that is `ahead` periods after the current
    /// one.
    pub(super) fn until(self, place: &Place, ahead: u64) -> Nanos {
        let begin = self.begin(place.number.saturating_add(ahead.into()));
        begin.since(place.at)
    }

    /// Stores the clock offset of a position in the state.
    pub(super) fn note(self, words: &mut [u64], place: &Place) {
        if let (Grid::Clock, Some(last)) = (self.grid, words.last_mut()) {
            *last = place.ahead;
        }
    }
}
