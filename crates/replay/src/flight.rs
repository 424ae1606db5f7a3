//! Tracks requests in flight, for limits that count them. Each request returns its cost when it
//! ends.

use std::cmp::{Ordering, Reverse};
use std::collections::BinaryHeap;

use loudou_limiter::Nanos;

/// Maximum number of requests in flight. Beyond it, each new request ends the request that would
/// end first.
const MAX_IN_FLIGHT: usize = 1 << 18;

/// A cost to return when a request ends. Entries are ordered by end time.
#[derive(Clone, Debug)]
struct Ending<T> {
    end: Nanos,
    /// Sequence number, which orders requests that end at the same time.
    number: u64,
    taken: T,
}

impl<T> Ord for Ending<T> {
    fn cmp(&self, other: &Self) -> Ordering {
        (self.end, self.number).cmp(&(other.end, other.number))
    }
}

impl<T> PartialOrd for Ending<T> {
    fn partial_cmp(&self, other: &Self) -> Option<Ordering> {
        Some(self.cmp(other))
    }
}

impl<T> Eq for Ending<T> {}

impl<T> PartialEq for Ending<T> {
    fn eq(&self, other: &Self) -> bool {
        self.cmp(other).is_eq()
    }
}

/// All requests in flight, with the costs that they return when they end.
#[derive(Debug)]
pub(super) struct InFlight<T> {
    under_way: BinaryHeap<Reverse<Ending<T>>>,
    number: u64,
}

impl<T> InFlight<T> {
    pub(super) const fn new() -> Self {
        Self {
            under_way: BinaryHeap::new(),
            number: 0,
        }
    }

    /// Adds a request that ends at `end`. If too many requests are in flight, returns the request
    /// that must end now.
    pub(super) fn add(&mut self, end: Nanos, taken: T) -> Option<T> {
        self.number += 1;
        let number = self.number;
        self.under_way.push(Reverse(Ending { end, number, taken }));
        if self.under_way.len() <= MAX_IN_FLIGHT {
            return None;
        }
        self.under_way.pop().map(|Reverse(ending)| ending.taken)
    }

    /// Removes and returns the request that ended first, with its end time, if it ended at or
    /// before `now`.
    pub(super) fn next(&mut self, now: Nanos) -> Option<(Nanos, T)> {
        if self.under_way.peek()?.0.end > now {
            return None;
        }
        let Reverse(ending) = self.under_way.pop()?;
        Some((ending.end, ending.taken))
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn they_end_in_order() {
        let mut flight = InFlight::new();
        for (end, key) in [(7, "b"), (5, "z"), (9, "c"), (5, "a")] {
            assert_eq!(flight.add(Nanos::new(end), key), None);
        }
        assert!(flight.next(Nanos::new(4)).is_none());
        let mut ended = Vec::new();
        while let Some((end, key)) = flight.next(Nanos::new(8)) {
            ended.push((end.get(), key));
        }
        assert_eq!(ended, [(5, "z"), (5, "a"), (7, "b")]);
    }

    #[test]
    fn requests_in_flight_are_bounded() {
        let mut flight = InFlight::new();
        let most = u64::try_from(MAX_IN_FLIGHT).expect("64 bits");
        for n in 0..most {
            assert_eq!(flight.add(Nanos::new(most - n), n), None);
        }
        let first = flight.add(Nanos::new(most), most);
        assert_eq!(first, Some(most - 1), "the one with the earliest end");
        assert_eq!(flight.under_way.len(), MAX_IN_FLIGHT);
    }
}
