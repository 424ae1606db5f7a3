//! The counters of one bucket or rule over time: rates from the difference of two answers over the difference of the
//! server's clock, averaged over ten seconds, and their course for sparklines and charts.

use std::collections::VecDeque;

use super::rates::{Counts, Rates};
use loudou_words::num::{float, fraction};

/// The time span of a sparkline.
pub(crate) const WINDOW_NS: u64 = 60_000_000_000;
/// A second, to turn a count per nanosecond into a rate.
const SECOND: f64 = 1e9;
/// The time over which rates are averaged.
const SMOOTH_NS: u64 = 10_000_000_000;
/// The least time of a sample: shorter ones are joined.
const LEAST_NS: u64 = 900_000_000;
/// The least time that gives a rate: over a shorter one, a few requests that happen to come look like many.
const LEAST_RATED_NS: u64 = 1_900_000_000;
/// A column of which less than this is known stays empty.
const LEAST_KNOWN_NS: u64 = 125_000_000;

/// How much of the past a track keeps.
#[derive(Clone, Copy, Debug)]
pub(crate) struct Keep {
    /// The time before the last answer.
    pub(crate) span_ns: u64,
    /// The most samples.
    pub(crate) most: usize,
    /// Two answers further apart than this leave a gap between them: what happened there was not watched.
    pub(crate) patience_ns: u64,
}

/// The requests between two answers.
#[derive(Clone, Copy, Debug, PartialEq)]
pub(crate) struct Sample {
    from_ns: u64,
    to_ns: u64,
    counts: Counts,
    is_gap: bool,
}

impl Sample {
    const fn len_ns(&self) -> u64 {
        self.to_ns.saturating_sub(self.from_ns)
    }

    fn is_idle(&self) -> bool {
        self.counts == Counts::default()
    }

    fn rates(&self) -> Rates {
        per_second(&self.counts, self.len_ns())
    }

    /// The sum of two samples of the same time.
    pub(super) fn plus(self, other: Self) -> Self {
        Self {
            counts: self.counts.plus(&other.counts),
            ..self
        }
    }
}

fn per_second(counts: &Counts, ns: u64) -> Rates {
    let seconds = float(ns.max(1)) / SECOND;
    Rates {
        admitted: float(counts.admitted) / seconds,
        refused: float(counts.refused) / seconds,
        shadow: float(counts.shadow) / seconds,
    }
}

/// The counters of one bucket or rule over time.
#[derive(Clone, Debug, Default, PartialEq)]
pub(crate) struct Track {
    /// The last answer; `None` where the next one has nothing to be compared with.
    counts: Option<Counts>,
    at_ns: u64,
    samples: VecDeque<Sample>,
}

impl Track {
    /// Adds the counters as of `at_ns`, and returns what happened since the last answer. If a counter went down, they
    /// belong to a new bucket or rule of the same name, whose rates begin anew.
    pub(crate) fn note(&mut self, counts: Counts, at_ns: u64, keep: &Keep) -> Option<Sample> {
        if at_ns < self.at_ns {
            *self = Self::default();
        }
        if at_ns == self.at_ns && self.counts.is_some() {
            return None;
        }
        let from_ns = std::mem::replace(&mut self.at_ns, at_ns);
        let before = self.counts.replace(counts);
        let before = before.filter(|before| counts.follow(before))?;
        let sample = Sample {
            from_ns,
            to_ns: at_ns,
            counts: counts.since(&before),
            is_gap: at_ns.saturating_sub(from_ns) > keep.patience_ns,
        };
        self.push(sample, keep);
        Some(sample)
    }

    /// Adds a sample, and drops what is too old. A run of samples without requests is one, and so are short ones.
    pub(super) fn push(&mut self, sample: Sample, keep: &Keep) {
        self.at_ns = sample.to_ns;
        let last = self.samples.back_mut();
        let joins = |last: &&mut Sample| {
            let is_run = last.is_idle() && sample.is_idle();
            let is_next = last.to_ns == sample.from_ns;
            is_next && !last.is_gap && !sample.is_gap && (is_run || last.len_ns() < LEAST_NS)
        };
        match last.filter(joins) {
            Some(last) => {
                last.to_ns = sample.to_ns;
                last.counts = last.counts.plus(&sample.counts);
            }
            None => self.samples.push_back(sample),
        }
        let oldest = self.at_ns.saturating_sub(keep.span_ns);
        while self.samples.len() > keep.most
            || self
                .samples
                .front()
                .is_some_and(|first| first.to_ns < oldest)
        {
            self.samples.pop_front();
        }
    }

    /// After a restart, counters begin again.
    pub(super) const fn restart(&mut self) {
        self.counts = None;
    }

    /// The rates over the last ten seconds; `None` before there were two polls that are far enough apart. A sample that
    /// began earlier, such as a time that was not watched, counts with its average for its part of the ten seconds.
    pub(crate) fn rates(&self) -> Option<Rates> {
        let begin = self.at_ns.saturating_sub(SMOOTH_NS);
        let (mut sum, mut from) = (Rates::default(), self.at_ns);
        for sample in self.samples.iter().rev() {
            if sample.to_ns != from || from <= begin {
                break;
            }
            from = sample.from_ns.max(begin);
            let part = fraction(sample.to_ns.saturating_sub(from), sample.len_ns());
            sum = sum.plus(per_second(&sample.counts, 1_000_000_000).times(part));
        }
        let ns = self.at_ns.saturating_sub(from);
        (ns >= LEAST_RATED_NS).then(|| sum.per(float(ns) / SECOND))
    }

    /// What was counted in the last `span_ns`, or a little longer; `None` if not all of that is known. Over a gap the counts
    /// are known, over a restart they are not.
    pub(crate) fn counted(&self, span_ns: u64) -> Option<Counts> {
        let begin = self.at_ns.checked_sub(span_ns)?;
        let (mut sum, mut known) = (Counts::default(), self.at_ns);
        for sample in self.samples.iter().rev() {
            if sample.to_ns != known {
                return None;
            }
            sum = sum.plus(&sample.counts);
            known = sample.from_ns;
            if known <= begin {
                return Some(sum);
            }
        }
        None
    }

    /// The last minute in `columns` steps, oldest first; `None` where nobody watched.
    pub(crate) fn series(&self, columns: u16) -> Vec<Option<Rates>> {
        let step_ns = WINDOW_NS.checked_div(columns.into()).unwrap_or(1);
        self.resampled(signed(self.at_ns), step_ns, columns)
    }

    /// The time before `end_ns` in `columns` steps, oldest first; `None` where nobody watched. The steps begin at
    /// multiples of themselves, so that a column keeps its value while it moves.
    pub(crate) fn chart(&self, span_ns: u64, end_ns: u64, columns: u16) -> Vec<Option<Rates>> {
        let step_ns = span_ns.checked_div(columns.into()).unwrap_or(1).max(1);
        // The last column is never one that has hardly begun.
        let begun = end_ns.saturating_sub(least_known(step_ns));
        let end_ns = begun.div_ceil(step_ns).saturating_mul(step_ns);
        self.resampled(signed(end_ns), step_ns, columns)
    }

    fn resampled(&self, end_ns: i64, step_ns: u64, columns: u16) -> Vec<Option<Rates>> {
        let step = signed(step_ns).max(1);
        let begin = end_ns.saturating_sub(step.saturating_mul(columns.into()));
        let mut sums = vec![(0_u64, Rates::default()); usize::from(columns)];
        for sample in self.samples.iter().rev() {
            let (from, to) = (signed(sample.from_ns), signed(sample.to_ns));
            if to <= begin {
                break;
            }
            if sample.is_gap || from >= end_ns {
                continue;
            }
            let rates = sample.rates();
            let mut at = from.max(begin);
            let until = to.min(end_ns);
            while at < until {
                let column = at.saturating_sub(begin).checked_div(step).unwrap_or(0);
                let next = begin.saturating_add(column.saturating_add(1).saturating_mul(step));
                let part = u64::try_from(until.min(next).saturating_sub(at)).unwrap_or(0);
                let column = usize::try_from(column).unwrap_or(usize::MAX);
                if let Some((known, sum)) = sums.get_mut(column) {
                    *known = known.saturating_add(part);
                    *sum = sum.plus(rates.times(float(part)));
                }
                at = next;
            }
        }
        let least = least_known(step_ns).max(1);
        sums.into_iter()
            .map(|(known, sum)| (known >= least).then(|| sum.times(float(known).recip())))
            .collect()
    }
}

/// The least of a column that has to be known.
fn least_known(step_ns: u64) -> u64 {
    LEAST_KNOWN_NS.min(step_ns / 8)
}

fn signed(ns: u64) -> i64 {
    i64::try_from(ns).unwrap_or(i64::MAX)
}
