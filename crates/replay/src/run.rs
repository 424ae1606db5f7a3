//! Evaluates the requests of a log under one rule file, or under several rule files in parallel.

use loudou_limiter::bounds::MAX_DRAIN;
use loudou_limiter::{Clock, Nanos};
use loudou_rules::request::Sample;
use loudou_rules::rule::{KeyPart, RuleFile};
use loudou_store::GaveUp;

use super::calibration::Calibration;
use super::changes::Changes;
use super::engine::{Engine, Reported};
use super::record::{FAR, LoggedRequest, TraceEdit};
use super::tally::SideTally;
use super::top::TopKeys;

/// Longest pause between requests that the buckets' clock reproduces. Longer pauses are shortened,
/// because every bucket is full again after this time.
const LONGEST_PAUSE: Nanos = MAX_DRAIN;
/// Number of clients that are guaranteed a counter.
const CLIENTS: usize = 64;

/// A rule file, its buckets and the outcomes under it.
#[derive(Debug)]
pub(crate) struct Side {
    /// Name of the rule file.
    pub(crate) config: String,
    pub(crate) engine: Engine,
    pub(crate) tally: SideTally,
}

/// A replay of one rule file, and of other rule files to compare with it.
#[derive(Debug)]
pub struct Run {
    pub(crate) side: Side,
    pub(crate) others: Vec<(Side, Changes)>,
    pub(crate) time: Time,
    pub(crate) edits: u64,
    /// Comparison of the outcomes under the first rule file with the outcomes in the log.
    pub(crate) calibration: Calibration,
    /// Clients with the most requests, if any rule counts by client.
    pub(crate) clients: Option<TopKeys>,
}

/// Clock of the replay. The clock advances with the timestamps of the requests, which arrive in
/// chronological order.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub(crate) struct Time {
    /// Trace time at which the buckets' clock is 0.
    origin: Nanos,
    pub(crate) first: Option<Nanos>,
    pub(crate) last: Nanos,
    /// Total time by which long pauses were shortened on the buckets' clock.
    skipped: Nanos,
}

impl Time {
    /// Returns true if the trace counts from zero, so that the buckets' clock starts with the clock
    /// of the trace.
    pub(crate) fn is_from_zero(&self) -> bool {
        self.origin == Nanos::ZERO
    }

    /// Advances the clock to `at`. If `at` is in the past, the clock does not change.
    fn pass(&mut self, at: Nanos) -> Clock {
        if self.first.is_none() {
            self.first = Some(at);
            // A page can only represent times up to 34 years, so calendar times are counted from
            // the first request.
            self.origin = if at < FAR { Nanos::ZERO } else { at };
        }
        // Shorten long pauses, so that a single line with a wrong timestamp far in the future does
        // not move all later lines out of the range that a page can represent.
        let pause = at.since(self.last.max(self.origin));
        self.skipped = self.skipped.saturating_add(pause.since(LONGEST_PAUSE));
        self.last = self.last.max(at);
        Clock {
            now: self.last.since(self.origin).since(self.skipped),
            wall: self.last,
        }
    }
}

impl Side {
    fn new(config: &str, file: &RuleFile) -> Result<Self, GaveUp> {
        Ok(Self {
            config: config.to_owned(),
            engine: Engine::new(file)?,
            tally: SideTally::new(file.rules.len()),
        })
    }
}

/// Creates the counters for the clients with the most requests.
pub(crate) fn clients() -> TopKeys {
    TopKeys::with_places(CLIENTS)
}

/// Counts a request under its client address.
pub(crate) fn add_client(clients: Option<&mut TopKeys>, request: &Sample<'_>) {
    if let Some((clients, source)) = clients.zip(request.source.as_ref()) {
        clients.add(0, &String::from_utf8_lossy(source), 0);
    }
}

/// Returns true if any rule in the file uses the client address in its key.
pub(crate) fn counts_by_client(file: &RuleFile) -> bool {
    let is_source = |part: &KeyPart| matches!(part, KeyPart::Source(_));
    file.rules.iter().any(|rule| rule.key.iter().any(is_source))
}

impl Run {
    /// Creates a run that evaluates `config` and, in parallel, the rule files in `compare`.
    pub fn new(config: (&str, &RuleFile), compare: &[(String, RuleFile)]) -> Result<Self, GaveUp> {
        let (name, file) = config;
        let mut files = compare.iter().map(|(_, other)| other);
        let has_clients = counts_by_client(file) || files.any(counts_by_client);
        let side = Side::new(name, file)?;
        let others = compare.iter().map(|(name, other)| {
            let changes = Changes::new(&file.rules, &other.rules);
            Side::new(name, other).map(|side| (side, changes))
        });
        Ok(Self {
            side,
            others: others.collect::<Result<_, _>>()?,
            time: Time::default(),
            edits: 0,
            calibration: Calibration::new(file.rules.iter()),
            clients: has_clients.then(clients),
        })
    }

    /// Decides a request under each rule file, and passes the outcome under the first file to
    /// `sink`.
    pub(crate) fn request<T>(
        &mut self,
        record: &mut LoggedRequest<'_>,
        sink: impl FnOnce(&LoggedRequest<'_>, &Reported<'_>) -> T,
    ) -> T {
        let clock = self.pass(record.at);
        let at = self.time.last;
        add_client(self.clients.as_mut(), &record.request);
        let Side { engine, tally, .. } = &mut self.side;
        let outcome = engine.decide(record, clock);
        let reported = Reported::of(&outcome, clock.now);
        tally.add(&outcome, &reported, at);
        self.calibration.add(record, reported.verdict);
        for (other, changes) in &mut self.others {
            let outcome = other.engine.decide(record, clock);
            let other_reported = Reported::of(&outcome, clock.now);
            other.tally.add(&outcome, &other_reported, at);
            changes.add(&reported, &other_reported);
        }
        sink(record, &reported)
    }

    /// Applies an edit in each rule file that contains the rule. Returns an error if none does.
    pub(crate) fn set(&mut self, set: &TraceEdit) -> Result<(), String> {
        let now = self.pass(set.at).now;
        let mut found = self.side.engine.edit(set, now);
        for (other, _) in &mut self.others {
            found |= other.engine.edit(set, now);
        }
        if !found {
            return Err(format!("no rule is named `{}`", set.rule));
        }
        self.edits += 1;
        let rules = self.side.engine.rules().iter();
        self.calibration.rules(rules.map(|active| active.rule()));
        Ok(())
    }

    fn pass(&mut self, at: Nanos) -> Clock {
        if self.time.first.is_none() {
            self.side.tally.timeline.begin(at);
            for (other, _) in &mut self.others {
                other.tally.timeline.begin(at);
            }
        }
        self.time.pass(at)
    }

    /// Returns the number of requests so far.
    pub const fn requests(&self) -> u64 {
        self.side.tally.requests.total()
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn time_never_goes_back() {
        let mut time = Time::default();
        let at = |ns| Clock::at(Nanos::new(ns));
        assert_eq!(time.pass(Nanos::new(10)), at(10));
        assert_eq!(time.pass(Nanos::new(30)), at(30));
        assert_eq!(time.pass(Nanos::new(5)), at(30));
        assert_eq!(time.pass(Nanos::new(30)), at(30));
        assert_eq!(
            (time.first, time.last),
            (Some(Nanos::new(10)), Nanos::new(30))
        );
    }

    #[test]
    fn a_time_far_away_stays_in_the_range_of_the_pages() {
        let mut time = Time::default();
        let day = |days: u64| Nanos::from_secs(days * 86_400);
        assert_eq!(time.pass(day(1)).now, day(1));
        // A timestamp half a century later, as a machine with a wrong clock might write.
        let clock = time.pass(day(20_000));
        assert_eq!((clock.now, clock.wall), (day(1 + 3_660), day(20_000)));
        assert_eq!(time.pass(day(20_001)).now, day(2 + 3_660));
    }

    #[test]
    fn late_traces_count_time_from_their_start() {
        let mut time = Time::default();
        let at = Nanos::from_secs(1_600_000_000);
        let clock = time.pass(at);
        assert_eq!((clock.now, clock.wall), (Nanos::ZERO, at));
        let later = at.saturating_add(Nanos::new(7));
        let clock = time.pass(later);
        assert_eq!((clock.now, clock.wall), (Nanos::new(7), later));
    }
}
