//! Compares redis-cell's `CL.THROTTLE` with Loudou's funnel.

use loudou_limiter::{Nanos, Verdict};
use serde_json::{Value, json};

use crate::number::{SECOND, truth, whole, whole_or_none};
use crate::replay::{Differences, MICRO, Ours, Replay, Suite, time};

pub(crate) const PURE: Suite = Suite {
    file: "redis_cell_pure",
    json: include_str!("vectors/redis_cell_pure.json"),
    start,
};
pub(crate) const TTL: Suite = Suite {
    file: "redis_cell_ttl_ms",
    json: include_str!("vectors/redis_cell_ttl_ms.json"),
    start,
};

/// Places in the reply of `CL.THROTTLE`.
pub(crate) const REPLY_REMAINING: &str = "reply 3, remaining";
pub(crate) const REPLY_RETRY: &str = "reply 4, retry after";
pub(crate) const REPLY_RESET: &str = "reply 5, reset after";

/// Origin of the calls' instants. It leaves room for a level that began earlier.
const ORIGIN: u64 = 1_000_000 * SECOND;

struct RedisCell(Ours);

fn start(trace: &Value) -> Box<dyn Replay> {
    let (count, period) = (whole(trace, "count_per_period"), whole(trace, "period_s"));
    let limits = json!([{
        "algorithm": "funnel",
        "capacity": whole(trace, "max_burst") + 1,
        "rate": format!("{count}/{period}s"),
    }]);
    Box::new(RedisCell(Ours::new(&limits, ORIGIN)))
}

impl Replay for RedisCell {
    fn instant(&self, call: &Value) -> u64 {
        ORIGIN + whole(call, "t_ns")
    }

    fn call(&mut self, call: &Value, differences: &mut Differences) {
        let answer = self.0.ask(whole(call, "quantity"), self.instant(call));
        let ours = answer.reported().expect("a decision");
        let limited = truth(call, "limited");
        let verdict = if limited {
            Verdict::Refuse
        } else {
            Verdict::Admit
        };
        differences.verdict(verdict, ours.verdict);
        differences.same(
            "limit",
            whole_or_none(call, "limit"),
            i128::from(ours.capacity),
        );
        differences.same(
            "remaining",
            whole_or_none(call, "remaining"),
            i128::from(ours.remaining),
        );
        let retry_after = ours.retry_after.map(time);
        differences.within(
            MICRO,
            "retry_after",
            whole_or_none(call, "retry_after_ns"),
            retry_after,
        );
        let reset_after = whole_or_none(call, "reset_after_ns");
        differences.within(MICRO, "reset_after", reset_after, time(ours.reset_after));
        reply(call, ours, differences);
    }

    fn follow(&mut self, call: &Value) {
        let now = self.instant(call);
        let ahead = whole_or_none(call, "tat_ns").unwrap_or(0) - i128::from(whole(call, "t_ns"));
        self.0.fill(ahead, now);
    }
}

/// Compares the five whole numbers of the reply, times in seconds.
fn reply(call: &Value, ours: &loudou_limiter::Decision, differences: &mut Differences) {
    let seconds = |time: Nanos| i128::from(time.secs_ceil());
    let five = [
        ("reply 1, limited", i128::from(ours.is_refused())),
        ("reply 2, limit", ours.capacity.into()),
        (REPLY_REMAINING, ours.remaining.into()),
        (REPLY_RETRY, ours.retry_after.map_or(-1, seconds)),
        (REPLY_RESET, seconds(ours.reset_after)),
    ];
    for (place, (what, value)) in five.into_iter().enumerate() {
        let theirs = call["cl_throttle"][place].as_i64().map(i128::from);
        differences.same(what, theirs, value);
    }
}
