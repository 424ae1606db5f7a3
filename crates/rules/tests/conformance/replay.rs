//! Replaying one file of vectors.

use std::time::Duration;

use loudou_limiter::{Bucket, BucketDecision, BucketRequest, Carry, Clock, Limits, Nanos, Verdict};
use loudou_rules::config::parse_limits;
use serde_json::Value;

use crate::explained::{self, Case};
use crate::report::Report;

/// One microsecond in nanoseconds, which is the required precision of exact times.
pub(crate) const MICRO: i128 = 1_000;
/// One millisecond in nanoseconds, for limiters whose clock has this resolution.
pub(crate) const MILLI: i128 = 1_000_000;
/// One second, in nanoseconds.
pub(crate) const SECOND: i128 = 1_000_000_000;

/// A file of vectors, and how it is replayed.
pub(crate) struct Suite {
    pub(crate) file: &'static str,
    pub(crate) json: &'static str,
    /// Our limiter with the settings of a trace.
    pub(crate) start: fn(&Value) -> Box<dyn Replay>,
}

/// Our limiter in the place of another one.
pub(crate) trait Replay {
    /// The instant of a call on our clock.
    fn instant(&self, call: &Value) -> u64;
    /// Replays a call, and records the differences.
    fn call(&mut self, call: &Value, differences: &mut Differences);
    /// Continues from the state in which `call` left the other limiter, so that a difference does
    /// not reappear in all later calls.
    fn follow(&mut self, call: &Value);
}

/// A value that differs. Times are in nanoseconds, verdicts are 0 (admitted), 1 (held) and 2
/// (refused), and `None` means that there is no value.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub(crate) struct Difference {
    pub(crate) what: &'static str,
    pub(crate) theirs: Option<i128>,
    pub(crate) ours: Option<i128>,
}

/// A difference, with the case that covers it.
pub(crate) type Explained = (Difference, Option<&'static Case>);

/// The differences of one call.
#[derive(Debug, Default)]
pub(crate) struct Differences(Vec<Difference>);

impl Differences {
    /// Compares values that have to be the same.
    pub(crate) fn same(
        &mut self,
        what: &'static str,
        theirs: impl Into<Option<i128>>,
        ours: impl Into<Option<i128>>,
    ) {
        self.within(0, what, theirs, ours);
    }

    /// Compares values that may be `tolerance` apart.
    pub(crate) fn within(
        &mut self,
        tolerance: i128,
        what: &'static str,
        theirs: impl Into<Option<i128>>,
        ours: impl Into<Option<i128>>,
    ) {
        let (theirs, ours) = (theirs.into(), ours.into());
        let same = match (theirs, ours) {
            (Some(theirs), Some(ours)) => (theirs - ours).abs() <= tolerance,
            (theirs, ours) => theirs == ours,
        };
        if !same {
            self.0.push(Difference { what, theirs, ours });
        }
    }

    /// Compares verdicts. Returns true if they are equal.
    pub(crate) fn verdict(&mut self, theirs: Verdict, ours: Verdict) -> bool {
        let number = |verdict| match verdict {
            Verdict::Admit => 0,
            Verdict::Hold => 1,
            Verdict::Refuse => 2,
        };
        self.same("verdict", number(theirs), number(ours));
        theirs == ours
    }
}

/// One difference with all that can explain it.
pub(crate) struct Seen<'a> {
    pub(crate) file: &'static str,
    pub(crate) trace: &'a Value,
    pub(crate) call: &'a Value,
    pub(crate) instant: u64,
    /// Maximum instant of the previous calls.
    pub(crate) latest: u64,
    pub(crate) difference: Difference,
}

impl Suite {
    /// Replays all traces.
    pub(crate) fn run(&self, report: &mut Report) {
        let document: Value = serde_json::from_str(self.json).expect(self.file);
        let traces = document["traces"].as_array().expect("traces");
        report.file(self.file, traces.len());
        for trace in traces {
            self.run_trace(trace, report);
        }
    }

    fn run_trace(&self, trace: &Value, report: &mut Report) {
        let mut replay = (self.start)(trace);
        let mut latest = 0;
        for (index, call) in trace["calls"].as_array().expect("calls").iter().enumerate() {
            let instant = replay.instant(call);
            let mut differences = Differences::default();
            replay.call(call, &mut differences);
            let mut seen = Seen {
                file: self.file,
                trace,
                call,
                instant,
                latest,
                difference: Difference::default(),
            };
            let explain = |difference| {
                seen.difference = difference;
                (difference, explained::find(&seen))
            };
            let differences: Vec<Explained> = differences.0.into_iter().map(explain).collect();
            report.call(trace, call, index, &differences);
            let apart = |(_, case): &Explained| case.is_some_and(|case| case.apart);
            if differences.iter().any(apart) {
                replay.follow(call);
            }
            latest = latest.max(instant);
        }
    }
}

/// Limits of ours with one bucket.
#[derive(Clone)]
pub(crate) struct Ours {
    pub(crate) limits: Limits,
    pub(crate) bucket: Bucket,
}

impl Ours {
    /// A bucket of the limits in `document`, first touched at `now`.
    pub(crate) fn new(document: &Value, now: u64) -> Self {
        let limits = limits(document);
        let bucket = limits.start(Nanos::new(now));
        Self { limits, bucket }
    }

    /// A request without a maximum wait.
    pub(crate) fn ask(&mut self, cost: u64, now: u64) -> BucketDecision {
        self.ask_waiting(cost, now, None)
    }

    /// A request with this maximum wait.
    pub(crate) fn ask_waiting(
        &mut self,
        cost: u64,
        now: u64,
        max_wait: Option<u64>,
    ) -> BucketDecision {
        let ask = BucketRequest::new(cost, Nanos::new(now)).waiting(max_wait.map(Nanos::new));
        self.limits.answer(&mut self.bucket, &ask)
    }

    /// The rate per second of the only limit.
    pub(crate) fn rate(&self) -> f64 {
        let limit = self.limits.iter().next().expect("a limit").algorithm();
        let rate = limit.rate().expect("a rate");
        f64::from(rate.amount()) / Duration::from_nanos(rate.period().get()).as_secs_f64()
    }

    /// The answer to a request of cost 0.
    pub(crate) fn look(&self, now: u64) -> BucketDecision {
        self.limits.peek(&self.bucket, 0, Nanos::new(now))
    }

    /// The wait of the next request.
    pub(crate) fn wait_of_next(&self, now: u64) -> i128 {
        let ask = BucketRequest::new(1, Nanos::new(now)).waiting(Some(Nanos::MAX));
        time(self.limits.answer(&mut self.bucket.clone(), &ask).wait())
    }

    /// Replaces the limits at `now`.
    pub(crate) fn edit(&mut self, document: &Value, carry: Carry, now: u64) {
        let (new, clock) = (limits(document), Clock::at(Nanos::new(now)));
        self.bucket = loudou_limiter::convert(&self.limits, &new, carry, &self.bucket, clock);
        self.limits = new;
    }
}

/// The limits in `document`, as a rule file has them.
fn limits(document: &Value) -> Limits {
    parse_limits(document).unwrap_or_else(|problems| panic!("{document}: {problems:?}"))
}

/// A time of ours as a number to compare.
pub(crate) fn time(time: Nanos) -> i128 {
    time.get().into()
}
