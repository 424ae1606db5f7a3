//! The last hour: counters of every rule, of all rules together, and of the buckets that were read; and the evictions of
//! the last minutes.
//!
//! Times are those of an axis that goes on when Envoy restarts: it has the server's clock, and over a restart the
//! viewer's. Where nobody watched (the screen was frozen, Envoy was unreachable or restarted) there are no samples, and
//! charts have a gap.

use std::collections::{BTreeMap, VecDeque};

use loudou_api::{BucketView, RuleTotals, Status};
use loudou_limiter::Nanos;
use loudou_words::num::{float, fraction};

use super::rows::BucketName;

/// The most samples of one track: an hour at one a second, and some to spare.
const MOST: usize = 4_096;
/// The most samples of all rules together, of all Envoys that are watched: some 20 MB.
const BUDGET: usize = 400_000;

/// Counters over time.
#[derive(Clone, Debug)]
pub(crate) struct History {
    pub(crate) buckets: BTreeMap<BucketName, Track>,
    pub(crate) rules: BTreeMap<String, Track>,
    /// All rules together.
    pub(crate) total: Track,
    pub(crate) evicted: Evicted,
    axis: Axis,
    budget: usize,
}

impl Default for History {
    fn default() -> Self {
        Self::of_one(1)
    }
}

/// The place of a server's clock on the axis.
#[derive(Clone, Debug, Default)]
struct Axis {
    /// A time of the server's clock, and its place.
    server_ns: u64,
    place_ns: u64,
    /// The place of the last answer, and when it came.
    last: Option<(u64, Nanos)>,
    is_new_process: bool,
}

impl Axis {
    fn place(&self, server_ns: u64) -> u64 {
        let ahead = server_ns.saturating_sub(self.server_ns);
        let behind = self.server_ns.saturating_sub(server_ns);
        self.place_ns.saturating_add(ahead).saturating_sub(behind)
    }

    /// An answer with this time came. Returns its place.
    fn answered(&mut self, server_ns: u64, read_at: Nanos) -> u64 {
        if let Some((last_ns, came)) = self.last.filter(|_| self.is_new_process) {
            self.server_ns = server_ns;
            self.place_ns = last_ns.saturating_add(read_at.since(came).get());
        }
        self.is_new_process = false;
        let place_ns = self.place(server_ns);
        self.last = Some((place_ns, read_at));
        place_ns
    }
}

impl History {
    /// The history of one of `envoys`, which share the memory.
    pub(crate) fn of_one(envoys: usize) -> Self {
        Self {
            buckets: BTreeMap::new(),
            rules: BTreeMap::new(),
            total: Track::default(),
            evicted: Evicted::default(),
            axis: Axis::default(),
            budget: BUDGET.checked_div(envoys).unwrap_or(BUDGET),
        }
    }

    /// Envoy restarted: counters begin again, and so does its clock.
    pub(crate) fn restart(&mut self) {
        self.axis.is_new_process = true;
        // However fast it was: rates do not reach back over it.
        if let Some((place_ns, _)) = &mut self.axis.last {
            *place_ns = place_ns.saturating_add(1);
        }
        let tracks = self.buckets.values_mut().chain(self.rules.values_mut());
        tracks.for_each(Track::restart);
        self.evicted.restart();
    }

    /// Adds the totals of a status that came at `read_at`. Rules that are gone are dropped.
    pub(crate) fn note_rules(&mut self, status: &Status, read_at: Nanos, patience_ns: u64) {
        let at_ns = self.axis.answered(status.now_ns, read_at);
        self.evicted.note(status.store.evicted_lossy, at_ns);
        let each = self.budget.checked_div(status.rules.len());
        let mut keep = Keep {
            span_ns: Scale::Hour.span_ns(),
            most: each.unwrap_or(MOST).clamp(2, MOST),
            patience_ns,
        };
        let mut old = std::mem::take(&mut self.rules);
        let mut total = None;
        for rule in &status.rules {
            let mut track = old.remove(&rule.name).unwrap_or_default();
            if let Some(sample) = track.note(Counts::of_rule(rule), at_ns, &keep) {
                total = Some(total.map_or(sample, |total| sample.plus(total)));
            }
            self.rules.insert(rule.name.clone(), track);
        }
        keep.most = MOST;
        if let Some(total) = total {
            self.total.push(total, &keep);
        }
    }

    /// Adds a bucket as it was read at `server_ns`: an hour is kept of one that `is_open`, a minute of others. Returns
    /// its rates.
    pub(crate) fn note_bucket(
        &mut self,
        id: &BucketName,
        counts: Counts,
        server_ns: u64,
        (is_open, patience_ns): (bool, u64),
    ) -> Option<Rates> {
        let span_ns = if is_open {
            Scale::Hour.span_ns()
        } else {
            WINDOW_NS
        };
        let keep = Keep {
            span_ns,
            most: MOST,
            patience_ns,
        };
        let at_ns = self.axis.place(server_ns);
        let track = self.buckets.entry(id.clone()).or_default();
        track.note(counts, at_ns, &keep);
        track.rates()
    }

    /// The place of the server's clock on the axis of charts.
    pub(crate) fn place(&self, server_ns: u64) -> u64 {
        self.axis.place(server_ns)
    }
}

/// The time that a chart shows.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub(crate) enum Scale {
    #[default]
    Minute,
    FiveMinutes,
    QuarterHour,
    Hour,
}

impl Scale {
    const ALL: [Self; 4] = [
        Self::Minute,
        Self::FiveMinutes,
        Self::QuarterHour,
        Self::Hour,
    ];

    /// The time in nanoseconds.
    pub(crate) const fn span_ns(self) -> u64 {
        let minutes = match self {
            Self::Minute => 1,
            Self::FiveMinutes => 5,
            Self::QuarterHour => 15,
            Self::Hour => 60,
        };
        minutes * 60_000_000_000
    }

    /// The next longer one; `None` for the longest.
    pub(crate) fn longer(self) -> Option<Self> {
        let mut all = Self::ALL.into_iter();
        all.find(|other| other.span_ns() > self.span_ns())
    }

    /// The next shorter one; `None` for the shortest.
    pub(crate) fn shorter(self) -> Option<Self> {
        let mut all = Self::ALL.into_iter().rev();
        all.find(|other| other.span_ns() < self.span_ns())
    }
}

// The buckets in use that a full store evicted, over the last minutes.

/// The time that counts as now.
const EVICTIONS_NS: u64 = 120_000_000_000;

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
    fn note(&mut self, total: u64, at_ns: u64) {
        let last = self.totals.back();
        if last.is_some_and(|(at, before)| *at >= at_ns || *before > total) {
            self.totals.clear();
        }
        self.totals.push_back((at_ns, total));
        let begin = at_ns.saturating_sub(EVICTIONS_NS);
        while self.totals.get(1).is_some_and(|(at, _)| *at <= begin) {
            self.totals.pop_front();
        }
    }

    /// A new process: the number begins again.
    fn restart(&mut self) {
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

// Counts of requests, and their rates per second.

/// Requests per second.
#[derive(Clone, Copy, Debug, Default, PartialEq)]
pub(crate) struct Rates {
    pub(crate) admitted: f64,
    pub(crate) refused: f64,
    /// Refused by a rule in shadow mode, and passed.
    pub(crate) shadow: f64,
}

impl Rates {
    /// All requests.
    pub(crate) fn all(&self) -> f64 {
        self.admitted + self.refused + self.shadow
    }

    /// The sum of both rates.
    pub(crate) fn plus(self, other: Self) -> Self {
        Self {
            admitted: self.admitted + other.admitted,
            refused: self.refused + other.refused,
            shadow: self.shadow + other.shadow,
        }
    }

    /// Counts over a time in seconds.
    fn per(self, seconds: f64) -> Self {
        Self {
            admitted: self.admitted / seconds,
            refused: self.refused / seconds,
            shadow: self.shadow / seconds,
        }
    }

    /// The rates times a factor.
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

    /// The counts since `before`.
    const fn since(&self, before: &Self) -> Self {
        Self {
            admitted: self.admitted.saturating_sub(before.admitted),
            refused: self.refused.saturating_sub(before.refused),
            shadow: self.shadow.saturating_sub(before.shadow),
        }
    }

    /// The sum of both counts.
    const fn plus(&self, other: &Self) -> Self {
        Self {
            admitted: self.admitted.saturating_add(other.admitted),
            refused: self.refused.saturating_add(other.refused),
            shadow: self.shadow.saturating_add(other.shadow),
        }
    }
}

// The counters of one bucket or rule over time: rates from the difference of two answers over the difference of the
// server's clock, averaged over ten seconds, and their course for sparklines and charts.

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
    fn plus(self, other: Self) -> Self {
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
    fn push(&mut self, sample: Sample, keep: &Keep) {
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
    const fn restart(&mut self) {
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

    /// The time since which this minute's requests are known.
    pub(crate) fn known_since(&self) -> u64 {
        let first = self
            .samples
            .front()
            .map_or(self.at_ns, |first| first.from_ns);
        first.max(self.at_ns.saturating_sub(WINDOW_NS))
    }

    /// The requests counted since `from_ns`, and those before it that are in the same sample.
    pub(crate) fn counted_since(&self, from_ns: u64) -> Counts {
        let samples = self.samples.iter().rev();
        let samples = samples.take_while(|sample| sample.to_ns > from_ns);
        samples.fold(Counts::default(), |sum, sample| sum.plus(&sample.counts))
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

#[cfg(test)]
mod tests;

#[cfg(test)]
mod evicted_tests {
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
