//! A run: lines go in one after the other, through one rule file or through two side by side.

use loudou_limiter::{Clock, Nanos};
use loudou_rules::rule::RuleFile;
use loudou_store::GaveUp;

use super::changes::Changes;
use super::engine::{Engine, Reported};
use super::record::{Record, Set};
use super::tally::Tally;

/// Instants from here on are counted from the first one: pages have room for 34 years.
const FAR: Nanos = Nanos::from_secs(15 * 366 * 86_400);

/// A rule file, and what it made of the requests.
#[derive(Debug)]
pub(crate) struct Side {
    /// The name of the file.
    pub(crate) config: String,
    pub(crate) engine: Engine,
    pub(crate) tally: Tally,
}

/// The rule file, another one to compare it with, and the time.
#[derive(Debug)]
pub(crate) struct Run {
    pub(crate) side: Side,
    pub(crate) other: Option<(Side, Changes)>,
    pub(crate) time: Time,
    pub(crate) edits: u64,
}

/// The time of the trace, which never goes back.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub(crate) struct Time {
    /// What is 0 on the clock of the buckets.
    origin: Nanos,
    pub(crate) first: Option<Nanos>,
    pub(crate) last: Nanos,
    /// How many lines were of an earlier time than one before them, and by how much at most.
    pub(crate) steps_back: u64,
    pub(crate) longest_step_back: Nanos,
}

impl Time {
    /// Goes on to `at`; when that is in the past, no time has passed.
    fn pass(&mut self, at: Nanos) -> Clock {
        if self.first.is_none() {
            self.first = Some(at);
            self.origin = if at < FAR { Nanos::ZERO } else { at };
        }
        if at < self.last {
            self.steps_back += 1;
            self.longest_step_back = self.longest_step_back.max(self.last.since(at));
        }
        self.last = self.last.max(at);
        Clock {
            now: self.last.since(self.origin),
            wall: self.last,
        }
    }
}

impl Side {
    fn new(config: &str, file: &RuleFile) -> Result<Self, GaveUp> {
        Ok(Self {
            config: config.to_owned(),
            engine: Engine::new(file)?,
            tally: Tally::new(file.rules.len()),
        })
    }
}

impl Run {
    /// A run of the rules of `config`, and of those of `compare` beside them.
    pub(crate) fn new(
        config: (&str, &RuleFile),
        compare: Option<(&str, &RuleFile)>,
    ) -> Result<Self, GaveUp> {
        let (name, file) = config;
        let side = Side::new(name, file)?;
        let other = compare.map(|(name, other)| {
            let changes = Changes::new(&file.rules, &other.rules);
            Side::new(name, other).map(|side| (side, changes))
        });
        Ok(Self {
            side,
            other: other.transpose()?,
            time: Time::default(),
            edits: 0,
        })
    }

    /// Decides on a request; what the first rule file makes of it goes to `sink`.
    pub(crate) fn request<T>(
        &mut self,
        record: &mut Record<'_>,
        sink: impl FnOnce(&Reported<'_>) -> T,
    ) -> T {
        let clock = self.pass(record.at);
        let at = self.time.last;
        let Side { engine, tally, .. } = &mut self.side;
        let outcome = engine.decide(record, clock);
        let reported = Reported::of(engine.rules(), &outcome, clock.now);
        tally.add(engine.rules(), &outcome, &reported, at);
        if let Some((other, changes)) = &mut self.other {
            let outcome = other.engine.decide(record, clock);
            let theirs = Reported::of(other.engine.rules(), &outcome, clock.now);
            other.tally.add(other.engine.rules(), &outcome, &theirs, at);
            changes.add(&reported, &theirs);
        }
        sink(&reported)
    }

    /// Edits a rule, in both files if both have it.
    pub(crate) fn set(&mut self, set: &Set) -> Result<(), String> {
        let now = self.pass(set.at).now;
        let mut found = self.side.engine.edit(set, now);
        if let Some((other, _)) = &mut self.other {
            found |= other.engine.edit(set, now);
        }
        if !found {
            return Err(format!("no rule is called `{}`", set.rule));
        }
        self.edits += 1;
        Ok(())
    }

    fn pass(&mut self, at: Nanos) -> Clock {
        if self.time.first.is_none() {
            self.side.tally.timeline.begin(at);
            if let Some((other, _)) = &mut self.other {
                other.tally.timeline.begin(at);
            }
        }
        self.time.pass(at)
    }

    /// Requests so far.
    pub(crate) const fn requests(&self) -> u64 {
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
        assert_eq!(
            (time.steps_back, time.longest_step_back),
            (1, Nanos::new(25))
        );
    }

    #[test]
    fn times_of_the_calendar_are_counted_from_the_first() {
        let mut time = Time::default();
        let at = Nanos::from_secs(1_600_000_000);
        let clock = time.pass(at);
        assert_eq!((clock.now, clock.wall), (Nanos::ZERO, at));
        let later = at.saturating_add(Nanos::new(7));
        let clock = time.pass(later);
        assert_eq!((clock.now, clock.wall), (Nanos::new(7), later));
    }
}
