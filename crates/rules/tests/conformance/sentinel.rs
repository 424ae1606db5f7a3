//! Compares Alibaba Sentinel's throttling controller with Loudou's leaky queue with a maximum wait.

use loudou_limiter::Verdict;
use serde_json::{Value, json};

use crate::number::{SECOND, nanos, real, truth, whole, whole_or_none};
use crate::ratio::rate;
use crate::replay::{Differences, MICRO, MILLI, Ours, Replay, Suite, time};

pub(crate) const SUITE: Suite = Suite {
    file: "sentinel_throttling",
    json: include_str!("vectors/sentinel_throttling.json"),
    start,
};

/// Origin of the calls' instants. It leaves room for a level that began earlier.
const ORIGIN: u64 = 1_000_000 * SECOND;

pub(crate) const WAIT: &str = "wait";
/// The time until one more request would pass at once.
pub(crate) const BUSY: &str = "busy for";

struct Sentinel {
    ours: Ours,
    max_wait: i128,
    interval: i128,
}

fn start(trace: &Value) -> Box<dyn Replay> {
    // No bound on how many wait, only on how long.
    let rate = rate(real(trace, "count") * 1e3 / real(trace, "stat_ms"));
    let limits = json!([{
        "algorithm": "leaky_queue",
        "capacity": 100_000,
        "rate": rate,
        "max_wait": format!("{}ms", whole(trace, "max_queueing_ms")),
    }]);
    let ours = Ours::new(&limits, ORIGIN);
    let interval = nanos(1.0 / ours.rate());
    let max_wait = i128::from(whole(trace, "max_queueing_ms")) * MILLI;
    Box::new(Sentinel {
        ours,
        max_wait,
        interval,
    })
}

impl Sentinel {
    /// The time until one more request would pass without waiting, after `call`.
    fn busy(&self, call: &Value) -> i128 {
        let passed = whole_or_none(call, "latest_passed_ms").expect("an instant");
        let since = (passed - i128::from(whole(call, "t_ms"))) * MILLI;
        (since + self.interval).max(0)
    }
}

impl Replay for Sentinel {
    fn instant(&self, call: &Value) -> u64 {
        ORIGIN + whole(call, "t_ms") * 1_000_000
    }

    fn call(&mut self, call: &Value, differences: &mut Differences) {
        let (cost, now) = (whole(call, "n"), self.instant(call));
        let ahead = time(self.ours.look(now).reset_after());
        let answer = self.ours.ask(cost, now);
        let busy = time(self.ours.look(now).reset_after());
        let verdict = match whole_or_none(call, "wait_ms") {
            _ if !truth(call, "pass") => Verdict::Refuse,
            Some(1..) => Verdict::Hold,
            _ => Verdict::Admit,
        };
        differences.verdict(verdict, answer.verdict());
        if let Some(wait) = whole_or_none(call, "wait_ms") {
            differences.within(MILLI, WAIT, wait * MILLI, time(answer.wait()));
        }
        differences.within(MILLI, BUSY, self.busy(call), busy);
        // Loudou treats a larger cost differently from Sentinel, so it is compared with the
        // expected result.
        let (passes, wait, taken) = if ahead > self.max_wait {
            (false, 0, 0)
        } else {
            (true, ahead, i128::from(cost) * self.interval)
        };
        differences.same(
            "a queue passes",
            i128::from(passes),
            i128::from(!answer.is_refused()),
        );
        differences.within(MICRO, "a queue's wait", wait, time(answer.wait()));
        differences.within(MICRO, "a queue is busy for", ahead + taken, busy);
    }

    fn follow(&mut self, call: &Value) {
        let (busy, now) = (self.busy(call), self.instant(call));
        self.ours.fill(busy, now);
    }
}
