//! Counters over the last minute: rates from the difference of two polls over the difference of the
//! server's clock, and the samples for sparklines and charts.

use std::collections::VecDeque;

use crate::num::float;

/// The time span of samples.
pub(crate) const WINDOW_NS: u64 = 60_000_000_000;
/// The most samples of one track, whatever the poll interval.
const MOST: usize = 240;
/// A second, to turn a count per nanosecond into a rate.
const SECOND: f64 = 1e9;

/// Requests per second.
#[derive(Clone, Copy, Debug, Default, PartialEq)]
pub(crate) struct Rates {
    pub(crate) admitted: f64,
    pub(crate) refused: f64,
}

impl Rates {
    /// The sum of both rates.
    pub(crate) fn plus(self, other: Self) -> Self {
        Self {
            admitted: self.admitted + other.admitted,
            refused: self.refused + other.refused,
        }
    }
}

/// The rates between the previous poll and `at_ns`.
#[derive(Clone, Copy, Debug, PartialEq)]
struct Sample {
    from_ns: u64,
    at_ns: u64,
    rates: Rates,
}

/// The counters of one bucket or rule over time.
#[derive(Clone, Debug, PartialEq)]
pub(crate) struct Track {
    admitted: u64,
    refused: u64,
    at_ns: u64,
    samples: VecDeque<Sample>,
}

impl Track {
    /// A track that starts with these counters.
    pub(crate) const fn new(admitted: u64, refused: u64, at_ns: u64) -> Self {
        Self {
            admitted,
            refused,
            at_ns,
            samples: VecDeque::new(),
        }
    }

    /// Adds the counters as of `at_ns`. If a counter or the clock went down, they belong to a new bucket or
    /// rule of the same name: the history is dropped.
    pub(crate) fn note(&mut self, admitted: u64, refused: u64, at_ns: u64) {
        if admitted < self.admitted || refused < self.refused || at_ns < self.at_ns {
            *self = Self::new(admitted, refused, at_ns);
            return;
        }
        if at_ns == self.at_ns {
            return;
        }
        let seconds = float(at_ns.saturating_sub(self.at_ns)) / SECOND;
        let rate = |new: u64, old: u64| float(new.saturating_sub(old)) / seconds;
        self.samples.push_back(Sample {
            from_ns: self.at_ns,
            at_ns,
            rates: Rates {
                admitted: rate(admitted, self.admitted),
                refused: rate(refused, self.refused),
            },
        });
        (self.admitted, self.refused, self.at_ns) = (admitted, refused, at_ns);
        let oldest = at_ns.saturating_sub(WINDOW_NS);
        while self.samples.len() > MOST
            || self
                .samples
                .front()
                .is_some_and(|sample| sample.at_ns < oldest)
        {
            self.samples.pop_front();
        }
    }

    /// The rates of the last interval; `None` before there were two polls.
    pub(crate) fn rates(&self) -> Option<Rates> {
        self.samples.back().map(|sample| sample.rates)
    }

    /// The last minute in `columns` steps, oldest first; `None` where the rates are unknown.
    pub(crate) fn series(&self, columns: u16) -> Vec<Option<Rates>> {
        let step = float(WINDOW_NS) / f64::from(columns.max(1));
        let end = float(self.at_ns);
        (0..columns)
            .map(|column| {
                // The middle of the column, as a time before the end.
                let back = (f64::from(columns.saturating_sub(column)) - 0.5) * step;
                self.at(end - back)
            })
            .collect()
    }

    fn at(&self, ns: f64) -> Option<Rates> {
        let found = self
            .samples
            .iter()
            .rev()
            .find(|sample| float(sample.from_ns) < ns && ns <= float(sample.at_ns));
        found.map(|sample| sample.rates)
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    const S: u64 = 1_000_000_000;

    #[test]
    fn rates_are_differences_over_the_servers_clock() {
        let mut track = Track::new(10, 0, S);
        assert_eq!(track.rates(), None);
        track.note(30, 5, 3 * S);
        let rates = track.rates().expect("two polls");
        assert_eq!((rates.admitted, rates.refused), (10.0, 2.5));
    }

    #[test]
    fn decreasing_counters_start_a_new_history() {
        let mut track = Track::new(10, 10, S);
        track.note(20, 20, 2 * S);
        track.note(3, 0, 3 * S);
        assert_eq!(track.rates(), None);
        track.note(5, 0, 4 * S);
        assert_eq!(track.rates().map(|rates| rates.admitted), Some(2.0));
    }

    #[test]
    fn a_poll_at_the_same_time_gives_no_rate() {
        let mut track = Track::new(0, 0, S);
        track.note(9, 9, S);
        assert_eq!(track.rates(), None);
    }

    #[test]
    fn a_series_has_one_minute_and_no_more() {
        let mut track = Track::new(0, 0, 0);
        for second in 1..=200 {
            track.note(second * second, 0, second * S);
        }
        assert!(track.samples.len() <= 61);
        let series = track.series(60);
        assert_eq!(series.len(), 60);
        assert!(series.iter().all(Option::is_some));
        assert_eq!(series[59].map(|rates| rates.admitted), Some(399.0));
        assert_eq!(series[58].map(|rates| rates.admitted), Some(397.0));
        assert_eq!(track.series(0), []);
    }
}
