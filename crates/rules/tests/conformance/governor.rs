//! Compares the `governor` crate with Loudou's funnel.

use loudou_limiter::Verdict;
use serde_json::{Value, json};

use crate::number::{SECOND, text, whole, whole_or_none};
use crate::replay::{Differences, MICRO, Ours, Replay, Suite, time};

pub(crate) const SUITE: Suite = Suite {
    file: "governor",
    json: include_str!("vectors/governor.json"),
    start,
};

struct Governor(Ours);

fn start(trace: &Value) -> Box<dyn Replay> {
    let limits = json!([{
        "algorithm": "funnel",
        "capacity": whole(trace, "burst"),
        "rate": format!("1/{}ns", whole(trace, "replenish_interval_ns")),
    }]);
    Box::new(Governor(Ours::new(&limits, SECOND)))
}

impl Replay for Governor {
    fn instant(&self, call: &Value) -> u64 {
        SECOND + whole(call, "t_ns")
    }

    fn call(&mut self, call: &Value, differences: &mut Differences) {
        let answer = self.0.ask(whole(call, "quantity"), self.instant(call));
        let ours = answer.reported().expect("a decision");
        let verdict = match text(call, "outcome") {
            "allowed" => Verdict::Admit,
            "refused" | "insufficient_capacity" => Verdict::Refuse,
            other => panic!("an outcome called {other}"),
        };
        differences.verdict(verdict, ours.verdict);
        let wait = whole_or_none(call, "wait_ns");
        differences.within(MICRO, "wait", wait, ours.retry_after.map(time));
    }

    fn follow(&mut self, call: &Value) {
        panic!("what state is governor in after {call}?");
    }
}
