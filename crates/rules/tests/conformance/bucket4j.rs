//! Bucket4j: Loudou's token bucket, also several in one rule.

use loudou_limiter::{BucketDecision, Verdict};
use serde_json::{Value, json};

use crate::level::EVER;
use crate::number::{text, truth, whole, whole_or_none};
use crate::replay::{Differences, MICRO, Ours, Replay, Suite, time};

pub(crate) const SUITE: Suite = Suite {
    file: "bucket4j",
    json: include_str!("vectors/bucket4j.json"),
    start,
};

/// Java's largest `long`, which means never.
const NEVER: i128 = 9_223_372_036_854_775_807;

struct Bucket4j(Ours);

fn start(trace: &Value) -> Box<dyn Replay> {
    let limits = trace["limits"].as_array().expect("limits");
    let limits: Value = limits.iter().enumerate().map(limit).collect();
    // Bucket4j refills at multiples of the period after the bucket's creation, and Loudou at
    // multiples on the clock. Both agree if the bucket is created at the clock's origin.
    Box::new(Bucket4j(Ours::new(&limits, 0)))
}

fn limit((index, limit): (usize, &Value)) -> Value {
    let mut ours = json!({
        "name": format!("l{index}"),
        "algorithm": "token_bucket",
        "capacity": whole(limit, "capacity"),
        "rate": format!("{}/{}ns", whole(limit, "tokens"), whole(limit, "period_ns")),
        "refill": text(limit, "refill"),
    });
    if let Some(initial) = limit.get("initial") {
        ours["initial"] = initial.clone();
    }
    ours
}

impl Replay for Bucket4j {
    fn instant(&self, call: &Value) -> u64 {
        whole(call, "t_ns")
    }

    fn call(&mut self, call: &Value, differences: &mut Differences) {
        let (cost, now) = (whole(call, "n"), self.instant(call));
        if let Some(penalty) = whole_or_none(call, "penalty_ns") {
            let answer = self.0.ask_waiting(cost, now, EVER);
            differences.within(MICRO, "penalty", penalty, time(answer.wait()));
            return;
        }
        let answer = self.0.ask(cost, now);
        let verdict = if truth(call, "ok") {
            Verdict::Admit
        } else {
            Verdict::Refuse
        };
        differences.verdict(verdict, answer.verdict());
        let wait = whole_or_none(call, "wait_ns").filter(|wait| *wait != NEVER);
        differences.within(MICRO, "wait", wait, wait_of(&answer));
        if let Some(remaining) = whole_or_none(call, "remaining") {
            let least = answer.decisions().map(|decision| decision.remaining).min();
            differences.same("remaining", remaining, least.map(i128::from));
        }
        if let Some(reset) = whole_or_none(call, "reset_ns") {
            differences.within(MICRO, "reset", reset, time(answer.reset_after()));
        }
    }

    fn follow(&mut self, call: &Value) {
        panic!("what state is Bucket4j in after {call}?");
    }
}

/// Time to wait as Bucket4j reports it, which is zero if the request is admitted, and `None` if it
/// is never admitted.
fn wait_of(answer: &BucketDecision) -> Option<i128> {
    if answer.is_refused() {
        answer.reported()?.retry_after.map(time)
    } else {
        Some(0)
    }
}
