//! The last hour: counters of every rule, of all rules together, and of the buckets that were read; and the evictions of
//! the last minutes.
//!
//! Times are those of an axis that goes on when Envoy restarts: it has the server's clock, and over a restart the
//! viewer's. Where nobody watched (the screen was frozen, Envoy was unreachable or restarted) there are no samples, and
//! charts have a gap.

use std::collections::{BTreeMap, VecDeque};

use loudou_api::Status;
use loudou_limiter::Nanos;

use super::rows::BucketName;
use loudou_words::num::float;

pub(crate) use rates::{Counts, Rates};
pub(crate) use track::{Keep, Track, WINDOW_NS};

mod rates;
mod track;

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
