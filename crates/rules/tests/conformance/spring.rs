//! Compares Spring Cloud Gateway's Redis script with Loudou's token bucket.

use loudou_limiter::Verdict;
use serde_json::{Value, json};

use crate::number::{double_seconds, nanos, real, truth, whole, whole_or_none};
use crate::replay::{Differences, MILLI, Ours, Replay, Suite, time};

pub(crate) const SUITE: Suite = Suite {
    file: "spring_gateway_lua",
    json: include_str!("vectors/spring_gateway_lua.json"),
    start,
};

struct Spring {
    ours: Ours,
    capacity: f64,
    rate: f64,
}

fn start(trace: &Value) -> Box<dyn Replay> {
    let (capacity, rate) = (
        whole(trace, "burst_capacity"),
        whole(trace, "replenish_rate"),
    );
    let limits = json!([{
        "algorithm": "token_bucket",
        "capacity": capacity,
        "rate": format!("{rate}/s"),
    }]);
    Box::new(Spring {
        ours: Ours::new(&limits, 0),
        capacity: real(trace, "burst_capacity"),
        rate: real(trace, "replenish_rate"),
    })
}

impl Spring {
    /// Returns the time until a bucket with this many tokens is full.
    fn reset_after(&self, tokens: f64) -> i128 {
        nanos((self.capacity - tokens) / self.rate)
    }
}

impl Replay for Spring {
    fn instant(&self, call: &Value) -> u64 {
        double_seconds(call, "now_s")
    }

    fn call(&mut self, call: &Value, differences: &mut Differences) {
        let answer = self.ours.ask(whole(call, "requested"), self.instant(call));
        let ours = answer.reported().expect("a decision");
        let allowed = truth(call, "allowed");
        let verdict = if allowed {
            Verdict::Admit
        } else {
            Verdict::Refuse
        };
        differences.verdict(verdict, ours.verdict);
        let left = whole_or_none(call, "tokens_left_reply");
        differences.same("tokens left", left, i128::from(ours.remaining));
        if let Some(tokens) = call["stored_tokens"].as_f64() {
            let reset_after = self.reset_after(tokens);
            differences.within(MILLI, "reset_after", reset_after, time(ours.reset_after));
        }
    }

    fn follow(&mut self, call: &Value) {
        let tokens = call["stored_tokens"].as_f64().unwrap_or(self.capacity);
        let (ahead, now) = (self.reset_after(tokens), self.instant(call));
        self.ours.fill(ahead, now);
    }
}
