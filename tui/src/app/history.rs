//! Counters over the last minute: rates from the difference of two answers about the same bucket or rule over the
//! difference of the server's clock, averaged over ten seconds, and the samples for sparklines and charts.

use std::collections::VecDeque;

use loudou_api::{BucketView, RuleTotals};

use crate::num::float;

/// The time span of samples.
pub(crate) const WINDOW_NS: u64 = 60_000_000_000;
/// The most samples of one track, whatever the poll interval.
const MOST: usize = 240;
/// A second, to turn a count per nanosecond into a rate.
const SECOND: f64 = 1e9;

/// The time over which rates are averaged.
const SMOOTH_NS: u64 = 10_000_000_000;
/// The least time that gives a rate: over a shorter one, a single request looks like many.
const LEAST_NS: u64 = 900_000_000;

/// Requests per second.
#[derive(Clone, Copy, Debug, Default, PartialEq)]
pub(crate) struct Rates {
    pub(crate) admitted: f64,
    pub(crate) refused: f64,
    /// Refused by a rule in shadow mode, and passed.
    pub(crate) shadow: f64,
}

impl Rates {
    /// The sum of both rates.
    pub(crate) fn plus(self, other: Self) -> Self {
        Self {
            admitted: self.admitted + other.admitted,
            refused: self.refused + other.refused,
            shadow: self.shadow + other.shadow,
        }
    }

    fn times(self, factor: f64) -> Self {
        Self {
            admitted: self.admitted * factor,
            refused: self.refused * factor,
            shadow: self.shadow * factor,
        }
    }
}

/// Counts of requests since the beginning of a bucket or a rule.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub(crate) struct Counts {
    pub(crate) admitted: u64,
    pub(crate) refused: u64,
    pub(crate) shadow: u64,
}

impl Counts {
    /// Of a bucket. All refusals count as those of the mode that its rule is in.
    pub(crate) const fn of_bucket(bucket: &BucketView) -> Self {
        let (refused, shadow) = if bucket.shadow {
            (0, bucket.refused)
        } else {
            (bucket.refused, 0)
        };
        Self {
            admitted: bucket.admitted,
            refused,
            shadow,
        }
    }

    /// Of a rule.
    pub(crate) const fn of_rule(totals: &RuleTotals) -> Self {
        Self {
            admitted: totals.passed(),
            refused: totals.refused,
            shadow: totals.shadow_refused,
        }
    }

    /// Whether these may be later counts than `before`.
    const fn follow(&self, before: &Self) -> bool {
        self.admitted >= before.admitted
            && self.refused >= before.refused
            && self.shadow >= before.shadow
    }

    /// The counts since `before`, over a time.
    fn since(&self, before: &Self, ns: u64) -> Rates {
        let seconds = float(ns) / SECOND;
        let rate = |new: u64, old: u64| float(new.saturating_sub(old)) / seconds;
        Rates {
            admitted: rate(self.admitted, before.admitted),
            refused: rate(self.refused, before.refused),
            shadow: rate(self.shadow, before.shadow),
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
    counts: Counts,
    at_ns: u64,
    samples: VecDeque<Sample>,
}

impl Track {
    /// A track that starts with these counters.
    pub(crate) const fn new(counts: Counts, at_ns: u64) -> Self {
        Self {
            counts,
            at_ns,
            samples: VecDeque::new(),
        }
    }

    /// Adds the counters as of `at_ns`. If a counter or the clock went down, they belong to a new bucket or
    /// rule of the same name: the history is dropped.
    pub(crate) fn note(&mut self, counts: Counts, at_ns: u64) {
        if !counts.follow(&self.counts) || at_ns < self.at_ns {
            *self = Self::new(counts, at_ns);
            return;
        }
        if at_ns == self.at_ns {
            return;
        }
        let rates = counts.since(&self.counts, at_ns.saturating_sub(self.at_ns));
        self.samples.push_back(Sample {
            from_ns: self.at_ns,
            at_ns,
            rates,
        });
        (self.counts, self.at_ns) = (counts, at_ns);
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

    /// The rates over the last ten seconds, or over the time between the last two polls if that is longer;
    /// `None` before there were two polls that are far enough apart.
    pub(crate) fn rates(&self) -> Option<Rates> {
        let begin = self.at_ns.saturating_sub(SMOOTH_NS);
        let (mut ns, mut sum) = (0_u64, Rates::default());
        for sample in self.samples.iter().rev() {
            if ns > 0 && sample.from_ns < begin {
                break;
            }
            let time = sample.at_ns.saturating_sub(sample.from_ns);
            sum = sum.plus(sample.rates.times(float(time)));
            ns = ns.saturating_add(time);
        }
        (ns >= LEAST_NS).then(|| sum.times(float(ns).recip()))
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

    const fn counts(admitted: u64, refused: u64) -> Counts {
        Counts {
            admitted,
            refused,
            shadow: 0,
        }
    }

    #[test]
    fn rates_are_differences_over_the_servers_clock() {
        let mut track = Track::new(counts(10, 0), S);
        assert_eq!(track.rates(), None);
        track.note(counts(30, 5), 3 * S);
        let rates = track.rates().expect("two polls");
        assert_eq!((rates.admitted, rates.refused), (10.0, 2.5));
    }

    #[test]
    fn decreasing_counters_start_a_new_history() {
        let mut track = Track::new(counts(10, 10), S);
        track.note(counts(20, 20), 2 * S);
        track.note(counts(3, 0), 3 * S);
        assert_eq!(track.rates(), None);
        track.note(counts(5, 0), 4 * S);
        assert_eq!(track.rates().map(|rates| rates.admitted), Some(2.0));
    }

    #[test]
    fn a_poll_at_the_same_time_gives_no_rate() {
        let mut track = Track::new(counts(0, 0), S);
        track.note(counts(9, 9), S);
        assert_eq!(track.rates(), None);
    }

    #[test]
    fn a_series_has_one_minute_and_no_more() {
        let mut track = Track::new(counts(0, 0), 0);
        for second in 1..=200 {
            track.note(counts(second * second, 0), second * S);
        }
        assert!(track.samples.len() <= 61);
        let series = track.series(60);
        assert_eq!(series.len(), 60);
        assert!(series.iter().all(Option::is_some));
        assert_eq!(series[59].map(|rates| rates.admitted), Some(399.0));
        assert_eq!(series[58].map(|rates| rates.admitted), Some(397.0));
        assert_eq!(track.series(0), []);
    }

    /// An edit polls again at once: two answers 20 ms apart, with two requests between them, are no 100/s.
    #[test]
    fn rates_do_not_follow_the_gap_between_two_polls() {
        let mut track = Track::new(counts(0, 0), 0);
        for tenth in 1..=100 {
            track.note(counts(tenth, 0), tenth * S / 10);
        }
        track.note(counts(102, 0), 10 * S + S / 50);
        let rate = track.rates().expect("ten seconds").admitted;
        assert!((9.9..10.3).contains(&rate), "{rate}");
        // A new bucket has no rate until there is time enough.
        let mut track = Track::new(counts(0, 0), 0);
        track.note(counts(2, 0), S / 50);
        assert_eq!(track.rates(), None);
        track.note(counts(10, 0), S);
        assert_eq!(track.rates().map(|rates| rates.admitted), Some(10.0));
    }

    /// A bucket that was off screen for a while has the rate of that time.
    #[test]
    fn a_long_gap_is_averaged() {
        let mut track = Track::new(counts(0, 0), 0);
        track.note(counts(10, 0), S);
        track.note(counts(10, 30), 31 * S);
        let rates = track.rates().expect("a rate");
        assert_eq!((rates.admitted, rates.refused), (0.0, 1.0));
    }
}
