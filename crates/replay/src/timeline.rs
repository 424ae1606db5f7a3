//! Counts requests over time, in a bounded number of slots of equal width.
//!
//! A run can span a microsecond or a year. When a request falls beyond the last slot, each pair of
//! slots is merged into one slot of twice the width.

use loudou_limiter::{Nanos, Verdict};
use serde::Serialize;

use loudou_words::num::count;

/// Maximum number of slots. Must be even, because slots are merged in pairs.
pub(crate) const SLOTS: usize = 512;

/// Number of requests by verdict.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq, Serialize)]
pub struct VerdictCounts {
    /// Admitted immediately.
    pub admitted: u64,
    /// Admitted after a delay.
    pub held: u64,
    /// Refused.
    pub refused: u64,
}

impl VerdictCounts {
    pub(crate) const fn add(&mut self, verdict: Verdict) {
        match verdict {
            Verdict::Admit => self.admitted += 1,
            Verdict::Hold => self.held += 1,
            Verdict::Refuse => self.refused += 1,
        }
    }

    pub(crate) const fn total(&self) -> u64 {
        self.admitted + self.held + self.refused
    }

    const fn plus(self, other: Self) -> Self {
        Self {
            admitted: self.admitted + other.admitted,
            held: self.held + other.held,
            refused: self.refused + other.refused,
        }
    }
}

/// Number of requests over time.
#[derive(Clone, Debug)]
pub(crate) struct Timeline {
    start: Nanos,
    width: u64,
    slots: Vec<VerdictCounts>,
}

impl Default for Timeline {
    fn default() -> Self {
        Self {
            start: Nanos::ZERO,
            width: 1,
            slots: Vec::new(),
        }
    }
}

impl Timeline {
    /// Sets the start of the timeline. Must be called before the first request is added. No request
    /// may be earlier than `start`.
    pub(crate) const fn begin(&mut self, start: Nanos) {
        self.start = start;
    }

    pub(crate) fn add(&mut self, at: Nanos, verdict: Verdict) {
        let since = at.since(self.start).get();
        let mut index = since / self.width.max(1);
        while index >= count(SLOTS) {
            self.widen();
            index = since / self.width.max(1);
        }
        let index = usize::try_from(index).unwrap_or(0);
        if index >= self.slots.len() {
            self.slots.resize(index + 1, VerdictCounts::default());
        }
        if let Some(slot) = self.slots.get_mut(index) {
            slot.add(verdict);
        }
    }

    fn widen(&mut self) {
        self.width = self.width.saturating_mul(2);
        self.slots = merged(&self.slots, 2);
    }

    /// Returns the start of the first slot.
    pub(crate) const fn start(&self) -> Nanos {
        self.start
    }

    /// Returns the slot width and the count of each slot, merged into at most `most` slots.
    pub(crate) fn slots(&self, most: usize) -> (u64, Vec<VerdictCounts>) {
        let each = self.slots.len().div_ceil(most.max(1)).max(1);
        let width = self.width.saturating_mul(count(each));
        (width, merged(&self.slots, each))
    }
}

fn merged(slots: &[VerdictCounts], each: usize) -> Vec<VerdictCounts> {
    let sum = |slots: &[VerdictCounts]| {
        slots
            .iter()
            .copied()
            .fold(VerdictCounts::default(), VerdictCounts::plus)
    };
    slots.chunks(each).map(sum).collect()
}

#[cfg(test)]
mod tests {
    use proptest::prelude::*;

    use super::*;

    #[test]
    fn slots_widen_and_lose_nothing() {
        let mut timeline = Timeline::default();
        timeline.begin(Nanos::new(100));
        for at in [100, 101, 611, 612, 5_000, u64::MAX] {
            timeline.add(Nanos::new(at), Verdict::Refuse);
            timeline.add(Nanos::new(at), Verdict::Admit);
            assert!(timeline.slots.len() <= SLOTS);
        }
        let (_, slots) = timeline.slots(10);
        assert!(slots.len() <= 10);
        let total: u64 = slots.iter().map(VerdictCounts::total).sum();
        assert_eq!((total, slots[0].refused, slots[9].refused), (12, 5, 1));
    }

    proptest! {
        #[test]
        fn every_request_is_in_its_slot(
            mut pauses in prop::collection::vec(0_u64..1_000_000, 1..200), most in 1_usize..80
        ) {
            let mut timeline = Timeline::default();
            let mut at = 0;
            for pause in &mut pauses {
                at += *pause;
                *pause = at;
                timeline.add(Nanos::new(at), Verdict::Admit);
            }
            let (width, slots) = timeline.slots(most);
            prop_assert!(slots.len() <= most);
            for (slot, index) in slots.iter().zip(0_u64..) {
                let inside = pauses.iter().filter(|at| **at / width == index).count();
                prop_assert_eq!(slot.admitted, count(inside));
            }
        }
    }
}
