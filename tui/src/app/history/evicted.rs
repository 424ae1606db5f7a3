//! The buckets in use that a full store evicted, over the last minutes.

use std::collections::VecDeque;

use crate::num::float;

/// The time that counts as now.
const WINDOW_NS: u64 = 120_000_000_000;

/// The number of evictions since Envoy started, over time.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub(crate) struct Evicted {
    /// When each was read, and the number; the first is the last one before the window.
    totals: VecDeque<(u64, u64)>,
}

/// Evictions within some time.
#[derive(Clone, Copy, Debug, PartialEq)]
pub(crate) struct Evictions {
    pub(crate) count: u64,
    pub(crate) within_ns: u64,
}

impl Evictions {
    /// Their number per second.
    pub(crate) fn rate(&self) -> f64 {
        float(self.count) * 1e9 / float(self.within_ns.max(1))
    }
}

impl Evicted {
    /// Adds the number as of `at_ns`. One that went down belongs to a new process.
    pub(super) fn note(&mut self, total: u64, at_ns: u64) {
        let last = self.totals.back();
        if last.is_some_and(|(at, before)| *at >= at_ns || *before > total) {
            self.totals.clear();
        }
        self.totals.push_back((at_ns, total));
        let begin = at_ns.saturating_sub(WINDOW_NS);
        while self.totals.get(1).is_some_and(|(at, _)| *at <= begin) {
            self.totals.pop_front();
        }
    }

    /// A new process: the number begins again.
    pub(super) fn restart(&mut self) {
        self.totals.clear();
    }

    /// The evictions of the last minutes, if there were some.
    pub(crate) fn recent(&self) -> Option<Evictions> {
        let ((begin, before), (end, total)) = (self.totals.front()?, self.totals.back()?);
        let count = total.saturating_sub(*before);
        let within_ns = end.saturating_sub(*begin);
        (count > 0).then_some(Evictions { count, within_ns })
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    const S: u64 = 1_000_000_000;

    /// Evictions are those of now: they end when the number stands still.
    #[test]
    fn evictions_come_and_go() {
        let mut evicted = Evicted::default();
        let total = |at: u64| 40 + 3 * at.clamp(50, 70);
        let mut counts = Vec::new();
        for at in 0..300 {
            evicted.note(total(at), at * S);
            counts.push(evicted.recent().map_or(0, |recent| recent.count));
        }
        assert_eq!((counts[50], counts[51], counts[100]), (0, 3, 60));
        assert_eq!((counts[180], counts[189], counts[190]), (30, 3, 0));
        assert!(evicted.totals.len() <= 122, "{}", evicted.totals.len());
    }
}
