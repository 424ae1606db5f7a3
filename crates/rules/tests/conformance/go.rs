//! Compares golang.org/x/time/rate with Loudou's token bucket, including held requests and edits.

use std::time::Duration;

use loudou_limiter::{Carry, Verdict};
use serde_json::{Value, json};

use crate::level::EVER;
use crate::number::{SECOND, nanos, real, text, truth, whole, whole_or_none};
use crate::ratio::rate;
use crate::replay::{Differences, MICRO, Ours, Replay, Suite, time};

pub(crate) const SUITE: Suite = Suite {
    file: "go_x_time_rate",
    json: include_str!("vectors/go_x_time_rate.json"),
    start,
};

/// Origin of the calls' instants. It leaves room for a level that began earlier.
const ORIGIN: u64 = 1_000_000 * SECOND;

/// The tokens that are left, as the time until all are there.
pub(crate) const TOKENS: &str = "tokens as a time";
const SET_LIMIT: &str = "set_limit";
pub(crate) const SET_BURST: &str = "set_burst";

struct Go {
    ours: Ours,
    burst: u64,
    per_second: f64,
}

fn start(trace: &Value) -> Box<dyn Replay> {
    let (burst, per_second) = (whole(trace, "burst"), real(trace, "limit_per_second"));
    let ours = Ours::new(&limits(burst, per_second), ORIGIN);
    Box::new(Go {
        ours,
        burst,
        per_second,
    })
}

fn limits(burst: u64, per_second: f64) -> Value {
    let rate = rate(per_second);
    json!([{"algorithm": "token_bucket", "capacity": burst, "rate": rate}])
}

fn double(burst: u64) -> f64 {
    f64::from(u32::try_from(burst).expect("a burst of ours"))
}

/// The time until all tokens are there.
fn seconds(ours: &Ours, now: u64) -> f64 {
    Duration::from_nanos(ours.look(now).reset_after().get()).as_secs_f64()
}

impl Go {
    /// Returns the time until the bucket is full if this many tokens are left. A negative number is
    /// debt.
    fn reset_after(&self, tokens: f64) -> i128 {
        nanos((double(self.burst) - tokens).max(0.0) / self.per_second)
    }

    /// An edit keeps the tokens in Go, and the used amount in Loudou. Both then have different
    /// tokens, so they are compared here.
    fn edit(&mut self, burst: u64, per_second: f64, call: &Value, differences: &mut Differences) {
        let now = self.instant(call);
        let before = seconds(&self.ours, now);
        let used = before * self.per_second;
        (self.burst, self.per_second) = (burst, per_second);
        self.ours.edit(&limits(burst, per_second), Carry::Keep, now);
        let after = nanos(seconds(&self.ours, now));
        differences.within(MICRO, "what is kept", nanos(used / per_second), after);
    }

    fn ask(&mut self, call: &Value, max_wait: Option<u64>, differences: &mut Differences) {
        let now = self.instant(call);
        let answer = self.ours.ask_waiting(whole(call, "n"), now, max_wait);
        let delay = whole_or_none(call, "delay_ns");
        let verdict = match delay {
            _ if !truth(call, "ok") => Verdict::Refuse,
            Some(1..) => Verdict::Hold,
            _ => Verdict::Admit,
        };
        differences.verdict(verdict, answer.verdict());
        if let Some(delay) = delay {
            differences.within(MICRO, "delay", delay, time(answer.wait()));
        }
    }
}

impl Replay for Go {
    fn instant(&self, call: &Value) -> u64 {
        ORIGIN + whole(call, "t_ns")
    }

    fn call(&mut self, call: &Value, differences: &mut Differences) {
        match text(call, "op") {
            "allow" => self.ask(call, None, differences),
            "reserve" => self.ask(call, EVER, differences),
            SET_LIMIT => self.edit(self.burst, real(call, "limit"), call, differences),
            SET_BURST => self.edit(whole(call, "burst"), self.per_second, call, differences),
            other => panic!("an operation called {other}"),
        }
        let theirs = self.reset_after(real(call, "tokens_after"));
        let ours = self.ours.look(self.instant(call)).reset_after();
        differences.within(MICRO, TOKENS, theirs, time(ours));
    }

    fn follow(&mut self, call: &Value) {
        let now = self.instant(call);
        self.ours
            .fill(self.reset_after(real(call, "tokens_after")), now);
    }
}
