//! Maximum amount that a limiter may admit in an interval.

use super::super::timeline::{At, Segment};
use super::ONE;

/// The largest capacity in force at some time of an interval, and the refill during the interval.
#[derive(Debug, Clone, Copy)]
pub(super) struct Bound {
    pub(super) base: u64,
    pub(super) least_base: u64,
    pub(super) most: u64,
    pub(super) shortest: u64,
    /// Refilled amount, in fractions of [`ONE`].
    pub(super) gave: u128,
    /// End of the time for which the refill is counted.
    pub(super) until: At,
}

impl Bound {
    pub(super) const fn new(from: At) -> Self {
        Self {
            base: 0,
            least_base: u64::MAX,
            most: 0,
            shortest: u64::MAX,
            gave: 0,
            until: from,
        }
    }

    /// Adds a segment's refill, up to an instant within the segment.
    pub(super) fn extend(&mut self, segment: &Segment, until: At) {
        let mut fastest = 0;
        for state in &segment.states {
            self.base = self.base.max(state.base);
            self.least_base = self.least_base.min(state.base.max(1));
            self.most = self.most.max(state.most);
            self.shortest = self.shortest.min(state.refill);
            let rate = (ONE * u128::from(state.most)).div_ceil(state.refill.max(1).into());
            fastest = fastest.max(rate);
        }
        let time = until.saturating_sub(self.until);
        self.gave = self.gave.saturating_add(fastest * u128::from(time));
        self.until = self.until.max(until);
    }
}
