//! Requests that are under way, for the limits that count them: what they took is given back when
//! their duration is over.

use std::cmp::Reverse;
use std::collections::BinaryHeap;

use loudou_limiter::Nanos;

/// The most requests under way; one more, and the one that would end first ends at once.
const MAX_UNDER_WAY: usize = 1 << 18;

/// What a request took from one bucket. What ends first is the least.
#[derive(Clone, Debug, PartialEq, Eq, PartialOrd, Ord)]
pub(super) struct Ending {
    pub(super) end: Nanos,
    /// Tells those that end together apart.
    number: u64,
    pub(super) rule: usize,
    pub(super) key: Box<str>,
    pub(super) cost: u64,
    pub(super) taken_at: Nanos,
}

impl Ending {
    pub(super) const fn new(
        end: Nanos,
        rule: usize,
        key: Box<str>,
        cost: u64,
        taken_at: Nanos,
    ) -> Self {
        Self {
            end,
            number: 0,
            rule,
            key,
            cost,
            taken_at,
        }
    }
}

/// All requests under way.
#[derive(Debug, Default)]
pub(super) struct Flight {
    under_way: BinaryHeap<Reverse<Ending>>,
    number: u64,
}

impl Flight {
    /// Adds one; what has to end for it, if there are too many.
    pub(super) fn add(&mut self, ending: Ending) -> Option<Ending> {
        self.number += 1;
        let number = self.number;
        self.under_way.push(Reverse(Ending { number, ..ending }));
        if self.under_way.len() <= MAX_UNDER_WAY {
            return None;
        }
        self.under_way.pop().map(|Reverse(ending)| ending)
    }

    /// The next one that has ended by `now`.
    pub(super) fn next(&mut self, now: Nanos) -> Option<Ending> {
        if self.under_way.peek()?.0.end > now {
            return None;
        }
        self.under_way.pop().map(|Reverse(ending)| ending)
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn ending(end: u64, key: &str) -> Ending {
        Ending::new(Nanos::new(end), 0, key.into(), 1, Nanos::ZERO)
    }

    #[test]
    fn they_end_in_order() {
        let mut flight = Flight::default();
        for (end, key) in [(7, "b"), (5, "z"), (9, "c"), (5, "a")] {
            assert_eq!(flight.add(ending(end, key)), None);
        }
        assert!(flight.next(Nanos::new(4)).is_none());
        let mut ended = Vec::new();
        while let Some(ending) = flight.next(Nanos::new(8)) {
            ended.push(ending.key);
        }
        assert_eq!(ended, [Box::from("z"), "a".into(), "b".into()]);
    }

    #[test]
    fn there_are_never_too_many() {
        let mut flight = Flight::default();
        let most = u64::try_from(MAX_UNDER_WAY).expect("64 bits");
        for n in 0..most {
            assert_eq!(flight.add(ending(most - n, "x")), None);
        }
        let first = flight.add(ending(most, "y")).expect("one too many");
        assert_eq!(first.end, Nanos::new(1));
        assert_eq!(flight.under_way.len(), MAX_UNDER_WAY);
    }
}
