//! Compares nginx's `limit_req` with Loudou's leaky queue.

use std::time::Duration;

use loudou_limiter::Verdict;
use serde_json::{Value, json};

use crate::number::{SECOND, nanos, text, whole};
use crate::replay::{Differences, MILLI, Ours, Replay, Suite, time};

pub(crate) const SUITE: Suite = Suite {
    file: "nginx_limit_req",
    json: include_str!("vectors/nginx_limit_req.json"),
    start,
};

/// Origin of the calls' instants. It leaves room for a level that began earlier.
const ORIGIN: u64 = 1_000_000 * SECOND;

/// The level before a request, as the time in which it drains.
pub(crate) const EXCESS: &str = "excess as a time";

struct Nginx {
    ours: Ours,
    /// The nanoseconds of one request.
    interval: u64,
}

/// The nanoseconds of one request, rounded.
pub(crate) fn interval(trace: &Value) -> u64 {
    let per = match text(trace, "per") {
        "s" => SECOND,
        "m" => 60 * SECOND,
        other => panic!("a rate per {other}"),
    };
    per / whole(trace, "rate")
}

fn start(trace: &Value) -> Box<dyn Replay> {
    let burst = whole(trace, "burst");
    let immediate = match text(trace, "mode") {
        "delay" => 0,
        "delay3" => 3,
        "nodelay" => burst,
        other => panic!("a mode called {other}"),
    };
    let rate = format!("{}/{}", whole(trace, "rate"), text(trace, "per"));
    let limits = if burst == 0 {
        // There is no queue, so one request passes at a time, and the others are refused.
        json!([{"algorithm": "funnel", "capacity": 1, "rate": rate}])
    } else {
        json!([{
            "algorithm": "leaky_queue",
            "capacity": burst,
            "rate": rate,
            "immediate": immediate,
        }])
    };
    let ours = Ours::new(&limits, ORIGIN);
    let interval = interval(trace);
    Box::new(Nginx { ours, interval })
}

impl Nginx {
    /// Returns the time in which this many requests drain.
    fn flows_out_in(&self, requests: f64) -> i128 {
        nanos(requests * Duration::from_nanos(self.interval).as_secs_f64())
    }
}

impl Replay for Nginx {
    fn instant(&self, call: &Value) -> u64 {
        ORIGIN + whole(call, "t_ms") * 1_000_000
    }

    fn call(&mut self, call: &Value, differences: &mut Differences) {
        let now = self.instant(call);
        let level = time(self.ours.look(now).reset_after());
        let answer = self.ours.ask(1, now);
        let verdict = match text(call, "status") {
            "PASSED" => Verdict::Admit,
            "DELAYED" => Verdict::Hold,
            "REJECTED" => Verdict::Refuse,
            other => panic!("a status called {other}"),
        };
        differences.verdict(verdict, answer.verdict());
        if let Some(excess) = call["excess"].as_f64() {
            differences.within(MILLI, EXCESS, self.flows_out_in(excess), level);
        }
    }

    fn follow(&mut self, call: &Value) {
        let excess = call["excess"].as_f64().unwrap_or(0.0);
        let taken = if text(call, "status") == "REJECTED" {
            0.0
        } else {
            1.0
        };
        let (ahead, now) = (self.flows_out_in(excess + taken), self.instant(call));
        self.ours.fill(ahead, now);
    }
}
