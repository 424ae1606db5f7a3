//! History of the last hour: request counters of every rule, of all rules together, and of the
//! buckets that were read. It also covers the store of the last minutes: new buckets and evictions.
//!
//! All times are positions on a time axis that continues across restarts of Envoy. The axis follows
//! the server's clock. Across a restart, the axis follows the viewer's clock instead. Charts have a
//! gap for the time in which the app was not watching, because the screen was frozen, or Envoy was
//! unreachable or restarted.

use std::collections::{BTreeMap, VecDeque};

use loudou_api::{BucketView, RuleTotals, Status};
use loudou_limiter::Nanos;
use loudou_rules::rule::Mode;
use loudou_words::num::{float, fraction};

use super::rows::BucketName;

/// Maximum number of samples in a track. An hour at one sample per second fits, with a margin.
const MAX_SAMPLES: usize = 4_096;
/// Maximum total number of samples for all rules of all watched Envoys, which take about 20 MB.
const BUDGET: usize = 400_000;

/// Counters over time.
#[derive(Clone, Debug)]
pub(crate) struct History {
    pub(crate) buckets: BTreeMap<BucketName, Track>,
    pub(crate) rules: BTreeMap<String, Track>,
    /// Track of all rules together.
    pub(crate) total: Track,
    pub(crate) store: StoreHistory,
    axis: Axis,
    budget: usize,
}

impl Default for History {
    fn default() -> Self {
        Self::of_one(1)
    }
}

/// Maps a server's clock to the time axis.
#[derive(Clone, Debug, Default)]
struct Axis {
    /// A reading of the server's clock. `place_ns` is its position on the axis.
    server_ns: u64,
    place_ns: u64,
    /// Position of the last answer, and the viewer's time when it arrived.
    last: Option<(u64, Nanos)>,
    is_new_process: bool,
}

impl Axis {
    fn place(&self, server_ns: u64) -> u64 {
        let ahead = server_ns.saturating_sub(self.server_ns);
        let behind = self.server_ns.saturating_sub(server_ns);
        self.place_ns.saturating_add(ahead).saturating_sub(behind)
    }

    /// Records an answer that contains the server time `server_ns` and arrived at `read_at`.
    /// Returns the answer's position on the time axis.
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
    /// Creates the history of one Envoy. The memory budget is divided by the number of `envoys`.
    pub(crate) fn of_one(envoys: usize) -> Self {
        Self {
            buckets: BTreeMap::new(),
            rules: BTreeMap::new(),
            total: Track::default(),
            store: StoreHistory::default(),
            axis: Axis::default(),
            budget: BUDGET.checked_div(envoys).unwrap_or(BUDGET),
        }
    }

    /// Handles a restart of Envoy, which resets its counters and its clock.
    pub(crate) fn restart(&mut self) {
        self.axis.is_new_process = true;
        // Leaves a gap even after a fast restart, so that no rate spans the restart.
        if let Some((place_ns, _)) = &mut self.axis.last {
            *place_ns = place_ns.saturating_add(1);
        }
        let tracks = self.buckets.values_mut().chain(self.rules.values_mut());
        tracks.for_each(Track::restart);
        self.store.restart();
    }

    /// Records the rule totals of a status that arrived at `read_at`. Drops the tracks of rules
    /// that no longer exist.
    pub(crate) fn note_rules(&mut self, status: &Status, read_at: Nanos, patience_ns: u64) {
        let at_ns = self.axis.answered(status.now_ns, read_at);
        self.store.note(StoreCounts::of(status), at_ns);
        let each = self.budget.checked_div(status.rules.len());
        let mut retention = Retention {
            span_ns: Scale::Hour.span_ns(),
            most: each.unwrap_or(MAX_SAMPLES).clamp(2, MAX_SAMPLES),
            patience_ns,
        };
        let mut old = std::mem::take(&mut self.rules);
        let mut total = None;
        let admitting = admitting(&status.rules);
        for rule in &status.rules {
            let mut track = old.remove(&rule.name).unwrap_or_default();
            if let Some(mut sample) = track.note(Counts::of_rule(rule), at_ns, &retention) {
                if !admitting(rule) {
                    sample.counts.admitted = 0;
                }
                total = Some(total.map_or(sample, |total| sample.plus(total)));
            }
            self.rules.insert(rule.name.clone(), track);
        }
        retention.most = MAX_SAMPLES;
        if let Some(total) = total {
            self.total.push(total, &retention);
        }
    }

    /// Records that a bucket did not exist at `server_ns`, so that all its requests since then are
    /// counted, including the one that created it. Does nothing if the bucket already has a
    /// history.
    pub(crate) fn note_absent(&mut self, id: &BucketName, server_ns: u64) {
        let at_ns = self.axis.place(server_ns);
        self.buckets.entry(id.clone()).or_insert_with(|| Track {
            counts: Some(Counts::default()),
            at_ns,
            samples: VecDeque::new(),
        });
    }

    /// Records the counters of a bucket that was read at `server_ns`, and returns its rates. Keeps
    /// an hour of history if the bucket `is_open`, and otherwise a minute.
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
        let retention = Retention {
            span_ns,
            most: MAX_SAMPLES,
            patience_ns,
        };
        let at_ns = self.axis.place(server_ns);
        let track = self.buckets.entry(id.clone()).or_default();
        track.note(counts, at_ns, &retention);
        track.rates()
    }

    /// Returns the position of a server time on the time axis.
    pub(crate) fn place(&self, server_ns: u64) -> u64 {
        self.axis.place(server_ns)
    }
}

/// Time span of a chart.
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

    /// Returns the time span in nanoseconds.
    pub(crate) const fn span_ns(self) -> u64 {
        let minutes = match self {
            Self::Minute => 1,
            Self::FiveMinutes => 5,
            Self::QuarterHour => 15,
            Self::Hour => 60,
        };
        minutes * 60_000_000_000
    }

    /// Returns the next longer span, or `None` for the longest.
    pub(crate) fn longer(self) -> Option<Self> {
        let mut all = Self::ALL.into_iter();
        all.find(|other| other.span_ns() > self.span_ns())
    }

    /// Returns the next shorter span, or `None` for the shortest.
    pub(crate) fn shorter(self) -> Option<Self> {
        let mut all = Self::ALL.into_iter().rev();
        all.find(|other| other.span_ns() < self.span_ns())
    }
}

// Counts of the store in the last minutes: new buckets, and evictions of buckets in use.

/// Time for which the readings are kept.
const STORE_NS: u64 = 120_000_000_000;

/// Counts since Envoy started.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub(crate) struct StoreCounts {
    /// Number of evictions of buckets in use.
    pub(crate) evicted: u64,
    /// Number of new buckets.
    pub(crate) created: u64,
    /// Number of decisions of all rules. Each new bucket belongs to one of them.
    pub(crate) decided: u64,
}

impl StoreCounts {
    /// Returns the counts in a status. A new bucket takes a free slot, or evicts another bucket.
    fn of(status: &Status) -> Self {
        let store = &status.store;
        let evicted = store.evicted_lossless.saturating_add(store.evicted_lossy);
        let rules = status.rules.iter().map(Counts::of_rule);
        Self {
            evicted: store.evicted_lossy,
            created: store.used.saturating_add(evicted),
            decided: rules.fold(0, |sum, rule| sum.saturating_add(rule.all())),
        }
    }

    /// Returns the counts since `before`, or `None` if a count decreased.
    fn since(&self, before: &Self) -> Option<Self> {
        Some(Self {
            evicted: self.evicted.checked_sub(before.evicted)?,
            created: self.created.checked_sub(before.created)?,
            decided: self.decided.checked_sub(before.decided)?,
        })
    }
}

/// The counts over time.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub(crate) struct StoreHistory {
    /// Time and counts of each reading. The first is the last reading before the kept time.
    readings: VecDeque<(u64, StoreCounts)>,
}

/// Counts within a time span.
#[derive(Clone, Copy, Debug, PartialEq)]
pub(crate) struct Recent {
    pub(crate) counts: StoreCounts,
    pub(crate) within_ns: u64,
}

impl Recent {
    /// Returns a count per second.
    pub(crate) fn per_second(&self, count: u64) -> f64 {
        float(count) * 1e9 / float(self.within_ns.max(1))
    }
}

impl StoreHistory {
    /// Adds the counts at `at_ns`. If a count decreased, because Envoy was restarted, a rule was
    /// removed or a bucket was reset, the earlier readings are dropped.
    fn note(&mut self, counts: StoreCounts, at_ns: u64) {
        let follows =
            |(at, before): &(u64, StoreCounts)| *at < at_ns && counts.since(before).is_some();
        if !self.readings.back().is_some_and(follows) {
            self.readings.clear();
        }
        self.readings.push_back((at_ns, counts));
        let begin = at_ns.saturating_sub(STORE_NS);
        while self.readings.get(1).is_some_and(|(at, _)| *at <= begin) {
            self.readings.pop_front();
        }
    }

    /// Handles a new process, whose counts start at 0.
    fn restart(&mut self) {
        self.readings.clear();
    }

    /// Returns the counts of the kept time.
    pub(crate) fn recent(&self) -> Option<Recent> {
        self.between(self.readings.front()?)
    }

    /// Returns the counts of the last ten seconds, or `None` if less than two seconds are known.
    pub(crate) fn now(&self) -> Option<Recent> {
        let (end, _) = self.readings.back()?;
        let begin = end.saturating_sub(SMOOTH_NS);
        let mut earlier = self.readings.iter().rev();
        let first = earlier.find(|(at, _)| *at <= begin);
        let first = first.or_else(|| self.readings.front())?;
        let recent = self.between(first)?;
        (recent.within_ns >= MIN_RATED_NS).then_some(recent)
    }

    fn between(&self, (begin, before): &(u64, StoreCounts)) -> Option<Recent> {
        let (end, counts) = self.readings.back()?;
        Some(Recent {
            counts: counts.since(before)?,
            within_ns: end.saturating_sub(*begin),
        })
    }
}

/// Returns a predicate for the rules whose admitted requests count towards the total. Rules in
/// shadow mode and trials are excluded, because enforced rules count the same requests. If no rule
/// is enforced, all rules are included.
pub(crate) fn admitting(rules: &[RuleTotals]) -> impl Fn(&RuleTotals) -> bool {
    let enforces = |rule: &RuleTotals| rule.mode == Mode::Enforce.name();
    let any = rules.iter().any(enforces);
    move |rule| !any || enforces(rule)
}

// Request counts, and their rates per second.

/// Requests per second.
#[derive(Clone, Copy, Debug, Default, PartialEq)]
pub(crate) struct Rates {
    pub(crate) admitted: f64,
    pub(crate) refused: f64,
    /// Requests that a rule in shadow mode would have refused.
    pub(crate) shadow: f64,
}

impl Rates {
    /// Returns the rate of all requests.
    pub(crate) fn all(&self) -> f64 {
        self.admitted + self.refused + self.shadow
    }

    /// Returns the sum of both rates.
    pub(crate) fn plus(self, other: Self) -> Self {
        Self {
            admitted: self.admitted + other.admitted,
            refused: self.refused + other.refused,
            shadow: self.shadow + other.shadow,
        }
    }

    /// Converts request counts over a time in seconds to rates per second.
    fn per(self, seconds: f64) -> Self {
        Self {
            admitted: self.admitted / seconds,
            refused: self.refused / seconds,
            shadow: self.shadow / seconds,
        }
    }

    /// Returns the rates multiplied by a factor.
    pub(crate) fn times(self, factor: f64) -> Self {
        Self {
            admitted: self.admitted * factor,
            refused: self.refused * factor,
            shadow: self.shadow * factor,
        }
    }
}

/// Request counts since a bucket or a rule was created.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub(crate) struct Counts {
    pub(crate) admitted: u64,
    pub(crate) refused: u64,
    pub(crate) shadow: u64,
}

impl Counts {
    /// Returns the counts of a bucket. All refusals of the bucket are attributed to the current
    /// mode of its rule.
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

    /// Returns the counts of a rule.
    pub(crate) const fn of_rule(totals: &RuleTotals) -> Self {
        Self {
            admitted: totals.passed(),
            refused: totals.refused,
            shadow: totals.shadow_refused,
        }
    }

    /// Returns the number of all requests.
    pub(crate) const fn all(&self) -> u64 {
        self.admitted
            .saturating_add(self.refused)
            .saturating_add(self.shadow)
    }

    /// Returns true if no counter is lower than in `before`, so that these counts can be a later
    /// reading.
    const fn follow(&self, before: &Self) -> bool {
        self.admitted >= before.admitted
            && self.refused >= before.refused
            && self.shadow >= before.shadow
    }

    /// Returns the counts since `before`.
    const fn since(&self, before: &Self) -> Self {
        Self {
            admitted: self.admitted.saturating_sub(before.admitted),
            refused: self.refused.saturating_sub(before.refused),
            shadow: self.shadow.saturating_sub(before.shadow),
        }
    }

    /// Returns the sum of both counts.
    const fn plus(&self, other: &Self) -> Self {
        Self {
            admitted: self.admitted.saturating_add(other.admitted),
            refused: self.refused.saturating_add(other.refused),
            shadow: self.shadow.saturating_add(other.shadow),
        }
    }
}

// Counters of a bucket or a rule over time. A rate is the difference between the counters of two
// answers divided by the server time between the answers, averaged over ten seconds. Sparklines and
// charts show the rates over time.

/// Time span of a sparkline.
pub(crate) const WINDOW_NS: u64 = 60_000_000_000;
/// Nanoseconds per second, to convert durations to seconds.
const SECOND: f64 = 1e9;
const SECOND_NS: u64 = 1_000_000_000;
/// Time over which rates are averaged.
const SMOOTH_NS: u64 = 10_000_000_000;
/// Minimum duration of a sample. A shorter sample is merged with the next one.
const MIN_SPAN_NS: u64 = 900_000_000;
/// Minimum time over which a rate is computed. Over a shorter time, a few requests would look like
/// a high rate.
const MIN_RATED_NS: u64 = 1_900_000_000;
/// Minimum recorded time of a chart column. A column with less recorded time stays empty.
const MIN_KNOWN_NS: u64 = 125_000_000;

/// Limits on the samples that a track keeps.
#[derive(Clone, Copy, Debug)]
pub(crate) struct Retention {
    /// Time before the last answer for which samples are kept.
    pub(crate) span_ns: u64,
    /// Maximum number of samples.
    pub(crate) most: usize,
    /// Maximum time between two answers. A longer time is recorded as a gap, because the app was
    /// not watching.
    pub(crate) patience_ns: u64,
}

/// Numbers of requests between two answers.
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

    /// Returns the sum of two samples that cover the same time.
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

/// Counters of a bucket or a rule over time.
#[derive(Clone, Debug, Default, PartialEq)]
pub(crate) struct Track {
    /// Counts in the last answer, or `None` if the next answer cannot be compared with it.
    counts: Option<Counts>,
    at_ns: u64,
    samples: VecDeque<Sample>,
}

impl Track {
    /// Records the counters at `at_ns`, and returns the requests since the last answer as a sample.
    /// If a counter decreased, the counters belong to a new bucket or rule with the same name, so
    /// there is no sample.
    pub(crate) fn note(
        &mut self,
        counts: Counts,
        at_ns: u64,
        retention: &Retention,
    ) -> Option<Sample> {
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
            is_gap: at_ns.saturating_sub(from_ns) > retention.patience_ns,
        };
        self.push(sample, retention);
        Some(sample)
    }

    /// Appends a sample, and drops old samples. Consecutive samples are merged if they contain no
    /// requests, or if the earlier one is short.
    fn push(&mut self, sample: Sample, retention: &Retention) {
        self.at_ns = sample.to_ns;
        let last = self.samples.back_mut();
        let joins = |last: &&mut Sample| {
            let is_run = last.is_idle() && sample.is_idle();
            let is_next = last.to_ns == sample.from_ns;
            is_next && !last.is_gap && !sample.is_gap && (is_run || last.len_ns() < MIN_SPAN_NS)
        };
        match last.filter(joins) {
            Some(last) => {
                last.to_ns = sample.to_ns;
                last.counts = last.counts.plus(&sample.counts);
            }
            None => self.samples.push_back(sample),
        }
        let oldest = self.at_ns.saturating_sub(retention.span_ns);
        while self.samples.len() > retention.most
            || self
                .samples
                .front()
                .is_some_and(|first| first.to_ns < oldest)
        {
            self.samples.pop_front();
        }
    }

    /// Handles a restart, after which the counters start at 0.
    const fn restart(&mut self) {
        self.counts = None;
    }

    /// Returns the rates over the last ten seconds, or `None` if the samples cover too short a
    /// time. If a sample began more than ten seconds ago, for example because of a gap, its average
    /// rate is used for the part within the ten seconds.
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
        (ns >= MIN_RATED_NS).then(|| sum.per(float(ns) / SECOND))
    }

    /// Returns the highest rate of any sample in the last minute, or `None` if there are no
    /// samples. A sample shorter than a second is treated as one second long.
    pub(crate) fn peak(&self) -> Option<f64> {
        let begin = self.at_ns.saturating_sub(WINDOW_NS);
        let recent = self.samples.iter().rev();
        let recent = recent.take_while(|sample| sample.to_ns > begin);
        let rates = recent.map(|sample| per_second(&sample.counts, sample.len_ns().max(SECOND_NS)));
        rates.map(|rates| rates.all()).reduce(f64::max)
    }

    /// Returns the time since which requests have been recorded, at most a minute before the last
    /// answer.
    pub(crate) fn known_since(&self) -> u64 {
        let first = self
            .samples
            .front()
            .map_or(self.at_ns, |first| first.from_ns);
        first.max(self.at_ns.saturating_sub(WINDOW_NS))
    }

    /// Returns the requests counted since `from_ns`. A sample that spans this time is counted in
    /// full.
    pub(crate) fn counted_since(&self, from_ns: u64) -> Counts {
        let samples = self.samples.iter().rev();
        let samples = samples.take_while(|sample| sample.to_ns > from_ns);
        samples.fold(Counts::default(), |sum, sample| sum.plus(&sample.counts))
    }

    /// Returns the counts of the last `span_ns`, rounded up to whole samples, or `None` if the
    /// samples do not cover that time. Samples cover the gaps between polls, but not restarts of
    /// Envoy.
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

    /// Returns the rates of the last minute in `columns` equal steps, oldest first. A step in which
    /// the app was not watching is `None`.
    pub(crate) fn series(&self, columns: u16) -> Vec<Option<Rates>> {
        let step_ns = WINDOW_NS.checked_div(columns.into()).unwrap_or(1);
        self.resampled(signed(self.at_ns), step_ns, columns)
    }

    /// Returns the rates of the `span_ns` before `end_ns` in `columns` equal steps, oldest first. A
    /// step in which the app was not watching is `None`. Steps begin at multiples of their length,
    /// so that a column keeps its value when the chart scrolls.
    pub(crate) fn chart(&self, span_ns: u64, end_ns: u64, columns: u16) -> Vec<Option<Rates>> {
        let step_ns = span_ns.checked_div(columns.into()).unwrap_or(1).max(1);
        // The newest column is omitted until enough of its time has been recorded.
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

/// Returns the minimum recorded time of a column.
fn least_known(step_ns: u64) -> u64 {
    MIN_KNOWN_NS.min(step_ns / 8)
}

fn signed(ns: u64) -> i64 {
    i64::try_from(ns).unwrap_or(i64::MAX)
}

#[cfg(test)]
mod tests;

#[cfg(test)]
mod store_tests {
    use super::*;

    const S: u64 = 1_000_000_000;

    /// Once the total has stopped growing for the length of the window, there are no recent
    /// evictions.
    #[test]
    fn evictions_come_and_go() {
        let mut store = StoreHistory::default();
        let total = |at: u64| StoreCounts {
            evicted: 40 + 3 * at.clamp(50, 70),
            ..StoreCounts::default()
        };
        let mut counts = Vec::new();
        for at in 0..300 {
            store.note(total(at), at * S);
            counts.push(store.recent().map_or(0, |recent| recent.counts.evicted));
        }
        assert_eq!((counts[50], counts[51], counts[100]), (0, 3, 60));
        assert_eq!((counts[180], counts[189], counts[190]), (30, 3, 0));
        assert!(store.readings.len() <= 122, "{}", store.readings.len());
    }
}
